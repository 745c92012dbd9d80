"""A write that the user's process plans and commits, in a classic session: the only Python processes are those of the tasks.

1 the write is planned (``spark.driver.plan_write``), as the data source's planning process would. 2 ``mapInArrow`` runs the same writer on
executors, and returns one row for each task, with its sealed message. ``collect`` takes one result for each task, in order, however often
a task ran. 3 the writer commits them, or aborts if the job failed.

The job runs in a copy of the user's session with two settings of its own. When ``spark.sql.execution.arrow.maxBytesPerBatch`` is set,
Spark asks for the size of its Arrow buffers at each row, which costs as much as all its other work on a row (measured: 4.8 s of CPU
against 2.3 for 5 million rows of 7 columns). So it is switched off for rows without binary values, unless the user has set it, and
batches are limited to ``_FIXED_ROWS`` rows instead, those with strings, lists or maps to ``_VARIABLE_ROWS``.

Few rows (Spark knows of literals, ranges and limits) are collected and written by the user's process: a task in a Python worker takes
0.1 s whatever it does, as Spark 4 reads the directories of its zip files for each (``importlib.invalidate_caches``).

Not here: what a task does (``spark.task.write``), Connect sessions, which use the data source (``spark.driver.run_jobs``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as sp

from icelock.spark.columns.types import contains
from icelock.spark.driver.commit import commit_write
from icelock.spark.driver.distribution import Layout, distributed
from icelock.spark.driver.plan_write import plan_write
from icelock.spark.sealed.job import Job
from icelock.spark.sealed.messages import SealedFiles
from icelock.spark.settings.catalogs import catalog_of
from icelock.spark.settings.session import Settings
from icelock.spark.task.write import TaskWriter

BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_UNLIMITED: Final = 2**31 - 1
_VARIABLE_ROWS: Final = 2048
_FIXED_ROWS: Final = 10_000
_FRESH_SECONDS: Final = 60
_PARTS: Final = "parts"
_FEW_ROWS: Final = 100
_logger = logging.getLogger(__name__)


def write_rows(settings: Settings, job: Job, rows: DataFrame, options: Mapping[str, str]) -> None:
    """Run a write that ends in a commit; ``options`` are those of ``distribution``.

    Errors as ``plan_write`` and ``commit_write``, or PySpark's for a task's; nothing was committed then, and no file is left.
    """
    with closing(catalog_of(settings, job.table)) as catalog:
        began = time.monotonic()
        writer = cast("TaskWriter", plan_write(settings, job, rows.schema, catalog))  # this job writes rows
        try:
            context = writer.plan.context()
            spread = distributed(rows, Layout.of(context), options, case_sensitive=settings.case_sensitive)
        except BaseException:
            writer.ticket.discard()  # no task ran
            raise
        try:
            results = _run(writer, spread)
        except BaseException:
            writer.abort([])
            raise
        # After long, idle connections may be dead and tokens expired.
        fresh = time.monotonic() - began < _FRESH_SECONDS
        commit_write(context, writer.ticket, results, catalog if fresh else None)


def _run(writer: TaskWriter, rows: DataFrame) -> list[SealedFiles]:
    """Run the tasks; return their messages in the order of the tasks."""
    if _is_small(rows):
        return [writer.write(iter(rows.toArrow().to_batches()))]
    results = _with_batch_settings(rows.mapInArrow(_task(writer), f"{_PARTS} array<binary>"), rows.schema)
    return [SealedFiles([bytes(part) for part in row[_PARTS]]) for row in results.collect()]


def _is_small(rows: DataFrame) -> bool:
    """Whether Spark knows, before any job, that these are few rows: by the analysed plan, as the job optimizes a plan of its own."""
    most = rows._jdf.queryExecution().analyzed().maxRows()
    return bool(most.isDefined() and most.get() <= _FEW_ROWS)


def _task(writer: TaskWriter) -> Any:
    """Return what executors run; the writer is pickled as a planning process would."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        parts = writer.write(batches).parts
        yield pa.record_batch([pa.array([list(parts)], pa.list_(pa.binary()))], names=[_PARTS])

    return run


def _with_batch_settings(results: DataFrame, schema: sp.StructType) -> DataFrame:
    """Return the same job in a session with our settings for batches."""
    user: Any = results.sparkSession._jsparkSession
    jvm: Any = results.sparkSession._jvm
    try:
        given = user.sessionState().conf()
        if given.contains(BATCH_BYTES) or contains(schema, (sp.BinaryType,)):
            return results
        own = user.cloneSession()
        own.conf().set(BATCH_BYTES, str(_UNLIMITED))
        most = _VARIABLE_ROWS if contains(schema, (sp.StringType, sp.ArrayType, sp.MapType)) else _FIXED_ROWS
        rows = int(given.arrowMaxRecordsPerBatch())
        own.conf().set(BATCH_ROWS, str(most if rows <= 0 else min(rows, most)))
        moved = jvm.org.apache.spark.sql.classic.Dataset.ofRows(own, results._jdf.logicalPlan())
    except Exception as e:  # noqa: BLE001 - a platform that hides its JVM: slower batches, equal results
        _logger.debug("the write runs with the session's own settings for batches: %s", str(e).partition("\n\tat")[0])
        return results
    return type(results)(moved, results.sparkSession)
