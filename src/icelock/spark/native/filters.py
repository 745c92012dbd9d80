"""Filters of Spark's planner, as ``PushedFilters.java`` writes them, as an Iceberg expression.

Those of a native scan prune files, as the data source's filters do; Spark filters the rows itself. So unknown filters and values are left
out, at the price of files that are read needlessly. Those of a DELETE or an overwrite say which rows go: all of them are known, or none is
used.

Not here: single filters (``spark.columns.filters``), those on functions (``spark.native.functions``), the filter of ``read``
(``spark.columns.conditions``).
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import re
from collections.abc import Callable
from functools import reduce
from typing import Any, Final, cast

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or
from pyspark.sql import datasource as ds

from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.native.functions import FunctionFilter

FUNCTION: Final = "Function"
_NAME: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_TRUE: Final = cast("BooleanExpression", AlwaysTrue())
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def bucket_conditions(filters: bytes) -> list[list[Any]]:
    """Return the filters in which a bucket is compared, which prune by partition values (``spark.native.plan``)."""
    return [given for given in json.loads(filters) if _has_bucket(given)]


def _has_bucket(given: list[Any]) -> bool:
    if given[0] in {"And", "Or"}:
        return any(map(_has_bucket, given[1:]))
    return given[0] == FUNCTION and function_filter(given).is_bucket


def function_filter(given: list[Any]) -> FunctionFilter:
    """Return the comparison of a catalog function that a filter is."""
    _, comparison, function, number, column, values = given
    return FunctionFilter(comparison, function, number, _path(column), tuple(map(_value, values)))


class _Unknown(Exception):  # noqa: N818 - no error: the filter is left out
    """The filter or value has no form in Python."""


def pruning_filter(filters: bytes, translator: FilterTranslator) -> BooleanExpression:
    """Return the conjunction of filters, without unknown ones."""
    return conjunction(json.loads(filters), translator)


def conjunction(filters: list[Any], translator: FilterTranslator) -> BooleanExpression:
    """Return the conjunction of parsed filters, without unknown ones."""
    translated = (_expression(given, translator) for given in filters)
    return reduce(And, (found for found in translated if found is not None), _TRUE)


def exact_filter_of(filters: bytes, translator: FilterTranslator) -> BooleanExpression | None:
    """Return the conjunction of filters, true for the same rows; None if one is unknown."""
    translated = [_exact(given, translator) for given in json.loads(filters)]
    return None if None in translated else reduce(And, (found for found in translated if found is not None), _TRUE)


def _exact(given: list[Any], translator: FilterTranslator) -> BooleanExpression | None:
    kind = given[0]
    if kind == FUNCTION:
        return None
    if kind in {"AlwaysTrue", "AlwaysFalse"}:
        return AlwaysTrue() if kind == "AlwaysTrue" else AlwaysFalse()
    if kind not in {"And", "Or"}:
        return _expression(given, translator)
    left, right = (_exact(part, translator) for part in given[1:])
    if left is None or right is None:
        return None
    return And(left, right) if kind == "And" else Or(left, right)


def _expression(given: list[Any], translator: FilterTranslator) -> BooleanExpression | None:
    kind = given[0]
    if kind in {"And", "Or"}:
        left, right = (_expression(part, translator) for part in given[1:])
        if left is None or right is None:
            return None if kind == "Or" else left or right
        return And(left, right) if kind == "And" else Or(left, right)
    try:
        return function_filter(given).of_rows(translator) if kind == FUNCTION else translator.translate(_filter(given))
    except _Unknown:
        return None


def _filter(given: list[Any]) -> ds.Filter:
    kind, *parts = given
    if kind == "Not":
        return ds.Not(_filter(parts[0]))
    if kind in _UNARY:
        return _UNARY[kind](_path(parts[0]))
    if kind in _BINARY:
        return _BINARY[kind](_path(parts[0]), _value(parts[1]))
    if kind == "In":
        return ds.In(_path(parts[0]), tuple(map(_value, parts[1])))
    raise _Unknown


def _path(attribute: str) -> tuple[str, ...]:
    return tuple(quoted.replace("``", "`") if quoted else plain for quoted, plain in _NAME.findall(attribute))


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    if kind not in _VALUES:
        raise _Unknown
    try:
        return _VALUES[kind](text)
    except (ValueError, OverflowError) as e:
        raise _Unknown from e  # a time before the year 1 or after 9999


def _after(epoch: dt.datetime) -> Callable[[str], dt.datetime]:
    def convert(text: str) -> dt.datetime:
        seconds, micros = map(int, text.split())
        return epoch + dt.timedelta(seconds=seconds, microseconds=micros)

    return convert


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
_VALUES: Final[dict[str, Callable[[str], Any]]] = {
    "float": float,
    "decimal": decimal.Decimal,
    "bytes": base64.b64decode,
    "date": dt.date.fromisoformat,
    "instant": _after(_EPOCH_UTC),
    "datetime": _after(_EPOCH),
}
