"""Filters on catalog functions of a column, such as ``days(ts) = date'2020-01-01'``, as ``FunctionFilters.java`` writes them.

Years, months, days, hours and ``truncate`` keep the order of values, so what compares them with a value is a range of the column:
manifests, partitions and metrics of files prune by it, however the table is partitioned. ``bucket`` keeps no order: it
prunes the files of tables that are partitioned by the same function, and no others.

Not here: other filters (``spark.native.filters``), what the functions return (``CatalogFunctions.java``).
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final, cast

from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyspark.sql import datasource as ds

from icelock.spark.columns.filters import FilterColumn, FilterTranslator

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a zone is added where the column has one
_MONTHS: Final = 12
_MOST_VALUES: Final = 200
_TRUE: Final = cast("ex.BooleanExpression", ex.AlwaysTrue())
_WIDEST: Final = 2**30
"""Spark's sum of value and width overflows beyond it."""


class _NoRange(Exception):  # noqa: N818 - no error: the filter says less
    """The comparison has no range of the column."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The values of a column with one result of a function: from ``start`` up to below ``end``.

    A result that the function does not have (``truncate(10, id) = 7``) is not ``attained``: then it is that of the next smaller result.
    """

    start: Any
    end: Any
    attained: bool = True


@dataclass(frozen=True, slots=True)
class FunctionFilter:
    """A comparison of a function with values, by the path of its column; dates are counted from 1970, as partition values are."""

    comparison: str
    function: str
    number: int | None
    column: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def is_bucket(self) -> bool:
        """Whether it prunes by partition values alone."""
        return self.function == "Bucket"

    def of_rows(self, translator: FilterTranslator) -> ex.BooleanExpression | None:
        """Return a filter of the column that keeps at least the rows for which the comparison is true."""
        if self.comparison == "IsNull":
            return translator.translate(ds.IsNull(self.column))
        present, column = translator.translate(ds.IsNotNull(self.column)), translator.column(self.column)
        if column is None or present is None or self.is_bucket or not 0 < len(self.values) <= _MOST_VALUES:
            return present
        try:
            compared = self._compared(translator, [self._interval(column, value) for value in self.values])
        except (_NoRange, OverflowError, ValueError):  # the latter for times outside Python's calendar
            return present
        wrapped = self._wrapped(column)
        return ex.And(present, compared if wrapped is None else ex.Or(compared, wrapped))

    def may_match(self, bucket: int | None) -> bool:
        """Whether rows with this partition value may have the comparison's."""
        if self.comparison in {"IsNull", "IsNotNull"}:
            return (bucket is None) == (self.comparison == "IsNull")
        if bucket is None:
            return False  # nothing that is compared with null is found
        if self.comparison in {"In", "NotIn"}:
            return (bucket in self.values) == (self.comparison == "In")
        return bool(_COMPARISONS[self.comparison](bucket, self.values[0]))

    def _interval(self, column: FilterColumn, value: Any) -> Interval:
        if self.function != "Truncate":
            return _of_time(self.function, column, value)
        width = self.number or 0
        if not 0 < width <= _WIDEST:
            raise _NoRange
        if isinstance(value, (str, bytes)):
            return Interval(value[:width], _after(value[:width], width), attained=len(value) <= width)
        scale = column.kind.scale if isinstance(column.kind, ice.DecimalType) else 0
        unscaled = _unscaled(value, scale)
        whole = unscaled - unscaled % width
        start, end = (number if isinstance(value, int) else Decimal(f"{number}E-{scale}") for number in (whole, whole + width))
        return Interval(start, end, attained=whole == unscaled)

    def _compared(self, translator: FilterTranslator, intervals: list[Interval]) -> ex.BooleanExpression:
        """Return the filter of the values in (or not in) intervals, or before or after one."""
        if self.comparison in {"NotEqualTo", "NotIn"}:
            return reduce(ex.And, [self._without(translator, interval) for interval in intervals if interval.attained], _TRUE)
        if self.comparison in {"EqualTo", "In"}:
            return reduce(ex.Or, [self._within(translator, interval) for interval in intervals])
        (interval,) = intervals
        if self.comparison.startswith("Less"):
            to_start = self.comparison == "LessThan" and interval.attained
            return self._is(translator, ds.LessThan, interval.start if to_start else interval.end)
        from_start = self.comparison == "GreaterThanOrEqual" and interval.attained
        return self._is(translator, ds.GreaterThanOrEqual, interval.start if from_start else interval.end)

    def _without(self, translator: FilterTranslator, interval: Interval) -> ex.BooleanExpression:
        before = self._is(translator, ds.LessThan, interval.start)
        return ex.Or(before, self._is(translator, ds.GreaterThanOrEqual, interval.end))

    def _within(self, translator: FilterTranslator, interval: Interval) -> ex.BooleanExpression:
        if not interval.attained:
            return ex.AlwaysFalse()
        if isinstance(interval.start, str):  # of truncated partitions a range would keep two
            return self._is(translator, ds.StringStartsWith if len(interval.start) == self.number else ds.EqualTo, interval.start)
        from_start = self._is(translator, ds.GreaterThanOrEqual, interval.start)
        return ex.And(from_start, self._is(translator, ds.LessThan, interval.end))

    def _is(self, translator: FilterTranslator, kind: Any, value: Any) -> ex.BooleanExpression:
        found = translator.translate(kind(self.column, value))
        if found is None:
            raise _NoRange
        return found

    def _wrapped(self, column: FilterColumn) -> ex.BooleanExpression | None:
        """Return the filter of the smallest numbers, which ``truncate`` makes the greatest ones by an overflow."""
        bits = {ice.IntegerType: 31, ice.LongType: 63}.get(type(column.kind))
        if self.function != "Truncate" or bits is None:
            return None
        less_than: Any = ex.LessThan  # whose arguments mypy does not understand
        made: ex.BooleanExpression = less_than(column.name, -(2**bits) + (self.number or 0))
        return made


def _of_time(function: str, column: FilterColumn, value: int) -> Interval:
    """Return the interval of a number of years, months, days or hours since 1970."""
    start, end = _BEGINS[function](value), _BEGINS[function](value + 1)
    if isinstance(column.kind, ice.DateType):
        return Interval(start.date(), end.date())
    if isinstance(column.kind, ice.TimestamptzType):
        return Interval(start.replace(tzinfo=dt.UTC), end.replace(tzinfo=dt.UTC))
    return Interval(start, end)


def _unscaled(value: Any, scale: int) -> int:
    """Return a whole number, or a decimal without its point; one with more digits behind it is no result of a function."""
    if isinstance(value, int):
        return value
    if not isinstance(value, Decimal):
        raise _NoRange
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise _NoRange
    return int(Decimal((sign, (*digits, *[0] * (exponent + scale)), 0)))


def _month(number: int) -> dt.datetime:
    return dt.datetime(1970 + number // _MONTHS, 1 + number % _MONTHS, 1)  # noqa: DTZ001 - as _EPOCH


_BEGINS: Final[dict[str, Callable[[int], dt.datetime]]] = {
    "Years": lambda number: _month(number * _MONTHS),
    "Months": _month,
    "Days": lambda number: _EPOCH + dt.timedelta(days=number),
    "Hours": lambda number: _EPOCH + dt.timedelta(hours=number),
}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": operator.eq,
    "NotEqualTo": operator.ne,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


def _after(value: Any, width: int) -> Any:
    """Return the least text or bytes after all that are truncated to a value."""
    if len(value) < width:
        return value + ("\0" if isinstance(value, str) else b"\0")
    if not isinstance(value, str):
        kept = value.rstrip(b"\xff")
        if not kept:
            raise _NoRange
        return kept[:-1] + bytes([kept[-1] + 1])
    kept = value.rstrip("\U0010ffff")
    if not kept:
        raise _NoRange
    following = chr(ord(kept[-1]) + 1)
    return kept[:-1] + ("\ue000" if following == "\ud800" else following)  # surrogates are no text
