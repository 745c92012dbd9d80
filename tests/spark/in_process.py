"""Operations without Spark's processes: what planning, tasks and commit do, one after another, each on a pickle of what came before."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import replace
from pathlib import Path

from pyspark import TaskContext, cloudpickle

from icelock.format import aes_gcm
from icelock.plan.filters.text import parse_filter
from icelock.spark.driver.source import data_source
from icelock.spark.sealed.job import Action, Job, PlannedOn, Purpose
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import Settings

TABLE = "test.db.t"
KEY = bytes(range(32))


def settings(lake, **more) -> Settings:
    return Settings(catalogs={"test": lake.properties(**more)}, parallelism=2, session_key=KEY)


def base_of(table, *, merge_on_read=False) -> PlannedOn:
    snapshot = table.current_snapshot()
    return PlannedOn(
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        merge_on_read=merge_on_read,
    )


def delete_job(table, row_filter, **more) -> Job:
    return Job(
        action=Action.REWRITE,
        table=TableName.parse(TABLE),
        row_filter=parse_filter(row_filter),
        purpose=Purpose.DELETE,
        base=base_of(table, **more),
    )


def merge_job(table, **more) -> Job:
    return Job(action=Action.MERGE, table=TableName.parse(TABLE), purpose=Purpose.MERGE, by_position=True, base=base_of(table, **more))


def source(lake, job):
    given = settings(lake)
    return data_source(given)(options={"job": job.seal(given)})


def sent(thing):
    return cloudpickle.loads(cloudpickle.dumps(thing))


@contextlib.contextmanager
def as_task(number, attempt=0):
    """Be the task of a partition, as far as ``TaskContext`` tells."""
    task = object.__new__(TaskContext)
    task._partitionId, task._attemptNumber = number, attempt
    before, TaskContext._taskContext = TaskContext._taskContext, task
    try:
        yield
    finally:
        TaskContext._taskContext = before


def job_of(writer):
    """Return the job that the commit will find in the driver's folder."""
    ticket = writer.ticket
    return pickle.loads(aes_gcm.decrypt(ticket._key, Path(ticket._path).read_bytes(), b"icelock spark write")).job  # noqa: S301 - our own


def told(writer, *messages):
    """Return what messages say, to whoever has the driver's folder."""
    recipient = job_of(writer).recipient
    return [message.open(recipient, task=task) for task, message in enumerate(messages)]


def paths(writer, *messages):
    """Return the files that messages name."""
    return [path for written in told(writer, *messages) for path in written.paths]


class RewriteRun:
    """A job that removes rows, up to its commit."""

    def __init__(self, lake, job):
        job = replace(job, action=Action.REWRITE)
        made = source(lake, job)
        schema = made.schema()
        reader = made.reader(schema)
        self.splits = [sent(split) for split in reader.partitions()]
        self.reader = cloudpickle.dumps(reader)
        self.writer = cloudpickle.dumps(source(lake, job).writer(schema, False))  # noqa: FBT003 - Spark's signature

    def run(self):
        messages = []
        for number, split in enumerate(self.splits):
            with as_task(number):
                batches = list(cloudpickle.loads(self.reader).read(split))
                messages.append(sent(cloudpickle.loads(self.writer).write(iter(batches))))
        return messages

    def paths(self, messages):
        return paths(cloudpickle.loads(self.writer), *messages)

    def commit(self, messages):
        cloudpickle.loads(self.writer).commit(messages)

    def abort(self, messages):
        cloudpickle.loads(self.writer).abort(messages)
