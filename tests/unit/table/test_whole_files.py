"""Files that a delete may drop unread: only with metrics that prove each row; what is not counted may be there (worked out by hand)."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, In, IsNull, LessThan, NotEqualTo, NotIn, NotNull
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StructType

from icelock.plan.filters.exact import exact_filter
from icelock.plan.whole_files import WholeFiles

SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=False),
    NestedField(2, "f", DoubleType(), required=False),
    NestedField(3, "r", LongType(), required=True),
    NestedField(4, "s", StructType(NestedField(5, "x", LongType(), required=False)), required=False),
)
FIVE, FIVE_POINT = struct.pack("<q", 5), struct.pack("<d", 5.0)
BOUNDS = {1: FIVE, 2: FIVE_POINT, 3: FIVE, 5: FIVE}
NONE = {1: 0, 2: 0, 3: 0, 5: 0}


def certain(row_filter: Any, residual: Any = None, **metrics: Any) -> bool:
    """Ask about a file of three rows, 5 in every column as far as bounds tell."""
    counts: dict[str, Any] = {name: {} for name in ("value_counts", "null_value_counts", "nan_value_counts")}
    file = SimpleNamespace(**{"record_count": 3, **counts, "lower_bounds": BOUNDS, "upper_bounds": BOUNDS, **metrics})
    planned: Any = SimpleNamespace(file=file, residual=residual)
    return WholeFiles(SCHEMA, exact_filter(row_filter, SCHEMA, case_sensitive=True)).certain(planned)


def test_counts_and_bounds_that_prove_it():
    assert certain(LessThan("n", 6), null_value_counts=NONE)
    assert certain(In("n", [5, 9]), null_value_counts=NONE)
    assert certain(LessThan("f", 6.0), null_value_counts=NONE, nan_value_counts={2: 0})
    assert certain(LessThan("r", 6)), "a required column has no nulls to count"
    assert certain(IsNull("n"), value_counts={1: 3}, null_value_counts={1: 3})
    assert certain(EqualTo("n", 1), residual=AlwaysTrue())
    assert certain(LessThan("n", 6), record_count=0)


@pytest.mark.parametrize("row_filter", [LessThan("n", 6), EqualTo("n", 5), In("n", [5, 9]), NotNull("n"), LessThan("n", 2**70)], ids=repr)
def test_nulls_that_nobody_counted_may_be_there(row_filter):
    assert not certain(row_filter)
    assert not certain(row_filter, value_counts={1: 3}, null_value_counts={1: 1})
    assert certain(row_filter, null_value_counts={1: 0})


@pytest.mark.parametrize("row_filter", [LessThan("f", 6.0), EqualTo("f", 5.0), In("f", [5.0, 9.0])], ids=repr)
def test_nan_that_nobody_counted_may_be_there(row_filter):
    assert not certain(row_filter, null_value_counts=NONE)
    assert not certain(row_filter, null_value_counts=NONE, nan_value_counts={2: 1})
    assert certain(row_filter, null_value_counts=NONE, nan_value_counts={2: 0})


def test_nothing_is_claimed_of_negations_and_fields_of_structs():
    counted = {"null_value_counts": NONE, "nan_value_counts": {2: 0}}
    assert not certain(NotEqualTo("n", 9), **counted)
    assert not certain(NotIn("n", [8, 9]), value_counts={1: 3}, null_value_counts={1: 3})
    assert not certain(LessThan("s.x", 6), **counted)
    assert not certain(NotEqualTo("n", 9), residual=AlwaysTrue(), **counted)
    assert not certain(LessThan("n", 6), record_count=-1, **counted)
