"""Lists, maps and structs around other values: what is below a null, or outside of a slice, stays behind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from icelock.arrow.nested import converted_list, converted_map, list_array, null_mask, struct_array

INTS, TEXTS = pa.list_(pa.int32()), pa.list_(pa.string())
ROWS = [[1, 2], None, [], [3, None], [4]]
TAKEN = [["1", "2"], None, [], ["3", None], ["4"]]


def text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def hidden() -> pa.Array:
    """Lists of which the second is null, and has values all the same."""
    offsets = pa.array([0, 2, 5, 5, 7, 8], pa.int32())
    values = pa.array([1, 2, 90, 91, 92, 3, None, 4], pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False, False, False]))


@pytest.mark.parametrize(
    "array",
    [pa.array(ROWS, INTS), hidden(), pa.array(ROWS, pa.large_list(pa.int32())), pa.array(ROWS, pa.list_view(pa.int32()))],
    ids=["list", "values below a null", "large", "view"],
)
def test_lists_of_every_form(array: pa.Array) -> None:
    seen: list[Any] = []

    def noted(values: pa.Array) -> pa.Array:
        seen.extend(values.to_pylist())
        return text(values)

    whole = converted_list(array, TEXTS, noted)
    whole.validate(full=True)
    assert (whole.type, whole.to_pylist()) == (TEXTS, TAKEN)
    assert seen == [1, 2, 3, None, 4], "what is below a null is not converted"
    for start, length in ((1, 3), (2, 3), (4, 1), (5, 0)):
        part = converted_list(array.slice(start, length), TEXTS, text)
        part.validate(full=True)
        assert part.to_pylist() == TAKEN[start : start + length]


def test_lists_of_a_fixed_size() -> None:
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2))
    assert converted_list(array.slice(1), TEXTS, text).to_pylist() == [None, ["3", None]]


def test_maps() -> None:
    rows = [[(1, 1.0), (2, None)], None, [], [(3, 2.0)]]
    array = pa.array(rows, pa.map_(pa.int32(), pa.float64()))
    kind = pa.map_(pa.string(), pa.int64())
    expected = [[("1", 1), ("2", None)], None, [], [("3", 2)]]
    for start in range(5):
        found = converted_map(array.slice(start), kind, text, lambda values: values.cast(pa.int64()))
        found.validate(full=True)
        assert found.to_pylist() == expected[start:]


@pytest.mark.parametrize(("start", "count"), [(0, 3), (1, 2), (2, 1), (0, 0)])
def test_maps_of_null_structs_that_have_required_fields(start: int, count: int) -> None:
    """A null struct needs no value of its fields: Spark gives such maps, and Arrow's casts refuse them."""
    struct = pa.struct([pa.field("y", pa.int32(), nullable=False)])
    values = pa.StructArray.from_arrays([pa.array([1, 0, 2], pa.int32())], fields=list(struct), mask=pa.array([False, True, False]))
    maps = pa.MapArray.from_arrays(
        pa.array([0, 2, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), values, mask=pa.array([False, True, False])
    )
    found = converted_map(maps.slice(start, count), maps.type, lambda keys: keys, lambda items: items)
    found.validate(full=True)
    assert found.to_pylist() == [[("a", {"y": 1}), ("b", None)], None, [("c", {"y": 2})]][start : start + count]


def test_structs_and_lengths() -> None:
    parent = pa.array([{"a": 1}, None, {"a": None}])
    made = struct_array(parent, [text(child) for child in parent.flatten()], pa.struct([("b", pa.string())]))
    assert made.to_pylist() == [{"b": "1"}, None, {"b": None}]
    assert null_mask(parent.slice(2)) is None
    lists = list_array(pa.array([1, None, 0, 2], pa.int32()), pa.array([7, 8, 9], pa.int32()), INTS)
    assert lists.to_pylist() == [[7], None, [], [8, 9]]
    assert pc.list_value_length(lists).to_pylist() == [1, None, 0, 2]


def test_more_values_than_offsets_can_count_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        list_array(pa.array([2**31 - 1, 1], pa.int32()), pa.array([], pa.int32()), INTS)
