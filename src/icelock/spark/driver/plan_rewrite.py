"""A job that removes rows, in the driver: which files its tasks get.

A file all of whose rows match the filter, as partition and metrics prove, needs no task: it is removed by metadata alone. For an upsert,
tasks get only the files in which its first job found rows.

Not here: the work on a file (``spark.task.row_rewrite``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from icelock.arrow.write.row_rewrite import with_lineage
from icelock.plan.task import TaskBuilder
from icelock.plan.whole_files import split_by_coverage
from icelock.spark.driver.target import target_scan
from icelock.spark.sealed.job import DESCRIPTION, Job
from icelock.spark.sealed.staged import check_staged, peek
from icelock.spark.settings.catalogs import executor_properties, open_table
from icelock.spark.settings.session import Settings
from icelock.spark.task.read import ReadPlan
from icelock.spark.task.row_rewrite import RESULT, RewritePlan, RewriteReader, RewriteSplit
from icelock.spark.task.splits import plan_splits
from icelock.spark.task.write import WritePlan


def result_schema(*, staged: bool) -> StructType:
    """Return the schema of result rows, which also says whether a job of this operation staged anything."""
    return StructType([StructField(RESULT, BinaryType(), metadata={DESCRIPTION: staged})])


class RewritePlanning(DataSourceReader):
    """The reader in the driver; its pickle is the executors' reader."""

    def __init__(self, settings: Settings, job: Job) -> None:
        self._settings = settings
        self._job = job
        self._table = open_table(settings, job.table)
        self._scan = target_scan(self._table, job)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the job.

        Raises:
            CommitError: what the first job staged is no longer there.
            KeyUnavailableError: no KMS, or it refused.
            IntegrityError: a manifest or manifest list was changed.
        """
        staged = peek(self._job)
        check_staged(staged, self._job)
        if self._job.pinned.snapshot_id is None:
            return [RewriteSplit([], {})]
        positions = {} if staged is None else dict(staged.written.positions)
        if positions:
            planned = [task for task in self._scan.plan_files() if task.file.file_path in positions]
        else:
            _, planned = split_by_coverage(self._scan.plan_files(), self._scan.full_schema, self._scan.exact_filter)
        builder = TaskBuilder([self._scan.full_schema, *self._table.metadata.schemas])
        splits = plan_splits(
            [builder.build(task) for task in planned], self._table.metadata.properties, parallelism=self._settings.parallelism
        )
        return [RewriteSplit(split.tasks, positions) for split in splits]

    def read(self, partition: InputPartition) -> Any:
        """Work as an executor does."""
        return RewriteReader(self._plan()).read(partition)

    def __reduce__(self) -> Any:
        return RewriteReader, (self._plan(),)

    def _plan(self) -> RewritePlan:
        context = self._scan.read_context(Schema())
        storage = executor_properties(context.io.properties, self._table.catalog.properties)
        written = replace(with_lineage(self._table.transaction().staged.write_context()), operation_id=self._job.operation_id)
        return RewritePlan(
            read=ReadPlan.of(context, StructType(), storage, self._table.metadata.location),
            write=WritePlan.of(written, (), storage, sender=self._job.recipient.sender),
            merge_on_read=self._job.pinned.merge_on_read,
        )
