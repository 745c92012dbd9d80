"""What a filter means: the one place that decides which rows match, for scans, deletes and the planning of both.

SQL's three-valued logic: a comparison with null is unknown, a negation of unknown is unknown, and a row matches if the filter is true
for it. ``exact_filter`` rewrites a filter so that every evaluator, including PyIceberg's for partitions and metrics, finds these rows and
no others, however it treats nulls itself:

    not               removed: a negated predicate becomes its opposite, and by De Morgan's laws ``and`` becomes ``or``
    x != 1            x is not null and x != 1, likewise NOT IN and NOT LIKE (Iceberg's own rule takes nulls)
    not (x < 1)       x >= 1; of floats also NaN, which is unequal to all numbers and neither less nor greater (IEEE 754)
    x is not nan      x is not null and x is not nan; of other types than floats: x is not null
    s.x is not null   where x is required and s is not: s is not null (PyIceberg binds it as "always true")
    x < 1.5           a literal of exactly the column's type, see ``plan.filters.literals``

The result is unbound, with the schema's names. Applying it twice changes nothing.

Not here: text (``plan.filters.text``), rows of a batch (``row_filter``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg import expressions as ex
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StringType, StructType, UnknownType

from icelock.errors import PolicyError
from icelock.metadata.column_types import UnreadType
from icelock.metadata.metadata_columns import is_metadata_column
from icelock.metadata.schema_paths import find_column, path_to, shortened
from icelock.plan.filters.literals import FLOATS, compared

_OPPOSITE: Final[Mapping[Any, Any]] = {
    ex.LessThan: ex.GreaterThanOrEqual,
    ex.LessThanOrEqual: ex.GreaterThan,
    ex.GreaterThan: ex.LessThanOrEqual,
    ex.GreaterThanOrEqual: ex.LessThan,
}
_NEGATIVE: Final[Mapping[Any, Any]] = {
    ex.NotEqualTo: ex.EqualTo,
    ex.NotIn: ex.In,
    ex.NotStartsWith: ex.StartsWith,
    ex.NotNull: ex.IsNull,
    ex.NotNaN: ex.IsNaN,
}


def exact_filter(row_filter: ex.BooleanExpression, schema: Schema, *, case_sensitive: bool) -> ex.BooleanExpression:
    """Return the filter in a form that treats nulls and NaN by the rules above.

    Args:
        row_filter: bound or not.
        schema: the columns.
        case_sensitive: whether its column names are.

    Raises:
        PolicyError: a column that does not exist or cannot be compared, or a literal that does not fit its column.
    """
    try:
        return _Exact(schema, case_sensitive=case_sensitive).of(row_filter, negated=False)
    except RecursionError as e:
        raise PolicyError("the filter is nested too deeply: use IN for many values") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    name: str
    kind: Any
    present: ex.BooleanExpression
    missing: ex.BooleanExpression


class _Exact:
    def __init__(self, schema: Schema, *, case_sensitive: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive

    def of(self, expression: ex.BooleanExpression, *, negated: bool) -> ex.BooleanExpression:
        """Return a filter that is true where the expression is true or, if negated, where it is false."""
        if isinstance(expression, ex.Not):
            return self.of(expression.child, negated=not negated)
        if isinstance(expression, (ex.And, ex.Or)):
            left, right = self.of(expression.left, negated=negated), self.of(expression.right, negated=negated)
            return _both(left, right) if isinstance(expression, ex.And) != negated else ex.Or(left, right)
        if isinstance(expression, (ex.AlwaysTrue, ex.AlwaysFalse)):
            return ex.AlwaysTrue() if isinstance(expression, ex.AlwaysTrue) != negated else ex.AlwaysFalse()
        return self._predicate(expression, negated=negated)

    def _predicate(self, given: Any, *, negated: bool) -> ex.BooleanExpression:
        column = self._column(given)
        kind = given.as_unbound if isinstance(given, ex.BoundPredicate) else type(given)
        if isinstance(column.kind, UnreadType):
            said = shortened(str(column.kind))
            raise PolicyError(f"column {shortened(column.name)!r} is of type {said}, whose values are not read: it cannot be filtered by")
        if kind in _NEGATIVE:
            kind, negated = _NEGATIVE[kind], not negated
        if kind is ex.IsNull:
            return column.present if negated else column.missing
        if kind is ex.IsNaN:
            return _is_nan(column, negated=negated)
        if isinstance(column.kind, (StructType, ListType, MapType)):
            hint = ": name a field of it" if isinstance(column.kind, StructType) else ""
            raise PolicyError(f"column {shortened(column.name)!r} is a {_word(column.kind)}, which can be filtered by null only{hint}")
        if isinstance(column.kind, UnknownType):
            return ex.AlwaysFalse()  # it holds nulls only
        if kind is ex.In:
            return _among(column, given.literals, negated=negated)
        if kind is ex.StartsWith:
            return _starts_with(column, given.literal, negated=negated)
        return _comparison(column, kind, given.literal, negated=negated)

    def _column(self, given: Any) -> _Column:
        field = self._field(given)
        name = self._schema.find_column_name(field.field_id) or field.name
        try:
            self._schema.accessor_for_field(field.field_id)
        except ValueError as e:
            raise PolicyError(
                f"column {shortened(name)!r} is inside a list or map: a row has many values of it, so it cannot be filtered by"
            ) from e
        path = path_to(self._schema.fields, field.field_id)
        nullable = [one.field_id for one in path.fields if not one.required] if path else []
        if not nullable:
            return _Column(name=name, kind=field.field_type, present=ex.AlwaysTrue(), missing=ex.AlwaysFalse())
        # The innermost one: a struct that is null makes the optional fields below it null.
        tested = self._schema.find_column_name(nullable[-1]) or name
        return _Column(name=name, kind=field.field_type, present=_made(ex.NotNull, tested), missing=_made(ex.IsNull, tested))

    def _field(self, given: Any) -> NestedField:
        term = getattr(given, "term", None)
        if isinstance(term, ex.BoundReference):
            return self._schema.find_field(term.field.field_id)
        if not isinstance(term, ex.Reference):
            raise PolicyError(f"a filter is made of columns and values, not of {shortened(str(given))}")
        if is_metadata_column(term.name) and not _known(self._schema, term.name):
            raise PolicyError(f"{term.name!r} is a metadata column, which filters cannot use: select it, and filter the resulting rows")
        return find_column(self._schema, term.name, case_sensitive=self._case_sensitive)


def _known(schema: Schema, name: str) -> bool:
    return name.lower() in {known.lower() for known in schema.column_names}


def _word(kind: Any) -> str:
    return "struct" if isinstance(kind, StructType) else "list" if isinstance(kind, ListType) else "map"


def _made(kind: Any, *arguments: Any) -> ex.BooleanExpression:
    # PyIceberg's constructors are hidden from type checkers by pydantic's plugin.
    made: ex.BooleanExpression = kind(*arguments)
    return made


def _both(left: ex.BooleanExpression, right: ex.BooleanExpression) -> ex.BooleanExpression:
    return right if isinstance(right, ex.And) and right.left == left else ex.And(left, right)


def _is_nan(column: _Column, *, negated: bool) -> ex.BooleanExpression:
    if not isinstance(column.kind, FLOATS):
        return column.present if negated else ex.AlwaysFalse()
    return _both(column.present, _made(ex.NotNaN, column.name)) if negated else _made(ex.IsNaN, column.name)


def _comparison(column: _Column, kind: Any, literal: Any, *, negated: bool) -> ex.BooleanExpression:
    found = compared(column.name, column.kind, kind, literal)
    if isinstance(found, bool):
        return column.present if found != negated else ex.AlwaysFalse()
    comparison, value = found
    if not negated:
        return _made(comparison, column.name, value)
    if comparison is ex.EqualTo:
        return _both(column.present, _made(ex.NotEqualTo, column.name, value))
    opposite = _made(_OPPOSITE[comparison], column.name, value)
    return ex.Or(opposite, _made(ex.IsNaN, column.name)) if isinstance(column.kind, FLOATS) else opposite


def _among(column: _Column, literals: Any, *, negated: bool) -> ex.BooleanExpression:
    found = [compared(column.name, column.kind, ex.EqualTo, literal) for literal in literals]
    values = {one[1] for one in found if not isinstance(one, bool)}
    if not values:
        return column.present if negated else ex.AlwaysFalse()
    return _both(column.present, _made(ex.NotIn, column.name, values)) if negated else _made(ex.In, column.name, values)


def _starts_with(column: _Column, literal: Any, *, negated: bool) -> ex.BooleanExpression:
    if not isinstance(column.kind, StringType):
        raise PolicyError(f"column {shortened(column.name)!r} is {column.kind}, and only text starts with something")
    prefix = compared(column.name, column.kind, ex.EqualTo, literal)
    value = literal if isinstance(prefix, bool) else prefix[1]
    return _both(column.present, _made(ex.NotStartsWith, column.name, value)) if negated else _made(ex.StartsWith, column.name, value)
