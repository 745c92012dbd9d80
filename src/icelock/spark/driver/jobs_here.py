"""Jobs that the calling process of a classic session plans and commits: the only Python processes are those of the tasks.

1 the job is planned (``spark.driver.plan_write``, ``plan_read``), as the data source's planning processes would. 2 tasks do the work
(``spark.driver.write_here``, ``rewrite_here``, ``deleted_rows``). 3 the job ends (``spark.driver.commit``): it commits, or what it wrote
goes to the operation's next job, in memory. If a job fails, no file of the operation is left.

An operation opens its catalog and loads its table once, if they do not come with it, and again for what comes after a minute. The commit
always loads the table, which is what it is checked against.

Not here: the same by the data source, for Connect sessions (``spark.driver.run_jobs``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from types import TracebackType
from typing import Final, cast

from pyspark.sql import DataFrame, SparkSession

from icelock.arrow.write.context import WriteContext
from icelock.catalog.base import EncryptedCatalog
from icelock.spark.driver.commit import end_job
from icelock.spark.driver.deleted_rows import deleted_rows
from icelock.spark.driver.distribution import Layout, check_properties, distributed
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.new_table import CREATES
from icelock.spark.driver.plan_read import RewritePlanning
from icelock.spark.driver.plan_write import planned_change, planned_write
from icelock.spark.driver.rewrite_here import rewrite_here
from icelock.spark.driver.run_jobs import Jobs
from icelock.spark.driver.scan_rows import scan_rows
from icelock.spark.driver.target import (
    TableDescription,
    TargetFiles,
    description_of,
    target_files,
    target_filter,
    target_scan,
    write_context,
)
from icelock.spark.driver.unreached import remove, sweep
from icelock.spark.driver.write_here import are_few_changes, is_small, write_here
from icelock.spark.jvm.rules import read_again
from icelock.spark.sealed.job import Action, Job, Staged
from icelock.spark.sealed.ticket import PlannedWrite
from icelock.spark.settings.catalogs import catalog_of, table_of
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.table.change_result import ChangeResult
from icelock.table.table import Table

_FRESH_SECONDS: Final = 60


class JobsHere(Jobs):
    """Runs the jobs of one operation."""

    def __init__(self, spark: SparkSession, table: TableName, loaded: Table | None = None) -> None:
        """Run jobs on a table; ``loaded`` is that table, if it was loaded just now, with a catalog that stays open."""
        super().__init__(spark)
        self._name = table
        self._opened = ExitStack()
        self._catalog = None if loaded is None else (cast("EncryptedCatalog", loaded.catalog), time.monotonic())
        self._loaded = loaded

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.close()

    def catalog(self) -> EncryptedCatalog:
        """Return the table's catalog."""
        fresh = self._fresh()
        if fresh is None:
            fresh = self._opened.enter_context(closing(catalog_of(self._settings, self._name)))
            self._catalog = fresh, time.monotonic()
            self._loaded = None
        return fresh

    def _fresh(self) -> EncryptedCatalog | None:
        """Return the catalog if it was opened just now: after long, idle connections may be dead and tokens expired."""
        return self._catalog[0] if self._catalog is not None and time.monotonic() - self._catalog[1] < _FRESH_SECONDS else None

    def _table(self, job: Job) -> Table:
        """Return the operation's table; after a minute it is loaded again, with a new catalog."""
        catalog = self.catalog()
        if self._loaded is None:
            self._loaded = table_of(catalog, job.table)
        return self._loaded

    def describe(self, job: Job) -> TableDescription:
        """Return what the table of a job is like; errors are those of ``description_of``, and NoSuchTableError."""
        return description_of(self._table(job), job)

    def target(self, job: Job) -> DataFrame:
        """Return the rows of the table that an operation is about, by Spark's own reader where it can."""
        table = self._table(job)
        options = ReadOptions(table=job.table, columns=job.columns)
        read = Job.of_read(options, target_filter(table, job))
        return scan_rows(self._spark, read, target_scan(table, job))

    def write(
        self, job: Job, rows: DataFrame, options: Mapping[str, str], layout: Layout | None = None, source_rows: int | None = None
    ) -> ChangeResult:
        """Write rows, remove those that they replace, and commit; arguments as ``Jobs.write``.

        Raises:
            PolicyError, KeyUnavailableError, NoSuchTableError: as ``planned_write``; nothing was done.
            CommitError, CommitFailedException, ValidationException: nothing was committed, and no file is left.
            PySparkException: tasks failed, with icelock's error in its message; the same.
        """
        table = None if job.action in CREATES else self._table(job)
        if table is not None and _has_batch(table, job):
            return ChangeResult()
        plan, write = planned_write(self._settings, job, rows.schema, self.catalog(), table)
        files = None if source_rows is None or table is None else target_files(target_scan(table, job), job)
        few = is_small(rows) if files is None else are_few_changes(files.searched, source_rows or 0)
        context = plan.context()
        layout = layout or Layout.of(context)
        if few:
            check_properties(layout)
        else:
            rows = distributed(rows, layout, options, case_sensitive=self._settings.case_sensitive)
        try:
            messages = write_here(plan, rows, few=few)
            check()
        except BaseException:
            sweep(context)
            raise
        end = end_job(context, write, messages, catalog=self._fresh(), files=files)
        return self._done(write, end) if isinstance(end, ChangeResult) else self._remove_rows(job, end, context, files)

    def delete(self, job: Job, rows: DataFrame, place: Sequence[int]) -> ChangeResult:
        """Delete the rows that are at these places, and commit; errors as ``write``. Nothing is written before, so nothing is left.

        ``place`` are the columns of ``rows`` with file and position.
        """
        table = self._table(job)
        if _has_batch(table, job):
            return ChangeResult()
        write = planned_change(self._settings, job, table)
        context = write_context(table, job)
        found = deleted_rows(rows, place)
        check()
        end = end_job(context, write, (), found=found, catalog=self._fresh())
        return self._done(write, end) if isinstance(end, ChangeResult) else self._remove_rows(job, end, context)

    def remove(self, job: Job) -> ChangeResult:
        """Remove the rows that match the job's filter, and commit; errors as ``write``. Files that go as a whole need no task."""
        return ChangeResult() if _has_batch(self._table(job), job) else self._remove_rows(job, None, None)

    def _remove_rows(self, job: Job, staged: Staged | None, written: WriteContext | None, files: TargetFiles | None = None) -> ChangeResult:
        """Remove rows and commit, with what was ``staged`` before, ``written`` so; ``files`` are the job's, if they were planned."""
        job = replace(job, action=Action.REWRITE)
        try:
            table = self._table(job)
            write = planned_change(self._settings, job, table)
            removal = RewritePlanning(self._settings, job, table, target_scan(table, job), files)
            splits, plan = removal.splits(staged), removal.plan()
        except BaseException:
            if staged is not None and written is not None:
                remove(written.io, staged.written.paths)
            raise
        context = plan.write.context()
        try:
            messages = rewrite_here(self._spark, plan, splits)
            check()
        except BaseException:
            remove(context.io, () if staged is None else staged.written.paths)
            sweep(context)
            raise
        end = end_job(context, write, messages, staged, catalog=self._fresh(), files=removal.files)
        return self._done(write, cast("ChangeResult", end))  # there is no job after it

    def _done(self, write: PlannedWrite, result: ChangeResult) -> ChangeResult:
        """Return what was committed; what the session has cached of the table is read again."""
        read_again(self._spark, str(self._name), write.table_uuid)
        return result


def _has_batch(table: Table, job: Job) -> bool:
    """Whether the table has the batch of a stream that a job is to write; that is looked at again when it commits."""
    return job.epoch is not None and job.epoch.is_in(table.metadata, job.branch)
