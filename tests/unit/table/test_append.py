"""Append and overwrite: what is on storage, in metadata and at the KMS afterwards."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform

from icelock.errors import KeyUnavailableError, KmsError, KmsErrorKind
from icelock.format.key_metadata import KeyMetadata
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = people().schema
BY_CITY = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="city"))


def make(lake: TestLake, **options: Any) -> Any:
    return lake.catalog().create_table("db.t", SCHEMA, properties=KEYED, **options)


def test_every_file_but_metadata_is_encrypted_and_no_value_is_on_storage(lake: TestLake) -> None:
    """C-07."""
    table = make(lake, partition_spec=BY_CITY)
    table.append(people())
    table.append(people(10))
    files = lake.files()
    kinds = {name.rsplit(".", 1)[1]: set() for name in files}
    for name, data in files.items():
        kinds[name.rsplit(".", 1)[1]].add(data[:4])
        assert b"canary-" not in data
        if not name.endswith(".metadata.json"):
            assert b"town-" not in data
    assert kinds == {"parquet": {b"PARE"}, "avro": {b"AGS1"}, "json": {b'{"fo'}}
    assert ids(table) == list(range(20))


def test_a_table_is_pyiceberg_s_and_reads_in_every_form(lake: TestLake) -> None:
    table = make(lake)
    table.append(people())
    assert isinstance(table, IcebergTable)
    loaded = lake.catalog().load_table("db.t")
    assert loaded.scan().to_arrow().sort_by("id").equals(people())
    assert list(loaded.scan().to_pandas().columns) == ["id", "name", "city"]
    assert loaded.scan().to_polars().height == 10
    assert loaded.to_polars().collect().height == 10
    assert loaded.scan().to_arrow_batch_reader().read_all().num_rows == 10
    assert loaded.scan(row_filter="id >= 5").count() == 5
    assert ids(loaded, row_filter=EqualTo("city", "town-1")) == [1, 4, 7]
    assert loaded.scan(selected_fields=("name",), limit=3).to_arrow().shape == (3, 1)


def test_lengths_in_key_metadata_are_those_on_storage(lake: TestLake) -> None:
    """C-01: key metadata of manifests and data files has the stored length, field 501 too."""
    table = make(lake)
    table.append(people())
    sizes = {name.rsplit("/", 1)[1]: len(data) for name, data in lake.files().items()}
    snapshot = table.current_snapshot()
    listed = table.io.manager.open_manifest_list_key(snapshot.key_id)
    assert listed.encrypted_length == sizes[snapshot.manifest_list.rsplit("/", 1)[1]]
    (manifest,) = snapshot.manifests(table.io)
    assert (
        manifest.manifest_length
        == KeyMetadata.decode(manifest.key_metadata).encrypted_length
        == sizes[manifest.manifest_path.rsplit("/", 1)[1]]
    )
    (entry,) = manifest.fetch_manifest_entry(table.io)
    stored = sizes[entry.data_file.file_path.rsplit("/", 1)[1]]
    assert entry.data_file.file_size_in_bytes == KeyMetadata.decode(entry.data_file.key_metadata).encrypted_length == stored


def test_row_ids_follow_the_order_of_manifests(lake: TestLake) -> None:
    """C-46: next-row-id 0 for a new table; ranges do not overlap."""
    table = make(lake)
    assert table.metadata.next_row_id == 0
    table.append(people())
    table.append(people(10, 5))
    assert [(s.first_row_id, s.added_rows) for s in table.snapshots()] == [(0, 10), (10, 5)]
    assert table.metadata.next_row_id == 15
    firsts = [
        (m.first_row_id, [e.data_file.first_row_id for e in m.fetch_manifest_entry(table.io)])
        for m in table.current_snapshot().manifests(table.io)
    ]
    assert sorted(firsts) == [(0, [0]), (10, [10])]


def test_keys_grow_by_one_for_a_commit_and_the_kek_is_made_once(lake: TestLake) -> None:
    table = make(lake)
    lake.calls.take()
    table.append(people())
    assert lake.calls.take() == ["wrap keyA", "unwrap keyA"]
    table.append(people(10))
    assert lake.calls.take() == []
    keys = table.metadata.encryption_keys
    assert [bool(key.properties) for key in keys] == [True, False, False]
    assert [s.key_id for s in table.snapshots()] == [keys[1].key_id, keys[2].key_id]
    assert {key.encrypted_by_id for key in keys[1:]} == {keys[0].key_id}


def test_a_scan_costs_one_unwrap_whatever_the_number_of_files(lake: TestLake) -> None:
    """C-33: 40 snapshots, 200 files."""
    table = make(lake)
    for start in range(40):
        with table.transaction() as tx:
            context = [tx._write(people(start * 50 + part * 10)) for part in range(5)]
            tx.append_data_files([file for files in context for file in files])
    lake.calls.take()
    fresh = lake.catalog().load_table("db.t")
    assert len(fresh.scan().plan_files()) == 200
    assert fresh.scan().to_arrow().num_rows == 2000
    assert lake.calls.take() == ["unwrap keyA"]
    fresh.append(people(5000))
    assert lake.calls.take() == []


@pytest.mark.parametrize("length", ["16", "24", "32"])
def test_key_lengths(lake: TestLake, length: str) -> None:
    """C-27."""
    table = lake.catalog().create_table("db.t", SCHEMA, properties={**KEYED, "encryption.data-key-length": length})
    table.append(people())
    (manifest,) = table.current_snapshot().manifests(table.io)
    (entry,) = manifest.fetch_manifest_entry(table.io)
    lengths = {len(KeyMetadata.decode(m).dek) for m in (manifest.key_metadata, entry.data_file.key_metadata)}
    assert lengths == {int(length)}
    assert ids(lake.catalog().load_table("db.t")) == list(range(10))


def test_overwrite_replaces_all_rows_in_one_snapshot(lake: TestLake) -> None:
    table = make(lake)
    table.append(people())
    table.overwrite(people(100, 3))
    assert ids(table) == [100, 101, 102]
    assert ids(table, snapshot_id=table.snapshots()[0].snapshot_id) == list(range(10))
    assert len(table.snapshots()) == 2
    summary = table.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    assert (summary["added-records"], summary["deleted-records"], summary["total-records"]) == ("3", "10", "3")


def test_overwrite_by_partition_keeps_the_others(lake: TestLake) -> None:
    table = make(lake, partition_spec=BY_CITY)
    table.append(people())
    table.overwrite(pa.table({"id": pa.array([99], pa.int64()), "name": ["x"], "city": ["town-1"]}), overwrite_filter="city = 'town-1'")
    assert ids(table) == [0, 2, 3, 5, 6, 8, 9, 99]


def test_delete_of_whole_files(lake: TestLake) -> None:
    table = make(lake, partition_spec=BY_CITY)
    table.append(people())
    table.delete("city = 'town-2'")
    assert ids(table) == [0, 1, 3, 4, 6, 7, 9]
    assert table.current_snapshot().summary.operation.value == "delete"
    assert table.current_snapshot().added_rows == 7, "the rewritten manifest's existing rows take ids too (format.md)"


def test_rows_kept_by_a_delete_keep_their_row_ids(lake: TestLake) -> None:
    table = make(lake, partition_spec=BY_CITY)
    table.append(people())

    def first_ids() -> dict[str, int]:
        return {
            str(e.data_file.partition): e.data_file.first_row_id
            for m in table.current_snapshot().manifests(table.io)
            for e in m.fetch_manifest_entry(table.io)
        }

    before = first_ids()
    table.delete("city = 'town-2'")
    after = first_ids()
    assert len(after) == 2
    assert all(before[partition] == row_id for partition, row_id in after.items())


def test_several_changes_in_one_transaction_are_one_commit(lake: TestLake) -> None:
    """C-06: two appends and a property in one transaction."""
    table = make(lake)
    lake.calls.take()
    with table.transaction() as tx:
        tx.append(people())
        tx.set_properties(owner="me")
        tx.append(people(10))
    assert lake.calls.take() == ["wrap keyA", "unwrap keyA"]
    fresh = lake.catalog().load_table("db.t")
    assert ids(fresh) == list(range(20))
    assert fresh.properties["owner"] == "me"
    for snapshot in fresh.snapshots():
        assert snapshot.manifests(fresh.io)


def test_a_conflict_is_retried_with_keys_of_the_winning_attempt_only(lake: TestLake) -> None:
    """C-05, C-06: a stale table object commits after another one did."""
    stale = make(lake)
    other = lake.catalog().load_table("db.t")
    other.append(people())
    stale.append(people(10))
    fresh = lake.catalog().load_table("db.t")
    assert ids(fresh) == list(range(20))
    used = {s.key_id for s in fresh.snapshots()} | {key.encrypted_by_id for key in fresh.metadata.encryption_keys}
    assert {key.key_id for key in fresh.metadata.encryption_keys} <= used
    lists = [name for name in lake.files() if "/snap-" in name]
    assert len(lists) == 2, "the failed attempt's manifest list is deleted"


def test_a_commit_that_fails_for_good_leaves_nothing(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.catalog().create_table(
        "db.t", SCHEMA, properties={**KEYED, "commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"}
    )
    before = lake.files()

    def conflict(*_: Any, **__: Any) -> None:
        msg = "another writer was first"
        raise CommitFailedException(msg)

    monkeypatch.setattr(table.catalog, "commit_table", conflict)
    with pytest.raises(CommitFailedException):
        table.append(people())
    assert lake.files() == before


def test_an_unknown_outcome_deletes_nothing_and_lists_the_files(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake)

    def lost(*_: Any, **__: Any) -> None:
        msg = "connection reset"
        raise ConnectionError(msg)

    monkeypatch.setattr(table.catalog, "commit_table", lost)
    with pytest.raises(ConnectionError) as caught:
        table.append(people())
    parquet = [name for name in lake.files() if name.endswith(".parquet")]
    assert len(parquet) == 1
    assert parquet[0].rsplit("/", 1)[1] in "".join(caught.value.__notes__)


def test_a_kms_that_refuses_to_wrap_stops_the_first_append_before_any_file(lake: TestLake) -> None:
    """C-36, C-39."""
    table = make(lake)
    before = lake.files()
    lake.calls.deny("wrap")
    with pytest.raises(KmsError, match="keyA") as caught:
        table.append(people())
    assert caught.value.kind is KmsErrorKind.DENIED
    assert lake.files() == before


def test_a_reader_needs_unwrap_only(lake: TestLake) -> None:
    """C-36."""
    make(lake).append(people())
    lake.calls.deny("wrap")
    assert ids(lake.catalog().load_table("db.t")) == list(range(10))
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError, match=r"db\.t.*keyA"):
        lake.catalog().load_table("db.t").scan().to_arrow()


def test_the_wrong_kms_is_told(lake: TestLake) -> None:
    make(lake).append(people())
    wrong = {k: v for k, v in lake.properties().items() if not k.startswith(("encryption.", "kms."))}
    import icelock  # noqa: PLC0415

    catalog = icelock.load_catalog("test", **wrong, **{"encryption.kms-type": "memory", "kms.memory.keys.keyA": "ff" * 16})
    table = catalog.load_table("db.t")
    before = lake.files()
    for use in (lambda: table.scan().to_arrow(), lambda: table.append(people()), table.inspect.files):
        with pytest.raises(KmsError) as caught:
            use()
        assert caught.value.kind is KmsErrorKind.FOREIGN
        assert "db.t" in str(caught.value)
    assert lake.files() == before


def test_without_kms_nothing_can_be_read_or_written(lake: TestLake) -> None:
    """C-08: one sentence says which setting is missing."""
    make(lake).append(people())
    before = lake.files()
    table = lake.without_kms().load_table("db.t")
    assert table.schema().column_names == ["id", "name", "city"]
    uses = (
        lambda: table.scan().to_arrow(),
        lambda: table.scan().count(),
        lambda: table.append(people()),
        lambda: table.overwrite(people()),
        lambda: table.delete("id > 0"),
        table.inspect.files,
    )
    for use in uses:
        with pytest.raises(KeyUnavailableError, match=r"db\.t is encrypted with master key 'keyA'.*encryption\.kms-type"):
            use()
    assert lake.files() == before


def test_summaries_hold_no_partition_values(lake: TestLake) -> None:
    table = lake.catalog().create_table(
        "db.t", SCHEMA, partition_spec=BY_CITY, properties={**KEYED, "write.summary.partition-limit": "100"}
    )
    table.append(people())
    metadata = next(data for name, data in lake.files().items() if name.rsplit("/", 1)[1].startswith("00001"))
    assert b"town-" not in metadata
    assert json.loads(metadata)["snapshots"][0]["summary"]["changed-partition-count"] == "3"


def test_no_raw_key_is_in_metadata(lake: TestLake) -> None:
    """C-12."""
    table = make(lake)
    table.append(people())
    (manifest,) = table.current_snapshot().manifests(table.io)
    (entry,) = manifest.fetch_manifest_entry(table.io)
    raw = [KeyMetadata.decode(m).dek.reveal() for m in (manifest.key_metadata, entry.data_file.key_metadata)]
    raw.append(table.io.manager.open_manifest_list_key(table.current_snapshot().key_id).dek.reveal())
    for name, data in lake.files().items():
        if name.endswith(".json"):
            for key in raw:
                assert not any(form in data for form in (key, key.hex().encode(), base64.b64encode(key)))
