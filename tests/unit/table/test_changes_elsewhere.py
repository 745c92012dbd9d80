"""Changes and streams where other people's went wrong (public issues of Iceberg, by number); the rows are worked out by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from icelock.errors import PolicyError
from icelock.table.read.stream import StreamLimits, StreamRules, TableStream
from tests.helpers.changelog import told
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_changes import EVERY, MODES, make, rows, snapshot


def at_a_later_time(table: Any, *pairs: tuple[int, str | None]) -> Any:
    """Append rows in a millisecond of its own; return the snapshot."""
    before = table.current_snapshot()
    while True:
        table.append(rows(*pairs))
        made = table.current_snapshot()
        if before is None or made.timestamp_ms > before.timestamp_ms:
            return made
        table.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()


def test_times_after_a_rollback(lake: TestLake) -> None:
    """Issue 10247: what was rolled back is in no range of times, unless its snapshot is named as the end."""
    table = make(lake)
    first, gone, last_gone = (at_a_later_time(table, (number, "v")) for number in (1, 2, 3))
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()

    def found(**bounds: Any) -> list[int]:
        return [one[0] for one in told(table.changes(**bounds))]

    def check_ends_that_are_gone() -> None:
        for since, wanted in ((first.timestamp_ms - 1, [1, 2, 3]), (first.timestamp_ms, [2, 3]), (gone.timestamp_ms, [3])):
            assert found(start_timestamp=since, end_snapshot_id=last_gone.snapshot_id) == wanted

    assert found(end_timestamp=last_gone.timestamp_ms) == [1]
    assert found(start_timestamp=gone.timestamp_ms) == []
    check_ends_that_are_gone()
    table.append(rows((4, "v")))
    assert found(end_timestamp=gone.timestamp_ms) == [1]
    assert found(start_timestamp=first.timestamp_ms, end_timestamp=last_gone.timestamp_ms - 1) == []
    assert found(start_timestamp=first.timestamp_ms) == found(start_timestamp=last_gone.timestamp_ms) == [4]
    check_ends_that_are_gone()


@pytest.mark.parametrize("mode", MODES)
def test_net_changes_name_the_snapshot_that_brought_a_row(lake: TestLake, mode: str) -> None:
    """Issue 14851: rows that a merge moved along were said to be the merge's."""
    table = make(lake, mode)
    table.append(rows((1, "Alice"), (2, "Bob"), (3, "Charley")))
    table.upsert(rows((1, "David"), (5, "Eve"), (6, "Frank")), join_cols=["id"])
    assert sorted(told(table.changes(net_changes=True))) == [
        (1, "David", "INSERT", 1),
        (2, "Bob", "INSERT", 0),
        (3, "Charley", "INSERT", 0),
        (5, "Eve", "INSERT", 1),
        (6, "Frank", "INSERT", 1),
    ]


def test_a_column_that_was_renamed_and_one_that_came_in_its_place(lake: TestLake) -> None:
    """Auron's issue 2375: values were found by name, so the renamed column was null, and the new one had the old one's values."""
    table = make(lake)
    table.append(rows((1, "old")))
    with table.update_schema() as update:
        update.rename_column("v", "w")
    table.append(pa.table({"id": [2], "w": ["renamed"]}))
    assert table.changes().to_arrow()["w"].to_pylist() == ["old", "renamed"]
    with table.update_schema() as update:
        update.delete_column("w")
    with table.update_schema() as update:
        update.add_column("v", StringType())
    table.append(rows((3, "new")))
    table.delete("id = 1")
    assert told(table.changes()) == [(1, None, "INSERT", 0), (2, None, "INSERT", 1), (3, "new", "INSERT", 2), (1, None, "DELETE", 3)]
    assert told(table.changes(row_filter="v = 'new'")) == [(3, "new", "INSERT", 2)]


def test_files_with_row_ids_of_their_own_are_not_taken_in(lake: TestLake, tmp_path: Path) -> None:
    """Issue 13232: two rows had one row id then, and changes take them for one row."""
    table = make(lake)
    table.append(rows((1, "a")))
    columns = {"id": 1, "v": 2, "_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
    kinds = {"v": pa.string()}
    schema = pa.schema([pa.field(name, kinds.get(name, pa.int64()), metadata={"PARQUET:field_id": str(i)}) for name, i in columns.items()])
    path = tmp_path / "with_ids.parquet"
    pq.write_table(pa.table({"id": [7], "v": ["x"], "_row_id": [0], "_last_updated_sequence_number": [1]}, schema=schema), path)
    with pytest.raises(PolicyError, match="_row_id"):
        table.add_files([str(path)], reencrypt=True)
    assert told(table.changes()) == [(1, "a", "INSERT", 0)]


def test_limits_of_a_stream_beside_compaction(lake: TestLake) -> None:
    """Issue 17001: compacted files counted against the limits, so that batches were small, and a restart among them gave rows twice."""
    table = make(lake)
    for number in range(3):
        for one in (2 * number, 2 * number + 1):
            table.append(rows((one, "v")))
        table.maintenance.compact(options=EVERY)
        table.refresh()
    table.append(rows((6, "v")))

    def batches(limits: StreamLimits) -> list[list[int]]:
        """Each batch by a stream of its own, as after a restart."""
        made, here = [], TableStream(table.metadata, table.io, StreamRules(), "db.t").initial()
        while True:
            stream = TableStream(table.metadata, table.io, StreamRules(), "db.t")
            end = stream.latest(here, limits)
            if end is None:
                return made
            made.append(sorted(stream.batch(here, end, ["id"]).to_arrow()["id"].to_pylist()))
            here = end

    assert batches(StreamLimits(files=2)) == [[0, 1], [2, 3], [4, 5], [6]]
    assert batches(StreamLimits(rows=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert sorted(itertools.chain(*batches(StreamLimits(files=1)))) == list(range(7))


def test_only_a_start_in_time(lake: TestLake) -> None:
    """Issue 11922: without an end there was no change at all."""
    table = make(lake)
    first = at_a_later_time(table, (1, "a"))
    at_a_later_time(table, (2, "b"))
    assert told(table.changes(start_timestamp=first.timestamp_ms)) == [(2, "b", "INSERT", 0)]
    assert told(table.changes(start_timestamp=first.timestamp_ms, end_snapshot_id=snapshot(table))) == [(2, "b", "INSERT", 0)]
