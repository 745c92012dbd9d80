"""Files whose bounds say that a column has one value are passed over by ``!=``, NOT IN and NOT LIKE; all others are not."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema

from icelock.plan.filters.exact import exact_filter
from icelock.plan.metrics_visitor import MetricsEvaluator

SCHEMA = Schema(
    ice.NestedField(1, "n", ice.LongType(), required=False),
    ice.NestedField(2, "f", ice.DoubleType(), required=False),
    ice.NestedField(3, "s", ice.StringType(), required=False),
)
LONG = "a" * 16


def _file(name: str, lower: Any, upper: Any, *, nulls: int | None = 0, nans: int | None = 0) -> Any:
    column = SCHEMA.find_field(name)
    counts = {} if nulls is None else {column.field_id: nulls}
    return SimpleNamespace(
        record_count=5,
        value_counts={column.field_id: 5},
        null_value_counts=counts,
        nan_value_counts={} if nans is None else {column.field_id: nans},
        lower_bounds={column.field_id: to_bytes(column.field_type, lower)},
        upper_bounds={column.field_id: to_bytes(column.field_type, upper)},
    )


@pytest.mark.parametrize(
    ("row_filter", "file", "may_match"),
    [
        (ex.NotEqualTo("n", 1), _file("n", 1, 1), False),
        (ex.NotEqualTo("n", 1), _file("n", 1, 2), True),
        (ex.NotEqualTo("n", 1), _file("n", 2, 2), True),
        (ex.NotEqualTo("n", 1), _file("n", 1, 1, nulls=None), True),
        (ex.Or(ex.IsNull("n"), ex.NotEqualTo("n", 1)), _file("n", 1, 1, nulls=1), True),
        (ex.NotIn("n", {1, 3}), _file("n", 1, 1), False),
        (ex.NotIn("n", {1, 3}), _file("n", 1, 3), True),
        (ex.NotIn("n", {1, 3}), _file("n", 2, 2), True),
        (ex.NotEqualTo("f", 1.5), _file("f", 1.5, 1.5), False),
        (ex.NotEqualTo("f", 1.5), _file("f", 1.5, 1.5, nans=1), True),
        (ex.NotEqualTo("f", 1.5), _file("f", 1.5, 1.5, nans=None), True),
        (ex.NotEqualTo("f", 1.5), _file("f", math.nan, math.nan), True),
        (ex.NotEqualTo("f", 0.0), _file("f", -0.0, 0.0), False),
        (ex.NotEqualTo("s", "a"), _file("s", "a", "a"), False),
        (ex.NotEqualTo("s", LONG), _file("s", LONG, LONG), True),
        (ex.NotStartsWith("s", "ab"), _file("s", "ab", "abc"), False),
        (ex.NotStartsWith("s", "ab"), _file("s", "a", "abc"), True),
        (ex.NotStartsWith("s", "ab"), _file("s", "ab", "ac"), True),
        (ex.NotStartsWith("s", "ab"), _file("s", "ab", "abc", nulls=None), True),
    ],
)
def test_one_value(row_filter, file, may_match):
    evaluator = MetricsEvaluator(SCHEMA, exact_filter(row_filter, SCHEMA, case_sensitive=True))
    assert evaluator.eval(file) is may_match
