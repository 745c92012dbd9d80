"""Jobs that go wrong or twice: retries, duplicate attempts, aborts, failed commits, replaced tables (C-56)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import CommitFailedException
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException

from icelock.errors import CommitError
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.source import data_source
from icelock.spark.settings.session import Settings
from tests.helpers.tables import load
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import as_task, paths

pytestmark = pytest.mark.spark

TABLE = "test.db.t"
SCHEMA = "id bigint, name string, city string"


def make(lake):
    return lake.catalog().create_table("db.t", people().schema, properties=KEYED)


def data_files(lake):
    return {path for path in lake.files() if path.startswith("db/t/data/")}


def rows(batches, fail=None):
    """Return what ``mapInArrow`` takes: hands rows on, then calls ``fail`` at the end of the task."""

    def run(iterator):
        yield from iterator
        if fail is not None:
            fail(TaskContext.get())

    return batches.mapInArrow(run, SCHEMA)


def frame(spark, count=30_000, parts=2):
    return spark.range(0, count, 1, parts).selectExpr("id", "concat('n', id) name", "'x' city")


def tickets():
    """Return what planning processes left in the temporary folder that conftest.py gives them."""
    return set(Path(os.environ["TMPDIR"]).glob("icelock-write-*"))


def write(df, mode="append"):
    df.write.format("icelock").mode(mode).save(TABLE)


@pytest.mark.spark43
def test_a_task_that_fails_once_is_written_once(spark, lake, spark_lake):  # noqa: ARG001 - spark_lake registers lake
    make(lake)

    def fail(task):
        if task.attemptNumber() == 0:
            msg = "first attempt"
            raise RuntimeError(msg)

    write(rows(frame(spark), fail))
    table = load(lake)
    assert len(table.snapshots()) == 1
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(30_000))
    assert len(data_files(lake)) == table.inspect.files().num_rows == 2


def test_a_job_that_fails_leaves_no_file(spark, lake, spark_lake):  # noqa: ARG001 - spark_lake registers lake
    make(lake)
    before = lake.files()

    def fail(task):
        if task.partitionId() == 1:
            msg = "every attempt"
            raise RuntimeError(msg)

    with pytest.raises(PySparkException, match="every attempt"):
        write(rows(frame(spark, parts=4), fail))
    assert lake.files() == before
    assert load(lake).snapshots() == []
    assert tickets() == set()


def test_a_killed_process_leaves_no_file(spark, lake, spark_lake):  # noqa: ARG001 - spark_lake registers lake
    """Files of a Python worker that died are found by the write's id in their names, partition folders and all."""
    make(lake)
    before, data = lake.files(), lake.warehouse / "db" / "t" / "data"

    def fail(task):
        if task.partitionId() == 1:
            assert wait_until(lambda: any(data.rglob("*.parquet")))
            os._exit(9)

    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        write(rows(frame(spark), fail))
    assert lake.files() == before


def driver(lake, mode="append"):
    """Return a writer as the driver's planning process makes it, pickled as Spark does."""
    source = data_source(Settings(catalogs={"test": lake.properties()}))(options={"path": TABLE})
    return cloudpickle.dumps(source.writer(spark_schema(load(lake).schema(), table="t"), mode == "overwrite"))


def arrived(sent):
    return cloudpickle.loads(sent)


def test_only_the_messages_of_the_commit_count(lake):
    """A speculative attempt whose message Spark drops: its files belong to no snapshot."""
    make(lake)
    sent = driver(lake)
    first = arrived(sent).write(iter(people(0).to_batches()))
    arrived(sent).write(iter(people(0).to_batches()))
    with as_task(1):
        other = arrived(sent).write(iter(people(10).to_batches()))
    arrived(sent).commit([first, other])
    assert sorted(load(lake).scan().to_arrow().column("id").to_pylist()) == list(range(20))
    assert len(data_files(lake)) == 3


def test_abort_removes_files_of_messages_and_lost_ones(lake):
    make(lake)
    before = lake.files()
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    arrived(sent).write(iter(people(10).to_batches()))  # its message was lost
    other_write = arrived(driver(lake))
    kept = other_write.write(iter(people(20).to_batches()))
    arrived(sent).abort([message, None])
    assert {f"db/t/data/{Path(path).name}" for path in paths(other_write, kept)} == data_files(lake)
    other_write.abort([kept])
    assert lake.files() == before


def test_abort_after_a_commit_removes_nothing(lake):
    """Spark calls abort when the commit's process dies after the commit."""
    make(lake)
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    arrived(sent).commit([message])
    arrived(sent).abort([message])
    assert load(lake).scan().count() == 10
    with pytest.raises(CommitError, match="the write ended before"):
        arrived(sent).commit([message])
    assert load(lake).scan().count() == 10


def test_a_missing_message_commits_nothing(lake):
    make(lake)
    before = lake.files()
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    with pytest.raises(CommitError, match="expected the files of 2 tasks, got NoneType"):
        arrived(sent).commit([message, None])
    arrived(sent).abort([message, None])
    assert lake.files() == before
    assert load(lake).snapshots() == []


def test_a_replaced_table_gets_no_rows(lake):
    make(lake)
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    written = paths(arrived(sent), message)
    lake.catalog().drop_table("db.t")
    make(lake)
    before = lake.files()
    with pytest.raises(CommitError, match="was replaced by another one"):
        arrived(sent).commit([message])
    arrived(sent).abort([message])
    assert set(lake.files()) == set(before) - {f"db/t/data/{Path(path).name}" for path in written}
    assert load(lake).scan().count() == 0


def test_a_commit_beside_another_one_keeps_both(lake):
    make(lake)
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    load(lake).append(people(10))
    arrived(sent).commit([message])
    assert sorted(load(lake).scan().to_arrow().column("id").to_pylist()) == list(range(20))
    assert {key.encrypted_by_id for key in load(lake).metadata.encryption_keys} >= {"keyA"}


def test_a_commit_that_fails_for_certain_leaves_no_file(lake, monkeypatch):
    make(lake)
    before = lake.files()
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    from icelock.catalog.sql.catalog import SqlCatalog  # noqa: PLC0415

    def never(*_args, **_kwargs):
        msg = "others were first"
        raise CommitFailedException(msg)

    monkeypatch.setattr(SqlCatalog, "commit_table", never)
    with pytest.raises(CommitFailedException, match="others were first"):
        arrived(sent).commit([message])
    arrived(sent).abort([message])
    assert {path for path in lake.files() if path.endswith(".parquet")} == set()
    assert set(before) <= set(lake.files())


def test_a_commit_whose_outcome_is_unknown_removes_nothing(lake, monkeypatch):
    make(lake)
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    from icelock.catalog.sql.catalog import SqlCatalog  # noqa: PLC0415

    real = SqlCatalog.commit_table

    def lost(self, *args, **kwargs):
        real(self, *args, **kwargs)
        msg = "the answer got lost"
        raise ConnectionError(msg)

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    with pytest.raises(ConnectionError):
        arrived(sent).commit([message])
    arrived(sent).abort([message])
    monkeypatch.undo()
    assert load(lake).scan().count() == 10


def test_a_kms_that_fails_at_the_commit_leaves_no_file(lake):
    make(lake)
    load(lake).append(people(100))
    before = lake.files()
    sent = driver(lake)
    message = arrived(sent).write(iter(people(0).to_batches()))
    lake.calls.deny("unwrap")
    with pytest.raises(Exception, match="the right to unwrap"):
        arrived(sent).commit([message])
    arrived(sent).abort([message])
    assert lake.files() == before


def test_overwrite_replaces_what_is_there_at_the_commit(lake):
    make(lake)
    load(lake).append(people(0))
    sent = driver(lake, "overwrite")
    message = arrived(sent).write(iter(people(50).to_batches()))
    load(lake).append(people(10))
    with as_task(1):
        empty = arrived(sent).write(iter([]))
    arrived(sent).commit([message, empty])
    assert sorted(load(lake).scan().to_arrow().column("id").to_pylist()) == list(range(50, 60))
