"""Filters on catalog functions are ranges of the column: no value for which the comparison is true is left out, and others mostly are.

What the functions return is what PyIceberg's transforms do, by the specification.
"""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from decimal import Decimal

import pytest
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, TruncateTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DateType, DecimalType, IntegerType, LongType, NestedField, StringType, TimestampType

from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.native.functions import FunctionFilter

COMPARISONS = {
    "EqualTo": operator.eq,
    "NotEqualTo": operator.ne,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}
MOMENTS = [
    dt.datetime.fromisoformat(text)
    for text in (
        "0001-01-01",
        "1969-12-31 23:59:59.999999",
        "1970-01-01",
        "1970-01-01 01:00",
        "1970-02-01",
        "1971-01-01 00:30",
        "1968-02-29",
        "0001-01-01",
    )
]
NUMBERS = [-(2**31), -21, -20, -11, -10, -1, 0, 3, 9, 10, 11, 19, 2**31 - 1]
TEXTS = ["", "a", "ab", "abc", "abd", "ac", "b", "\ud7ff\ud7ff", "\ue000"]
KINDS = {
    "years": ("Years", YearTransform(), None, TimestampType(), MOMENTS),
    "months": ("Months", MonthTransform(), None, TimestampType(), MOMENTS),
    "days": ("Days", DayTransform(), None, TimestampType(), MOMENTS),
    "hours": ("Hours", HourTransform(), None, TimestampType(), MOMENTS),
    "months of dates": ("Months", MonthTransform(), None, DateType(), [moment.date() for moment in MOMENTS]),
    "truncate(10, int)": ("Truncate", TruncateTransform(10), 10, IntegerType(), NUMBERS),
    "truncate(7, long)": ("Truncate", TruncateTransform(7), 7, LongType(), NUMBERS),
    "truncate(2, text)": ("Truncate", TruncateTransform(2), 2, StringType(), TEXTS),
    "truncate(2, bytes)": ("Truncate", TruncateTransform(2), 2, BinaryType(), [b"", b"a", b"ab", b"abc", b"a\xff\xff"]),
    "truncate(50, decimal)": (
        *("Truncate", TruncateTransform(50), 50, DecimalType(38, 2)),
        [Decimal(text) for text in ("-0.51", "-0.50", "-0.01", "0.00", "0.49", "10.65", f"{'9' * 36}.49")],
    ),
}


def _number(day):
    return day if not isinstance(day, dt.date) else (day - dt.date(1970, 1, 1)).days


def _matches(translator, schema, filtered, value):
    found = filtered.of_rows(translator)
    return expression_evaluator(schema, found, case_sensitive=True)(Record(value))


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_has_all_values_that_match_and_few_others(kind):
    function, transform, number, column, values = KINDS[kind]
    schema = Schema(NestedField(1, "c", column, required=False))
    translator = FilterTranslator(schema, schema)
    apply = transform.transform(column)
    given = [value if isinstance(value, (str, bytes, Decimal)) or number else _stored(value) for value in values]
    results = [_wrapped(_number(apply(value)), column) for value in given]
    compared = sorted({*results} | ({7, -15} if isinstance(column, (IntegerType, LongType)) else set()))
    others = 0
    for (name, compare), wanted in itertools.product(COMPARISONS.items(), compared):
        filtered = FunctionFilter(name, function, number, ("c",), (wanted,))
        for value, result in zip(given, results, strict=True):
            matches = _matches(translator, schema, filtered, value)
            assert matches or not compare(result, wanted), (name, wanted, value)
            others += matches and not compare(result, wanted)
    assert others <= len(COMPARISONS) * len(compared) * len(values) // 20
    among = FunctionFilter("In", function, number, ("c",), tuple(compared))
    assert all(_matches(translator, schema, among, value) for value in given)
    assert not _matches(translator, schema, among, None)
    assert _matches(translator, schema, FunctionFilter("IsNull", function, number, ("c",), ()), None)


def _stored(value):
    """Return a time as Iceberg's transforms take it: microseconds or days."""
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001 - as the column
    return (value - dt.date(1970, 1, 1)).days


def _wrapped(result, column):
    """Return what Java's arithmetic makes of a result below the least number."""
    bits = {IntegerType: 32, LongType: 64}.get(type(column))
    return result + 2**bits if bits and result < -(2 ** (bits - 1)) else result


def test_what_has_no_range_keeps_all_but_nulls():
    schema = Schema(NestedField(1, "c", TimestampType(), required=False))
    translator = FilterTranslator(schema, schema)
    far = FunctionFilter("EqualTo", "Years", None, ("c",), (9000,))
    bucket = FunctionFilter("EqualTo", "Bucket", 4, ("c",), (1,))
    for filtered in (far, bucket):
        assert _matches(translator, schema, filtered, MOMENTS[0])
        assert not _matches(translator, schema, filtered, None)
    assert FunctionFilter("EqualTo", "Years", None, ("gone",), (1,)).of_rows(translator) is None


@pytest.mark.parametrize(("column", "last"), [(StringType(), "\U0010ffff" * 3), (BinaryType(), b"\xff" * 3)])
def test_nothing_comes_after_the_last_text(column, last):
    schema = Schema(NestedField(1, "c", column, required=False))
    translator = FilterTranslator(schema, schema)
    for name in ("EqualTo", "LessThanOrEqual", "GreaterThanOrEqual"):
        assert _matches(translator, schema, FunctionFilter(name, "Truncate", 2, ("c",), (last[:2],)), last)
