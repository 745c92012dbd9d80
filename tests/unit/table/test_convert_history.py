"""Plain tables are converted with their history: each snapshot reads as PyIceberg read the plain one, and every file is written once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType

from icelock.errors import IntegrityError, PolicyError
from icelock.io.storage import ArrowFile
from icelock.maintenance import audit, convert, leftovers, remove_plain, undo_conversion
from icelock.table.commit.converted_history import ConvertedHistory
from tests.helpers.tables import ids, local
from tests.lakes.sqlite import TestLake, people
from tests.unit.table.test_convert import (
    commit_deletes,
    equality,
    meanwhile,
    plain_catalog,
    plain_table,
    positions,
    rows_of,
)

KEPT = ("snapshot_id", "parent_snapshot_id", "timestamp_ms", "schema_id")


def at(table: Any, snapshot_id: int) -> list[Any]:
    """The rows of a snapshot, in its own schema."""
    found = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["id"] is None, row["id"]))


def evolved(lake: TestLake, version: int) -> Any:
    """A table whose columns, partitions and files changed with each commit."""
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    table = plain_table(lake, version, partition_spec=spec)
    with table.update_schema() as change:
        change.add_column("few", IntegerType())
    table.append(
        pa.table({"id": pa.array([100], pa.int64()), "name": ["x"], "city": pa.nulls(1, pa.string()), "few": pa.array([7], pa.int32())})
    )
    with table.update_schema() as change:
        change.update_column("few", LongType()).rename_column("name", "label")
    with table.update_spec() as change:
        change.remove_field("city")
    table.append(pa.table({"id": pa.array([101], pa.int64()), "label": ["y"], "city": ["c"], "few": pa.array([2**40], pa.int64())}))
    table.delete("id = 5")
    table.manage_snapshots().create_tag(table.snapshots()[1].snapshot_id, "v1").commit()
    table.manage_snapshots().create_branch(table.snapshots()[2].snapshot_id, "side", max_ref_age_ms=10**12).commit()
    with table.update_schema() as change:
        change.delete_column("label")
    table.append(pa.table({"id": pa.array([102], pa.int64()), "city": ["c"], "few": pa.array([1], pa.int64())}))
    return table


def converted(lake: TestLake, history: str, **arguments: Any) -> Any:
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA", history=history, **arguments)
    table = lake.catalog().load_table("db.t")
    assert done.snapshot_id == table.metadata.current_snapshot_id
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    return table


@pytest.mark.parametrize("version", [1, 2])
def test_every_snapshot_reads_as_before(lake: TestLake, version: int) -> None:
    """Old schemas have columns that are gone, and a narrower type; the plain reader is PyIceberg's."""
    table = evolved(lake, version)
    plain = table.metadata
    before = {snapshot.snapshot_id: at(table, snapshot.snapshot_id) for snapshot in plain.snapshots}
    assert len({str(rows) for rows in before.values()}) == len(before) >= 6
    found = converted(lake, "keep")
    made = found.metadata
    assert {one: at(found, one) for one in before} == before
    by_id = {snapshot.snapshot_id: snapshot for snapshot in made.snapshots}
    for snapshot in plain.snapshots:
        kept = by_id[snapshot.snapshot_id]
        assert [getattr(kept, name) for name in KEPT] == [getattr(snapshot, name) for name in KEPT]
        assert kept.sequence_number == (snapshot.sequence_number or 0)
        assert kept.summary == snapshot.summary
    # a snapshot that changes nothing on each branch: who began on the plain one is refused
    assert len(made.snapshots) == len(plain.snapshots) + 2
    assert {name: ref.snapshot_id for name, ref in made.refs.items() if name == "v1"} == {"v1": plain.refs["v1"].snapshot_id}
    for branch in ("main", "side"):
        head = by_id[made.refs[branch].snapshot_id]
        assert (head.parent_snapshot_id, head.summary.operation.value) == (plain.refs[branch].snapshot_id, "replace")
        assert at(found, head.snapshot_id) == before[plain.refs[branch].snapshot_id]
    assert made.refs["side"].max_ref_age_ms == 10**12
    assert made.snapshot_log[:-1] == plain.snapshot_log
    assert rows_of(found) == rows_of(table)


def files_of(lake: TestLake) -> set[str]:
    """Data files on storage."""
    return {name for name in lake.files() if name.endswith(".parquet")}


def test_each_file_is_written_once_however_many_snapshots_reach_it(lake: TestLake) -> None:
    table = plain_table(lake, rows=40)
    table.append(people(100, 1))
    before = files_of(lake)
    assert len(before) == 5
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA", history="keep")
    assert (done.files, done.added_files, done.snapshots, len(files_of(lake) - before)) == (5, 5, 5, 5)
    found = lake.catalog().load_table("db.t")
    # row ids: one for each row, the same in all snapshots, in the order of commits
    first, last = found.metadata.snapshots[0].snapshot_id, found.metadata.current_snapshot_id
    numbers = {
        one: {row["id"]: row["_row_id"] for row in found.scan(selected_fields=("id", "_row_id"), snapshot_id=one).to_arrow().to_pylist()}
        for one in (first, last)
    }
    assert numbers[first] == {number: number for number in range(10)}
    assert numbers[last] == {**{number: number for number in range(40)}, 100: 40}
    assert found.metadata.next_row_id == 41


def test_deletes_of_rows_stay_deletes(lake: TestLake) -> None:
    """Positions and equality deletes name new files; what was inserted again after an equality delete is there.

    The plain files are not in the table's order: sorted, other rows would be deleted.
    """
    table = plain_table(lake, sort_order=SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC)))
    (first,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    commit_deletes(table, equality(table, 3, 14), positions(table, first, 0, 9))
    table.refresh()
    table.append(people(3, 1))
    found = converted(lake, "keep")
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    left = sorted({*range(20)} - {0, 3, 9, 14})
    assert [[row["id"] for row in at(found, one)] for one in snapshots] == [
        [*range(10)], [*range(20)], left, sorted([*left, 3])
    ]  # fmt: skip
    kinds = sorted(entry["content"] for entry in found.inspect.files().to_pylist())
    assert kinds == [0, 0, 0, 1, 2]
    found.append(people(0, 1))
    found.delete("id = 4")
    assert ids(lake.catalog().load_table("db.t")) == sorted([*(number for number in left if number != 4), 0, 3])


def test_only_what_branches_and_tags_name(lake: TestLake) -> None:
    """The file that only older snapshots have is not written; the parents that are gone are named still."""
    table = evolved(lake, 2)
    plain = table.metadata
    named = {ref.snapshot_id for ref in plain.refs.values()}
    before = {one: at(table, one) for one in named}
    found = converted(lake, "refs")
    assert {one: at(found, one) for one in named} == before
    assert {snapshot.snapshot_id for snapshot in found.metadata.snapshots} - {
        ref.snapshot_id for name, ref in found.metadata.refs.items() if name != "v1"
    } == named
    assert {entry.snapshot_id for entry in found.metadata.snapshot_log[:-1]} == named & {one.snapshot_id for one in plain.snapshot_log}
    assert plain.snapshots[0].snapshot_id not in {snapshot.snapshot_id for snapshot in found.metadata.snapshots}


def test_a_delete_file_that_is_gone_is_not_needed(lake: TestLake) -> None:
    """Iceberg issues 16662 and 17498: a rewrite of a table read files of entries that say that they were deleted, after an expiry."""
    table = plain_table(lake)
    file = equality(table, 3)
    commit_deletes(table, file)
    table.refresh()
    commit_deletes(table, file, status=ManifestEntryStatus.DELETED)
    local(file.file_path).unlink()
    found = converted(lake, "refs")
    assert ids(found) == list(range(20))


def test_files_without_ids_and_columns_only_in_partitions(lake: TestLake, tmp_path: Path) -> None:
    """What ``migrate`` takes in: names instead of ids, and a partition column that no file has."""
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    table = plain_table(lake, partition_spec=spec, rows=0)
    file = tmp_path / "warehouse" / "db" / "t" / "given.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(people(50, 3).set_column(2, "city", pa.array(["c"] * 3)), file)
    table.add_files([str(file)])
    pq.write_table(pq.read_table(file).drop_columns(["city"]), file)
    size = file.stat().st_size
    assert size
    before = [{**row, "city": "c"} for row in people(50, 3).to_pylist()]
    found = converted(lake, "keep")
    assert rows_of(found) == before


def test_each_plain_file_is_opened_once(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = plain_table(lake)
    held, opened = lake.catalog().load_table("db.t"), list[str]()
    plain = [task.file.file_path for task in table.scan().plan_files()]
    opens = ArrowFile.open
    monkeypatch.setattr(ArrowFile, "open", lambda self, *at, **by: (opened.append(self.location), opens(self, *at, **by))[1])
    convert(held, key_id="keyA", history="keep")
    assert sorted(path for path in opened if path in plain) == sorted(plain)


def test_a_file_without_a_column_of_the_table(lake: TestLake) -> None:
    """Its rows are nulls; the current state keeps them. With history the file would have to be written without a column."""
    table = plain_table(lake, rows=0)
    file = lake.warehouse / "db" / "t" / "given.parquet"
    pq.write_table(people(50, 2), file)
    table.add_files([str(file)])
    pq.write_table(people(50, 2).select(["id"]).rename_columns(["other"]), file)
    held, files = lake.catalog().load_table("db.t"), set(lake.files())
    with pytest.raises(PolicyError, match=r"given\.parquet has none of the columns.*write it again.*--history drop"):
        convert(held, key_id="keyA", history="keep")
    assert set(lake.files()) == files
    convert(held, key_id="keyA")
    assert lake.catalog().load_table("db.t").scan().to_arrow().to_pylist() == [{"id": None, "name": None, "city": None}] * 2


def test_what_comes_meanwhile_is_taken_in(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = plain_table(lake)

    def deletes_and_tags() -> None:
        table.delete("id = 11")
        table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "late").commit()

    written = meanwhile(monkeypatch, lambda: table.append(people(20, 2)), deletes_and_tags)
    monkeypatch.setattr("icelock.table.maintenance.conversion.convert._IN_TURN_BYTES", -1)
    found = converted(lake, "keep")
    assert written == [2, 1, 1]
    assert [len(at(found, snapshot.snapshot_id)) for snapshot in found.metadata.snapshots] == [10, 20, 22, 21, 21]
    assert found.metadata.refs["late"].snapshot_id == table.snapshots()[0].snapshot_id
    assert ids(found) == [number for number in range(22) if number != 11]


def test_a_file_that_a_tag_made_meanwhile_brings_back_has_its_deletes(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head lists deletes of a file that it no longer has; nothing was said of that file before the tag was made."""
    table = plain_table(lake)
    (first,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    commit_deletes(table, positions(table, first, 1, 2))
    then = table.refresh().current_snapshot().snapshot_id
    table.delete("id < 10")
    written = meanwhile(monkeypatch, lambda: table.manage_snapshots().create_tag(then, "late").commit())
    found = converted(lake, "refs")
    assert written == [1, 1]
    assert [row["id"] for row in at(found, then)] == [0, *range(3, 20)]
    assert ids(found) == list(range(10, 20))
    left = [local(one.location).read_bytes()[:4] for one in leftovers(found, older_than=timedelta(0)).files]
    assert not {b"AGS1", b"PARE"} & {*left}, "what was written of the first round is deleted"


def test_a_file_that_a_snapshot_lists_twice_is_refused(lake: TestLake) -> None:
    """Its rows are there twice; as one new file both would have the same row ids, and a delete would lose some."""
    table = plain_table(lake, rows=10)
    (task,) = table.scan().plan_files()
    table.add_files([task.file.file_path], check_duplicate_files=False)
    assert len(ids(table.refresh())) == 20
    before = lake.files()
    with pytest.raises(PolicyError, match=r"lists data file \S+ twice, so its history cannot be kept.*history='drop'"):
        converted(lake, "keep")
    assert lake.files() == before


def test_an_expiry_meanwhile(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written for a snapshot that is gone is not in the table."""
    table = plain_table(lake, rows=30)
    gone = table.snapshots()[0].snapshot_id
    meanwhile(monkeypatch, lambda: table.maintenance.expire_snapshots().by_id(gone).commit())
    found = converted(lake, "keep")
    assert [len(at(found, snapshot.snapshot_id)) for snapshot in found.metadata.snapshots] == [20, 30, 30]
    assert {file.content.value for file in leftovers(found).files} == {"plain"}  # PyIceberg's expiry deletes no file


@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_writer_that_began_on_a_plain_branch_is_refused(lake: TestLake, branch: str) -> None:
    """Its branch would be where it was, if the conversion moved only what it has to: a plain snapshot would get in."""
    table = evolved(lake, 2)
    begun = table.transaction()
    begun.append(pa.table({"id": pa.array([900], pa.int64()), "city": ["c"], "few": pa.array([1], pa.int64())}), branch=branch)
    found = converted(lake, "keep")
    with pytest.raises(CommitFailedException, match=rf"branch {branch} has changed"):
        plain_catalog(lake).commit_table(table, begun._requirements, begun._updates)
    assert lake.catalog().load_table("db.t").metadata == found.metadata


def test_the_way_back_and_the_removal(lake: TestLake) -> None:
    table = evolved(lake, 2)
    before = {snapshot.snapshot_id: at(table, snapshot.snapshot_id) for snapshot in table.metadata.snapshots}
    found = converted(lake, "keep")
    found.append(pa.table({"id": pa.array([500], pa.int64()), "city": ["c"], "few": pa.array([1], pa.int64())}))
    late = found.metadata.current_snapshot_id
    with pytest.raises(PolicyError, match="1 snapshots more"):
        undo_conversion(found)
    assert undo_conversion(found, drop_commits=True).lost_snapshots == (late,)
    back = plain_catalog(lake).load_table("db.t")
    assert back.metadata.snapshots == table.metadata.snapshots
    assert {one: at(back, one) for one in before} == before
    found = converted(lake, "keep")
    there = set(lake.files())
    removed = remove_plain(found)
    assert removed.left == removed.elsewhere == ()
    assert {one: at(found, one) for one in before} == before
    assert len(there - set(lake.files())) == len(removed.files)
    for path, data in lake.files().items():
        assert b"canary-" not in data, path
        assert path.endswith(".metadata.json") or data[:4] in {b"PARE", b"AGS1"}, path


def test_an_empty_table_and_one_whose_rows_are_all_gone(lake: TestLake) -> None:
    table = plain_table(lake, rows=0)
    found = converted(lake, "keep")
    assert (len(found.snapshots()), ids(found)) == (1, [])
    undo_conversion(found)
    table = plain_catalog(lake).load_table("db.t")
    table.append(people(0, 3))
    table.delete("id >= 0")
    found = converted(lake, "keep")
    assert [len(at(found, snapshot.snapshot_id)) for snapshot in found.metadata.snapshots] == [3, 0, 0]


def test_summaries_do_not_say_what_partitions_there_are(lake: TestLake) -> None:
    """``write.summary.partition-limit``: values of the partition column would be in metadata.json, which is plain."""
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
    table = plain_table(lake, partition_spec=spec, properties={"write.summary.partition-limit": "10"})
    assert "partitions.city=" in local(table.metadata_location).read_text()
    found = converted(lake, "keep")
    assert "partitions.city=" not in local(found.metadata_location).read_text()
    assert found.metadata.snapshots[0].summary["added-records"] == "10"


def test_what_is_refused(lake: TestLake) -> None:
    table = plain_table(lake)
    held = lake.catalog().load_table("db.t")
    files = set(lake.files())
    for arguments in ({"history": "all"}, {"history": "keep", "drop_refs": True}, {"history": "refs", "copy_to": "db.copy"}):
        with pytest.raises(PolicyError, match="history"):
            convert(held, key_id="keyA", **arguments)
    done = convert(held, key_id="keyA", history="keep", dry_run=True)
    assert (done.files, done.snapshots, done.dry_run) == (2, 2, True)
    assert set(lake.files()) == files
    (path,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    pq.write_table(pq.read_table(path).slice(0, 9), path)
    with pytest.raises(IntegrityError, match="has 9 rows, its manifest entry says 10"):
        convert(held, key_id="keyA", history="keep")
    assert set(lake.files()) == files
    assert plain_catalog(lake).load_table("db.t").metadata == table.metadata


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp_ms": 1}, "timestamp_ms"),
        ({"parent_snapshot_id": 1}, "parent_snapshot_id"),
        ({"schema_id": 1}, "schema_id"),
        ({"sequence_number": 7}, "sequence_number"),
        ({"summary": Summary(Operation.APPEND, **{"partitions.city=a": "x"})}, "partitions"),
    ],
)
def test_the_guard_compares_each_snapshot(lake: TestLake, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str) -> None:
    table = plain_table(lake)
    with table.update_schema() as update:
        update.add_column("more", LongType())
    onto = ConvertedHistory.onto

    def changed(self: Any, *arguments: Any) -> Any:
        made = onto(self, *arguments)
        first = made.snapshots[0].model_copy(update=change)
        return made.model_copy(update={"snapshots": [first, *made.snapshots[1:]]})

    monkeypatch.setattr(ConvertedHistory, "onto", changed)
    files = set(lake.files())
    with pytest.raises(PolicyError, match=message):
        convert(lake.catalog().load_table("db.t"), key_id="keyA", history="keep")
    assert plain_catalog(lake).load_table("db.t").metadata == table.metadata
    assert set(lake.files()) == files


def test_the_guard_takes_no_plain_list(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = plain_table(lake)
    plain, onto = table.metadata.snapshots[0], ConvertedHistory.onto

    def changed(self: Any, *arguments: Any) -> Any:
        made = onto(self, *arguments)
        first = made.snapshots[0].model_copy(update={"manifest_list": plain.manifest_list})
        return made.model_copy(update={"snapshots": [first, *made.snapshots[1:]]})

    monkeypatch.setattr(ConvertedHistory, "onto", changed)
    with pytest.raises(PolicyError, match="a plain snapshot would be left"):
        convert(lake.catalog().load_table("db.t"), key_id="keyA", history="keep")


def test_nothing_is_left_over_afterwards(lake: TestLake) -> None:
    evolved(lake, 2)
    assert leftovers(converted(lake, "keep")).files == ()
