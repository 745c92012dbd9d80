"""Jobs of an operation in the user's process, classic or Connect: each is a read or write of the data source with one sealed option.

Nothing here loads a catalog or calls a KMS: the driver's planning processes do, which for Spark Connect are the server's. In a classic
session the user's process itself plans the writes that commit (``spark.driver.write_here``).

Before rows are written, their DataFrame's plan is searched for the versions of icelock tables that they come from: in a classic session by
the JVM (``OwnRows.java``), over Connect by the client.

Not here: the operations (``write_to``, ``spark.change_rows``).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from icelock.spark.driver.distribution import Layout, distributed
from icelock.spark.driver.source import NAME
from icelock.spark.jvm.rules import activate, seen_in_plan
from icelock.spark.sealed.job import DESCRIPTION, JOB, MAIN, Action, Job, PlannedOn, Purpose
from icelock.spark.sealed.seen import Seen, refuse, seen_in
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import Settings, is_classic, settings_of

# Writes that commit and need no job before them.
_AT_ONCE: Final = frozenset(
    {Action.APPEND, Action.OVERWRITE, Action.OVERWRITE_PARTITIONS, Action.CREATE, Action.REPLACE, Action.CREATE_OR_REPLACE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """What the user's process knows of a table."""

    base: PlannedOn
    columns: tuple[str, ...]
    uuids: frozenset[str]
    identifier: tuple[str, ...]
    layout: Layout


class Jobs:
    """Runs jobs in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._settings = settings_of(spark)
        activate(spark)

    def with_seen(self, job: Job, rows: DataFrame) -> Job:
        """Return a job that knows which versions of icelock tables its rows come from, unless the user named a snapshot.

        Rows of the job's own table whose plan does not tell from which snapshot they are are a PolicyError.
        """
        return job if job.validate_from is not None else replace(job, seen=_rows_seen(rows, job.table, self._settings))

    def read(self, job: Job) -> DataFrame:
        """Return the rows of a job."""
        return self._spark.read.format(NAME).option(JOB, job.seal(self._settings)).load()

    def write(self, job: Job, rows: DataFrame) -> None:
        """Run a job on rows."""
        rows.write.format(NAME).mode("append").option(JOB, job.seal(self._settings)).save()

    def write_spread(self, job: Job, rows: DataFrame, options: Mapping[str, str], layout: Layout | None = None) -> None:
        """Run a job on rows, spread over tasks as the table and the options of ``distribution`` ask.

        In a classic session this process itself runs a job that commits. ``layout`` is the table's, if it is known.
        """
        if job.action in _AT_ONCE and is_classic(self._spark):
            from icelock.spark.driver.write_here import write_rows

            write_rows(self._settings, job, rows, options)
            return
        if layout is None:
            from icelock.spark.driver.new_table import new_layout

            properties = self._settings.catalogs.get(job.table.catalog) or {}  # as far as this process knows them
            layout = self.describe(job).layout if job.new_table is None else new_layout(job, rows.schema, properties)
        self.write(job, distributed(rows, layout, options, case_sensitive=self._settings.case_sensitive))

    def fixed(self, job: Job, *, snapshot: bool) -> Job:
        """Return a read pinned to the present version of its table; with ``snapshot`` it reads the main branch's."""
        seen = Seen.from_text(self._told(job, Action.SEE))
        base = PlannedOn(table_uuid=seen.table_uuid, snapshot_id=seen.heads.get(MAIN), merge_on_read=False)
        return replace(job, base=base if snapshot else None, seen=(seen,))

    def describe(self, job: Job) -> TableDescription:
        """Return what the table of a job is like now."""
        found: dict[str, Any] = json.loads(self._told(job, Action.DESCRIBE))
        mode = found["merge"] if job.purpose == Purpose.MERGE else found["delete"]
        return TableDescription(
            base=PlannedOn(table_uuid=found["uuid"], snapshot_id=found["snapshot"], merge_on_read=mode),
            columns=tuple(found["columns"]),
            uuids=frozenset(found["uuids"]),
            identifier=tuple(found["identifier"]),
            layout=Layout.from_json(found["layout"]),
        )

    def _told(self, job: Job, action: Action) -> str:
        """Return what the driver tells of a job's table."""
        text: str = self.read(replace(job, action=action)).schema[0].metadata[DESCRIPTION]
        return text

    def rewrite(self, job: Job, *, only_staged: bool = False) -> None:
        """Remove rows, and commit what was staged before; files of a failed operation are deleted.

        ``only_staged``: do nothing if no job staged anything.
        """
        job = replace(job, action=Action.REWRITE)
        try:
            results = self.read(job)
            if not only_staged or results.schema[0].metadata[DESCRIPTION]:
                self.write(job, results)
        except BaseException:
            # A job that could not be planned staged nothing. The first error matters more.
            with contextlib.suppress(Exception):
                _ = self.read(replace(job, action=Action.DISCARD)).schema
            raise


def _rows_seen(df: DataFrame, table: TableName, settings: Settings) -> tuple[Seen, ...]:
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
    if str(table) in (options.get("path"), options.get("table")):
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
