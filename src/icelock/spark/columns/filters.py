"""Filters that Spark pushes down, as Iceberg expressions; filters that are not translated stay with Spark (case C-53).

A translation is exact: the expression keeps exactly the rows for which Spark's filter is true. Where Iceberg and Spark differ, it follows
Spark's rules:

    NULL    every comparison but ``<=>`` and IS NULL drops it, negated ones too; IN with a NULL in its list is the list without it,
            and NOT IN with one is true for no row
    NaN     equals itself and is greater than every number:  x > 5  →  x > 5 or is_nan(x)
    -0.0    equals 0.0, in IN too

Not translated: ends with, contains, order of UUIDs (text in Spark, bytes in Iceberg), UUID text that is not canonical, struct, list and map
columns, anything below a list or map.

Not here: which files a filter excludes (PyIceberg's planner) and which rows (``arrow.read.row_filter``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import reduce
from typing import Any, Final
from uuid import UUID

from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions.literals import Literal, literal
from pyiceberg.schema import Schema
from pyspark.sql import datasource as ds

_FLOATS: Final = (ice.FloatType, ice.DoubleType)
_WIDE: Final = Context(prec=100)  # a decimal has 38 digits at most; Python's default context rounds to 28
_REFORM: Final = date(1582, 10, 15)
_SETTLED: Final = datetime(1900, 1, 1, tzinfo=UTC)
_ORDERED: Final[dict[type[Any], type[Any]]] = {
    ds.GreaterThan: ex.GreaterThan,
    ds.GreaterThanOrEqual: ex.GreaterThanOrEqual,
    ds.LessThan: ex.LessThan,
    ds.LessThanOrEqual: ex.LessThanOrEqual,
}


class _Untranslatable(Exception):  # noqa: N818 - no error: the filter stays with Spark
    """The filter has no exact translation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterColumn:
    """A primitive column: its name in the table's schema, its type and its id."""

    name: str
    kind: ice.PrimitiveType
    field_id: int


def is_shifted(pushed: ds.Filter) -> bool:
    """Whether a filter of Spark's Python data sources may be about another moment than the query's.

    Its values went through java.sql, whose calendar has 15 October 1582 in place of the ten days before, too, and whose zones differ until
    1900 (Spark's ``RebaseDateTime``); timestamps without a zone did not.
    """
    if isinstance(pushed, ds.Not):
        return is_shifted(pushed.child)
    value = getattr(pushed, "value", None)
    return any(map(_is_shifted, value if isinstance(value, (list, tuple)) else [value]))


def _is_shifted(value: Any) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is not None and value < _SETTLED
    return bool(value == _REFORM)


class FilterTranslator:
    """Translates filters on the columns of ``projected`` into expressions on ``table_schema``; columns are the same by field id."""

    def __init__(self, projected: Schema, table_schema: Schema) -> None:
        self._projected = projected
        self._table_schema = table_schema

    def translate(self, pushed: ds.Filter) -> ex.BooleanExpression | None:
        """Return the exact translation, if there is one."""
        try:
            return self._translate(pushed)
        except _Untranslatable:
            return None

    def column(self, path: Sequence[str]) -> FilterColumn | None:
        """Return a primitive column by its path in the projected schema, if there is one."""
        try:
            return self._column(path)
        except _Untranslatable:
            return None

    def _translate(self, pushed: ds.Filter) -> ex.BooleanExpression:
        negated = isinstance(pushed, ds.Not)
        inner = pushed.child if isinstance(pushed, ds.Not) else pushed
        if isinstance(inner, ds.Not):
            return self._translate(inner.child)
        rule = _RULES.get(type(inner))
        if rule is None:
            raise _Untranslatable
        column = self._column(inner.attribute)  # type: ignore[attr-defined]
        return rule(column, inner, negated)

    def _column(self, path: Sequence[str]) -> FilterColumn:
        fields, field = self._projected.fields, None
        for name in path:
            field = next((candidate for candidate in fields if candidate.name == name), None)
            if field is None:
                raise _Untranslatable
            fields = field.field_type.fields if isinstance(field.field_type, ice.StructType) else ()
        if field is None or not isinstance(field.field_type, ice.PrimitiveType):
            raise _Untranslatable
        full_name = self._table_schema.find_column_name(field.field_id)
        if full_name is None:
            raise _Untranslatable
        return FilterColumn(name=full_name, kind=field.field_type, field_id=field.field_id)


def _is_null(column: FilterColumn, _: Any, negated: bool) -> ex.BooleanExpression:
    return _present(column) if negated else _predicate(ex.IsNull, column)


def _is_not_null(column: FilterColumn, _: Any, negated: bool) -> ex.BooleanExpression:
    return _predicate(ex.IsNull, column) if negated else _present(column)


def _equal(column: FilterColumn, pushed: ds.EqualTo, negated: bool) -> ex.BooleanExpression:
    if pushed.value is None:
        return ex.AlwaysFalse()
    return _not_among(column, [pushed.value]) if negated else _among(column, [pushed.value])


def _equal_null_safe(column: FilterColumn, pushed: ds.EqualNullSafe, negated: bool) -> ex.BooleanExpression:
    if pushed.value is None:
        return _is_null(column, pushed, negated)
    if negated:
        return ex.Or(_predicate(ex.IsNull, column), _not_among(column, [pushed.value]))
    return _among(column, [pushed.value])


def _in(column: FilterColumn, pushed: ds.In, negated: bool) -> ex.BooleanExpression:
    values = [value for value in pushed.value if value is not None]
    if not negated:
        return _among(column, values)
    if len(values) < len(pushed.value):
        return ex.AlwaysFalse()  # x NOT IN (..., NULL) is never true
    return _not_among(column, values)


def _ordered(column: FilterColumn, pushed: Any, negated: bool) -> ex.BooleanExpression:
    if pushed.value is None:
        return ex.AlwaysFalse()
    operator = _OPPOSITE[type(pushed)] if negated else type(pushed)
    if isinstance(column.kind, ice.UUIDType):
        raise _Untranslatable
    if not isinstance(column.kind, _FLOATS):
        return _comparison(operator, column, pushed.value)
    greater = operator in (ds.GreaterThan, ds.GreaterThanOrEqual)
    if _is_nan(pushed.value):
        if operator is ds.GreaterThan:
            return ex.AlwaysFalse()
        if operator is ds.LessThanOrEqual:
            return _present(column)
        return _predicate(ex.IsNaN, column) if greater else ex.And(_present(column), _predicate(ex.NotNaN, column))
    compared = _comparison(operator, column, pushed.value)
    return ex.Or(compared, _predicate(ex.IsNaN, column)) if greater else compared


def _starts_with(column: FilterColumn, pushed: ds.StringStartsWith, negated: bool) -> ex.BooleanExpression:
    if not isinstance(column.kind, ice.StringType) or not isinstance(pushed.value, str) or not pushed.value:
        raise _Untranslatable
    if negated:
        return ex.And(_present(column), _predicate(ex.NotStartsWith, column, pushed.value))
    return _predicate(ex.StartsWith, column, pushed.value)


_OPPOSITE: Final[dict[type[Any], type[Any]]] = {
    ds.GreaterThan: ds.LessThanOrEqual,
    ds.GreaterThanOrEqual: ds.LessThan,
    ds.LessThan: ds.GreaterThanOrEqual,
    ds.LessThanOrEqual: ds.GreaterThan,
}
_RULES: Final[dict[type[Any], Callable[[FilterColumn, Any, bool], ex.BooleanExpression]]] = {
    ds.IsNull: _is_null,
    ds.IsNotNull: _is_not_null,
    ds.EqualTo: _equal,
    ds.EqualNullSafe: _equal_null_safe,
    ds.In: _in,
    ds.StringStartsWith: _starts_with,
    **dict.fromkeys(_ORDERED, _ordered),
}


def _predicate(kind: Any, column: FilterColumn, *arguments: Any) -> ex.BooleanExpression:
    # PyIceberg's constructors are hidden from type checkers by pydantic's plugin.
    made: ex.BooleanExpression = kind(column.name, *arguments)
    return made


def _present(column: FilterColumn) -> ex.BooleanExpression:
    return _predicate(ex.NotNull, column)


def _comparison(operator: type[Any], column: FilterColumn, value: Any) -> ex.BooleanExpression:
    return _predicate(_ORDERED[operator], column, _literal(column.kind, value))


def _among(column: FilterColumn, values: Sequence[Any]) -> ex.BooleanExpression:
    """Return "the column is one of the values", which are not null."""
    parts: list[ex.BooleanExpression] = [_predicate(ex.IsNaN, column)] if any(map(_is_nan, values)) else []
    singles, several = _literals(column.kind, values)
    parts.extend(_predicate(ex.EqualTo, column, single) for single in singles)
    if several:
        parts.append(_predicate(ex.In, column, several))
    return reduce(ex.Or, parts) if parts else ex.AlwaysFalse()


def _not_among(column: FilterColumn, values: Sequence[Any]) -> ex.BooleanExpression:
    """Return "the column is not null and none of the values", which are not null."""
    parts: list[ex.BooleanExpression] = [_present(column)]
    if any(map(_is_nan, values)):
        parts.append(_predicate(ex.NotNaN, column))
    singles, several = _literals(column.kind, values)
    parts.extend(_predicate(ex.NotEqualTo, column, single) for single in singles)
    if several:
        parts.append(_predicate(ex.NotIn, column, several))
    return reduce(ex.And, parts)


def _literals(kind: ice.PrimitiveType, values: Sequence[Any]) -> tuple[list[Literal[Any]], list[Literal[Any]]]:
    """Split values other than NaN: those to compare one by one (zeros, as sets distinguish -0.0 from 0.0) and the rest."""
    numbers = [value for value in values if not _is_nan(value)]
    zeros = [value for value in numbers if isinstance(kind, _FLOATS) and value == 0]
    rest = [_literal(kind, value) for value in numbers if not (isinstance(kind, _FLOATS) and value == 0)]
    singles = [literal(0.0)] if zeros else []
    if len(rest) == 1:
        return [*singles, rest[0]], []
    return singles, rest


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _literal(kind: ice.PrimitiveType, value: Any) -> Literal[Any]:
    """Return a value of Spark's as a literal of exactly the column's type."""
    convert = _LITERALS.get(type(kind))
    converted = None if convert is None else convert(kind, value)
    if converted is None:
        raise _Untranslatable
    return literal(converted)


def _integer(_: Any, value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _of(kind: type[Any]) -> Callable[[Any, Any], Any]:
    return lambda _, value: value if isinstance(value, kind) else None


def _decimal(kind: ice.DecimalType, value: Any) -> Decimal | None:
    """Return the value with the column's scale, the only one that PyIceberg takes."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    scaled = value.quantize(Decimal((0, (1,), -kind.scale)), context=_WIDE)
    return scaled if scaled == value else None


def _date(_: Any, value: Any) -> date | None:
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _moment(*, zoned: bool) -> Callable[[Any, Any], datetime | None]:
    return lambda _, value: value if isinstance(value, datetime) and (value.tzinfo is not None) == zoned else None


def _binary(_: Any, value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else None


def _fixed(kind: ice.FixedType, value: Any) -> bytes | None:
    found = _binary(kind, value)
    return found if found is not None and len(found) == len(kind) else None


def _uuid(_: Any, value: Any) -> UUID | None:
    """Return a UUID for its canonical text only: Spark compares text."""
    try:
        found = UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None
    return found if str(found) == value else None


_LITERALS: Final[dict[type[Any], Callable[[Any, Any], Any]]] = {
    ice.BooleanType: _of(bool),
    ice.IntegerType: _integer,
    ice.LongType: _integer,
    ice.FloatType: _of(float),
    ice.DoubleType: _of(float),
    ice.DecimalType: _decimal,
    ice.DateType: _date,
    ice.TimestampType: _moment(zoned=False),
    ice.TimestamptzType: _moment(zoned=True),
    ice.StringType: _of(str),
    ice.BinaryType: _binary,
    ice.FixedType: _fixed,
    ice.UUIDType: _uuid,
}
