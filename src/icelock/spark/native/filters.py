"""Filters of Spark's planner, as ``PushedFilters.java`` writes them, as an Iceberg expression.

Those of a native scan prune files, as the data source's filters do; Spark filters the rows itself. So unknown filters and values are left
out, at the price of files that are read needlessly. Those of a DELETE or an overwrite say which rows go: all of them are known, or none is
used.

Not here: single filters (``spark.columns.filters``), the filter of ``read`` (``spark.columns.conditions``).
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, cast

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or
from pyspark.sql import datasource as ds

from icelock.spark.columns.filters import FilterTranslator

_NAME: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_TRUE: Final = cast("BooleanExpression", AlwaysTrue())
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class FunctionFilter:
    """A comparison of a catalog function with a value, such as ``bucket(4, id) = 1``, by the name of the column.

    ``transform`` is the partition transform of the same result; times and dates are counted as partition values are.
    """

    column: str
    transform: str
    kind: str
    value: int

    def may_match(self, partition: Any) -> bool:
        """Whether rows with this partition value of the transform have the comparison's."""
        if isinstance(partition, dt.date):
            partition = (partition - _EPOCH.date()).days
        if partition is None:
            return False  # nothing that is compared with null is found
        return not isinstance(partition, int) or bool(_COMPARISONS[self.kind](partition, self.value))


def function_filters(filters: bytes) -> list[FunctionFilter]:
    """Return the comparisons of catalog functions; the others are for ``pruning_filter``."""
    found = []
    for kind, *parts in json.loads(filters):
        if kind == "Function" and parts[0] in _COMPARISONS and parts[1] in _TRANSFORMS:
            comparison, function, number, column, value = parts
            found.append(FunctionFilter(column, _TRANSFORMS[function].format(number), comparison, value))
    return found


class _Unknown(Exception):  # noqa: N818 - no error: the filter is left out
    """The filter or value has no form in Python."""


def pruning_filter(filters: bytes, translator: FilterTranslator) -> BooleanExpression:
    """Return the conjunction of filters, without unknown ones."""
    translated = (_expression(given, translator) for given in json.loads(filters))
    return reduce(And, (found for found in translated if found is not None), _TRUE)


def exact_filter_of(filters: bytes, translator: FilterTranslator) -> BooleanExpression | None:
    """Return the conjunction of filters, true for the same rows; None if one is unknown."""
    translated = [_exact(given, translator) for given in json.loads(filters)]
    return None if None in translated else reduce(And, (found for found in translated if found is not None), _TRUE)


def _exact(given: list[Any], translator: FilterTranslator) -> BooleanExpression | None:
    kind = given[0]
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
        return translator.translate(_filter(given))
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
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
_TRANSFORMS: Final = {
    "Bucket": "bucket[{}]",
    "Truncate": "truncate[{}]",
    "Years": "year",
    "Months": "month",
    "Days": "day",
    "Hours": "hour",
}
_VALUES: Final[dict[str, Callable[[str], Any]]] = {
    "float": float,
    "decimal": decimal.Decimal,
    "bytes": base64.b64decode,
    "date": dt.date.fromisoformat,
    "instant": _after(_EPOCH_UTC),
    "datetime": _after(_EPOCH),
}
