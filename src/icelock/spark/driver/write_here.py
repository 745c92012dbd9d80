"""Tasks of the calling process of a classic session, without planning processes, and those that write rows.

``mapInArrow`` runs the work on executors, and returns one row for each task, with its sealed message. ``collect`` takes one result for each
task, in order, however often a task ran.

A job that writes rows runs in a copy of the user's session with two settings of its own. When
``spark.sql.execution.arrow.maxBytesPerBatch`` is set, Spark asks for the size of its Arrow buffers at each row, which costs as much as all
its other work on a row (measured: 4.8 s of CPU against 2.3 for 5 million rows of 7 columns). So it is switched off for rows without binary
values, unless the user has set it, and batches are limited to ``_FIXED_ROWS`` rows instead, those with strings, lists or maps to
``_VARIABLE_ROWS``.

Few rows are collected and written by the user's process: the first task of a Python worker takes 0.25 s of CPU whatever it does, as
Spark 4 has Python 3.11 read the directories of its zip files (later ones do not: ``spark.task.imports``). Spark knows it of literals,
ranges and limits. An UPDATE or MERGE has no more rows than the files that it looks into and its source have together; this process plans
these files, so it knows theirs, and ``TableCommands`` counts those of a source that is made of icelock's tables.

Not here: planning and commit (``spark.driver.jobs_here``), what a task does (``spark.task.write``), Connect sessions, which use the data
source (``spark.driver.run_jobs``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table import FileScanTask
from pyspark.sql import DataFrame
from pyspark.sql import types as sp

from icelock.spark.columns.types import contains
from icelock.spark.driver.interrupts import check
from icelock.spark.sealed.messages import SealedFiles
from icelock.spark.task.write import WritePlan, write_rows

BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_UNLIMITED: Final = 2**31 - 1
_VARIABLE_ROWS: Final = 2048
_FIXED_ROWS: Final = 10_000
_PARTS: Final = "parts"
_FEW_ROWS: Final = 100
_FEW_CHANGES: Final = 1000
_FEW_BYTES: Final = 1 << 20
_logger = logging.getLogger(__name__)


def write_here(plan: WritePlan, rows: DataFrame, *, few: bool = False) -> list[SealedFiles]:
    """Write rows by tasks, or few of them in this process; return the messages, in the order of the tasks.

    Errors are those of ``write_rows`` for few rows, or PySpark's for a query's and a task's.
    """
    if few:
        return [write_rows(plan, iter(_collected(rows)))]
    return run_tasks(rows, partial(write_rows, plan), _batch_settings(rows))


def run_tasks(rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], SealedFiles], settings: Mapping[str, str]) -> list[SealedFiles]:
    """Do the work on each partition of rows, in a copy of the session with these settings; return the messages in the tasks' order.

    Nothing is run if the user interrupted the statement while its job was planned: there was no job yet that could be cancelled.
    """
    check()
    results = _in_own_session(_named(rows).mapInArrow(_task(work), f"{_PARTS} array<binary>"), settings)
    return [SealedFiles([bytes(part) for part in row[_PARTS]]) for row in results.collect()]


def _collected(rows: DataFrame) -> list[pa.RecordBatch]:
    """Return rows in the batches that a task would get; ``toArrow`` casts them, and refuses a null struct that has required fields."""
    check()
    frame: Any = rows
    found: list[pa.RecordBatch] = frame._collect_as_arrow()
    return found


def _named(rows: DataFrame) -> DataFrame:
    """Return rows whose columns ``mapInArrow`` finds, as it looks for them by unquoted names; the work goes by their order."""
    names = rows.columns
    plain = all(name.isidentifier() for name in names) and len({name.lower() for name in names}) == len(names)
    return rows if plain else rows.toDF(*(f"c{number}" for number in range(len(names))))


def is_small(rows: DataFrame) -> bool:
    """Whether Spark knows, before any job, that these are few rows: by the analysed plan, as the job optimizes a plan of its own."""
    most = rows._jdf.queryExecution().analyzed().maxRows()
    return bool(most.isDefined() and most.get() <= _FEW_ROWS)


def are_few_changes(files: Sequence[FileScanTask], source_rows: int) -> bool:
    """Whether a change has few rows: no more than the files that it looks into and its source of so many rows have together."""
    known = [task.file for task in files]
    rows = source_rows + sum(file.record_count for file in known)
    return rows <= _FEW_CHANGES and sum(file.file_size_in_bytes for file in known) <= _FEW_BYTES


def _task(work: Callable[[Iterator[pa.RecordBatch]], SealedFiles]) -> Any:
    """Return what executors run; it is pickled with ``work``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        parts = work(batches).parts
        yield pa.record_batch([pa.array([list(parts)], pa.list_(pa.binary()))], names=[_PARTS])

    return run


def _batch_settings(rows: DataFrame) -> dict[str, str]:
    """Return our settings for batches of such rows; none if Spark's or the user's should stay."""
    user: Any = rows.sparkSession._jsparkSession
    try:
        given = user.sessionState().conf()
        if given.contains(BATCH_BYTES) or contains(rows.schema, (sp.BinaryType,)):
            return {}
        most = _VARIABLE_ROWS if contains(rows.schema, (sp.StringType, sp.ArrayType, sp.MapType)) else _FIXED_ROWS
        wanted = int(given.arrowMaxRecordsPerBatch())
    except Exception as e:  # noqa: BLE001 - a platform that hides its JVM: slower batches, equal results
        _tell(e)
        return {}
    return {BATCH_BYTES: str(_UNLIMITED), BATCH_ROWS: str(most if wanted <= 0 else min(wanted, most))}


def _in_own_session(results: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Return the same job in a copy of its session with these settings, which only make it faster."""
    if not settings:
        return results
    user: Any = results.sparkSession._jsparkSession
    jvm: Any = results.sparkSession._jvm
    try:
        own = user.cloneSession()
        for name, value in settings.items():
            own.conf().set(name, value)
        moved = jvm.org.apache.spark.sql.classic.Dataset.ofRows(own, results._jdf.logicalPlan())
    except Exception as e:  # noqa: BLE001 - likewise
        _tell(e)
        return results
    return type(results)(moved, results.sparkSession)


def _tell(error: Exception) -> None:
    _logger.debug("a job runs with the session's own settings: %s", str(error).partition("\n\tat")[0])
