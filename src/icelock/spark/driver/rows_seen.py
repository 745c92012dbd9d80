"""Which versions of icelock tables the rows of a DataFrame come from, found in its plan before the rows are written.

A classic session's plan is searched in the JVM (``OwnRows.java``), a Connect session's in the client.

Not here: versions in scans (``spark.sealed.seen``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame

from icelock.spark.driver.source import NAME
from icelock.spark.jvm.rules import seen_in_plan
from icelock.spark.sealed.job import JOB, Job
from icelock.spark.sealed.seen import Seen, refuse, seen_in
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import Settings, is_classic


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
