"""PyIceberg's planner with all kinds of delete files, and without two of its faults with nulls (met in 0.12.0).

1. ``p != 1`` on a null partition value has the residual "always true", although a null row does not match; the strict
   metrics evaluator says the same of files with nulls. Nothing is claimed for such predicates: see ``null_safe``.
2. ``p < 1`` on a null partition value raises TypeError. The whole filter is the residual then.

Delete files are pruned by partition, as data files are, but not by their metrics: a delete file may hold columns that it does not
compare, and their values say nothing about the rows it deletes.

Not here: which rows match (``arrow.row_filter``), which deletes apply to which file (``delete_index``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain
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
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, ManifestGroupPlanner
from pyiceberg.types import IcebergType

from icelock.table.delete_index import DeleteIndex

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
    """A ``ManifestGroupPlanner`` that knows equality deletes and whose residuals claim no more than is true."""

    @cached_property
    def schemas(self) -> list[Schema]:
        """The table's schemas: the one that is scanned, then the newest first."""
        current = self.table_metadata.schema()
        others = sorted(self.table_metadata.schemas, key=lambda schema: -schema.schema_id)
        return [current, *(schema for schema in others if schema.schema_id != current.schema_id)]

    def plan_files(
        self, manifests: Iterable[ManifestFile], manifest_entry_filter: Callable[[ManifestEntry], bool] = lambda _: True
    ) -> list[FileScanTask]:
        """Return the files that may hold matching rows; ``delete_files`` of each are all that apply, equality deletes too.

        Raises:
            FormatError: delete files that contradict their data files, see ``DeleteIndex``.
        """
        index = DeleteIndex(self.table_metadata.specs(), self._types.get)
        data: list[ManifestEntry] = []
        for entry in chain.from_iterable(self.plan_manifest_entries(manifests)):
            if not manifest_entry_filter(entry):
                continue
            if entry.data_file.content == DataFileContent.DATA:
                data.append(entry)
            else:
                index.add(entry)
        residuals: dict[int, Callable[[DataFile], Any]] = {}
        return [self._task(entry, index, residuals) for entry in data]

    def _task(self, entry: ManifestEntry, index: DeleteIndex, residuals: dict[int, Callable[[DataFile], Any]]) -> FileScanTask:
        file = entry.data_file
        if file.spec_id not in residuals:
            residuals[file.spec_id] = self._build_residual_evaluator(file.spec_id)
        residual = residuals[file.spec_id](file).residual_for(file.partition)
        return FileScanTask(file, delete_files=index.for_data_file(entry), residual=residual)

    @cached_property
    def _types(self) -> dict[int, IcebergType]:
        return {field_id: schema.find_type(field_id) for schema in reversed(self.schemas) for field_id in schema.field_ids}

    def _build_metrics_evaluator(self) -> Callable[[DataFile], bool]:
        may_match = super()._build_metrics_evaluator()
        return lambda file: file.content != DataFileContent.DATA or may_match(file)

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
