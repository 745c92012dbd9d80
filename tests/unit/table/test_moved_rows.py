"""Rows that were only moved, by row ids alone, as the tasks of a changelog find them: what is left is worked out by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from icelock.spark.task.moved_rows import LEFT, PIECES, ChangedIds, changed_ids

FAR = 1 << 24  # the first id of the second range


def piece(ordinal, updated, what, ids, rows=None):
    return (ordinal, min(ids) >> 24, updated, what == "INSERT", len(ids) if rows is None else rows, BitMap64(ids).serialize())


def left(*pieces, limit=1 << 20):
    """Return the ids that are left, by snapshot and range, as sorted lists."""
    ordered = sorted(pieces, key=lambda one: one[:2])
    batches = [
        pa.RecordBatch.from_arrays([pa.array([v], f.type) for v, f in zip(one, PIECES, strict=True)], schema=PIECES) for one in ordered
    ]
    found = [row for batch in changed_ids(limit, iter(batches)) for row in batch.to_pylist()]
    return {(row["ordinal"], row["range"]): None if row["ids"] is None else sorted(BitMap64.deserialize(row["ids"])) for row in found}


def test_a_version_on_both_sides_is_moved():
    assert left(piece(0, 1, "DELETE", [1, 2, 3]), piece(0, 1, "INSERT", [1, 3])) == {(0, 0): [2]}
    assert left(piece(0, 1, "DELETE", [1, 2]), piece(0, 1, "INSERT", [1]), piece(0, 5, "INSERT", [2])) == {(0, 0): [2]}, "an update"
    assert left(piece(0, 1, "DELETE", [1, 2]), piece(0, 1, "INSERT", [2]), piece(0, 1, "INSERT", [1])) == {}, "into two files"
    assert left(piece(0, -1, "DELETE", [1]), piece(0, -1, "INSERT", [1])) == {}, "without a last update on both sides"


def test_snapshots_and_ranges_are_apart():
    lost, gained = piece(0, 1, "DELETE", [1]), piece(1, 1, "INSERT", [1])
    assert left(lost, gained) == {(0, 0): [1], (1, 0): [1]}
    assert left(piece(0, 1, "DELETE", [7]), piece(0, 1, "INSERT", [FAR + 7])) == {(0, 0): [7], (0, 1): [FAR + 7]}


def test_a_version_that_one_side_has_twice_says_nothing_of_its_range():
    """In one file, or in two: both are left to the comparison of rows, as are their neighbours."""
    in_one = piece(0, 1, "DELETE", [1, 2], rows=3)
    assert left(in_one, piece(0, 1, "INSERT", [1, 2]), piece(0, 1, "DELETE", [FAR])) == {(0, 0): None, (0, 1): [FAR]}
    assert left(piece(0, 1, "DELETE", [1, 2]), piece(0, 1, "DELETE", [2]), piece(0, 1, "INSERT", [1, 2])) == {(0, 0): None}


def test_ids_have_a_limit():
    """Ranges that come after it is reached are left as a whole."""
    some = [piece(0, 1, "DELETE", [number * FAR + 1]) for number in range(3)]
    size = len(BitMap64([1]).serialize())
    assert left(*some, limit=2 * size) == {(0, 0): [1], (0, 1): [FAR + 1], (0, 2): None}


@pytest.mark.parametrize(("ordinal", "kept"), [(0, [2, None]), (1, [None]), (2, [FAR, FAR + 1, None]), (3, [2, FAR, FAR + 1, None])])
def test_rows_that_may_be_changes(ordinal, kept):
    """Those of the ids, those of whole ranges, and those without an id."""
    told = [(0, 0, BitMap64([2, 5]).serialize()), (2, 1, None), (3, 0, BitMap64([2]).serialize()), (3, 1, None)]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*told, strict=True), LEFT, strict=True)]
    changed = ChangedIds.of(pa.Table.from_arrays(columns, schema=LEFT))
    batch = pa.record_batch({"v": ["a", "b", "c", "d", "e"], "_row_id": pa.array([1, 2, FAR, FAR + 1, None], pa.int64())})
    assert changed.rows(batch, 1, ordinal, changed.bitmap(ordinal))["_row_id"].to_pylist() == kept
