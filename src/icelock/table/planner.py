"""PyIceberg's planner without two of its faults with nulls (met in 0.12.0).

1. ``p != 1`` on a null partition value has the residual "always true", although a null row does not match; the strict
   metrics evaluator says the same of files with nulls. Nothing is claimed for such predicates: see ``null_safe``.
2. ``p < 1`` on a null partition value raises TypeError. The whole filter is the residual then.

Not here: which rows match (``arrow.row_filter``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import ManifestGroupPlanner

_POSITIVE: Final = (
    AlwaysFalse,
    AlwaysTrue,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    StartsWith,
)


def null_safe(expression: BooleanExpression) -> bool:
    """Whether PyIceberg's evaluators treat nulls as the rows do: no predicate that a null makes neither true nor false."""
    if isinstance(expression, (And, Or)):
        return null_safe(expression.left) and null_safe(expression.right)
    return isinstance(expression, _POSITIVE)


class Planner(ManifestGroupPlanner):
    """A ``ManifestGroupPlanner`` whose residuals claim no more than is true."""

    def _build_residual_evaluator(self, spec_id: int) -> Callable[[DataFile], Any]:
        build = super()._build_residual_evaluator(spec_id)
        return lambda data_file: _Residual(build(data_file), self.row_filter)


class _Residual:
    def __init__(self, evaluator: Any, row_filter: BooleanExpression) -> None:
        self._evaluator = evaluator
        self._row_filter = row_filter

    def residual_for(self, partition: Any) -> BooleanExpression:
        if not null_safe(self._row_filter):
            return self._row_filter
        try:
            residual: BooleanExpression = self._evaluator.residual_for(partition)
        except TypeError:  # a null partition value was compared
            return self._row_filter
        return residual
