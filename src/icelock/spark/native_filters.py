"""Filters that Spark's planner has for a native scan, as an Iceberg expression.

They prune files, as those that the data source gets do; Spark filters the rows itself. So a filter that has no form here, or a value whose
kind is unknown, is left out, and files are read that need not be.

Not here: the form of a single one (``filters``), the filter that a user gives to ``read`` (``conditions``).
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyspark.sql import datasource as ds

if TYPE_CHECKING:
    from icelock.spark.filters import FilterTranslator

_NAME: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PLAIN: Final = (bool, int, float, str, bytes, decimal.Decimal)


class _Unknown(Exception):  # noqa: N818 - no error: the filter is left out
    """There is no such filter or value on this side."""


def pruning_filter(filters: Any, translator: FilterTranslator) -> BooleanExpression:
    """Return what all of Spark's filters, a Java list, demand together, as far as there is a form for it."""
    # An iterator's end is an exception in Java, which PySpark takes 70 calls to look into.
    translated = (_expression(filters.get(index), translator) for index in range(filters.size()))
    return reduce(And, (found for found in translated if found is not None), cast("BooleanExpression", AlwaysTrue()))


def _expression(given: Any, translator: FilterTranslator) -> BooleanExpression | None:
    kind = _kind(given)
    if kind in {"And", "Or"}:
        left, right = _expression(given.left(), translator), _expression(given.right(), translator)
        if left is None or right is None:
            return None if kind == "Or" else left or right
        return And(left, right) if kind == "And" else Or(left, right)
    try:
        return translator.translate(_filter(given))
    except _Unknown:
        return None


def _kind(value: Any) -> str:
    return str(value.getClass().getSimpleName())


def _filter(given: Any) -> ds.Filter:
    kind = _kind(given)
    if kind == "Not":
        return ds.Not(_filter(given.child()))
    if kind in _UNARY:
        return _UNARY[kind](_path(given.attribute()))
    if kind in _BINARY:
        return _BINARY[kind](_path(given.attribute()), _value(given.value()))
    if kind == "In":
        values = given.values()
        return ds.In(_path(given.attribute()), tuple(_value(values[index]) for index in range(len(values))))
    raise _Unknown


def _path(attribute: str) -> tuple[str, ...]:
    return tuple(quoted.replace("``", "`") if quoted else plain for quoted, plain in _NAME.findall(attribute))


def _value(value: Any) -> Any:
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    convert = _VALUES.get(value.getClass().getName()) if hasattr(value, "getClass") else None
    if convert is None:
        raise _Unknown
    return convert(value)


def _local_date(value: Any) -> dt.date:
    return dt.date(value.getYear(), value.getMonthValue(), value.getDayOfMonth())


def _instant(value: Any) -> dt.datetime:
    return _EPOCH_UTC + dt.timedelta(seconds=value.getEpochSecond(), microseconds=value.getNano() // 1000)


def _local_date_time(value: Any) -> dt.datetime:
    day = _local_date(value.toLocalDate())
    return dt.datetime.combine(day, dt.time()) + dt.timedelta(microseconds=value.toLocalTime().toNanoOfDay() // 1000)


_UNARY: Final[dict[str, Callable[[tuple[str, ...]], ds.Filter]]] = {"IsNull": ds.IsNull, "IsNotNull": ds.IsNotNull}
_BINARY: Final[dict[str, Callable[[tuple[str, ...], Any], ds.Filter]]] = {
    "EqualTo": ds.EqualTo,
    "EqualNullSafe": ds.EqualNullSafe,
    "GreaterThan": ds.GreaterThan,
    "GreaterThanOrEqual": ds.GreaterThanOrEqual,
    "LessThan": ds.LessThan,
    "LessThanOrEqual": ds.LessThanOrEqual,
    "StringStartsWith": ds.StringStartsWith,
}
_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    "java.sql.Date": lambda value: _local_date(value.toLocalDate()),
    "java.time.LocalDate": _local_date,
    "java.sql.Timestamp": lambda value: _instant(value.toInstant()),
    "java.time.Instant": _instant,
    "java.time.LocalDateTime": _local_date_time,
}
