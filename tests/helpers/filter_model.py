"""Filters of several libraries from one description, and what they take by SQL's three-valued logic, told here by hand.

NaN by the rule of Polars, DuckDB and Spark: equal to itself, above every number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

VALUES: dict[str, list[Any]] = {
    "n": [None, -1, 0, 1, 2**40],
    "f": [None, math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf],
    "s": [None, "", "a", "ab", 'a" or (n > 0', "\U0001f600", "\uffff"],
    "b": [None, True, False],
    "d": [None, date(1969, 12, 31), date(2026, 1, 31)],
    "m": [None, Decimal("-0.50"), Decimal("1.25")],
}
Model = tuple[Any, ...]
COMPARED: dict[str, Callable[[int], bool]] = {
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
SQL = {"==": "=", "!=": "<>"}


def leaves() -> st.SearchStrategy[Model]:
    """Return a strategy of single tests."""
    found: list[st.SearchStrategy[Model]] = []
    for name, values in VALUES.items():
        present = [value for value in values if value is not None]
        found.append(st.tuples(st.just("null"), st.just(name)))
        found.append(st.tuples(st.just("in"), st.just(name), st.lists(st.sampled_from(present), min_size=1, max_size=3).map(tuple)))
        if name != "b":
            found.append(st.tuples(st.sampled_from(list(COMPARED)), st.just(name), st.sampled_from(present)))
    found.append(st.just(("nan", "f")))
    found.append(st.just(("is", "b")))
    return st.one_of(found)


def filters() -> st.SearchStrategy[Model]:
    """Return a strategy of filters."""
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
        ),
        max_leaves=5,
    )  # fmt: skip


def truth(model: Model, row: dict[str, Any]) -> bool | None:  # noqa: PLR0911 - a return for each form
    """Return whether a row matches; None is unknown."""
    kind = model[0]
    if kind == "not":
        inner = truth(model[1], row)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        sides = {truth(model[1], row), truth(model[2], row)}
        deciding = kind == "or"
        return deciding if deciding in sides else None if None in sides else not deciding
    value = row[model[1]]
    if kind == "null":
        return value is None
    if value is None:
        return None
    if kind == "nan":
        return math.isnan(value)
    if kind == "is":
        return bool(value)
    if kind == "in":
        return any(_order(value, one) == 0 for one in model[2])
    return COMPARED[kind](_order(value, model[2]))


def _order(left: Any, right: Any) -> int:
    odd = [isinstance(one, float) and math.isnan(one) for one in (left, right)]
    return odd[0] - odd[1] if any(odd) else (left > right) - (left < right)


def to_polars(model: Model) -> pl.Expr:  # noqa: PLR0911 - a return for each form
    """Return the filter in Polars' words."""
    kind = model[0]
    if kind == "not":
        return ~to_polars(model[1])
    if kind in ("and", "or"):
        left, right = to_polars(model[1]), to_polars(model[2])
        return left & right if kind == "and" else left | right
    column = pl.col(model[1])
    if kind == "null":
        return column.is_null()
    if kind == "nan":
        return column.is_nan()
    if kind == "is":
        return column
    if kind == "in":
        return column.is_in(list(model[2]))
    compared: dict[str, Callable[[Any], pl.Expr]] = {
        "==": column.eq, "!=": column.ne, "<": column.lt, "<=": column.le, ">": column.gt, ">=": column.ge,
    }  # fmt: skip
    return compared[kind](model[2])


def to_sql(model: Model) -> str:  # noqa: PLR0911 - a return for each form
    """Return the filter in DuckDB's words."""
    kind = model[0]
    if kind == "not":
        return f"(not {to_sql(model[1])})"
    if kind in ("and", "or"):
        return f"({to_sql(model[1])} {kind} {to_sql(model[2])})"
    if kind == "null":
        return f"({model[1]} is null)"
    if kind == "nan":
        return f"isnan({model[1]})"
    if kind == "is":
        return str(model[1])
    if kind == "in":
        return f"({model[1]} in ({', '.join(_literal(value) for value in model[2])}))"
    return f"({model[1]} {SQL.get(kind, kind)} {_literal(model[2])})"


def _literal(value: Any) -> str:
    if isinstance(value, float):
        return f"'{value!r}'::double"
    if isinstance(value, (str, date)):
        quoted = str(value).replace("'", "''")
        return f"'{quoted}'" if isinstance(value, str) else f"date '{quoted}'"
    return str(value)
