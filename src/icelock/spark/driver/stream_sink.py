"""A stream into a table by the data source: over Spark Connect, where the JVM has no process that answers for the table.

For each batch Spark starts two processes of the driver: one plans, the other one commits and is told the batch's number, but neither the
query's id nor anything of the first. So the plan travels with the tasks, sealed under the session's key, which executors do not have
(``sealed_write``), and comes back in their messages, with the id of the query that Spark tells tasks. A batch is then committed as that of
any stream: once (``table.epochs``).

Spark calls ``abort`` after a failed commit too, which has deleted its files, or does not know how it ended. It commits only where all tasks
have sent their messages: files are deleted here if one of them is missing.

Not here: streams of classic sessions (``spark.statements.streams``), what tasks do (``spark.task.write``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from icelock.errors import CommitError, PolicyError
from icelock.keys.entropy import SystemEntropy
from icelock.spark.driver.commit import abort_job, end_job
from icelock.spark.driver.plan_write import planned_write
from icelock.spark.sealed.job import Job
from icelock.spark.sealed.messages import StreamFiles
from icelock.spark.sealed.ticket import PlannedWrite, opened_write, sealed_write
from icelock.spark.settings.catalogs import catalog_of
from icelock.spark.settings.session import Settings
from icelock.spark.settings.stream_options import sink_options
from icelock.spark.settings.write_options import WriteOptions
from icelock.spark.task.write import StreamTaskWriter, WritePlan
from icelock.table.epochs import Epoch


def plan_batch(settings: Settings, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamTaskWriter:
    """Return the writer of a batch's tasks; ``overwrite``: its rows replace all that the table has. Errors as ``planned_write``."""
    job = Job.of_write(WriteOptions.parse(sink_options(options), overwrite=False), overwrite=overwrite)
    plan, write = planned_write(settings, job, schema, catalog_of(settings, job.table))
    return StreamTaskWriter(plan, sealed_write(settings.session_key, plan, write, SystemEntropy()))


class BatchCommit(DataSourceStreamWriter):
    """Commits batches, or gives them up, in a process that planned none of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:  # noqa: ARG002 - Spark's signature
        """Refuse: tasks write."""
        raise PolicyError("this process commits batches of a stream, and writes no rows")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of a batch in one snapshot, if the table does not have the batch.

        Raises:
            CommitError: messages are missing, or not of one batch.
            Exception: as ``end_job``.
        """
        found = _given(messages)
        if len(found) != len(messages) or len({(each.ticket, each.query) for each in found}) != 1:
            raise CommitError(f"the messages of batch {batchId} are not those of all its tasks: nothing is committed")
        plan, write = self._opened(found[0])
        job = write.job.of_batch(Epoch.of(found[0].query, batchId))
        end_job(plan.context(), replace(write, job=job), [each.files for each in found])

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 - Spark's signature
        """Delete the files of a batch some of whose tasks failed."""
        found = _given(messages)
        if found and len(found) != len(messages):
            plan, write = self._opened(found[0])
            abort_job(plan.context(), write.job, [each.files if isinstance(each, StreamFiles) else None for each in messages])

    def _opened(self, message: StreamFiles) -> tuple[WritePlan, PlannedWrite]:
        plan, write = opened_write(self._settings.session_key, message.ticket)
        return plan, replace(write, properties=self._settings.catalogs.get(write.job.table.catalog))


def _given(messages: Sequence[WriterCommitMessage | None]) -> list[StreamFiles]:
    return [message for message in messages if isinstance(message, StreamFiles)]
