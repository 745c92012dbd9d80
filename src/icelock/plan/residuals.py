"""What is left of a filter to check in the rows of a file, once its partition is known: worked out once for each partition.

Two faults of PyIceberg 0.12 are not here: ``p != 1`` on a null partition value has the residual "always true", although a null row does
not match, so filters with negative predicates have no smaller residual (``null_safe``); and ``p < 1`` on a null partition value raises
TypeError, a date after the year 9999 OverflowError: then the whole filter is the residual, as it is where the partition proves nothing
(``may_be_wrapped``).

Not here: which files may match (``plan.planner``).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import residual_evaluator_of
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from icelock.plan.partition_filter import may_be_wrapped
from icelock.plan.partition_set import identity_of
from icelock.plan.whole_files import null_safe


class Residuals:
    """The residuals of one filter, an ``exact_filter`` on ``schema``; several threads may ask."""

    def __init__(self, schema: Schema, specs: Mapping[int, PartitionSpec], row_filter: BooleanExpression) -> None:
        self._schema = schema
        self._specs = specs
        self._filter = row_filter
        self._narrows = null_safe(row_filter) and not isinstance(row_filter, (AlwaysTrue, AlwaysFalse))
        self._evaluators: dict[int, Any] = {}
        self._known: dict[tuple[int, Hashable], BooleanExpression] = {}
        self._turn = threading.Lock()  # PyIceberg's evaluators have state

    def of(self, spec_id: int, partition: Record) -> BooleanExpression:
        """Return the residual for the files of a partition."""
        if not self._narrows:
            return self._filter
        key = (spec_id, identity_of(partition._data))  # noqa: SLF001 - PyIceberg's Record
        with self._turn:
            if key not in self._known:
                self._known[key] = self._evaluated(spec_id, partition)
            return self._known[key]

    def _evaluated(self, spec_id: int, partition: Record) -> BooleanExpression:
        spec = self._specs[spec_id]
        if may_be_wrapped(self._schema, spec, partition):
            return self._filter
        if spec_id not in self._evaluators:
            self._evaluators[spec_id] = residual_evaluator_of(spec=spec, expr=self._filter, case_sensitive=True, schema=self._schema)
        try:
            residual: BooleanExpression = self._evaluators[spec_id].residual_for(partition)
        except (TypeError, OverflowError, ValueError):  # a null partition value was compared, or a date outside the calendar
            return self._filter
        return residual
