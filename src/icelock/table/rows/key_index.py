"""Rows found by their key, vectorised: which source row has the key of a row.

Each key column is looked up in the source's distinct values of it; the numbers of two columns make a number for the pair, which is looked
up in turn, so numbers never grow beyond the square of the source. Keys compare as in Spark: NaN equals NaN, -0.0 equals 0.0, and null
equals nothing.

Not here: which columns are the key (``table.rows.source_rows``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.types import plain_array


def key_column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return key values such that equal keys have equal bytes: one NaN, one zero; offsets of 64 bits."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    plain = [_wide(plain_array(chunk)) for chunk in chunks] or [_wide(plain_array(pa.array([], column.type)))]
    values = pa.concat_arrays(plain)
    if pat.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 + 0.0 is 0.0
        values = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    return values


class KeyIndex:
    """The keys of source rows; columns are those of ``key_column``, the same ones in each call."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """Index the keys of source rows, none of which is null."""
        self._rows = len(columns[0])
        self._levels: list[tuple[pa.Array, pa.Array | None]] = []
        code: Any = None
        for column in columns:
            values = pc.unique(column)
            found = pc.index_in(column, value_set=values).cast(pa.int64())
            if code is None:
                code, pairs = found, None
            else:
                both = _pair(code, found, len(values))
                pairs = pc.unique(both)
                code = pc.index_in(both, value_set=pairs).cast(pa.int64())
            self._levels.append((values, pairs))
        self._codes = code
        self._distinct = len(pc.unique(code))

    @property
    def first_duplicate(self) -> int | None:
        """The first source row whose key an earlier one has, None if there is none."""
        if self._distinct == self._rows:
            return None
        # Numbers are given in order of first occurrence: the first one that is not the highest so far is a repetition.
        highest = -1
        for row, code in enumerate(self._codes.to_pylist()):
            if code <= highest:
                return row
            highest = code
        return None

    def find(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return for each row the source row with its key, as int64; null where none has. The source's keys are distinct."""
        code: Any = None
        for column, (values, pairs) in zip(columns, self._levels, strict=True):
            found = pc.index_in(column, value_set=values, skip_nulls=True).cast(pa.int64())
            code = (
                found if pairs is None else pc.index_in(_pair(code, found, len(values)), value_set=pairs, skip_nulls=True).cast(pa.int64())
            )
        return code


def _pair(first: pa.Array, second: pa.Array, count: int) -> pa.Array:
    return pc.add(pc.multiply(first, pa.scalar(count, pa.int64())), second)


def _wide(array: pa.Array) -> pa.Array:
    if pat.is_string(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pat.is_binary(array.type) else array
