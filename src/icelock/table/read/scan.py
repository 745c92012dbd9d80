"""Scans of a table: which files (``plan``), and their rows (``arrow.read``), by PyIceberg's methods.

Schema of a scan, as in Java (case J-08): without a snapshot, or on a branch, the table's current schema; with a snapshot id, or on a tag,
the schema of that snapshot. Metadata columns (``metadata.metadata_columns``) follow the others if they are named; ``*`` does not name them,
and a table's column hides a metadata column of the same name. Planning is always local: a server's plan has no key metadata.

``IncrementalAppendScan`` gives the rows that append snapshots added between two snapshots, in the table's current schema. Snapshots of
other operations are skipped with their rows; delete files are ignored, so rows that were deleted later still count as added (as in Java
and PyIceberg).

Not here: reading one file (``arrow.read.task``).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan as IcebergDataScan
from pyiceberg.table import FileScanTask
from pyiceberg.table import IncrementalAppendScan as IcebergIncrementalAppendScan
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import NestedField
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock import telemetry
from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.task import count_task, read_task
from icelock.errors import PolicyError
from icelock.io.file_io import EncryptingFileIO, storage_of
from icelock.metadata.metadata_columns import metadata_column
from icelock.metadata.schema_paths import find_column
from icelock.metadata.table_metadata import name_mapping_of
from icelock.plan.columnar import PlannedFiles
from icelock.plan.filters.exact import exact_filter
from icelock.plan.filters.text import parse_filter
from icelock.plan.plan_deletes import PlanDeletes
from icelock.plan.planner import Planner
from icelock.plan.task import ScanTask, TaskBuilder, counted
from icelock.table.changes.bounds import Bounds
from icelock.table.described import CATALOG, DescribedScan
from icelock.table.read.streamed import ArrowStream
from icelock.table.refs import no_such_ref

P = TypeVar("P", bound=Planner)
_TABLE_SCHEMA = "icelock.scan-schema"


class Filtered(DescribedScan):
    """Scans whose filters as text are parsed by ``plan.filters.text``."""

    def update(self, **overrides: Any) -> Self:
        """Return a copy of this scan with other arguments; a ``row_filter`` that cannot be parsed is a PolicyError."""
        if "row_filter" in overrides:
            overrides["row_filter"] = parse_filter(overrides["row_filter"])
        changed: Self = super().update(**overrides)  # type: ignore[misc]  # PyIceberg's scan
        return changed

    def filter(self, expr: str | BooleanExpression) -> Self:
        """Return a scan of the rows that match ``expr`` too; text that cannot be parsed is a PolicyError."""
        return self.update(row_filter=And(self.row_filter, parse_filter(expr)))


class DataScan(Filtered, ArrowStream, IcebergDataScan):
    """PyIceberg's ``DataScan`` that decrypts.

    Every method raises IntegrityError when bytes were changed, and PolicyError for a filter that does not fit the columns.
    """

    @property
    def full_schema(self) -> Schema:
        """The schema for the filter and the selected columns."""
        snapshot = self.snapshot()
        if self.snapshot_id is not None and snapshot is None:
            raise PolicyError(f"snapshot {self.snapshot_id} is not in the table's metadata; table.snapshots() lists those that are")
        if self.snapshot_id is None or self.options.get(_TABLE_SCHEMA) == "current" or snapshot is None or snapshot.schema_id is None:
            return self.table_metadata.schema()
        return self.table_metadata.schema_by_id(snapshot.schema_id) or self.table_metadata.schema()

    def projection(self) -> Schema:
        """Return the selected columns of the scan's schema, and the metadata columns that are named.

        Raises:
            PolicyError: a name is not a column.
        """
        schema = self.full_schema
        special = {name: field for name in self.selected_fields if (field := self._metadata_column(name)) is not None}
        names = [name for name in self.selected_fields if name not in special]
        if "*" not in names:
            for name in names:
                find_column(schema, name, case_sensitive=self.case_sensitive)
            schema = schema.select(*names, case_sensitive=self.case_sensitive)
        if not special:
            return schema
        added = {field.field_id: field for field in special.values()}
        return Schema(*schema.fields, *added.values(), schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)

    def _metadata_column(self, name: str) -> NestedField | None:
        schema = self.full_schema
        taken = schema.column_names if self.case_sensitive else [column.lower() for column in schema.column_names]
        if (name if self.case_sensitive else name.lower()) in taken:
            return None
        specs, schemas = self.table_metadata.specs().values(), self._manifest_planner.schemas
        return metadata_column(name, specs, schemas, case_sensitive=self.case_sensitive)

    @property
    def has_own_schema(self) -> bool:
        """Whether the schema is that of the scan's snapshot, not the table's current one."""
        return self.snapshot_id is not None and self.options.get(_TABLE_SCHEMA) != "current"

    def use_ref(self, name: str) -> Self:
        """Return a scan of the branch or tag.

        Raises:
            PolicyError: no such ref.
            ValueError: a snapshot id is set already.
        """
        if name not in self.table_metadata.refs:
            raise PolicyError(f"the table {no_such_ref(self.table_metadata.refs, name)}")
        scan = super().use_ref(name)
        if self.table_metadata.refs[name].snapshot_ref_type == SnapshotRefType.BRANCH:
            return scan.update(options={**self.options, _TABLE_SCHEMA: "current"})
        return scan

    def pinned(self, snapshot_id: int) -> Self:
        """Return the same scan at one snapshot, with the same schema."""
        if self.snapshot_id is not None:
            return self.update(snapshot_id=snapshot_id)
        return self.update(snapshot_id=snapshot_id, options={**self.options, _TABLE_SCHEMA: "current"})

    @cached_property
    def exact_filter(self) -> BooleanExpression:
        """The filter by SQL's rules, see ``plan.filters.exact``; its names have the case of ``full_schema``."""
        return exact_filter(self.row_filter, self.full_schema, case_sensitive=self.case_sensitive)

    @cached_property
    def _manifest_planner(self) -> Planner:
        return self.planner(Planner)

    def planner(self, kind: type[P]) -> P:
        """Return a planner of a kind for this scan's columns and filter."""
        return kind(
            table_metadata=self._planning_metadata(),
            io=self.io,
            row_filter=self.exact_filter,
            options=self.options,
        )

    def _planning_metadata(self) -> TableMetadata:
        # PyIceberg's planner binds the filter to the current schema; an old snapshot's scan needs that snapshot's.
        schema_id = self.full_schema.schema_id
        if schema_id == self.table_metadata.current_schema_id:
            return self.table_metadata
        return self.table_metadata.model_copy(update={"current_schema_id": schema_id})

    def plan_files(self) -> list[FileScanTask]:
        """Return the files that may hold matching rows, with their delete files."""
        _ = self.full_schema
        with self._operation("plan"):
            return list(self._plan_files_local())

    def scan_tasks(self) -> list[ScanTask]:
        """Return the plan as ``ScanTask``, for engines."""
        with self._operation("plan") as operation:
            tasks = list(self.iter_tasks())
            operation.set(plan_files=len(tasks))
        return tasks

    def iter_tasks(self) -> Iterator[ScanTask]:
        """Return the plan's tasks one by one; manifests of delete files are read at once, those of data files a few ahead."""
        deletes, planned = self._planned()
        return counted(task for files in planned for task in files.tasks(deletes))

    def _planned(self) -> tuple[PlanDeletes, Iterator[PlannedFiles]]:
        _ = self.full_schema
        snapshot = self.snapshot()
        return self._manifest_planner.planned([] if snapshot is None else snapshot.manifests(self.io))

    @property
    def _task_builder(self) -> TaskBuilder:
        return TaskBuilder(self._manifest_planner.schemas)

    def read_context(self, schema: Schema | None = None) -> ReadContext:
        """Return what a reader of data files needs: no KMS client, no KEK.

        Args:
            schema: the columns to read, instead of the selected ones.

        Raises:
            PolicyError: the filter does not fit the columns, or a column has a type that cannot be read.
        """
        encrypted = isinstance(self.io, EncryptingFileIO)
        return ReadContext(
            schema=self.projection() if schema is None else schema,
            table_schema=self.full_schema,
            row_filter=self.exact_filter,
            specs=self.table_metadata.specs(),
            name_mapping=name_mapping_of(self.table_metadata),
            io=storage_of(self.io),
            allow_plaintext=not encrypted or self.io.allow_plaintext,  # type: ignore[attr-defined]
        )

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all matching rows into one Arrow table; files are read in parallel."""
        with self._operation("read") as operation:
            context = self.read_context()
            if self.limit is not None:
                batches = list(self._limited(context, self.iter_tasks()))
            else:
                # Planned first, so that no file is read if a manifest is damaged.
                read = ExecutorFactory.get_or_create().map(lambda task: list(read_task(context, task)), self.scan_tasks())
                batches = list(itertools.chain.from_iterable(read))
            found = pa.Table.from_batches(batches, schema=context.arrow_schema)
            operation.returned(found.num_rows)
        return _encode(found, dictionary_columns)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """Return a reader that yields record batches, file after file."""
        context = self.read_context()
        schema = context.arrow_schema
        batches = self._operation("read").over(self._limited(context, self.iter_tasks()))
        if not dictionary_columns:
            return pa.RecordBatchReader.from_batches(schema, batches)
        encoded = _encode(schema.empty_table(), dictionary_columns).schema
        return pa.RecordBatchReader.from_batches(encoded, (batch.cast(encoded) for batch in batches))

    def to_duckdb(self, table_name: str, connection: Any = None) -> Any:
        """Make the scan a table of DuckDB's, which reads what each query needs (``icelock.duckdb``); return the connection.

        Args:
            table_name: its name there.
            connection: a ``DuckDBPyConnection``; None: a new one, in memory.
        """
        import duckdb  # noqa: PLC0415 - an extra

        from icelock.table.read.dataset import ScanDataset  # noqa: PLC0415 - it is made of scans

        return (connection or duckdb.connect()).register(table_name, ScanDataset(self))

    def to_spark(self, spark: Any, *, engine: str = "auto") -> Any:
        """Deprecated: use ``icelock.spark.read(spark, scan)``, which this calls."""
        warnings.warn("DataScan.to_spark is deprecated: use icelock.spark.read(spark, scan)", DeprecationWarning, stacklevel=2)
        return import_module("icelock.spark").read(spark, self, engine=engine)

    def count(self) -> int:
        """Return the number of matching live rows; without a filter and without equality deletes no data file is read."""
        with self._operation("count"):
            self.projection()  # refuses unknown columns
            context = self.read_context(Schema())
            total = self._counted(context)
        return total if self.limit is None else min(total, self.limit)

    def _counted(self, context: ReadContext) -> int:
        deletes, planned = self._planned()
        if deletes.empty and isinstance(context.bound_filter, AlwaysTrue):
            return sum(files.record_count for files in planned)
        return sum(count_task(context, task) for files in planned for task in files.tasks(deletes))

    def _operation(self, name: str) -> telemetry.Operation:
        return telemetry.on_table("table", name, self.table_identifier or (), self.options.get(CATALOG), snapshot_id=self.snapshot_id)

    def _limited(self, context: ReadContext, tasks: Iterable[ScanTask]) -> Iterator[pa.RecordBatch]:
        batches = itertools.chain.from_iterable(read_task(context, task) for task in tasks)
        return batches if self.limit is None else first_rows(batches, self.limit)


def first_rows(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of batches; nothing behind them is read."""
    while rows > 0 and (batch := next(batches, None)) is not None:
        taken = batch.slice(0, rows)
        rows -= len(taken)
        yield taken


def _encode(table: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    for name in columns:
        index = table.schema.get_field_index(name)
        if index >= 0 and pa.types.is_string(table.schema.field(index).type):
            table = table.set_column(index, name, table.column(index).dictionary_encode())
    return table


class IncrementalAppendScan(Filtered, ArrowStream, IcebergIncrementalAppendScan):
    """PyIceberg's ``IncrementalAppendScan`` that decrypts; every method raises IntegrityError when bytes were changed."""

    def projection(self) -> Schema:
        """Return the selected columns of the table's current schema, and the named metadata columns."""
        return self._rows().projection()

    def plan_files(self) -> list[FileScanTask]:
        """Return the files that append snapshots of the range added and that may hold matching rows.

        Raises:
            PolicyError: a snapshot does not exist, or is not an ancestor of the other.
            ExpiredSnapshotError: the start, or a snapshot after it, was expired.
        """
        return self._rows().plan_files()

    def scan_tasks(self) -> list[ScanTask]:
        """Return the plan as ``ScanTask``, for engines."""
        return list(self._rows().iter_tasks())

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all matching rows into one Arrow table."""
        return self._rows().to_arrow(dictionary_columns)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """Return a reader that yields record batches, file after file."""
        return self._rows().to_arrow_batch_reader(dictionary_columns)

    def count(self) -> int:
        """Return the number of matching rows; without a filter no data file is read."""
        return self._rows().count()

    def _rows(self) -> AddedFiles:
        rows = AddedFiles.like(self)
        rows.by = self._append_snapshots()
        return rows

    def _append_snapshots(self) -> frozenset[int]:
        start = self.from_snapshot_id
        if start is None or not self.from_snapshot_inclusive:
            return appends_of(Bounds(start=start, end=self.to_snapshot_id).snapshots(self.table_metadata))
        first = self.table_metadata.snapshot_by_id(start)
        found = [] if first is None else Bounds(start=first.parent_snapshot_id, end=self.to_snapshot_id).snapshots(self.table_metadata)
        if first not in found:
            raise PolicyError(f"snapshot {start}, which the range begins with, is not an ancestor of its end, or is not there any more")
        return appends_of(found)


def appends_of(snapshots: Iterable[Snapshot]) -> frozenset[int]:
    """Return the ids of the append snapshots among some."""
    return frozenset(one.snapshot_id for one in snapshots if one.summary is not None and one.summary.operation == Operation.APPEND)


class AddedFiles(DataScan):
    """A scan of the data files that the snapshots ``by`` added, in the order of their manifests, without deletes."""

    by: frozenset[int] = frozenset()

    @classmethod
    def like(cls, scan: DataScan | IncrementalAppendScan) -> Self:
        """Return a scan of such files with the filter, columns, options and limit of another one."""
        return cls(
            table_metadata=scan.table_metadata,
            io=scan.io,
            row_filter=scan.row_filter,
            selected_fields=scan.selected_fields,
            case_sensitive=scan.case_sensitive,
            options=scan.options,
            limit=scan.limit,
        )

    def plan_files(self) -> list[FileScanTask]:
        """Return the added files that may hold matching rows."""
        return self._manifest_planner.plan_files(self._manifests(), self._added)

    def iter_tasks(self) -> Iterator[ScanTask]:
        """Return the same as ``ScanTask``."""
        builder = self._task_builder
        return counted(builder.build(task) for task in self.plan_files())

    def _counted(self, context: ReadContext) -> int:
        return sum(count_task(context, task) for task in self.iter_tasks())

    def _manifests(self) -> list[ManifestFile]:
        found: dict[str, ManifestFile] = {}
        for snapshot in self.table_metadata.snapshots:
            if snapshot.snapshot_id in self.by:
                for manifest in snapshot.manifests(self.io):
                    if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in self.by:
                        found[manifest.manifest_path] = manifest
        return list(found.values())

    def _added(self, entry: ManifestEntry) -> bool:
        return entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in self.by
