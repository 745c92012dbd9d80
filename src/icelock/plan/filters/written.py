"""A filter as text, as people write it: ``id > 1 and name in ('a', 'b')``.

What the grammar has is text that is parsed to the same filter (texts with a backslash aside, which it cannot say everywhere); predicates
that it lacks stay as PyIceberg shows them.

Not here: parsing (``plan.filters.text``).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import pyiceberg.expressions as ice

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_BINDS: Final[dict[Any, int]] = {ice.Or: 0, ice.And: 1, ice.Not: 2}
_OPERATORS: Final = {
    ice.EqualTo: "=",
    ice.NotEqualTo: "!=",
    ice.LessThan: "<",
    ice.LessThanOrEqual: "<=",
    ice.GreaterThan: ">",
    ice.GreaterThanOrEqual: ">=",
}
_UNARY: Final = {ice.IsNull: "is null", ice.NotNull: "is not null", ice.IsNaN: "is nan", ice.NotNaN: "is not nan"}
_SETS: Final = {ice.In: "in", ice.NotIn: "not in"}
_PREFIXES: Final = {ice.StartsWith: "like", ice.NotStartsWith: "not like"}


def written(expression: ice.BooleanExpression) -> str:
    """Return an unbound filter as text."""
    return _written(expression, 0)


def _written(given: Any, binds: int) -> str:
    """Return a part of a filter, in parentheses if what it stands in binds stronger."""
    own: int | None = _BINDS.get(type(given))
    if own is None:
        return _predicate(given)
    if isinstance(given, ice.Not):
        text = f"not {_written(given.child, own)}"
    else:
        word = "and" if isinstance(given, ice.And) else "or"
        text = f"{_written(given.left, own)} {word} {_written(given.right, own)}"
    return f"({text})" if own < binds else text


def _predicate(given: Any) -> str:
    kind, term = type(given), getattr(given, "term", None)
    if kind in {ice.AlwaysTrue, ice.AlwaysFalse}:
        return "true" if kind is ice.AlwaysTrue else "false"
    if not isinstance(term, ice.Reference):
        return str(given)
    name = ".".join(part if _PLAIN_NAME.fullmatch(part) else f'"{part}"' for part in term.name.split("."))
    if kind in _UNARY:
        return f"{name} {_UNARY[kind]}"
    if kind in _SETS:
        return f"{name} {_SETS[kind]} ({', '.join(sorted(_literal(one.value) for one in given.literals))})"
    if kind in _PREFIXES:
        return f"{name} {_PREFIXES[kind]} {_literal(_pattern(given.literal.value))}"
    return f"{name} {_OPERATORS[kind]} {_literal(given.literal.value)}" if kind in _OPERATORS else str(given)


def _pattern(prefix: str) -> str:
    return re.sub(r"[%_]", r"\\\g<0>", prefix) + "%"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"
