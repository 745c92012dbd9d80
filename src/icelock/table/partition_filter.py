"""A filter on rows as a filter on partitions: which partitions may hold rows that match.

PyIceberg's projection fails on a value that Python's calendar lacks (a date beyond the year 9999, which Arrow and Java know): nothing is
known of partitions then, and all are looked into.

Not here: what a filter means (``arrow.exact_filter``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import InclusiveProjection

if TYPE_CHECKING:
    from pyiceberg.expressions import BoundPredicate
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema


def partition_filter(schema: Schema, spec: PartitionSpec, exact: BooleanExpression) -> BooleanExpression:
    """Return what is true for every partition of ``spec`` that may hold rows for which ``exact``, an ``exact_filter``, is true."""
    return _Projection(schema, spec, case_sensitive=True).project(exact)


class _Projection(InclusiveProjection):
    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        try:
            return super().visit_bound_predicate(predicate)
        except (OverflowError, ValueError):
            return AlwaysTrue()
