"""Sizes of batches, above all of those that pyarrow's own ``nbytes`` cannot take."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icelock.arrow.nested import used_bytes

POINT = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])


def without_offsets(kind: pa.ListType) -> pa.Array:
    """Return a list array of no rows whose offsets are missing, as Spark writes it."""
    return pa.Array.from_buffers(kind, 0, [None, None], children=[pa.array([], kind.value_type)])


def test_flat_columns_are_as_large_as_pyarrow_says():
    batch = pa.record_batch({"i": pa.array([1, None, 3], pa.int64()), "s": ["a", "bcd", None], "b": [True, False, None]})
    assert used_bytes(batch) == batch.nbytes


def test_a_slice_counts_its_own_rows():
    batch = pa.record_batch({"l": pa.array([[1] * 100, [2] * 7, []], pa.list_(pa.int64()))})
    # 7 values of 8 bytes, and two offsets of 4.
    assert used_bytes(batch.slice(1, 1)) == 7 * 8 + 2 * 4


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(POINT), [[{"x": 1, "tags": ["a"]}], None]),
        (pa.map_(pa.string(), POINT), [[("k", {"x": 1, "tags": None})], []]),
        (pa.large_list(pa.int32()), [[1, 2], []]),
        (pa.uuid(), [b"0" * 16, None]),
    ],
)
def test_nested_columns_are_about_as_large_as_pyarrow_says(kind, values):
    batch = pa.record_batch({"c": pa.array(values, kind)})
    assert batch.nbytes <= used_bytes(batch) <= batch.nbytes + 24


def test_an_empty_list_without_offsets_inside_a_list_has_a_size():
    tags = without_offsets(pa.list_(pa.string()))
    points = pa.StructArray.from_arrays([pa.array([], pa.int32()), tags], ["x", "tags"])
    batch = pa.record_batch({"l": pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), points)})
    assert used_bytes(batch) == 3 * 4
    assert used_bytes(pa.Table.from_batches([batch, batch])) == 2 * 3 * 4


def test_a_batch_without_rows_has_none():
    assert used_bytes(pa.record_batch({"l": without_offsets(pa.list_(pa.int64()))})) == 0
