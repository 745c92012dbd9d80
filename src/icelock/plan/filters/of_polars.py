"""Polars' predicates, as far as Iceberg has words for them.

Polars has no public tree of an expression; what it serializes as JSON is read, and says different things in different versions. So a form
that is not known is no error: it has no word here (None), and Polars filters by itself. Literals are evaluated by Polars.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from icelock.plan.filters.weaker import FLIPPED, Among, Both, Compared, Foreign, Negated, Prefixed, Tested

if TYPE_CHECKING:
    import polars as pl

_OPERATORS: Final = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_BOUNDS: Final = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_TESTS: Final = {"IsNull": ("null", False), "IsNotNull": ("null", True), "IsNan": ("nan", False), "IsNotNan": ("nan", True)}


def of_polars(predicate: pl.Expr) -> Foreign:
    """Return what a predicate says; None if Iceberg has no word for it."""
    from polars.exceptions import PolarsError

    try:
        return _node(json.loads(predicate.meta.serialize(format="json")))
    except (PolarsError, LookupError, TypeError, ValueError, RecursionError):
        return None


def _node(node: Any) -> Foreign:
    """A form that is not known is None, or a LookupError or TypeError where it is not even of JSON's like."""
    if "Column" in node:
        return Tested(node["Column"], "true")
    if "BinaryExpr" in node:
        return _binary(node["BinaryExpr"])
    if "Function" not in node:
        return None
    inputs, function = node["Function"]["input"], node["Function"]["function"]
    if function == {"StringExpr": "StartsWith"} and _literal(inputs[1]) is not None:
        return Prefixed(inputs[0]["Column"], _literal(inputs[1]))
    return _boolean(inputs, function["Boolean"]) if "Boolean" in function else None


def _binary(node: Any) -> Foreign:
    left, operator, right = node["left"], node["op"], node["right"]
    if operator in {"And", "Or", "LogicalAnd", "LogicalOr"}:
        return Both(_side(left), _side(right), either=operator.endswith("Or"))
    if operator not in _OPERATORS:
        return None
    said = _OPERATORS[operator]
    if "Column" in left and "Literal" in right:
        return Compared(left["Column"], said, _literal(right))
    return Compared(right["Column"], FLIPPED[said], _literal(left)) if "Column" in right and "Literal" in left else None


def _boolean(inputs: Any, function: Any) -> Foreign:
    if function == "Not":
        return Negated(_side(inputs[0]))
    name = inputs[0]["Column"]
    if isinstance(function, str):
        test, negated = _TESTS[function]
        return Negated(Tested(name, test)) if negated else Tested(name, test)
    if "IsIn" in function:
        return None if function["IsIn"]["nulls_equal"] else Among(name, _literal(inputs[1]))
    low, high = _BOUNDS[function["IsBetween"]["closed"]]
    return Both(Compared(name, low, _literal(inputs[1])), Compared(name, high, _literal(inputs[2])))


def _side(node: Any) -> Foreign:
    """One side of ``and`` or ``or``, which is passed over alone if it is not known."""
    try:
        return _node(node)
    except (LookupError, TypeError, ValueError):
        return None


def _literal(node: Any) -> Any:
    """Return a literal as Python's value; of a list, a list.

    Raises:
        LookupError: it is none, or has nanoseconds, which Python's values have not.
    """
    import polars as pl

    if "Literal" not in node:
        raise LookupError("no literal")
    found = pl.select(pl.Expr.deserialize(json.dumps(node).encode(), format="json")).to_series()
    kind = found.dtype.inner if isinstance(found.dtype, pl.List) else found.dtype
    if isinstance(kind, pl.Datetime) and kind.time_unit == "ns":
        raise LookupError("nanoseconds")
    value = found.item()
    return value.to_list() if isinstance(value, pl.Series) else value
