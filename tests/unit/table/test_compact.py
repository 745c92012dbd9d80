"""Compaction: Java's rules for which files, the same rows with the same row ids, beside other writers; keys of its own for each file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from icelock.arrow.write.z_order import interleaved, ordered_bits
from icelock.errors import IntegrityError, PolicyError
from icelock.table.maintenance.compaction.compact import Compacted
from icelock.table.maintenance.compaction.compact_options import CompactOptions
from tests.helpers.table_model import ARROW, LINEAGE, arrow, delete_entries, live_entries, row, rows_of, verified
from tests.lakes.sqlite import KEYED, TestLake

BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
ALL = {"rewrite-all": "true"}
MOR = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def make(lake: TestLake, appends: int = 6, spec: PartitionSpec = PartitionSpec(), **properties: str) -> Any:  # noqa: B008
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties={**KEYED, **properties})
    for number in range(appends):
        table.append(arrow(map(row, range(10 * number, 10 * number + 10))))
    return table


def lineage(table: Any) -> dict[int, tuple[int, int]]:
    return {r["id"]: (r["_row_id"], r["_last_updated_sequence_number"]) for r in table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()}


def data_files(table: Any) -> list[Any]:
    return [entry for manifest, entry in live_entries(table) if int(manifest.content) == 0]


def meanwhile(*acts: Callable[[], Any]) -> Callable[[int, int], None]:
    """Return a listener to progress that lets others commit after the first groups were written, before they are committed."""
    left = list(acts)

    def told(_done: int, _all: int) -> None:
        if left:
            left.pop(0)()

    return told


def test_small_files_become_one_with_the_same_rows_and_row_ids(lake: TestLake) -> None:
    table = make(lake)
    rows, before, files = rows_of(table), lineage(table), {e.data_file.file_path for e in data_files(table)}
    done = table.maintenance.compact()
    assert (done.groups, done.rewritten_files, done.added_files, done.failed_files, done.conflicted_files) == (1, 6, 1, 0, 0)
    assert rows_of(table) == rows
    assert lineage(table) == before
    (entry,) = data_files(table)
    assert entry.data_file.file_path not in files
    assert (entry.sequence_number, entry.file_sequence_number) == (6, 7), "of the snapshot that was read, and of the new one"
    snapshot = table.current_snapshot()
    assert snapshot.snapshot_id == done.snapshots[0]
    summary = snapshot.summary
    assert summary.operation.value == "replace"
    expected = {"added-data-files": "1", "deleted-data-files": "6", "added-records": "60", "deleted-records": "60", "total-records": "60"}
    assert {name: summary[name] for name in expected} == expected
    assert table.scan(snapshot_id=table.snapshots()[2].snapshot_id).to_arrow().num_rows == 30, "older snapshots have their files"
    verified(table)
    assert table.maintenance.compact() == type(done)(), "there is nothing left to do"


def test_fewer_files_than_java_rewrites_stay(lake: TestLake) -> None:
    table = make(lake, 4)  # min-input-files is 5
    assert not table.maintenance.compact().snapshots
    assert table.maintenance.compact(options={"min-input-files": "4"}).rewritten_files == 4


def test_dry_run_changes_nothing(lake: TestLake) -> None:
    table = make(lake)
    before = lake.files()
    plan = table.maintenance.compact(dry_run=True)
    assert (plan.dry_run, plan.groups, plan.rewritten_files, plan.added_files, plan.snapshots) == (True, 1, 6, 1, ())
    assert plan.rewritten_bytes == sum(entry.data_file.file_size_in_bytes for entry in data_files(table))
    assert lake.files() == before


def test_each_partition_is_a_group_and_a_filter_takes_some(lake: TestLake) -> None:
    table = make(lake, 6, BY_N)
    values = {entry.data_file.partition[0] for entry in data_files(table)}
    rows = rows_of(table)
    some = min(value for value in values if value is not None)
    done = table.maintenance.compact(where=EqualTo("n", some), options=ALL)
    assert done.groups == 1
    assert len([1 for entry in data_files(table) if entry.data_file.partition[0] == some]) == 1
    done = table.maintenance.compact(options=ALL | {"partial-progress.enabled": "true", "partial-progress.max-commits": "3"})
    assert done.groups == len(values)
    assert 1 < len(done.snapshots) <= 3
    assert len(data_files(table)) == len(values)
    assert rows_of(table) == rows
    verified(table)


def test_rows_deleted_by_vectors_are_in_no_new_file(lake: TestLake) -> None:
    table = make(lake, 2, **MOR)
    before = lineage(table)
    table.delete("id in (1, 2, 3, 11)")
    rows = rows_of(table)
    assert len(delete_entries(table)) == 2
    any_size = {"min-file-size-bytes": "0"}
    done = table.maintenance.compact(options=any_size)  # 3 of 10 rows are deleted: the ratio of 0.3; the other file has 1 of 10
    assert (done.rewritten_files, done.removed_delete_files) == (1, 1)
    assert table.maintenance.compact(options={"delete-file-threshold": "1", **any_size}).removed_delete_files == 1
    assert not delete_entries(table)
    assert sum(entry.data_file.record_count for entry in data_files(table)) == 16
    assert rows_of(table) == rows
    assert lineage(table) == {key: value for key, value in before.items() if key not in (1, 2, 3, 11)}
    verified(table)


def test_files_are_cut_at_the_target_size(lake: TestLake) -> None:
    table = make(lake, 9)
    size = max(entry.data_file.file_size_in_bytes for entry in data_files(table))
    done = table.maintenance.compact(options={"target-file-size-bytes": str(3 * size), **ALL})
    assert done.added_files == 3
    assert rows_of(table) == sorted(map(row, range(90)))


@pytest.mark.parametrize("by", ["id desc", "table"])
def test_rows_are_sorted_over_all_files_of_a_group(lake: TestLake, by: str) -> None:
    table = make(lake)
    table.update_sort_order().desc("id", IdentityTransform()).commit()
    done = table.maintenance.compact(sort_by=by, options=ALL)
    assert done.added_files == 1
    assert [r["id"] for r in table.scan().to_arrow().to_pylist()] == list(range(59, -1, -1))
    assert data_files(table)[0].data_file.sort_order_id == table.sort_order().order_id
    assert rows_of(table) == sorted(map(row, range(60)))


def test_bits_of_two_columns_take_turns() -> None:
    """By hand: the highest 2 bits of each number, of the first column first."""
    top = np.array([0b00, 0b01, 0b10, 0b11], np.uint64) << np.uint64(62)
    first = interleaved([top, np.zeros(4, np.uint64)]).to_pylist()
    both = interleaved([top, top]).to_pylist()
    assert [value[0] >> 4 for value in first] == [0b0000, 0b0010, 0b1000, 0b1010]
    assert [value[0] >> 4 for value in both] == [0b0000, 0b0011, 0b1100, 0b1111]
    assert all(len(value) == 16 and not any(value[1:]) for value in both)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, -(2**63), -1, 0, 1, 2**63 - 1], pa.int64()),
        pa.array([None, float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
        pa.array([None, "", "a", "ab", "b", "é"]),
        pa.array([None, False, True]),
    ],
)
def test_bits_order_as_values_do(values: pa.Array) -> None:
    bits = ordered_bits(values).tolist()
    assert bits == sorted(bits)
    assert bits[0] == 0
    assert len({*bits[2:]}) == len(bits) - 2


def test_z_order_keeps_rows(lake: TestLake) -> None:
    table = make(lake)
    table.maintenance.compact(z_order_by=["id", "n"], options=ALL)
    assert rows_of(table) == sorted(map(row, range(60)))
    with pytest.raises(PolicyError, match="each once"):
        table.maintenance.compact(z_order_by=["id", "id"])


def test_rows_deleted_meanwhile_do_not_come_back(lake: TestLake) -> None:
    """By vectors and by copy-on-write, of files that are being compacted: those groups are done again."""
    table, other = make(lake, 6, BY_N, **MOR), lake.catalog().load_table("db.t")
    others = meanwhile(lambda: other.delete("id = 17"), lambda: other.upsert(arrow([(5, 1, "changed")]), ["id"]))
    done = table.maintenance.compact(options=ALL, progress=others)
    expected = {r[0]: r for r in map(row, range(60)) if r[0] != 17} | {5: (5, 1, "changed")}
    assert rows_of(table) == sorted(expected.values())
    assert len(done.snapshots) > 1, "groups that were not touched were committed at once"
    assert not done.conflicted_files
    assert not delete_entries(table)
    verified(table)


def test_rows_added_meanwhile_stay(lake: TestLake) -> None:
    table, other = make(lake), lake.catalog().load_table("db.t")
    assert len(table.maintenance.compact(progress=meanwhile(lambda: other.append(arrow([row(100)])))).snapshots) == 1
    assert rows_of(table) == sorted(map(row, [*range(60), 100]))


def test_two_compactions_at_once_make_no_row_twice(lake: TestLake) -> None:
    table, other = make(lake), lake.catalog().load_table("db.t")
    done = table.maintenance.compact(progress=meanwhile(other.maintenance.compact))
    assert not done.snapshots
    assert not done.conflicted_files, "the other one has done it"
    assert rows_of(table) == sorted(map(row, range(60)))
    assert len(data_files(table)) == 1


def test_nothing_is_left_of_groups_that_were_dropped(lake: TestLake) -> None:
    table, other = make(lake), lake.catalog().load_table("db.t")
    table.maintenance.compact(progress=meanwhile(other.maintenance.compact))
    stored = {path.name for path in Path(lake.warehouse).rglob("*.parquet")}
    assert len(stored) == 7, "6 of the appends, 1 of the other compaction"


def test_a_damaged_file_stops_it_or_is_left_alone(lake: TestLake) -> None:
    table = make(lake, 6, BY_N)
    victim = data_files(table)[0].data_file
    path = Path(victim.file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    before = lake.files()
    with pytest.raises(IntegrityError):
        table.maintenance.compact(options=ALL)
    assert lake.files().keys() == before.keys()
    done = table.maintenance.compact(options=ALL | {"partial-progress.enabled": "true"})
    damaged = [entry for entry in data_files(table) if entry.data_file.partition == victim.partition]
    assert done.failed_files == len(damaged) > 0
    assert done.groups > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rewrite-al": "true"}, "no option 'rewrite-al'"),
        ({"min-input-files": "0"}, "at least 1"),
        ({"delete-ratio-threshold": "2"}, "at most 1"),
        ({"rewrite-all": "yes"}, "true or false"),
        ({"target-file-size-bytes": "100", "min-file-size-bytes": "100"}, "must be below"),
        ({"use-starting-sequence-number": "false"}, "leave it out"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        CompactOptions.parse(options, {})


@pytest.mark.parametrize(("size", "files"), [(1, 1), (100, 1), (109, 1), (150, 2), (176, 2), (200, 2), (214, 2), (230, 3)])
def test_number_of_new_files_is_java_s(size: int, files: int) -> None:
    """SizeBasedFileRewritePlanner with target 100, min 75 and max 180: the rest is spread if files stay below 1.1 of the target."""
    assert CompactOptions.parse({"target-file-size-bytes": "100"}, {}).output_files(size) == files


def test_a_tag_is_refused_before_anything_is_read(lake: TestLake) -> None:
    table = make(lake)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "t").commit()
    maintenance = table.maintenance
    for dry_run in (True, False):
        for use in (maintenance.compact, maintenance.rewrite_deletes, maintenance.rewrite_manifests):
            with pytest.raises(PolicyError, match="is a tag, which cannot be written to"):
                use(branch="t", dry_run=dry_run, progress=lambda *_: pytest.fail("files were read"))
            with pytest.raises(PolicyError, match="no branch 'none'"):
                use(branch="none", dry_run=dry_run)


@pytest.mark.parametrize("order", ["bucket(0, id)", "truncate(0, s)", "truncate(-1, s)", "bucket(id)", "nothing(2, id)"])
def test_transforms_that_cannot_be_are_refused_before_anything_is_read(lake: TestLake, order: str) -> None:
    with pytest.raises(PolicyError):
        make(lake).maintenance.compact(sort_by=order, progress=lambda *_: pytest.fail("files were read"))


def test_a_file_of_one_row_is_not_cut_again_and_again(lake: TestLake) -> None:
    table = make(lake, 0)
    for number in range(3):
        table.append(arrow([row(number)]))
    small = {"target-file-size-bytes": "100", "max-file-size-bytes": "200", "min-file-size-bytes": "10"}
    assert min(entry.data_file.file_size_in_bytes for entry in data_files(table)) > 200
    assert table.maintenance.compact(options=small) == Compacted()


def test_a_snapshot_that_expires_meanwhile_is_planned_again(lake: TestLake) -> None:
    table, other = make(lake), lake.catalog().load_table("db.t")

    def expire() -> None:
        other.append(arrow([row(100)]))
        other.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()

    done = table.maintenance.compact(progress=meanwhile(expire))
    assert rows_of(table) == sorted(map(row, [*range(60), 100]))
    assert (len(done.snapshots), done.conflicted_files) == (1, 0)
    verified(table)


def test_a_dropped_column_is_planned_again_without_it(lake: TestLake) -> None:
    table, other = make(lake), lake.catalog().load_table("db.t")
    done = table.maintenance.compact(progress=meanwhile(lambda: other.update_schema().delete_column("s").commit()))
    assert len(done.snapshots) == 1
    assert table.scan().to_arrow().column_names == ["id", "n"]
    assert len(data_files(table)) == 1
