"""Writes that the user's process plans and commits: what tasks get, whose settings hold, what becomes of files when something fails."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import types as sp

import icelock.spark
from icelock.catalog.sql.catalog import SqlCatalog
from icelock.errors import CommitError, KeyUnavailableError, PolicyError
from icelock.spark.driver import jobs_here
from icelock.spark.driver import write_here as driver_write
from icelock.spark.driver.plan_write import planned_write
from icelock.spark.driver.write_here import BATCH_BYTES, BATCH_ROWS
from icelock.spark.sealed.job import Action, Job
from icelock.spark.settings.options import TableName
from icelock.spark.task.write import write_rows
from tests.helpers.counting_kms import KEYS
from tests.helpers.tables import load
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE, settings

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, name string, city string"


@pytest.fixture
def table(spark_lake, tmp_path, monkeypatch):
    """A lake with an empty table; this process has a temporary folder of its own."""
    (tmp_path / "driver").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "driver"))
    spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    spark_lake.calls.take()
    return spark_lake


def ids(lake):
    return sorted(load(lake).scan().to_arrow().column("id").to_pylist())


def rows(spark, fail=None, count=30_000, parts=2):
    """Rows whose tasks call ``fail`` at their end."""

    def run(batches):
        yield from batches
        if fail is not None:
            fail(TaskContext.get())

    return spark.range(0, count, 1, parts).selectExpr("id", "concat('n', id) name", "'x' city").mapInArrow(run, SCHEMA)


def tickets():
    return set(Path(tempfile.gettempdir()).glob("icelock-write-*"))


@pytest.mark.spark43
def test_planned_and_committed_here_with_the_users_settings_untouched(spark, table):
    before = dict(spark.conf.getAll)
    spark.conf.set(BATCH_ROWS, "7000")
    try:
        icelock.spark.write_to(rows(spark), TABLE).append()
        assert spark.conf.get(BATCH_ROWS) == "7000"
        assert table.calls.take() == ["wrap keyA", "unwrap keyA"]  # minted and tried at planning, known to the commit
    finally:
        spark.conf.unset(BATCH_ROWS)
    assert dict(spark.conf.getAll) == before
    assert ids(table) == list(range(30_000))
    assert [snapshot.summary.operation.value for snapshot in load(table).snapshots()] == ["append"]
    assert tickets() == set()


@pytest.mark.parametrize(
    ("columns", "user", "wanted"),
    [
        ("id bigint, s string", {}, ("2147483647", "2048")),
        ("id bigint, s string", {BATCH_ROWS: "100"}, ("2147483647", "100")),
        ("id bigint, s string", {BATCH_ROWS: "0"}, ("2147483647", "2048")),
        ("id bigint, d double", {}, ("2147483647", "10000")),
        ("id bigint, d double", {BATCH_ROWS: "0"}, ("2147483647", "10000")),
        ("id bigint, l array<int>", {}, ("2147483647", "2048")),
        ("s struct<b:binary>", {}, None),  # large values are likely: Spark's own limit stays
        ("m map<string,binary>", {}, None),
        ("id bigint, s string", {BATCH_BYTES: "1000000"}, None),  # the user's limit stays
    ],
)
def test_batches_without_a_look_at_their_size_for_each_row(spark, columns, user, wanted):
    df = spark.createDataFrame([], columns)
    for name, value in user.items():
        spark.conf.set(name, value)
    try:
        moved = driver_write._in_own_session(df, driver_write._batch_settings(df))
    finally:
        for name in user:
            spark.conf.unset(name)
    if wanted is None:
        assert moved is df
    else:
        conf = moved._jdf.sparkSession().conf()
        assert (conf.get(BATCH_BYTES), conf.get(BATCH_ROWS)) == wanted


def test_what_goes_to_executors_holds_no_key_and_no_setting(lake):
    lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    given = settings(lake, credential="catalog-password-4711")
    job = Job(action=Action.APPEND, table=TableName.parse(TABLE))
    plan, _ = planned_write(given, job, sp.StructType([sp.StructField("id", sp.LongType())]), lake.catalog())
    sent = cloudpickle.dumps(driver_write._task(partial(write_rows, plan)))
    assert b"WritePlan" in sent
    for secret in ("catalog-password-4711", "encryption.kms", "kms.counting", "sqlite:", given.session_key, job.key, *KEYS.values()):
        wanted = secret if isinstance(secret, bytes) else secret.encode()
        assert wanted not in sent
        assert wanted.hex().encode() not in sent


def test_a_task_that_fails_once_is_written_once(spark, table):
    def fail(task):
        if task.attemptNumber() == 0:
            msg = "first attempt"
            raise RuntimeError(msg)

    icelock.spark.write_to(rows(spark, fail), TABLE).append()
    assert ids(table) == list(range(30_000))
    assert len([path for path in table.files() if path.startswith("db/t/data/")]) == load(table).inspect.files().num_rows == 2


def test_a_job_that_fails_leaves_no_file(spark, table):
    before = table.files()

    def fail(task):
        if task.partitionId() == 1:
            msg = "every attempt"
            raise RuntimeError(msg)

    with pytest.raises(PySparkException, match="every attempt"):
        icelock.spark.write_to(rows(spark, fail, parts=4), TABLE).append()
    assert table.files() == before
    assert tickets() == set()


def test_a_killed_process_leaves_no_file(spark, table):
    before, data = table.files(), table.warehouse / "db" / "t" / "data"

    def fail(task):
        if task.partitionId() == 1:
            assert wait_until(lambda: any(data.rglob("*.parquet")))
            os._exit(9)

    with pytest.raises((PySparkException, Py4JJavaError), match="exited unexpectedly"):
        icelock.spark.write_to(rows(spark, fail), TABLE).append()
    assert table.files() == before


def test_errors_of_planning_come_as_they_are(spark, table):
    before = table.files()
    with pytest.raises(PolicyError, match="no column 'extra'"):
        icelock.spark.write_to(spark.range(3).selectExpr("id", "1 extra"), TABLE).append()
    with pytest.raises(NoSuchTableError, match=r"there is no table test.db.nope; create it first"):
        icelock.spark.write_to(spark.range(3), "test.db.nope").append()
    table.calls.deny("wrap")
    with pytest.raises(KeyUnavailableError, match="the right to wrap with keyA is missing"):
        icelock.spark.write_to(spark.range(3), TABLE).append()
    assert table.files() == before
    assert tickets() == set()


def test_errors_of_rows_come_from_tasks(spark, table):
    df = spark.range(0, 1000, 1, 2).selectExpr("id", "if(id = 999, raise_error('the last row'), 'x') name")
    before = table.files()
    with pytest.raises(PySparkException, match="the last row"):
        icelock.spark.write_to(df, TABLE).append()
    assert table.files() == before


def meanwhile(monkeypatch, change):
    """Let ``change`` happen after the tasks ended and before the commit."""
    run = jobs_here.write_here

    def ran(plan, df, **more):
        results = run(plan, df, **more)
        change()
        return results

    monkeypatch.setattr(jobs_here, "write_here", ran)


def test_a_commit_beside_another_one_keeps_both(spark, table, monkeypatch):
    meanwhile(monkeypatch, lambda: load(table).append(people(100)))
    icelock.spark.write_to(rows(spark, count=10), TABLE).append()
    assert ids(table) == [*range(10), *range(100, 110)]


def test_a_replaced_table_gets_no_rows(spark, table, monkeypatch):
    def replace():
        table.catalog().drop_table("db.t")
        table.catalog().create_table("db.t", people().schema, properties=KEYED)

    meanwhile(monkeypatch, replace)
    with pytest.raises(CommitError, match="was replaced by another one"):
        icelock.spark.write_to(rows(spark, count=10), TABLE).append()
    assert load(table).snapshots() == []
    assert [path for path in table.files() if path.endswith(".parquet")] == []


def test_a_commit_that_fails_for_certain_leaves_no_file(spark, table, monkeypatch):
    def never(*_args, **_kwargs):
        msg = "others were first"
        raise CommitFailedException(msg)

    monkeypatch.setattr(SqlCatalog, "commit_table", never)
    with pytest.raises(CommitFailedException, match="others were first"):
        icelock.spark.write_to(rows(spark, count=10), TABLE).append()
    assert [path for path in table.files() if path.endswith(".parquet")] == []


def test_a_commit_whose_outcome_is_unknown_removes_nothing(spark, table, monkeypatch):
    real = SqlCatalog.commit_table

    def lost(self, *args, **kwargs):
        real(self, *args, **kwargs)
        msg = "the answer got lost"
        raise ConnectionError(msg)

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    with pytest.raises(ConnectionError):
        icelock.spark.write_to(rows(spark, count=10), TABLE).append()
    monkeypatch.undo()
    assert ids(table) == list(range(10))


def test_no_rows_and_empty_tasks(spark, table):
    icelock.spark.write_to(rows(spark, count=1, parts=4), TABLE).append()
    icelock.spark.write_to(rows(spark).filter("id < 0"), TABLE).append()
    icelock.spark.write_to(spark.createDataFrame([], SCHEMA), TABLE).append()
    assert ids(table) == [0]
    assert load(table).inspect.files().num_rows == 1


EVERY_KIND = (
    "id",
    "id = 1 flag",
    "cast(id as int) i",
    "cast(id as float) f",
    "id / 3 d",
    "cast(id as decimal(9, 2)) small",
    "cast(id as decimal(38, 4)) large",
    "date_add(date'1969-12-31', int(id)) day",
    "timestamp_micros(id - 1) ts",
    "cast(timestamp_micros(id - 1) as timestamp_ntz) ntz",
    "cast(string(id) as binary) b",
    "concat('text ', id) s",
    "named_struct('n', id, 'inner', named_struct('t', string(id))) pair",
    "array(id, null, id + 1) many",
    "map(string(id), id, 'none', null) named",
    "if(id > 1, null, id) missing",
)


@pytest.mark.spark43
def test_few_rows_are_written_here_as_executors_write_them(spark, spark_lake, monkeypatch):
    """Of 3 rows Spark says so, of 3 rows that a Python function gave it does not; one file for all 3, whatever tasks they come from."""
    by_tasks = []
    task = driver_write._task
    monkeypatch.setattr(driver_write, "_task", lambda work: by_tasks.append(work) or task(work))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        few = spark.range(0, 3, 1, 2).selectExpr(*EVERY_KIND)
        unknown = few.mapInArrow(lambda batches: batches, few.schema)
        for name, frame in (("few", few), ("tasks", unknown)):
            icelock.spark.write_to(frame, f"test.db.{name}").tableProperty("encryption.key-id", "keyA").create()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert len(by_tasks) == 1
    written = {name: spark_lake.catalog().load_table(f"db.{name}") for name in ("few", "tasks")}
    assert [len(table.scan().scan_tasks()) for table in written.values()] == [1, 2]
    found = {name: table.scan().to_arrow().sort_by("id") for name, table in written.items()}
    assert found["few"].schema == found["tasks"].schema
    assert found["few"].to_pylist() == found["tasks"].to_pylist()
    last = found["few"].to_pylist()[2]
    assert (last["ts"].timestamp(), last["day"].isoformat(), last["many"], last["missing"]) == (1e-6, "1970-01-02", [2, None, 3], None)


def test_columns_whose_names_spark_would_take_apart(spark, spark_lake):
    """By tasks, and here."""
    icelock.spark.write_to(spark.sql("select 1L `a.b`, 'x' `c``d`"), TABLE).tableProperty("encryption.key-id", "keyA").create()
    df = spark.range(200, 1000, 1, 2).selectExpr("id `a.b`", "'y' `c``d`")
    icelock.spark.write_to(df, TABLE).append()
    found = load(spark_lake).scan().to_arrow()
    assert found.column_names == ["a.b", "c`d"]
    assert sorted(found.column("a.b").to_pylist()) == [1, *range(200, 1000)]


def test_rows_are_optimized_once_by_the_job(spark, table):
    df = rows(spark)
    icelock.spark.write_to(df, TABLE).append()
    phases = df._jdf.queryExecution().tracker().phases()
    assert (phases.contains("analysis"), phases.contains("optimization")) == (True, False)
    assert len(ids(table)) == 30_000


def test_few_rows_by_a_limit_of_many(spark, table):
    icelock.spark.write_to(spark.range(0, 10_000, 1, 4).selectExpr("id", "'n' name", "'x' city").limit(7), TABLE).append()
    assert (len(ids(table)), len(load(table).scan().scan_tasks())) == (7, 1)


def test_few_rows_that_do_not_fit_are_an_error_of_ours_and_leave_nothing(spark, spark_lake):
    schema = people().schema.set(0, people().schema.field("id").with_nullable(nullable=False))
    spark_lake.catalog().create_table("db.t", schema, properties=KEYED)
    before = spark_lake.files()
    wrong = spark.range(2).selectExpr("if(id = 1, null, id) id", "'n' name", "'x' city")
    with pytest.raises(PolicyError, match="id"):
        icelock.spark.write_to(wrong, TABLE).append()
    assert spark_lake.files() == before
