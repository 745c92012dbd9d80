"""Which rows of two Arrow tables of one schema differ, column by column.

Null equals null, NaN equals NaN, -0.0 equals 0.0. Lists and maps are compared as Python values, where NaN equals nothing.

Not here: which rows stand against each other (``table.rows.key_index``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.types import plain_array


def different_rows(left: pa.RecordBatch, right: pa.RecordBatch, columns: Iterable[str]) -> pa.Array:
    """Return a boolean array with true for each row in which one of the columns differs."""
    differs = pa.repeat(False, left.num_rows)
    for name in columns:
        differs = pc.or_(differs, _differs(left.column(name), right.column(name)))
    return differs


def _differs(left: Any, right: Any) -> pa.Array:
    left, right = plain_array(left), plain_array(right)
    one_null = pc.xor(left.is_null(), right.is_null())
    if pat.is_null(left.type):
        return one_null
    if pat.is_struct(left.type):
        children = [_differs(a, b) for a, b in zip(left.flatten(), right.flatten(), strict=True)]
        return _any([one_null, *children])
    if pat.is_nested(left.type):
        return pa.array([a != b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], pa.bool_())
    unequal = pc.fill_null(pc.not_equal(left, right), False)
    if pat.is_floating(left.type):
        both_nan = pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False)
        unequal = pc.and_not(unequal, both_nan)
    return pc.or_(one_null, unequal)


def _any(masks: list[pa.Array]) -> pa.Array:
    result = masks[0]
    for mask in masks[1:]:
        result = pc.or_(result, mask)
    return result
