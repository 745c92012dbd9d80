"""A filter on rows as a filter on partitions: which partitions may hold rows that match.

PyIceberg's projection fails on a value outside Python's calendar (a date after the year 9999, which Arrow and Java support): then
nothing is known of partitions, and all are searched.

``truncate[W]`` of a whole number less than W above its type's minimum underflows and wraps to near the maximum, in Java too
(https://github.com/apache/iceberg/issues/9767). Such a partition may hold the smallest and the largest values: it is always searched.

Not here: what a filter means (``plan.filters.exact``).
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, BoundPredicate, GreaterThan, LessThanOrEqual, Or
from pyiceberg.expressions.visitors import InclusiveProjection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import IntegerType, LongType

# A long may have been an int when it was partitioned.
_GREATEST: Final[dict[type[Any], tuple[int, ...]]] = {IntegerType: (2**31 - 1,), LongType: (2**63 - 1, 2**31 - 1)}


def partition_filter(schema: Schema, spec: PartitionSpec, exact: BooleanExpression) -> BooleanExpression:
    """Return a filter that is true for every partition of ``spec`` that may hold rows matching ``exact``, an ``exact_filter``."""
    return _Projection(schema, spec, case_sensitive=True).project(exact)


def may_be_wrapped(schema: Schema, spec: PartitionSpec, partition: Any) -> bool:
    """Whether a truncated partition value may stand for the smallest values of its type as well as for the largest."""
    return any(
        partition[position] is not None and any(low < partition[position] <= high for low, high in _wrapped(schema, part))
        for position, part in enumerate(spec.fields)
    )


def _wrapped(schema: Schema, part: PartitionField) -> list[tuple[int, int]]:
    """Return the ranges of values that may have wrapped, each from above the first number up to the second."""
    if not isinstance(part.transform, TruncateTransform) or part.source_id not in schema.field_ids:
        return []
    return [(high - part.transform.width, high) for high in _GREATEST.get(type(schema.find_type(part.source_id)), ())]


class _Projection(InclusiveProjection):
    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        try:
            found = super().visit_bound_predicate(predicate)
        except (OverflowError, ValueError):
            return AlwaysTrue()
        for part in self.spec.fields_by_source_id(predicate.term.ref().field.field_id):
            for low, high in _wrapped(self.schema, part):
                found = Or(found, _between(part.name, low, high))
        return found


def _between(name: str, low: int, high: int) -> BooleanExpression:
    # PyIceberg's constructors are hidden from type checkers by pydantic's plugin.
    above: Any = GreaterThan
    up_to: Any = LessThanOrEqual
    return And(above(name, low), up_to(name, high))
