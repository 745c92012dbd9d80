"""Operations without Spark's processes: what planning, tasks and commit do, one after another, each on a pickle of what came before."""

from __future__ import annotations

from dataclasses import replace

from pyspark import cloudpickle

from icelock.spark.job import Action, Base, Job, Purpose
from icelock.spark.options import TableName, parse_filter
from icelock.spark.settings import Settings
from icelock.spark.source import data_source

TABLE = "test.db.t"
KEY = bytes(range(32))


def settings(lake, **more) -> Settings:
    return Settings(catalogs={"test": lake.properties(**more)}, parallelism=2, session_key=KEY)


def base_of(table, *, merge_on_read=False) -> Base:
    snapshot = table.current_snapshot()
    return Base(
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        merge_on_read=merge_on_read,
    )


def delete_job(table, row_filter, **more) -> Job:
    return Job(
        action=Action.CUT,
        table=TableName.parse(TABLE),
        row_filter=parse_filter(row_filter),
        purpose=Purpose.DELETE,
        base=base_of(table, **more),
    )


def merge_job(table, **more) -> Job:
    return Job(action=Action.MERGE, table=TableName.parse(TABLE), purpose=Purpose.MERGE, base=base_of(table, **more))


def source(lake, job):
    given = settings(lake)
    return data_source(given)(options={"job": job.seal(given)})


def sent(thing):
    return cloudpickle.loads(cloudpickle.dumps(thing))


class CutRun:
    """A job that removes rows, up to its commit."""

    def __init__(self, lake, job):
        job = replace(job, action=Action.CUT)
        made = source(lake, job)
        schema = made.schema()
        reader = made.reader(schema)
        self.splits = [sent(split) for split in reader.partitions()]
        self.reader = cloudpickle.dumps(reader)
        self.writer = cloudpickle.dumps(source(lake, job).writer(schema, False))  # noqa: FBT003 - Spark's signature

    def run(self):
        rows = [list(cloudpickle.loads(self.reader).read(split)) for split in self.splits]
        return [sent(cloudpickle.loads(self.writer).write(iter(batches))) for batches in rows]

    def commit(self, messages):
        cloudpickle.loads(self.writer).commit(messages)

    def abort(self, messages):
        cloudpickle.loads(self.writer).abort(messages)
