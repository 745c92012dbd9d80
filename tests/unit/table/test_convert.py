"""Plain tables of versions 1 and 2 are converted: which rows come out, what others commit meanwhile, and what is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from icelock.errors import IcelockError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.maintenance import audit, convert, leftovers, remove_leftovers, remove_plain, undo_conversion
from icelock.table.maintenance.conversion import convert_files
from tests.helpers.tables import ids, local
from tests.lakes.sqlite import KEYED, TestLake, people

OPEN = {"icelock.require-encryption": "false"}
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "city", StringType(), required=False),
)


def plain_catalog(lake: TestLake) -> Any:
    """PyIceberg's own catalog on the same database: it knows nothing of encryption."""
    names = ("uri", "warehouse")
    return load_catalog("test", type="sql", **{name: value for name, value in lake.properties().items() if name in names})


def plain_table(lake: TestLake, version: int = 2, *, rows: int = 20, **arguments: Any) -> Any:
    """A table by PyIceberg, with ``rows`` rows in files of ten."""
    properties = {"format-version": str(version), **arguments.pop("properties", {})}
    made = plain_catalog(lake).create_table("db.t", arguments.pop("schema", SCHEMA), properties=properties, **arguments)
    for start in range(0, rows, 10):
        made.append(people(start))
    return made


def rows_of(table: Any) -> list[Any]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["id"] is None, row["id"]))


def plain_metadata_of(table: Any) -> str:
    """Where the plain metadata file of a converted table lies."""
    location, _, digest = table.properties["icelock.converted-from"].partition(" sha256:")
    assert hashlib.sha256(local(location).read_bytes()).hexdigest() == digest
    return location


def converted(lake: TestLake, **arguments: Any) -> Any:
    convert(lake.catalog().load_table("db.t"), **{"key_id": "keyA", **arguments})
    table = lake.catalog().load_table("db.t")
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    return table


# --- rows


@pytest.mark.parametrize("version", [1, 2])
def test_evolved_columns_specs_and_orders(lake: TestLake, version: int) -> None:
    """Java's rule: columns go by id, so a renamed one keeps its values and an added one is null in older files."""
    table = plain_table(lake, version)
    with table.update_schema() as change:
        change.add_column("more", LongType()).rename_column("name", "label").delete_column("city")
    with table.update_spec() as change:
        change.add_field("more", IdentityTransform(), "more_part")
    with table.update_sort_order() as change:
        change.desc("id", IdentityTransform())
    table.append(pa.table({"id": pa.array([100, 101], pa.int64()), "label": ["x", None], "more": pa.array([1, 2], pa.int64())}))
    table.delete("id = 5")
    before = rows_of(table)
    assert before[0] == {"id": 0, "label": "canary-00000", "more": None}
    assert before[-1] == {"id": 101, "label": None, "more": 2}
    found = converted(lake)
    assert rows_of(found) == before
    assert [found.scan(row_filter=f"id = {number}").count() for number in (4, 5, 100)] == [1, 0, 1]
    plain, made = table.metadata, found.metadata
    for name in ("schemas", "current_schema_id", "partition_specs", "default_spec_id", "sort_orders", "default_sort_order_id"):
        assert getattr(plain, name) == getattr(made, name), name
    assert made.last_sequence_number == (plain.last_sequence_number if version == 2 else 0) + 1
    numbers = found.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
    assert sorted(numbers) == list(range(21))
    assert made.next_row_id == 21


def test_partitions_and_nulls(lake: TestLake) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    table = plain_table(lake, partition_spec=spec, sort_order=SortOrder(SortField(1, IdentityTransform())))
    table.append(pa.table({"id": pa.array([None, 7], pa.int64()), "name": [None, ""], "city": [None, "a/b=c %"]}))
    before = rows_of(table)
    found = converted(lake, data_key_length=32)
    assert rows_of(found) == before
    assert found.properties["encryption.data-key-length"] == "32"
    assert found.scan(row_filter="city = 'a/b=c %'").to_arrow()["id"].to_pylist() == [7]
    assert found.scan(row_filter="city is null").to_arrow()["id"].to_pylist() == [None]


def test_files_without_field_ids_go_by_the_name_mapping(lake: TestLake, tmp_path: Path) -> None:
    table = plain_table(lake)
    file = tmp_path / "warehouse" / "db" / "t" / "given.parquet"
    pq.write_table(people(50, 3), file)
    table.add_files([str(file)])
    assert "schema.name-mapping.default" in table.properties
    before = rows_of(table)
    assert len(before) == 23
    assert rows_of(converted(lake)) == before


def test_a_file_that_is_listed_twice_has_its_rows_twice(lake: TestLake) -> None:
    table = plain_table(lake)
    path = next(iter(table.scan(row_filter="id = 0").plan_files())).file.file_path
    table.add_files([path], check_duplicate_files=False)
    assert ids(table) == sorted([*range(20), *range(10)])
    assert ids(converted(lake)) == ids(table)


class DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def commit_deletes(table: Any, *files: DataFile, status: ManifestEntryStatus = ManifestEntryStatus.ADDED) -> None:
    """Commit delete files to a plain table of version 2, as Flink does; PyIceberg writes none. Or, by ``status``, that they are gone."""
    metadata, head, number = table.metadata, table.current_snapshot(), 4711 + len(table.snapshots())
    folder = f"{table.location()}/metadata"
    gone = status == ManifestEntryStatus.DELETED
    sequence_of = metadata.last_sequence_number if gone else None
    before = [one for one in head.manifests(table.io) if not gone or one.content == ManifestContent.DATA]
    with DeleteManifest(metadata.spec(), metadata.schema(), table.io.new_output(f"{folder}/d-{number}-m0.avro"), number, "null") as writer:
        for file in files:
            numbers = {"sequence_number": sequence_of, "file_sequence_number": sequence_of}
            writer.add_entry(ManifestEntry.from_args(status=status, snapshot_id=number, **numbers, data_file=file))
    sequence, location = metadata.last_sequence_number + 1, f"{folder}/snap-{number}.avro"
    output = table.io.new_output(location)
    with write_manifest_list(2, output, number, head.snapshot_id, sequence, "null") as listed:
        listed.add_manifests([*before, writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=head.snapshot_id,
        manifest_list=location,
        sequence_number=sequence,
        timestamp_ms=metadata.last_updated_ms + 1,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    table._do_commit(
        (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=number)),
        (AssertRefSnapshotId(snapshot_id=head.snapshot_id, ref="main"),),
    )


def delete_file(table: Any, rows: pa.Table, name: str, **fields: Any) -> DataFile:
    path = f"{table.location()}/data/{name}-deletes.parquet"
    pq.write_table(rows, path)
    size = Path(path).stat().st_size
    return DataFile.from_args(
        file_path=path, file_format=FileFormat.PARQUET, partition=Record(), record_count=len(rows), file_size_in_bytes=size, **fields
    )


def equality(table: Any, *numbers: int) -> DataFile:
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    rows = pa.Table.from_arrays([pa.array(numbers, pa.int64())], schema=pa.schema([field]))
    return delete_file(table, rows, f"eq-{numbers[0]}", content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])


def positions(table: Any, path: str, *numbers: int) -> DataFile:
    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2147483545"}),
    ]
    rows = pa.Table.from_arrays([pa.array([path] * len(numbers)), pa.array(numbers, pa.int64())], schema=pa.schema(fields))
    return delete_file(table, rows, f"pos-{numbers[0]}", content=DataFileContent.POSITION_DELETES)


def test_position_and_equality_deletes_are_applied(lake: TestLake) -> None:
    """An equality delete hits rows of older snapshots only: 3 is deleted, and was inserted again."""
    table = plain_table(lake)
    (first,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    commit_deletes(table, equality(table, 3, 14), positions(table, first, 0, 9))
    table.append(people(3, 1))
    assert ids(converted(lake)) == sorted({*range(20)} - {0, 9, 14})


def test_many_files_are_not_in_one_manifest(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icelock.table.commit.conversion._FILES_A_MANIFEST", 2)
    plain_table(lake, rows=50)
    found = converted(lake)
    assert [manifest.added_files_count for manifest in found.current_snapshot().manifests(found.io)] == [2, 2, 1]
    assert found.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist() == list(range(50))
    assert ids(found) == list(range(50))


def test_a_table_without_rows_is_encrypted_by_a_snapshot(lake: TestLake) -> None:
    """Else a writer that saw no main branch could commit a plain one to the encrypted table."""
    table = plain_table(lake, rows=0)
    begun = table.transaction()
    begun.append(people())
    found = converted(lake)
    assert (len(found.snapshots()), ids(found)) == (1, [])
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        begun.commit_transaction()
    assert ids(lake.catalog().load_table("db.t")) == []


def test_a_file_with_fewer_rows_than_its_manifest_says(lake: TestLake) -> None:
    table = plain_table(lake)
    (path,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    pq.write_table(pq.read_table(path).slice(0, 9), path)
    files = set(lake.files())
    with pytest.raises(IntegrityError, match="has 9 rows, its manifest entry says 10"):
        convert(lake.catalog().load_table("db.t"), key_id="keyA")
    assert set(lake.files()) == files
    assert plain_catalog(lake).load_table("db.t").metadata == table.metadata


# --- what others do meanwhile


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], None]) -> list[int]:
    """Let others do one thing after each round; the returned list has how many files each round wrote."""
    write, left, written = convert_files.Written.write, list(acts), list[int]()

    def writing(self: Any, plan: Any, *arguments: Any) -> None:
        written.append(len(self.missing(plan)))
        write(self, plan, *arguments)
        if left:
            left.pop(0)()

    monkeypatch.setattr(convert_files.Written, "write", writing)
    return written


def test_what_comes_meanwhile_is_taken_in(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round writes what is new: an append one file, a delete the file that lost a row, a rollback nothing."""
    theirs = plain_table(lake)
    first = theirs.metadata.current_snapshot_id
    written = meanwhile(monkeypatch, lambda: theirs.append(people(100, 2)), lambda: theirs.delete("id = 11"), lambda: None)
    monkeypatch.setattr("icelock.table.maintenance.conversion.convert._IN_TURN_BYTES", -1)
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    assert (written, done.rounds) == ([2, 1, 1], 3)
    found = lake.catalog().load_table("db.t")
    assert ids(found) == sorted([*({*range(20)} - {11}), 100, 101])
    assert found.metadata.current_snapshot_id not in {first, theirs.metadata.current_snapshot_id}
    # the file that was written for the rows before the delete is gone
    assert leftovers(found).files == ()


def test_little_that_comes_meanwhile_is_written_in_the_turn(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = plain_table(lake)
    written = meanwhile(monkeypatch, lambda: theirs.append(people(100, 2)))
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    assert (written, done.rounds) == ([2, 1], 2)
    assert ids(lake.catalog().load_table("db.t"))[-2:] == [100, 101]


def test_another_schema_meanwhile_has_all_files_written_again(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = plain_table(lake)

    def change() -> None:
        with theirs.update_schema() as update:
            update.delete_column("name")

    written = meanwhile(monkeypatch, change)
    found = converted(lake)
    assert written == [2, 2]
    assert rows_of(found)[0] == {"id": 0, "city": "town-0"}
    assert leftovers(found).files == ()


def test_a_rollback_meanwhile(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = plain_table(lake)
    older = theirs.snapshots()[0].snapshot_id
    meanwhile(monkeypatch, lambda: theirs.manage_snapshots().rollback_to_snapshot(older).commit())
    assert ids(converted(lake)) == list(range(10))


def test_a_table_that_was_dropped_and_made_again_meanwhile(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = plain_table(lake)

    def replace() -> None:
        theirs.catalog.drop_table("db.t")
        plain_table(lake, rows=10)

    meanwhile(monkeypatch, replace)
    with pytest.raises(IcelockError, match="dropped and created again"):
        convert(lake.catalog().load_table("db.t"), key_id="keyA")
    again = plain_catalog(lake).load_table("db.t")
    assert (again.metadata.format_version, ids(again)) == (2, list(range(10)))


def test_writers_that_know_nothing_never_make_a_mix(lake: TestLake) -> None:
    """PyIceberg's own writers: one began before, one loads the table after; whatever they get, no plain row is in the table."""
    theirs = plain_table(lake)
    begun = theirs.transaction()
    begun.append(people(100, 1))
    found = converted(lake)
    with pytest.raises(ValidationException, match="Cannot find starting snapshot"):
        begun.commit_transaction()
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        plain_catalog(lake).load_table("db.t").append(people(101, 1))
    now = lake.catalog().load_table("db.t")
    assert now.metadata == found.metadata
    assert ids(now) == list(range(20))


# --- what is refused


@pytest.mark.parametrize(
    ("arguments", "properties", "message"),
    [
        ({"key_id": "keyZ"}, {}, "keyZ"),
        ({"key_id": " keyA"}, {}, "white space"),
        ({"data_key_length": 17}, {}, "16, 24 or 32"),
        ({"history": "all"}, {}, "must be 'drop', 'refs', 'keep'"),
        ({}, {"write.parquet.page-version": "v2"}, "page-version"),
        ({}, {"write.parquet.bloom-filter-enabled.column.id": "true"}, "bloom"),
        ({}, {"write.data.path": "x"}, "write.data.path"),
        ({}, {"encryption.data-key-lenght": "16"}, "did you mean"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    lake: TestLake, arguments: dict[str, Any], properties: dict[str, str], message: str
) -> None:
    table = plain_table(lake)
    if properties:
        table.transaction().set_properties(properties).commit_transaction()
    files = lake.files()
    for dry_run in (True, False):
        with pytest.raises((PolicyError, KeyUnavailableError), match=message):
            convert(lake.catalog().load_table("db.t"), **{"key_id": "keyA", "dry_run": dry_run, **arguments})
    assert lake.files() == files


def test_branches_and_tags_go_only_if_that_is_said(lake: TestLake) -> None:
    table = plain_table(lake)
    older = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(older, "v1").create_branch(older, "test").commit()
    files = lake.files()
    with pytest.raises(PolicyError, match=r"test, v1.*--drop-refs"):
        convert(lake.catalog().load_table("db.t"), key_id="keyA")
    assert lake.files() == files
    assert convert(lake.catalog().load_table("db.t"), key_id="keyA", drop_refs=True, dry_run=True).dropped_refs == ("test", "v1")
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA", drop_refs=True)
    found = lake.catalog().load_table("db.t")
    assert (done.dropped_refs, list(found.metadata.refs), ids(found)) == (("test", "v1"), ["main"], list(range(20)))


def test_a_pin_that_says_plain_is_taken_out_first(lake: TestLake) -> None:
    plain_table(lake)
    with pytest.raises(PolicyError, match=r"icelock\.pins\.db\.t says that it is plain"):
        convert(lake.catalog(**{"icelock.pins.db.t": ""}).load_table("db.t"), key_id="keyA")


def test_an_encrypted_table_and_one_of_another_catalog(lake: TestLake) -> None:
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    with pytest.raises(PolicyError, match="encrypted already"):
        convert(made, key_id="keyA")
    made.catalog.drop_table("db.t")
    with pytest.raises(PolicyError, match=r"icelock\.load_catalog"):
        convert(plain_table(lake), key_id="keyA")


def test_orc_is_no_default_format_afterwards(lake: TestLake) -> None:
    plain_table(lake).transaction().set_properties({"write.format.default": "ORC"}).commit_transaction()
    assert converted(lake).properties["write.format.default"] == "parquet"


# --- the plain files


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(lake: TestLake) -> None:
    table = plain_table(lake)
    files = lake.files()
    plan = convert(lake.catalog().load_table("db.t"), key_id="keyA", dry_run=True)
    sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
    assert (plan.files, plan.bytes, plan.snapshot_id, plan.dry_run) == (2, sum(sizes), None, True)
    assert lake.files() == files
    named = {path.removeprefix("file://") for path in plan.plain_files}
    assert named == {str(lake.warehouse / path) for path in files if not path.endswith(".json")}


def test_plain_files_stay_whatever_else_is_removed(lake: TestLake) -> None:
    plain_table(lake, properties={"write.metadata.previous-versions-max": "1"})
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    table = lake.catalog().load_table("db.t")
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "true"})
    for number in range(4):
        table.append(people(100 + number, 1))
    table.maintenance.expire_snapshots().retain_last(1).commit()
    remove_leftovers(table, older_than=timedelta(seconds=-60))
    assert all(local(path).exists() for path in (*done.plain_files, plain_metadata_of(table)))
    assert set(remove_plain(table).files) == set(done.plain_files)


def test_plain_files_are_purged_with_their_table(lake: TestLake) -> None:
    plain_table(lake)
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    lake.catalog().purge_table("db.t")
    assert not any(local(path).exists() for path in done.plain_files)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]], ids=["cut", "in a page"]
)
def test_plain_files_are_not_removed_from_a_table_that_is_not_whole(lake: TestLake, damage: Callable[[bytes], bytes]) -> None:
    """Byte 40 is in the first page: magic (4), length of its header (4), nonce (12), header ..., and nothing but reading the page tells."""
    plain_table(lake)
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    table = lake.catalog().load_table("db.t")
    (path, *_) = [task.path for task in table.scan().scan_tasks()]
    local(path).write_bytes(damage(local(path).read_bytes()))
    with pytest.raises(IntegrityError, match=r"does not prove.*nothing was deleted"):
        remove_plain(table)
    assert all(local(one).exists() for one in done.plain_files)


def test_plain_files_elsewhere_are_named_and_left(lake: TestLake, tmp_path: Path) -> None:
    table = plain_table(lake)
    outside = tmp_path / "outside.parquet"
    pq.write_table(people(50, 3), outside)
    table.add_files([str(outside)])
    convert(lake.catalog().load_table("db.t"), key_id="keyA")
    converted_table = lake.catalog().load_table("db.t")
    removed = remove_plain(converted_table)
    assert removed.elsewhere == (str(outside),)
    assert removed.left
    assert all(path.endswith(".avro") for path in removed.left)  # what names the one elsewhere stays, so that it is named again
    assert outside.exists()
    assert remove_plain(converted_table).elsewhere == (str(outside),)
    outside.unlink()
    last = remove_plain(converted_table)
    assert (set(last.files), last.left, last.elsewhere) == (set(removed.left), (), ())
    assert not [name for name in converted_table.properties if name.startswith("icelock.")]


def test_a_plain_metadata_file_of_another_table_names_nothing(lake: TestLake) -> None:
    plain_table(lake)
    convert(lake.catalog().load_table("db.t"), key_id="keyA")
    table = lake.catalog().load_table("db.t")
    path = local(plain_metadata_of(table))
    document = json.loads(path.read_text())
    document["table-uuid"] = "00000000-0000-0000-0000-000000000001"
    path.write_text(json.dumps(document))
    for use in (remove_plain, leftovers, undo_conversion):
        with pytest.raises(IntegrityError, match="not this table as it was"):
            use(table)
