"""A compaction's work by Spark's tasks: the calling process of a classic session plans and commits.

Rows as they are: one job for all groups, a task for each bin of files; it reads and writes in one Python worker, and no row passes through
the JVM. Rows in an order: one job for each group, in which Spark's own reader reads where it can, and Spark sorts by ranges, one range a
new file. Where a range begins, a sample says, for which Spark reads the columns of the order alone. Splits and messages are sealed.

When a job fails, no file of it is left. Not here: which files, commits, and what is done again (``table.maintenance.compaction.compact``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, Self

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp
from pyspark.sql.pandas.functions import arrow_udf

from icelock.arrow.write.context import WriteContext
from icelock.io.file_io import storage_of
from icelock.keys.entropy import SystemEntropy
from icelock.metadata.canonical_json import schema_json
from icelock.metadata.manifest import DataFile
from icelock.plan.task import ScanTask
from icelock.spark.columns.types import quoted, spark_schema
from icelock.spark.driver.distribution import Layout, in_ranges
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.rewrite_here import SMALL, run_splits
from icelock.spark.driver.unreached import remove_unreported, sweep
from icelock.spark.driver.write_here import write_here
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.sealed.messages import FilesWritten, SealedFiles
from icelock.spark.sealed.splits import KEY_LENGTH, sealed_rows
from icelock.spark.settings.catalogs import executor_properties
from icelock.spark.task.combine import CombinePlan, combine_sealed, read_sealed, z_values
from icelock.spark.task.read import ReadPlan
from icelock.spark.task.splits import Split
from icelock.spark.task.write import WritePlan
from icelock.table.maintenance.compaction.compact import CompactWork, combine_here
from icelock.table.maintenance.compaction.compact_plan import PlannedGroup
from icelock.table.read.scan import DataScan
from icelock.table.table import Table

_JOB: Final = "compact"
_Z: Final = "icelock z"
_SAMPLED: Final = 1000  # rows of a new file: its size is off by some 3 % (Spark takes 300)
_SEED: Final = 0


class CombineByTasks:
    """``CombineFiles`` for a table, in one session."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table
        self._name = ".".join(table.name())

    def __call__(self, work: CompactWork, groups: Sequence[PlannedGroup]) -> Iterator[list[DataFile] | Exception]:
        """Write the rows of groups to new files; see ``CombineFiles``."""
        if work.request.arranges:
            yield from (self._arranged(work, group) for group in groups)
        elif sum(group.size for group in groups) <= SMALL:
            yield from combine_here(work, groups)
        else:
            yield from self._combined(work, groups)

    def _combined(self, work: CompactWork, groups: Sequence[PlannedGroup]) -> Iterator[list[DataFile] | Exception]:
        """Write all groups in one job."""
        job = Job(work.write, storage_for_tasks(self._table.io, self._table.catalog))
        plan = CombinePlan(read=self._read_plan(work), write=job.plan)
        try:
            with job.leaving_nothing():
                splits = [_tasks(work.scan, files) for group in groups for files in group.bins]
                tasks = job.opened(run_splits(self._spark, splits, partial(combine_sealed, plan)))
                done = iter([task.files for _, task in zip(splits, tasks, strict=True)])  # a task that said nothing would lose rows
        except Exception as e:  # noqa: BLE001 - whoever asked decides
            yield from (e for _ in groups)
            return
        for group in groups:
            yield [file for files in islice(done, len(group.bins)) for file in files]

    def _arranged(self, work: CompactWork, group: PlannedGroup) -> list[DataFile] | Exception:
        """Write one group in its order."""
        job = Job(work.write, storage_for_tasks(self._table.io, self._table.catalog))
        try:
            with job.leaving_nothing():
                rows = self._in_order(work, group, self._rows(work, group))
                return [file for task in job.opened(write_here(job.plan, rows)) for file in task.files]
        except Exception as e:  # noqa: BLE001 - whoever asked decides
            return e

    def _rows(self, work: CompactWork, group: PlannedGroup) -> DataFrame:
        """Return the live rows of a group with their lineage."""
        from icelock.spark.native.scan import native_read

        paths = frozenset(task.file.file_path for task in group.files)
        names = tuple(field.name for field in work.write.schema.fields)
        scan = FilesOfScan.of(work.scan, paths, names)
        native = native_read(self._spark, scan, self._name)
        if native.rows is not None and not native.rest:
            return native.rows
        schema = spark_schema(work.write.schema, table=self._name)
        splits = [_tasks(work.scan, [file]) for file in group.files]
        entropy = SystemEntropy()
        key = entropy.random_bytes(KEY_LENGTH)
        rows = self._spark.createDataFrame(sealed_rows(key, splits, entropy)).repartition(len(splits))
        return rows.mapInArrow(partial(read_sealed, self._read_plan(work, schema), key), schema)

    def _in_order(self, work: CompactWork, group: PlannedGroup, rows: DataFrame) -> DataFrame:
        request = work.request
        files = request.options.output_files(group.size)
        layout = Layout(schema=work.write.schema, spec=work.write.spec, sort_order=request.sort_order or work.write.sort_order)
        sample = rows.sample(min(1.0, files * _SAMPLED / max(1, sum(task.file.record_count for task in group.files))), _SEED)
        if not request.z_order:
            return in_ranges(rows, layout, files, sample=sample)
        made: Any = arrow_udf
        z_of = made(z_values(schema_json(work.write.schema), request.z_order), sp.BinaryType())
        z = z_of(*(F.col(quoted(name)) for name in request.z_order))
        return in_ranges(rows.withColumn(_Z, z), layout, files, sample=sample.withColumn(_Z, z), last=[_Z]).drop(_Z)

    def _read_plan(self, work: CompactWork, rows: sp.StructType | None = None) -> ReadPlan:
        return read_plan_of(self._table, work.scan.update(row_filter=AlwaysTrue()), work.write.schema, rows)


def read_plan_of(table: Table, scan: DataScan, schema: Schema, rows: sp.StructType | None = None) -> ReadPlan:
    """Return what tasks need to read columns of a scan's files; ``rows`` is Spark's form of them, if they go to Spark."""
    return ReadPlan.of(
        scan.read_context(schema), rows or sp.StructType(), storage_for_tasks(table.io, table.catalog), table.metadata.location
    )


def storage_for_tasks(io: FileIO, catalog: Catalog) -> dict[str, str]:
    """Return the settings of a storage that executors may have."""
    return executor_properties(storage_of(io).properties, catalog.properties)


class Job:
    """One job: the plan of its writers, and what opens their messages."""

    def __init__(self, write: WriteContext, storage: dict[str, str]) -> None:
        self._context = replace(write, operation_id=str(uuid.uuid4()))
        self._recipient = Recipient.new(self._context.operation_id, _JOB)
        names = [field.name for field in write.schema.fields]
        self.plan = WritePlan.of(self._context, names, storage, sender=self._recipient.sender)

    def opened(self, messages: Sequence[SealedFiles]) -> list[FilesWritten]:
        """Open the messages of the tasks, in their order; what earlier attempts of tasks wrote is deleted."""
        check()
        opened = [message.open(self._recipient, task=task) for task, message in enumerate(messages)]
        if any(written.retried for written in opened):
            remove_unreported(self._context, (path for written in opened for path in written.paths))
        return opened

    @contextmanager
    def leaving_nothing(self) -> Iterator[None]:
        """Delete the files of the job if it fails."""
        try:
            yield
        except BaseException:
            sweep(self._context)
            raise


class FilesOfScan(DataScan):
    """A scan of some of the files of a snapshot, whatever its filter."""

    only: frozenset[str] = frozenset()

    @classmethod
    def of(cls, scan: DataScan, only: frozenset[str], columns: tuple[str, ...]) -> Self:
        """Return a scan of the files at these paths, with these columns."""
        snapshot = scan.snapshot()
        made = cls(table_metadata=scan.table_metadata, io=scan.io, selected_fields=columns, options=scan.options)
        made.only = only
        return made if snapshot is None else made.pinned(snapshot.snapshot_id)

    def update(self, **overrides: Any) -> Self:
        """Return a copy of this scan with other arguments."""
        changed = super().update(**overrides)
        changed.only = self.only
        return changed

    def iter_tasks(self) -> Iterator[ScanTask]:
        """Return the tasks of the files, one by one."""
        return (task for task in super().iter_tasks() if task.path in self.only)


def _tasks(scan: DataScan, files: Iterable[FileScanTask]) -> Split:
    task_of = scan._task_builder.build
    return Split([task_of(file) for file in files])
