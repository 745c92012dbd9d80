"""PyIceberg's planner with all kinds of delete files, and without its faults with nulls and late dates (found in 0.12.0).

1. The filter is planned in the form of ``plan.filters.exact``: PyIceberg's binding turns ``x < 3000000000`` on an int into "always",
   and its rewriting of ``not`` prunes files whose NaN rows match.
2. Residuals with nulls and late dates are wrong, or raise: see ``plan.residuals``.

Delete files are pruned by partition, as data files are, but not by their metrics: a delete file may hold columns that it does not
compare, and their values say nothing about the rows it deletes.

Manifests that the partition summaries rule out are not opened. The others are read in parallel, a few ahead of the consumer, so that
memory does not grow with the table: delete manifests first, then the files of one data manifest after the other.

Not here: which rows match (``arrow.read.row_filter``), one manifest (``plan.columnar``), which deletes apply to which file
(``plan.delete_index``).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, TypeVar

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, _min_sequence_number
from pyiceberg.types import IcebergType, strtobool
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.metadata.manifest import ManifestFile as EncryptedManifestFile
from icelock.metadata.sound_bounds import on_sound_files, on_sound_manifests
from icelock.plan.columnar import EntryFilter, PlannedFiles, columns_pay, plan_deletes, plan_entries, plan_manifest
from icelock.plan.delete_index import DeleteIndex
from icelock.plan.filters.exact import exact_filter
from icelock.plan.metrics_visitor import MetricsEvaluator
from icelock.plan.partition_filter import partition_filter
from icelock.plan.plan_deletes import PlanDeletes, VectorsOfManifest
from icelock.plan.planned_file import PlannedTask
from icelock.plan.residuals import Residuals
from icelock.plan.task import TaskBuilder

_T = TypeVar("_T")
_R = TypeVar("_R")
_MOST_AHEAD: Final = 8


class Planner(ManifestGroupPlanner):
    """A ``ManifestGroupPlanner`` with equality deletes, and with correct residuals."""

    def __init__(self, **arguments: Any) -> None:
        """Take PyIceberg's arguments, by name.

        Raises:
            PolicyError: the filter does not fit the current schema, see ``exact_filter``.
        """
        super().__init__(**arguments)
        self.row_filter = exact_filter(self.row_filter, self.table_metadata.schema(), case_sensitive=self.case_sensitive)
        self.case_sensitive = True  # its names are those of the schema

    @cached_property
    def schemas(self) -> list[Schema]:
        """The table's schemas: the one that is scanned, then the newest first."""
        current = self.table_metadata.schema()
        others = sorted(self.table_metadata.schemas, key=lambda schema: -schema.schema_id)
        return [current, *(schema for schema in others if schema.schema_id != current.schema_id)]

    def plan_files(
        self, manifests: Iterable[ManifestFile], manifest_entry_filter: Callable[[ManifestEntry], bool] = lambda _: True
    ) -> list[FileScanTask]:
        """Return the files that may hold matching rows; each with all ``delete_files`` that apply, including equality deletes.

        Raises:
            FormatError: delete files that contradict their data files, see ``DeleteIndex``.
        """
        index: DeleteIndex | None = None
        data: list[ManifestEntry] = []
        for entry in filter(manifest_entry_filter, chain.from_iterable(self.plan_manifest_entries(manifests))):
            if entry.data_file.content == DataFileContent.DATA:
                data.append(entry)
                continue
            index = index or DeleteIndex(self.table_metadata.specs(), self._types.get)
            index.add(entry)
        residuals = Residuals(self.table_metadata.schema(), self.table_metadata.specs(), self.row_filter)
        return [PlannedTask(entry.data_file, set() if index is None else index.for_data_file(entry), residuals) for entry in data]

    def planned(self, manifests: Iterable[ManifestFile]) -> tuple[PlanDeletes, Iterator[PlannedFiles]]:
        """Return the delete files, already read, and the needed data files of one manifest after the other, each read shortly before.

        Raises:
            FormatError: as ``plan_files``, here or from the iterator; or a manifest whose content is not the listed one.
        """
        wanted: list[Any] = self._wanted(manifests)
        as_columns = columns_pay(wanted)
        deletes = PlanDeletes(DeleteIndex(self.table_metadata.specs(), self._types.get), TaskBuilder(self.schemas))
        listed = [manifest for manifest in wanted if manifest.content == ManifestContent.DELETES]
        vectors = []
        for entries, found in side_by_side(partial(self._plan_deletes, as_columns), listed):
            vectors.append(found)
            for entry in entries:
                deletes.add(entry)
        deletes.add_vectors(found for found in vectors if found is not None)
        data = [manifest for manifest in wanted if manifest.content == ManifestContent.DATA]
        return deletes, side_by_side(partial(self._plan_manifest, deletes, as_columns), data)

    def delete_index(self, manifests: Iterable[ManifestFile]) -> DeleteIndex:
        """Return the delete files as PyIceberg's objects, with all that their manifests say of them.

        Raises:
            FormatError: as ``planned``.
        """
        index = DeleteIndex(self.table_metadata.specs(), self._types.get)
        listed = [manifest for manifest in self._wanted(manifests) if manifest.content == ManifestContent.DELETES]
        for entry in chain.from_iterable(side_by_side(self._delete_entries, listed)):
            index.add(entry)
        return index

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        """Return the needed entries of one manifest after the other, of data and delete files, each read shortly before.

        Raises:
            FormatError: from the iterator, as that of ``planned``.
        """
        wanted: list[Any] = self._wanted(manifests)
        as_columns = columns_pay(wanted)

        def entries(manifest: Any) -> list[ManifestEntry]:
            if manifest.content == ManifestContent.DELETES:
                return self._delete_entries(manifest)
            return plan_entries(self.io, manifest, self._entry_filter(manifest.partition_spec_id), as_columns=as_columns)

        return side_by_side(entries, wanted)

    def _wanted(self, manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests that may have needed files, by their partition summaries and sequence numbers."""
        evaluators: dict[int, Callable[[ManifestFile], bool]] = {}
        kept = []
        for manifest in manifests:
            spec_id = manifest.partition_spec_id
            if spec_id not in evaluators:
                evaluators[spec_id] = self._build_manifest_evaluator(spec_id)
            if evaluators[spec_id](manifest):
                kept.append(manifest)
        oldest = _min_sequence_number(kept)
        return [manifest for manifest in kept if self._check_sequence_number(oldest, manifest)]

    def _plan_manifest(self, deletes: PlanDeletes, as_columns: bool, manifest: EncryptedManifestFile) -> PlannedFiles:  # noqa: FBT001
        entry_filter = self._entry_filter(manifest.partition_spec_id)
        return plan_manifest(self.io, manifest, entry_filter, deletes, as_columns=as_columns)

    def _plan_deletes(self, as_columns: bool, manifest: Any) -> tuple[list[ManifestEntry], VectorsOfManifest | None]:  # noqa: FBT001
        return plan_deletes(self.io, manifest, self._entry_filter(manifest.partition_spec_id).partition, as_columns=as_columns)

    def _delete_entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return self._plan_deletes(False, manifest)[0]  # noqa: FBT003 - as ``partial`` passes it

    def _entry_filter(self, spec_id: int) -> EntryFilter:
        if spec_id not in self._entry_filters:
            every = isinstance(self.partition_filters[spec_id], AlwaysTrue)
            self._entry_filters[spec_id] = EntryFilter(
                partition=None if every else self._build_partition_evaluator(spec_id),
                file=self._build_metrics_evaluator(),
                metrics=self._bound_filter,
                field_ids=frozenset(extract_field_ids(self._bound_filter)),
                empty_files=self._empty_files,
            )
        return self._entry_filters[spec_id]

    @cached_property
    def _entry_filters(self) -> dict[int, EntryFilter]:
        return {}

    @cached_property
    def _bound_filter(self) -> BooleanExpression:
        return bind(self.table_metadata.schema(), self.row_filter, self.case_sensitive)

    def _build_partition_projection(self, spec_id: int) -> BooleanExpression:
        return partition_filter(self.table_metadata.schema(), self.table_metadata.specs()[spec_id], self.row_filter)

    @property
    def _empty_files(self) -> bool:
        return strtobool(self.options.get("include_empty_files", "false"))

    @cached_property
    def _types(self) -> dict[int, IcebergType]:
        return {field_id: schema.find_type(field_id) for schema in reversed(self.schemas) for field_id in schema.field_ids}

    def _build_metrics_evaluator(self) -> Callable[[DataFile], bool]:
        schema = self.table_metadata.schema()
        evaluator = MetricsEvaluator(schema, self.row_filter, self.case_sensitive, self._empty_files)
        may_match = on_sound_files(evaluator.eval, schema)
        return lambda file: file.content != DataFileContent.DATA or may_match(file)

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return on_sound_manifests(super()._build_manifest_evaluator(spec_id), self.table_metadata, spec_id)


def side_by_side(work: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Yield the results of ``work`` in order; other threads work on a few ahead of the consumer."""
    executor = ExecutorFactory.get_or_create()
    ahead = min(_MOST_AHEAD, max(2, os.cpu_count() or 1))
    left = iter(items)
    running: deque[Future[_R]] = deque()
    try:
        while True:
            for item in left:
                running.append(executor.submit(work, item))
                if len(running) > ahead:
                    break
            if not running:
                return
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()
