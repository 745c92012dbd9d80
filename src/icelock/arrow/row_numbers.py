"""Rows of several columns as numbers: equal rows have equal numbers, counted from 0 by first occurrence.

Columns are joined one after another: each value becomes its number among the column's distinct values, and a pair of numbers becomes the
number of the pair, so numbers never grow beyond the square of the rows. A null equals a null here; -0.0 and 0.0 are two values.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


class RowNumbers:
    """Numbers the rows of some columns, and finds other rows among them.

    Args:
        columns: one or more arrays of one length.

    Attributes:
        numbers: of the rows, as an int32 array without nulls.
        count: of distinct rows.
    """

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._levels: list[tuple[pa.Array, pa.Array | None]] = []
        self.numbers: pa.Array = None
        self.count = 1
        for column in columns:
            encoded = column.dictionary_encode(null_encoding="encode")
            values, pairs = encoded.dictionary, None
            if self._levels:
                encoded = _pairs(self.numbers, encoded.indices, len(values)).dictionary_encode()
                pairs = encoded.dictionary
            self._levels.append((values, pairs))
            self.numbers, self.count = encoded.indices, len(encoded.dictionary)

    @property
    def first_repetition(self) -> int | None:
        """The position of the first row that equals an earlier one; None if all are distinct."""
        if self.count == len(self.numbers):
            return None
        # Numbers follow first occurrence, so up to the first repetition each is its row's position.
        found: int = pc.index(pc.not_equal(self.numbers, pa.arange(0, len(self.numbers))), value=True).as_py()
        return found

    def find(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the number of each row of other columns of the same types; null for a row that is not among these."""
        found: pa.Array = None
        for column, (values, pairs) in zip(columns, self._levels, strict=True):
            numbers = pc.index_in(column, value_set=values)
            found = numbers if pairs is None else pc.index_in(_pairs(found, numbers, len(values)), value_set=pairs)
        return found


def _pairs(first: pa.Array, second: pa.Array, count: int) -> pa.Array:
    """Return a number for each pair; ``count`` is above all numbers of ``second``."""
    return pc.add(pc.multiply(first.cast(pa.int64()), pa.scalar(count, pa.int64())), second.cast(pa.int64()))
