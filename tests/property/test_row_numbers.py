"""Numbers of rows are those that a dict of Python tuples gives; rows are found by key as a dict finds them, with Spark's NaN and zero."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from icelock.arrow.row_numbers import RowNumbers
from icelock.table.rows.source_rows import key_column

FLOATS = st.sampled_from([0.0, -0.0, math.nan, -math.nan, 1.5, -math.inf])
ROW = st.tuples(st.integers(-3, 3), st.sampled_from(["", "a", "b", "\U0001f511"]), FLOATS)
NULLABLE = st.tuples(st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "z"]), st.none() | FLOATS)
KINDS = (pa.int32(), pa.string(), pa.float64())


def columns(rows: list[Any], width: int) -> list[pa.Array]:
    return [key_column(pa.array([row[i] for row in rows], KINDS[i])) for i in range(width)]


def by_hand(row: Any, width: int) -> Any:
    return tuple("nan" if value != value else value for value in row[:width])  # noqa: PLR0124 - NaN


@given(st.lists(ROW | NULLABLE, max_size=40), st.lists(ROW | NULLABLE, max_size=40), st.integers(1, 3))
def test_numbers_are_those_of_a_dict(source: list[Any], rows: list[Any], width: int) -> None:
    """Nulls equal each other, also in ``find``; keys of an upsert have none, so a null in the table finds nothing."""
    numbers = RowNumbers(columns(source, width))
    known: dict[Any, int] = {}
    expected = [known.setdefault(by_hand(row, width), len(known)) for row in source]
    assert numbers.numbers.to_pylist() == expected
    assert numbers.count == len(known)
    assert numbers.find(columns(rows, width)).to_pylist() == [known.get(by_hand(row, width)) for row in rows]
    repeated = next((i for i, row in enumerate(source) if by_hand(row, width) in {by_hand(other, width) for other in source[:i]}), None)
    assert numbers.first_repetition == repeated
