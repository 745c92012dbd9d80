"""Rows found by key are those that a dict of Python tuples finds, with Spark's NaN and zero."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from icelock.table.rows.key_index import KeyIndex, key_column

FLOATS = st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, -math.inf])
ROW = st.tuples(st.integers(-3, 3), st.sampled_from(["", "a", "b", "\U0001f511"]), FLOATS)
NULLABLE = st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "z"]), st.none() | FLOATS)
KINDS = (pa.int32(), pa.string(), pa.float64())


def columns(rows: list[Any], width: int) -> list[pa.Array]:
    return [key_column(pa.array([row[i] for row in rows], KINDS[i])) for i in range(width)]


def by_hand(row: Any, width: int) -> Any:
    return tuple("nan" if value != value else value for value in row[:width])  # noqa: PLR0124 - NaN


@given(st.lists(ROW, min_size=1, max_size=40), st.lists(ROW | NULLABLE, max_size=40), st.integers(1, 3))
def test_the_index_finds_what_a_dict_finds(source: list[Any], rows: list[Any], width: int) -> None:
    index = KeyIndex(columns(source, width))
    known: dict[Any, int] = {}
    duplicate = None
    for number, row in enumerate(source):
        if by_hand(row, width) in known and duplicate is None:
            duplicate = number
        known.setdefault(by_hand(row, width), number)
    assert index.first_duplicate == duplicate
    distinct = [row for number, row in enumerate(source) if known[by_hand(row, width)] == number]
    expected = {by_hand(row, width): number for number, row in enumerate(distinct)}
    found = KeyIndex(columns(distinct, width)).find(columns(rows, width)).to_pylist()
    assert found == [None if None in row[:width] else expected.get(by_hand(row, width)) for row in rows]
