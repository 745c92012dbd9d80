"""PyIceberg's inclusive metrics evaluator, which also rules out files of one value by ``!=``, NOT IN and NOT LIKE, as Java's does.

A file has one value of a column if it has no null and no NaN there and its bounds are equal. Bounds of texts may be cut; of two equal ones
shorter than any writer cuts, both are the value. Nulls match negative predicates here, as in PyIceberg: ``plan.filters.exact`` adds the
test for null.

Not here: the same for all files of a manifest (``plan.metrics_mask``).
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg import types as ice
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluationVisitor, _InclusiveMetricsEvaluator, visit
from pyiceberg.manifest import DataFile

UNCUT: Final = 16
"""Bytes: shorter bounds of text or bytes are whole, as writers cut at 16 characters or more."""


class MetricsVisitor(_InclusiveMetricsEvaluationVisitor):
    """Evaluates a predicate on the metrics of one file."""

    def visit_not_equal(self, term: Any, literal: Any) -> bool:
        """Whether some row may be another value."""
        return self._only(term) != (literal.value,)

    def visit_not_in(self, term: Any, literals: Any) -> bool:
        """Whether some row may be none of the values."""
        only = self._only(term)
        return only is None or only[0] not in literals

    def visit_not_starts_with(self, term: Any, literal: Any) -> bool:
        """Whether some row may begin otherwise: not if both bounds begin so."""
        column = term.ref().field
        if self.null_counts.get(column.field_id) != 0:
            return True
        bounds = [found.get(column.field_id) for found in (self.lower_bounds, self.upper_bounds)]
        texts = [from_bytes(column.field_type, bound) for bound in bounds if bound is not None]
        return len(texts) < len(bounds) or not all(text.startswith(literal.value) for text in texts)

    def _only(self, term: Any) -> tuple[Any] | None:
        """Return the only value of a column, if the file has one."""
        column = term.ref().field
        lower, upper = self.lower_bounds.get(column.field_id), self.upper_bounds.get(column.field_id)
        if lower is None or upper is None or self.null_counts.get(column.field_id) != 0:
            return None
        if isinstance(column.field_type, (ice.FloatType, ice.DoubleType)) and self.nan_counts.get(column.field_id) != 0:
            return None
        if isinstance(column.field_type, (ice.StringType, ice.BinaryType, ice.FixedType)) and len(lower) >= UNCUT:
            return None
        found = from_bytes(column.field_type, lower)
        return (found,) if found == from_bytes(column.field_type, upper) else None


class MetricsEvaluator(_InclusiveMetricsEvaluator):
    """Evaluates a filter on the metrics of files."""

    def eval(self, file: DataFile) -> bool:
        """Whether rows of a file may match."""
        if file.record_count <= 0:
            return file.record_count < 0 or self.include_empty_files
        return bool(visit(self.expr, MetricsVisitor(file)))
