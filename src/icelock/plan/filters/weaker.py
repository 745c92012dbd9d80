"""Filters of other libraries as Iceberg's: never stronger, so that no row is lost that theirs would take.

The library applies its own filter to what it gets, or its caller here does, and decides alone which rows match. Iceberg's filter leaves out
files, row groups and rows before. What has no word in Iceberg becomes "always true": beside ``and`` only that side, beside ``or`` both.

    null   a comparison with null is unknown in all of them, as in SQL (``plan.filters.exact``)
    NaN    Polars orders NaN above every number, Arrow as IEEE 754 does: order comparisons of floats take NaN besides
    list   a null in a list is left out; a negated list with a null, or one that is false for null, is not translated

Not here: how a library's expressions are read (``plan.filters.of_polars``, ``plan.filters.of_arrow``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg import expressions as ex
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, FloatType, NestedField

from icelock.errors import PolicyError
from icelock.plan.filters.exact import exact_filter
from icelock.plan.filters.literals import FLOATS

_COMPARED: Final = {
    "==": ex.EqualTo,
    "!=": ex.NotEqualTo,
    "<": ex.LessThan,
    "<=": ex.LessThanOrEqual,
    ">": ex.GreaterThan,
    ">=": ex.GreaterThanOrEqual,
}
FLIPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Compared:
    """``name operator value``, the operator as in Python."""

    name: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Among:
    """``name in values``; ``unknown_for_null``: whether it is unknown for a null, as in SQL, or false."""

    name: str
    values: Sequence[Any]
    unknown_for_null: bool = True


@dataclass(frozen=True, slots=True)
class Tested:
    """``name is null``, ``name is nan`` (unknown for null), or a boolean column itself."""

    name: str
    test: str


@dataclass(frozen=True, slots=True)
class Prefixed:
    """``name starts with text``."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Both:
    """``left and right``, by Kleene's logic; with ``either`` it is ``or``."""

    left: Foreign
    right: Foreign
    either: bool = False


@dataclass(frozen=True, slots=True)
class Negated:
    """``not inner``: unknown stays unknown."""

    inner: Foreign


Foreign = Compared | Among | Tested | Prefixed | Both | Negated | None
"""Another library's filter; None is what has no word here."""


def weaker(foreign: Foreign, schema: Schema) -> ex.BooleanExpression:
    """Return a filter that takes every row that ``foreign`` is true for.

    Args:
        foreign: as a library's reader gave it.
        schema: the columns, whose names have their exact case.
    """
    try:
        found = _Weaker(schema).of(foreign, negated=False)
        return exact_filter(found, schema, case_sensitive=True)
    except (PolicyError, RecursionError):
        return ex.AlwaysTrue()


class _Weaker:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields = {field.name: field for field in schema.fields}

    def of(self, foreign: Foreign, *, negated: bool) -> ex.BooleanExpression:
        """Return a filter that is true wherever ``foreign`` is true or, if negated, false."""
        if isinstance(foreign, Negated):
            return self.of(foreign.inner, negated=not negated)
        if isinstance(foreign, Both):
            left, right = self.of(foreign.left, negated=negated), self.of(foreign.right, negated=negated)
            return ex.Or(left, right) if foreign.either != negated else ex.And(left, right)
        try:
            found = None if foreign is None else self._leaf(foreign, negated=negated)
            return ex.AlwaysTrue() if found is None else exact_filter(found, self._schema, case_sensitive=True)
        except (PolicyError, TypeError, ValueError, OverflowError):  # a value that the column's type does not know, NaN
            return ex.AlwaysTrue()

    def _leaf(self, foreign: Compared | Among | Tested | Prefixed, *, negated: bool) -> ex.BooleanExpression | None:
        field = self._fields.get(foreign.name)
        # A dot may be in a name, or lead to a field of a struct.
        if field is None or self._schema.find_field(foreign.name).field_id != field.field_id:
            return None
        made = self._made(foreign, field, negated=negated)
        if made is None:
            return None
        said = ex.Not(made) if negated else made
        ordered = isinstance(foreign, Compared) and foreign.operator not in {"==", "!="}
        return ex.Or(said, _call(ex.IsNaN, field.name)) if ordered and isinstance(field.field_type, FLOATS) else said

    def _made(self, foreign: Any, field: NestedField, *, negated: bool) -> ex.BooleanExpression | None:
        if isinstance(foreign, Tested):
            return _tested(foreign, field)
        if isinstance(foreign, Prefixed):
            return _call(ex.StartsWith, field.name, foreign.text)
        if isinstance(foreign, Among):
            values = [value for value in foreign.values if value is not None]
            if negated and (len(values) < len(foreign.values) or not foreign.unknown_for_null):
                return None
            return _call(ex.In, field.name, values) if all(_exact(value, field) for value in values) else None
        if foreign.value is None or not _exact(foreign.value, field):
            return None
        return _call(_COMPARED[foreign.operator], field.name, foreign.value)


def _tested(foreign: Tested, field: NestedField) -> ex.BooleanExpression | None:
    if foreign.test == "null":
        return _call(ex.IsNull, field.name)
    if foreign.test == "nan":
        return _call(ex.IsNaN, field.name)
    return _call(ex.EqualTo, field.name, True) if isinstance(field.field_type, BooleanType) else None  # noqa: FBT003 - PyIceberg's argument


def _exact(value: Any, field: NestedField) -> bool:
    """Whether Iceberg, which rounds literals to 32 bits for such columns, compares with this value."""
    return not isinstance(field.field_type, FloatType) or struct.unpack("<f", struct.pack("<f", value))[0] == value


def _call(kind: Any, *arguments: Any) -> ex.BooleanExpression:
    made: ex.BooleanExpression = kind(*arguments)
    return made
