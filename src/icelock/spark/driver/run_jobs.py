"""Jobs of an operation in the user's process: over Spark Connect each is a read or write of the data source with one sealed option.

Nothing here loads a catalog or calls a KMS: the driver's planning processes do, which for Spark Connect are the server's. In a classic
session the user's process itself plans and commits (``spark.driver.jobs_here``).

Before rows are written, their DataFrame's plan is searched for the versions of icelock tables that they come from: in a classic session by
the JVM (``OwnRows.java``), over Connect by the client.

Not here: the operations (``write_to``, ``spark.change_rows``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import DataFrame, SparkSession

from icelock.spark.driver.distribution import Layout, distributed
from icelock.spark.driver.new_table import new_layout
from icelock.spark.driver.source import NAME
from icelock.spark.driver.target import TableDescription
from icelock.spark.jvm.rules import activate, seen_in_plan
from icelock.spark.sealed.job import DESCRIPTION, JOB, MAIN, Action, Job, PlannedOn
from icelock.spark.sealed.seen import Seen, refuse, seen_in
from icelock.spark.settings.options import CHANGES, TableName
from icelock.spark.settings.session import Settings, is_classic, settings_of
from icelock.table.change_result import ChangeResult

if TYPE_CHECKING:
    from icelock.table.table import Table

_logger = logging.getLogger(__name__)


def jobs_of(spark: SparkSession, table: TableName, loaded: Table | None = None) -> Jobs:
    """Return what runs the jobs of one operation on a table, to be used in a ``with`` block; ``loaded`` as ``JobsHere``'s."""
    if not is_classic(spark):
        return Jobs(spark)
    from icelock.spark.driver.jobs_here import JobsHere

    return JobsHere(spark, table, loaded)


class Jobs:
    """Runs jobs in one session, by the data source."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._settings = settings_of(spark)
        activate(spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave nothing open."""

    def with_seen(self, job: Job, rows: DataFrame) -> Job:
        """Return a job that knows which versions of icelock tables its rows come from, unless the user named a snapshot.

        Rows of the job's own table whose plan does not tell from which snapshot they are are a PolicyError.
        """
        return job if job.validate_from is not None else replace(job, seen=rows_seen(rows, job.table, self._settings))

    def read(self, job: Job) -> DataFrame:
        """Return the rows of a job."""
        return self._spark.read.format(NAME).option(JOB, job.seal(self._settings)).load()

    def target(self, job: Job) -> DataFrame:
        """Return the rows of the table that an operation is about."""
        return self.read(replace(job, action=Action.TARGET))

    def write(
        self,
        job: Job,
        rows: DataFrame,
        options: Mapping[str, str],
        layout: Layout | None = None,
        source_rows: int | None = None,  # noqa: ARG002 - the data source has tasks for any number
    ) -> ChangeResult:
        """Write rows, remove those that they replace, and commit.

        Args:
            job: with its base, if rows are replaced.
            rows: spread over tasks as the table and ``options`` ask.
            options: of ``distribution``.
            layout: the table's, if it is known.
            source_rows: of a change, how many rows there are at most that are no rows of the table, if that is known.
        """
        if layout is None:
            properties = self._settings.catalogs.get(job.table.catalog) or {}  # as far as this process knows them
            layout = self.describe(job).layout if job.new_table is None else new_layout(job, rows.schema, properties)
        self._save(job, distributed(rows, layout, options, case_sensitive=self._settings.case_sensitive))
        if job.action == Action.STAGE or (job.action == Action.MERGE and not job.pinned.merge_on_read):
            return self._remove(job, only_staged=job.action == Action.MERGE)
        return self._result(job)

    def remove(self, job: Job) -> ChangeResult:
        """Remove the rows that match the job's filter, and commit."""
        return self._remove(job, only_staged=False)

    def _remove(self, job: Job, *, only_staged: bool) -> ChangeResult:
        """Remove rows, and commit what was staged before; files of a failed operation are deleted.

        ``only_staged``: do nothing if no job staged anything.
        """
        job = replace(job, action=Action.REWRITE)
        try:
            results = self.read(job)
            if not only_staged or results.schema[0].metadata[DESCRIPTION]:
                self._save(job, results)
        except BaseException:
            # A job that could not be planned staged nothing. The first error matters more.
            with contextlib.suppress(Exception):
                _ = self.read(replace(job, action=Action.DISCARD)).schema
            raise
        return self._result(job)

    def _save(self, job: Job, rows: DataFrame) -> None:
        rows.write.format(NAME).mode("append").option(JOB, replace(job, tells=True).seal(self._settings)).save()

    def _result(self, job: Job) -> ChangeResult:
        """Return what an operation did, which its commit has left in the driver."""
        told = self._told(job, Action.RESULT)
        if not told:
            _logger.warning(
                "the change of table %s was committed, but the driver's temporary folder was emptied: its result is lost", job.table
            )
        return ChangeResult.from_json(told) if told else ChangeResult(rows_deleted=None)

    def fixed(self, job: Job, *, snapshot: bool) -> Job:
        """Return a read pinned to the present version of its table; with ``snapshot`` it reads the main branch's."""
        seen = Seen.from_text(self._told(job, Action.SEE))
        base = PlannedOn(table_uuid=seen.table_uuid, snapshot_id=seen.heads.get(MAIN), merge_on_read=False)
        return replace(job, base=base if snapshot else None, seen=(seen,))

    def describe(self, job: Job) -> TableDescription:
        """Return what the table of a job is like now."""
        return TableDescription.from_json(self._told(job, Action.DESCRIBE))

    def _told(self, job: Job, action: Action) -> str:
        """Return what the driver tells of a job's table."""
        text: str = self.read(replace(job, action=action)).schema[0].metadata[DESCRIPTION]
        return text


def rows_seen(df: DataFrame, table: TableName, settings: Settings) -> tuple[Seen, ...]:
    """Return the versions of icelock tables that a plan reads; a scan of this table without one is a PolicyError."""
    if is_classic(df.sparkSession):
        return seen_in(seen_in_plan(df, NAME), table)
    connect: Any = df  # Connect's own DataFrame
    plan = connect._plan.to_proto(connect.sparkSession.client)
    return tuple(_of_options(options, table, settings) for options in _sources(plan))


def _of_options(options: Mapping[str, str], table: TableName, settings: Settings) -> Seen:
    """Return what a Connect plan's scan with these options reads."""
    if JOB in options:
        job = Job.open(settings, options[JOB])
        if job.seen:
            return job.seen[0]
    if {str(table), f"{table}.{CHANGES}"} & {options.get("path"), options.get("table")}:
        refuse(table, "was read by spark.read, whose snapshot only the server knows: read it by icelock.spark.read")
    return Seen(table_uuid="")


def _sources(message: Any) -> Iterable[Mapping[str, str]]:
    """Yield the options of the icelock scans in a Connect plan."""
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            parts = [part for part in value.values() if hasattr(part, "ListFields")]
        else:
            parts = list(value) if hasattr(value, "append") or hasattr(value, "add") else [value]
        for part in parts:
            if part.DESCRIPTOR.name == "DataSource" and part.format.lower() == NAME:
                options = {name.lower(): option for name, option in part.options.items()}
                yield {**options, "path": part.paths[0]} if part.paths else options
            yield from _sources(part)
