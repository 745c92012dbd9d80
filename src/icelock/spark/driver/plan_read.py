"""Reads in the driver: of what users ask for, of the rows that an operation changes, and of what a job says in its schema alone.

One planning makes one reader, and unwraps each KEK once. Spark pickles the reader for executors before it asks for partitions. Its pickle
is the executors' reader with the plan as plain data: the scan with its KMS client stays here.

A job that removes rows reads the files that may hold them. A file all of whose rows match the filter, as partition and metrics prove, needs
no task: it is removed by metadata alone. Of rows that are known by position, tasks get only the files that have them.

Not here: what executors do (``spark.task.read``, ``spark.task.row_rewrite``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from icelock.arrow.write.row_rewrite import with_lineage
from icelock.errors import PolicyError
from icelock.metadata.canonical_json import schema_json
from icelock.metadata.column_types import schema_from_json
from icelock.metadata.metadata_columns import shows_deleted
from icelock.metadata.table_metadata import name_mapping_of
from icelock.plan.task import TaskBuilder
from icelock.spark.columns.filters import FilterTranslator, is_shifted
from icelock.spark.columns.projection import project
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.commit import discard_staged
from icelock.spark.driver.loaded import Loaded
from icelock.spark.driver.target import (
    TargetFiles,
    as_column,
    check_same_table,
    description_column,
    target_files,
    target_scan,
    version_column,
    write_context,
)
from icelock.spark.native.plan import is_native
from icelock.spark.sealed.job import DESCRIPTION, Action, Job, Staged, check_staged, peek, take_result
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.catalogs import any_table_of, catalog_of, changed_table_of, executor_properties, open_table, scan_of
from icelock.spark.settings.options import ReadOptions
from icelock.spark.settings.session import Settings
from icelock.spark.task.read import ReadPlan, TaskReader
from icelock.spark.task.row_rewrite import RESULT, RewritePlan, RewriteReader, RewriteSplit
from icelock.spark.task.splits import plan_splits
from icelock.spark.task.write import WritePlan
from icelock.table.plain import AnyTable
from icelock.table.read.scan import DataScan
from icelock.table.table import Table


def job_schema(settings: Settings, job: Job) -> tuple[StructType, Loaded | None]:
    """Return the schema of a job's rows, which is all that some jobs do; for a read also what later plannings must agree with."""
    answer = _answer(settings, job)
    if answer is not None:
        return answer, None
    if job.read is not None and (changed := _changed_table(settings, job.read)) is not None:
        from icelock.spark.driver.plan_changes import changes_schema

        return changes_schema(changed, job.read)
    _, scan = _table_and_scan(settings, job)
    projection = scan.projection()
    schema = spark_schema(projection, table=str(job.table))
    if job.read is None:
        return schema, None
    snapshot, seen = scan.snapshot(), job.seen[0] if job.seen else Seen.of(scan.table_metadata)
    snapshot_id = None if snapshot is None else snapshot.snapshot_id
    return schema, Loaded(snapshot_id=snapshot_id, schema=schema_json(projection), seen=seen.marked())


def _answer(settings: Settings, job: Job) -> StructType | None:
    """Return the schema of a job that reads no rows of the table."""
    match job.action:
        case Action.DESCRIBE:
            return description_column(settings, job)
        case Action.SEE:
            return version_column(settings, job)
        case Action.RESULT:
            return as_column(take_result(job) or "")
        case Action.DISCARD:
            discard_staged(settings, job)
            return _result_schema(staged=False)
        case Action.REWRITE:
            return _result_schema(staged=peek(job) is not None)
        case _:
            return None


def _result_schema(*, staged: bool) -> StructType:
    """Return the schema of result rows, which also says whether a job of this operation staged anything."""
    return StructType([StructField(RESULT, BinaryType(), metadata={DESCRIPTION: staged})])


def job_reader(settings: Settings, job: Job, schema: StructType, loaded: Loaded | None) -> DataSourceReader:
    """Return the reader of a job, for the columns that Spark wants (``schema``).

    ``loaded`` is what ``job_schema`` returned when the DataFrame was made; None for a user's schema, which reads the newest snapshot.

    Raises:
        PolicyError: the table's columns changed since the DataFrame was made, or its snapshot was expired.
    """
    if job.action == Action.REWRITE:
        target = open_table(settings, job.table)
        return RewritePlanning(settings, job, target, target_scan(target, job))
    if job.read is not None and (changed := _changed_table(settings, job.read)) is not None:
        from icelock.spark.driver.plan_changes import ChangesPlanning

        return ChangesPlanning(settings, changed, job.read, schema, loaded)
    table, scan = _table_and_scan(settings, job)
    if job.read is None:
        return PlanningReader(settings, job, table, scan, schema, empty=job.pinned.snapshot_id is None)
    if loaded is not None:
        if loaded.snapshot_id is not None:
            scan = scan.pinned(loaded.snapshot_id)
        if schema_from_json(loaded.schema).as_struct() != scan.projection().as_struct():
            raise PolicyError(f"the columns of table {job.table} changed since the DataFrame was made: load it again")
    kind = PushDownReader if settings.push_down else PlanningReader
    return kind(settings, job, table, scan, schema, empty=loaded is not None and loaded.snapshot_id is None)


def _changed_table(settings: Settings, read: ReadOptions) -> AnyTable | None:
    """Load the table whose changes are read, if any; only then the catalog is asked."""
    return changed_table_of(catalog_of(settings, read.table), read.table) if read.table.may_be_of_changes else None


def _table_and_scan(settings: Settings, job: Job) -> tuple[AnyTable, DataScan]:
    """Load the table of a job, which may be plain if it is only read, and return the job's scan."""
    if job.read is None:
        target = open_table(settings, job.table)
        return target, target_scan(target, job)
    table = any_table_of(catalog_of(settings, job.table), job.table)
    scan = scan_of(table, job.read).filter(job.row_filter)
    if job.base is None:
        return table, scan
    check_same_table(table, job.base.table_uuid, job.table)
    return table, scan if job.base.snapshot_id is None else scan.pinned(job.base.snapshot_id)


class _DriverReader(DataSourceReader):
    """A reader in the driver; its pickle is the executors' reader."""

    def __init__(self, settings: Settings, job: Job, table: AnyTable, scan: DataScan) -> None:
        self._settings = settings
        self._job = job
        self._table = table
        self._scan = scan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read as an executor does."""
        planned: Any = self.__reduce__()
        rows: Iterator[pa.RecordBatch] = planned[0](*planned[1]).read(partition)
        return rows

    def _read_plan(self, columns: Schema, schema: StructType) -> ReadPlan:
        context = self._scan.read_context(columns)
        storage = executor_properties(context.io.properties, self._table.catalog.properties)
        return ReadPlan.of(context, schema, storage, self._table.metadata.location)


class PlanningReader(_DriverReader):
    """Reads rows."""

    def __init__(  # noqa: PLR0913 - the parts of one planning
        self, settings: Settings, job: Job, table: AnyTable, scan: DataScan, schema: StructType, *, empty: bool
    ) -> None:
        super().__init__(settings, job, table, scan)
        self._empty = empty
        self._spark_schema = schema
        self._projected = project(scan.projection(), schema, table=str(job.table), case_sensitive=settings.case_sensitive)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan."""
        tasks = [] if self._empty else self._scan.scan_tasks()
        if self._job.rest:
            mapped = name_mapping_of(self._table.metadata) is not None
            deleted = shows_deleted(self._projected)
            tasks = [task for task in tasks if not is_native(task, name_mapping=mapped, deleted=deleted)]
        return plan_splits(tasks, self._table.metadata.properties, parallelism=self._settings.parallelism)

    def __reduce__(self) -> Any:
        return TaskReader, (self._read_plan(self._projected, self._spark_schema),)


class PushDownReader(PlanningReader):
    """The reader if Spark may push filters: otherwise Spark refuses one with this method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that can be applied exactly, and return the others."""
        translator = FilterTranslator(self._projected, self._scan.full_schema)
        left = []
        for pushed in filters:
            expression = None if is_shifted(pushed) else translator.translate(pushed)
            if expression is None:
                left.append(pushed)
            else:
                self._scan = self._scan.filter(expression)
        return left


class RewritePlanning(_DriverReader):
    """Removes rows."""

    _table: Table

    def __init__(self, settings: Settings, job: Job, table: Table, scan: DataScan, files: TargetFiles | None = None) -> None:
        super().__init__(settings, job, table, scan)
        self._files = files

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the job; errors are those of ``splits``."""
        return self.splits(peek(self._job)) or [RewriteSplit([], {})]

    def splits(self, staged: Staged | None) -> list[RewriteSplit]:
        """Return what tasks do, with what the operation's first job has left; no file, no split.

        Raises:
            CommitError: what it left is no longer there.
            KeyUnavailableError: no KMS, or it refused.
            IntegrityError: a manifest or manifest list was changed.
        """
        check_staged(staged, self._job)
        planned = self.files.searched
        positions = {} if staged is None else dict(staged.written.positions)
        if self._job.by_position:
            planned = [task for task in planned if task.file.file_path in positions]
        builder = TaskBuilder([self._scan.full_schema, *self._table.metadata.schemas])
        tasks = [builder.build(task) for task in planned]
        splits = plan_splits(tasks, self._table.metadata.properties, parallelism=self._settings.parallelism)
        return [RewriteSplit(split.tasks, positions) for split in splits if len(split)]

    @cached_property
    def files(self) -> TargetFiles:
        """The files that hold the rows, or may."""
        return self._files or target_files(self._scan, self._job)

    def plan(self) -> RewritePlan:
        """Return what all tasks share."""
        read = self._read_plan(Schema(), StructType())
        written = with_lineage(write_context(self._table, self._job))
        write = WritePlan.of(written, (), read.storage, sender=self._job.recipient.sender)
        return RewritePlan(read=read, write=write, merge_on_read=self._job.pinned.merge_on_read)

    def __reduce__(self) -> Any:
        return RewriteReader, (self.plan(),)
