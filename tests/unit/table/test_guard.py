"""Ways around the table's methods into an encrypted table: a typed error, no commit, no file (C-07, C-09, C-12, C-14, C-15).

Commits are made by hand with right keys and one fault each; files are described with one fault each.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.table import Transaction as IcebergTransaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.table.update.statistics import UpdateStatistics
from pyiceberg.typedef import IcebergBaseModel, Record

import icelock
from icelock.errors import FormatError, IcelockError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.metadata.manifest import DataFile, ManifestEntry, ManifestFile
from icelock.metadata.manifest_list import write_manifest_list
from icelock.metadata.table_metadata import Snapshot
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.secret import SecretBytes
from icelock.table.guard.rules import check_updates
from tests.lakes.sqlite import KEYED, TestLake, people

UNKNOWN = "4711"
LIST_KEY_ID = "bGlzdC1rZXktb2YtdGVzdA=="


@pytest.fixture(name="table")
def encrypted_table(lake: TestLake) -> Any:
    """Return an encrypted table with one snapshot."""
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    made.append(people())
    return lake.catalog().load_table("db.t")


@contextmanager
def refused(lake: TestLake, kind: type[BaseException] | tuple[type[BaseException], ...], match: str | None = None) -> Iterator[None]:
    """Expect an error after which storage and catalog are as before, and the table reads as before."""
    before, location = lake.files(), lake.catalog().load_table("db.t").metadata_location
    with pytest.raises(kind, match=match):
        yield
    assert lake.files() == before
    fresh = lake.catalog().load_table("db.t")
    assert fresh.metadata_location == location
    assert fresh.scan().to_arrow().sort_by("id").to_pylist() == people().to_pylist()


@dataclasses.dataclass
class HandMade:
    """A right snapshot with its key entries, made by hand: an append of nothing."""

    table: Any
    snapshot_id: int = 77

    def __post_init__(self) -> None:
        metadata, io = self.table.metadata, self.table.io
        self.location = f"{metadata.location}/metadata/snap-{self.snapshot_id}.avro"
        self.written = write_manifest_list(
            io,
            location=self.location,
            manifests=self.table.current_snapshot().manifests(io),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=None,
            sequence_number=metadata.next_sequence_number(),
            first_row_id=metadata.next_row_id,
        )
        sealed = io.manager.seal_manifest_list_key(self.written.key_metadata)
        (self.entry,) = sealed.new_entries
        self.snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=self.table.current_snapshot().snapshot_id,
            manifest_list=self.location,
            sequence_number=metadata.next_sequence_number(),
            summary=Summary(Operation.APPEND),
            schema_id=0,
            first_row_id=metadata.next_row_id,
            added_rows=0,
            key_id=sealed.key_id,
        )

    @property
    def path(self) -> Path:
        return Path(self.location.removeprefix("file://"))

    def with_snapshot(self, **changes: Any) -> Snapshot:
        return self.snapshot.model_copy(update=changes)

    def commit(self, *updates: Any) -> None:
        self.table.catalog.commit_table(self.table, (), updates)


def key(entry: EncryptedKey, **changes: Any) -> AddEncryptionKeyUpdate:
    return AddEncryptionKeyUpdate(encryption_key=dataclasses.replace(entry, **changes))


def test_the_hand_made_commit_without_a_fault_is_committed(table: Any, lake: TestLake) -> None:
    """So what follows is refused for its fault."""
    made = HandMade(table)
    made.commit(key(made.entry), AddSnapshotUpdate(snapshot=made.snapshot))
    fresh = lake.catalog().load_table("db.t")
    assert fresh.scan(snapshot_id=77).count() == 10


def no_key_id(made: HandMade) -> list[Any]:
    fields = made.snapshot.model_dump(exclude={"key_id"})
    return [AddSnapshotUpdate(snapshot=IcebergSnapshot(**fields))]


def other_snapshots_key(made: HandMade) -> list[Any]:
    return [AddSnapshotUpdate(snapshot=made.with_snapshot(key_id=made.table.current_snapshot().key_id))]


def keks_id(made: HandMade) -> list[Any]:
    return [key(made.entry), AddSnapshotUpdate(snapshot=made.with_snapshot(key_id=made.entry.encrypted_by_id))]


def no_entry(made: HandMade) -> list[Any]:
    return [AddSnapshotUpdate(snapshot=made.snapshot)]


def raw_entry(made: HandMade) -> list[Any]:
    raw = key(made.entry, encrypted_key_metadata=made.written.key_metadata.encode())
    return [raw, AddSnapshotUpdate(snapshot=made.snapshot)]


def plain_list(made: HandMade) -> list[Any]:
    made.path.write_bytes(b"Obj\x01" + made.path.read_bytes()[4:])
    return [key(made.entry), AddSnapshotUpdate(snapshot=made.snapshot)]


def cut_list(made: HandMade) -> list[Any]:
    made.path.write_bytes(made.path.read_bytes()[:-1])
    return [key(made.entry), AddSnapshotUpdate(snapshot=made.snapshot)]


def no_list(made: HandMade) -> list[Any]:
    made.path.unlink()
    return [key(made.entry), AddSnapshotUpdate(snapshot=made.snapshot)]


def list_key_with_properties(made: HandMade) -> list[Any]:
    return [key(made.entry, properties={"note": "x"}), AddSnapshotUpdate(snapshot=made.snapshot)]


def foreign_kek(_: HandMade | None) -> list[Any]:
    kek = EncryptedKey(key_id="kek2", encrypted_key_metadata=b"b" * 44, encrypted_by_id="keyB", properties={"KEY_TIMESTAMP": "1"})
    return [AddEncryptionKeyUpdate(encryption_key=kek)]


def kek_without_time(_: HandMade | None) -> list[Any]:
    kek = EncryptedKey(key_id="kek2", encrypted_key_metadata=b"b" * 44, encrypted_by_id="keyA")
    return [AddEncryptionKeyUpdate(encryption_key=kek)]


def kek_with_more(_: HandMade | None) -> list[Any]:
    more = {"KEY_TIMESTAMP": "1", "raw": "x"}
    kek = EncryptedKey(key_id="kek2", encrypted_key_metadata=b"b" * 44, encrypted_by_id="keyA", properties=more)
    return [AddEncryptionKeyUpdate(encryption_key=kek)]


def entry_replaced(made: HandMade) -> list[Any]:
    key_id = made.table.current_snapshot().key_id
    return [RemoveEncryptionKeyUpdate(key_id=key_id), key(made.entry, key_id=key_id)]


def needed_entry_removed(made: HandMade) -> list[Any]:
    return [RemoveEncryptionKeyUpdate(key_id=made.table.current_snapshot().key_id)]


def kek_removed(made: HandMade) -> list[Any]:
    return [RemoveEncryptionKeyUpdate(key_id=made.entry.encrypted_by_id)]


def entry_for_nothing(made: HandMade) -> list[Any]:
    return [key(made.entry)]


def one_key_for_two(made: HandMade) -> list[Any]:
    second = made.with_snapshot(snapshot_id=78, sequence_number=made.snapshot.sequence_number + 1)
    return [key(made.entry), AddSnapshotUpdate(snapshot=made.snapshot), AddSnapshotUpdate(snapshot=second)]


def snapshot_replaced(made: HandMade) -> list[Any]:
    old = made.table.current_snapshot().snapshot_id
    branch = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=old)
    return [
        RemoveSnapshotsUpdate(snapshot_ids=[old]),
        key(made.entry),
        AddSnapshotUpdate(snapshot=made.with_snapshot(snapshot_id=old, parent_snapshot_id=None)),
        branch,
    ]


def partition_values(made: HandMade) -> list[Any]:
    summary = Summary(Operation.APPEND, **{"partitions.city=town-1": "added-records=1"})
    return [key(made.entry), AddSnapshotUpdate(snapshot=made.with_snapshot(summary=summary))]


def statistics(_: HandMade | None) -> list[Any]:
    blob = BlobMetadata(type="apache-datasketches-theta-v1", snapshot_id=77, sequence_number=1, fields=[1])
    file = StatisticsFile(
        snapshot_id=77,
        statistics_path="file:///tmp/x.stats",
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        key_metadata="MDEyMzQ1Njc4OTAxMjM0NQ==",
        blob_metadata=[blob],
    )
    return [SetStatisticsUpdate(statistics=file)]


def partition_statistics(_: HandMade | None) -> list[Any]:
    file = PartitionStatisticsFile(snapshot_id=77, statistics_path="file:///tmp/x.parquet", file_size_in_bytes=1)
    return [SetPartitionStatisticsUpdate(partition_statistics=file)]


class NewerUpdate(IcebergBaseModel):
    """Of a later PyIceberg."""

    action: Literal["set-something"] = "set-something"


HAND_MADE: list[tuple[Callable[[HandMade], list[Any]], type[IcelockError], str]] = [
    (no_key_id, PolicyError, "has no key-id"),
    (other_snapshots_key, IntegrityError, "snap-77"),
    (keks_id, FormatError, "expected a manifest-list key, got a KEK"),
    (no_entry, KeyUnavailableError, "key id"),
    (raw_entry, IntegrityError, "does not open the entry"),
    (plain_list, IntegrityError, "not encrypted"),
    (cut_list, IntegrityError, "bytes on storage"),
    (list_key_with_properties, PolicyError, "refused to add key entry"),
    (foreign_kek, PolicyError, "refused to add key entry kek2, encrypted by keyB"),
    (kek_without_time, PolicyError, "KEY_TIMESTAMP"),
    (kek_with_more, PolicyError, "no other property"),
    (entry_replaced, PolicyError, "would be replaced"),
    (needed_entry_removed, KeyUnavailableError, "needs key"),
    (kek_removed, KeyUnavailableError, "is encrypted by"),
    (entry_for_nothing, PolicyError, "belong to no snapshot"),
    (one_key_for_two, PolicyError, "for it alone"),
    (snapshot_replaced, PolicyError, "would be replaced"),
    (partition_values, PolicyError, "partition values"),
    (statistics, PolicyError, "statistics files would be plain"),
    (partition_statistics, PolicyError, "statistics files would be plain"),
    (lambda _: [SetPropertiesUpdate(updates={"encryption.key-id": "keyB"})], PolicyError, "cannot be changed"),
    (lambda _: [SetPropertiesUpdate(updates={"encryption.data-key-length": "32"})], PolicyError, "data-key-length"),
    (lambda _: [RemovePropertiesUpdate(removals=["encryption.key-id"])], PolicyError, "cannot be removed"),
    (lambda _: [SetLocationUpdate(location="file:///tmp/elsewhere")], PolicyError, "moving it"),
    (lambda _: [AssignUUIDUpdate(uuid="00000000-0000-0000-0000-000000000001")], PolicyError, "table_uuid"),
    (lambda _: [NewerUpdate()], PolicyError, "NewerUpdate is unknown"),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("fault", "kind", "match"), HAND_MADE, ids=lambda value: getattr(value, "__name__", None))
def test_a_commit_made_by_hand_with_one_fault(
    table: Any, lake: TestLake, fault: Callable[[HandMade], list[Any]], kind: type[IcelockError], match: str
) -> None:
    made = HandMade(table)
    updates = fault(made)
    with refused(lake, kind, match):
        made.commit(*updates)


def test_a_commit_whose_list_is_gone(table: Any, lake: TestLake) -> None:
    made = HandMade(table)
    updates = no_list(made)
    with refused(lake, CommitFailedException, "cannot be checked"):
        made.commit(*updates)


def test_another_length_than_the_tables_is_seen_by_comparing(table: Any) -> None:
    """Whatever an update is called: the metadata before and after are compared."""
    from icelock.table.guard.rules import check_change  # noqa: PLC0415 - the one test of it alone

    metadata = table.metadata
    for changes, match in (
        ({"properties": {}}, "key-id would change"),
        ({"properties": {**metadata.properties, "encryption.data-key-length": "32"}}, "data-key-length would change"),
        ({"location": "file:///tmp/elsewhere"}, "location cannot change"),
        ({"format_version": 4}, "format_version cannot change"),
        ({"encryption_keys": [*metadata.encryption_keys, metadata.encryption_keys[0]]}, "twice"),
    ):
        with pytest.raises(PolicyError, match=match):
            check_change(metadata, metadata.model_copy(update=changes), table="db.t")
    check_change(metadata, metadata, table="db.t")


def described(table: Any, path: str = "data/x.parquet", **changes: Any) -> DataFile:
    """Describe a file rightly, but for the changes."""
    length = changes.pop("key_length", 16)
    file_length = changes.pop("file_length", 1000)
    prefix = changes.pop("aad_prefix", b"p" * 16)
    dek = changes.pop("dek", path.encode().ljust(32, b"k"))[:length]
    file = DataFile.from_args(
        **{
            "content": DataFileContent.DATA,
            "file_path": f"{table.location()}/{path}",
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": 1,
            "file_size_in_bytes": 1000,
            "key_metadata": KeyMetadata(dek=SecretBytes(dek), aad_prefix=prefix, encrypted_length=file_length).encode(),
            **changes,
        }
    )
    file.spec_id = 0
    return file


def icebergs(table: Any) -> IcebergDataFile:
    """PyIceberg's own description, of format version 2."""
    ours = described(table)
    file = IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=ours.file_path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1000,
        key_metadata=ours.key_metadata,
    )
    file.spec_id = 0
    return file


FILES: list[tuple[str, Callable[[Any], list[Any]], type[IcelockError], str]] = [
    ("plain", lambda t: [described(t, key_metadata=None)], PolicyError, "no key metadata, so it is plain"),
    ("pyicebergs", lambda t: [icebergs(t)], PolicyError, "PyIceberg's DataFile of another format version"),
    ("junk key metadata", lambda t: [described(t, key_metadata=b"\x02junk")], FormatError, "key metadata"),
    ("raw key", lambda t: [described(t, key_metadata=b"k" * 16)], FormatError, "key metadata"),
    ("longer key than the table's", lambda t: [described(t, key_length=32)], PolicyError, "a key of 16 bytes"),
    ("no AAD prefix", lambda t: [described(t, aad_prefix=None)], PolicyError, "AAD prefix"),
    ("another length", lambda t: [described(t, file_length=999)], PolicyError, "says 999 bytes, its entry 1000"),
    ("Avro without length", lambda t: [described(t, file_format=FileFormat.AVRO, file_length=None)], PolicyError, "says None bytes"),
    ("one key for two files", lambda t: [described(t, dek=b"d" * 16), described(t, "data/y.parquet", dek=b"d" * 16)], PolicyError, "own"),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("files", "kind", "match"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
@pytest.mark.parametrize("way", ["fast_append", "merge_append", "overwrite", "append_data_files"])
def test_a_file_described_with_one_fault(  # noqa: PLR0913 - a case has three parts
    table: Any, lake: TestLake, way: str, files: Callable[[Any], list[Any]], kind: type[IcelockError], match: str
) -> None:
    described_files = files(table)
    with refused(lake, kind, match):
        if way == "append_data_files":
            with table.transaction() as transaction:
                transaction.append_data_files(described_files)
        else:
            with table.transaction() as transaction, getattr(transaction.update_snapshot(), way)() as producer:
                for file in described_files:
                    producer.append_data_file(file)


def test_a_file_described_rightly_is_listed(table: Any, lake: TestLake) -> None:
    """So the cases above are refused for their faults; Parquet's length may be left out, as Java's at times is."""
    with table.transaction() as transaction:
        transaction.append_data_files([described(table), described(table, "data/y.parquet", file_length=None)])
    assert len(lake.catalog().load_table("db.t").scan().plan_files()) == 3


@pytest.mark.parametrize("new", [True, False])
def test_a_plain_manifest_is_not_listed(table: Any, new: bool) -> None:  # noqa: FBT001
    (manifest,) = table.current_snapshot().manifests(table.io)
    fields = {name: getattr(manifest, name) for name in ("manifest_path", "manifest_length", "partition_spec_id", "content")}
    numbers = {"added_snapshot_id": 5 if new else 4, "sequence_number": 1, "min_sequence_number": 1}
    with pytest.raises(PolicyError, match="written without encryption"):
        list_of(table, "made-by-hand.avro", ManifestFile.from_args(**fields, **numbers))
    if new:
        other_length = {**fields, "manifest_length": 7}
        with pytest.raises(PolicyError, match="different lengths"):
            list_of(table, "other.avro", ManifestFile.from_args(**other_length, **numbers, key_metadata=manifest.key_metadata))


def list_of(table: Any, name: str, manifest: ManifestFile) -> None:
    location = f"{table.location()}/metadata/{name}"
    snapshot = {"snapshot_id": 5, "parent_snapshot_id": None, "sequence_number": 2, "first_row_id": 0}
    write_manifest_list(table.io, location=location, manifests=[manifest], **snapshot)


def test_plain_files_of_a_converted_table_are_carried_over_only_where_the_catalog_lets_them_through(table: Any) -> None:
    """C-13."""
    from icelock.metadata.manifest_writer import EncryptedManifestWriter  # noqa: PLC0415

    plain = described(table, key_metadata=None)
    for allow, status, good in (
        (True, ManifestEntryStatus.EXISTING, True),
        (True, ManifestEntryStatus.ADDED, False),
        (False, ManifestEntryStatus.EXISTING, False),
    ):
        table.io.allow_plaintext = allow
        location = f"{table.location()}/metadata/m-{allow}-{status}.avro"
        entry = ManifestEntry.from_args(status=status, snapshot_id=1, sequence_number=1, file_sequence_number=1, data_file=plain)
        writer = EncryptedManifestWriter(table.io, location=location, spec=table.spec(), schema=table.schema(), snapshot_id=1)
        if good:
            with writer:
                writer.add_entry(entry)
        else:
            with pytest.raises(PolicyError, match="plain"), writer:
                writer.add_entry(entry)


ICEBERGS: list[tuple[str, Callable[[Any, TestLake], Any]]] = [
    ("append", lambda t, _: IcebergTransaction(t, autocommit=True).append(people(50))),
    ("overwrite", lambda t, _: IcebergTransaction(t, autocommit=True).overwrite(people(50))),
    ("upsert", lambda t, _: IcebergTransaction(t, autocommit=True).upsert(people(5), join_cols=["id"])),
    ("delete of some rows", lambda t, _: IcebergTransaction(t, autocommit=True).delete("id = 3")),
    ("delete of a file", lambda t, _: IcebergTransaction(t, autocommit=True).delete("id >= 0")),
    ("add files", lambda t, lake: IcebergTransaction(t).add_files([plain_parquet(lake)])),
    ("statistics", lambda t, _: UpdateStatistics(IcebergTransaction(t, autocommit=True)).set_statistics(a_statistic()).commit()),
    ("properties", lambda t, _: commit(IcebergTransaction(t).set_properties({"encryption.key-id": "keyB"}))),
    ("no key id", lambda t, _: commit(IcebergTransaction(t).remove_properties("encryption.key-id"))),
    ("data files", lambda t, _: list(_dataframe_to_data_files(t.metadata, people(), t.io))),
    ("a manifest", lambda t, _: t.io.new_output(f"{t.location()}/metadata/x.avro")),
]


def commit(transaction: Any) -> None:
    transaction.commit_transaction()


def plain_parquet(lake: TestLake) -> str:
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = lake.folder / "plain.parquet"
    pq.write_table(people(50), path)
    return str(path)


def a_statistic() -> StatisticsFile:
    return statistics(None)[0].statistics  # type: ignore[no-any-return]


@pytest.mark.parametrize("use", [case[1] for case in ICEBERGS], ids=[case[0] for case in ICEBERGS])
def test_pyicebergs_own_code_writes_nothing(table: Any, lake: TestLake, use: Callable[[Any, TestLake], Any]) -> None:
    """PyIceberg's own transaction on our table; where it reads first, Arrow does not open the file."""
    with refused(lake, (PolicyError, OSError)):
        use(table, lake)


def test_pyicebergs_own_producer_writes_nothing(table: Any, lake: TestLake) -> None:
    transaction = IcebergTransaction(table, autocommit=True)
    producer = _FastAppendFiles(operation=Operation.APPEND, transaction=transaction, io=table.io)
    producer.append_data_file(described(table))
    with refused(lake, PolicyError, "refused to write"):
        producer.commit()


def test_pyicebergs_static_table_on_the_metadata_reads_nothing(table: Any, lake: TestLake) -> None:
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    plain = StaticTable.from_metadata(table.metadata_location)
    with refused(lake, Exception):
        plain.scan().to_arrow()


def test_register_does_not_replace_a_table(table: Any, lake: TestLake) -> None:
    with refused(lake, PolicyError, "drop the table first"):
        lake.catalog().register_table("db.t", table.metadata_location, overwrite=True)


@pytest.mark.usefixtures("table")
def test_a_metadata_file_of_version_2_with_a_key_id_is_not_registered(lake: TestLake) -> None:
    """C-14."""
    plain = lake.catalog().create_table("db.old", people().schema, properties={"icelock.plain": "true"})
    source = Path(plain.metadata_location.removeprefix("file://"))
    text = json.loads(source.read_text())
    text["properties"]["encryption.key-id"] = "keyA"
    copy = lake.folder / "00000-x.metadata.json"
    copy.write_text(json.dumps(text))
    with refused(lake, PolicyError, "encryption needs version 3"):
        lake.catalog().register_table("db.more", str(copy))
    assert ("db", "more") not in lake.catalog().list_tables("db")


@pytest.mark.parametrize("change", [{"encryption.key-id": "keyA"}, {"encryption.data-key-length": "16"}])
def test_a_plain_table_does_not_become_encrypted_by_a_property(lake: TestLake, change: dict[str, str]) -> None:
    """C-14."""
    plain = lake.catalog().create_table("db.old", people().schema, properties={"icelock.plain": "true"})
    before, location = lake.files(), plain.metadata_location
    with pytest.raises(PolicyError, match="cannot be set"), plain.transaction() as transaction:
        transaction.set_properties(change)
    with pytest.raises(PolicyError, match="cannot be set"):
        plain.catalog.commit_table(plain, (), (SetPropertiesUpdate(updates=change),))
    assert lake.files() == before
    assert lake.catalog().load_table("db.old").metadata_location == location


@pytest.mark.parametrize("static", [True, False])
def test_storage_settings_are_the_clients(table: Any, lake: TestLake, static: bool) -> None:  # noqa: FBT001
    """Table properties lie on the storage: they cannot name another endpoint, or a class to load (Java takes the catalog's too)."""
    foreign = {"py-io-impl": "antigravity.Io", "s3.endpoint": "https://elsewhere.example", "gcs.oauth2.token": "x"}
    with table.transaction() as transaction:
        transaction.set_properties(foreign)
    settings = lake.properties(**{"s3.region": "eu-north-1"})
    if static:
        found = icelock.StaticTable.from_metadata(table.metadata_location, settings)
    else:
        found = icelock.load_catalog("test", **settings).load_table("db.t")
        found.append(people(50))
    assert found.storage.properties["s3.region"] == "eu-north-1"
    assert not set(foreign) & set(found.storage.properties)
    assert found.scan().count() == (10 if static else 20)


def test_a_static_table_is_not_written(table: Any, lake: TestLake) -> None:
    static = icelock.StaticTable.from_metadata(table.metadata_location, lake.calls.properties())
    uses: list[Callable[[], Any]] = [
        lambda: static.append(people()),
        lambda: static.overwrite(people()),
        lambda: static.delete("id = 1"),
        lambda: static.update_schema().add_column("x", pa_long()).commit(),
        lambda: static.manage_snapshots().create_tag(static.current_snapshot().snapshot_id, "x").commit(),
    ]
    for use in uses:
        with refused(lake, PolicyError, "static table"):
            use()


def pa_long() -> Any:
    from pyiceberg.types import LongType  # noqa: PLC0415

    return LongType()


def test_a_table_made_plain_in_memory_is_not_written(lake: TestLake) -> None:
    """The caller's copy of the metadata is the caller's; what is committed is compared with the catalog's."""
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    made.append(people())
    del made.metadata.properties["encryption.key-id"]
    with refused(lake, PolicyError):
        made.append(people(50))


def test_a_file_key_is_for_one_file(table: Any) -> None:
    """C-66: no DEK and no AAD prefix occurs twice over many files."""
    from icelock.keys.entropy import SystemEntropy, mint_file_key  # noqa: PLC0415

    keys: list[FileKey] = [mint_file_key(SystemEntropy(), 16) for _ in range(1000)]
    assert len({key.dek.reveal() for key in keys} | {key.aad_prefix for key in keys}) == 2000
    table.append(pa.concat_tables([people(n) for n in range(3)]))
    (head, *_) = table.current_snapshot().manifests(table.io)
    (entry, *_) = head.fetch_manifest_entry(table.io)
    assert KeyMetadata.decode(entry.data_file.key_metadata).dek != KeyMetadata.decode(head.key_metadata).dek


def test_a_reserved_name_that_an_earlier_version_stored_can_be_removed_and_stops_nothing_else(table: Any) -> None:
    """Java refuses every later ALTER of such a table ("Cannot downgrade v3 table to v2")."""
    stored = table.metadata.model_copy(update={"properties": {**table.properties, "format-version": "2"}})
    check_updates(stored, (SetPropertiesUpdate(updates={"owner": "me"}),), table="db.t")
    check_updates(stored, (RemovePropertiesUpdate(removals=["format-version"]),), table="db.t")
    with pytest.raises(PolicyError, match="'uuid' cannot be a table property"):
        check_updates(stored, (RemovePropertiesUpdate(removals=["uuid"]),), table="db.t")
