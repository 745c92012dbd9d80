"""A plain table becomes an encrypted one by Spark's tasks, in the session that reads it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import IntegrityError, PolicyError
from icelock.maintenance import audit, leftovers
from icelock.spark.driver import convert_here
from tests.helpers.tables import local
from tests.lakes.mixed import ALLOW, mixed_table
from tests.lakes.sqlite import TestLake, people
from tests.unit.table.test_convert import commit_deletes, equality, plain_catalog, plain_table, positions

pytestmark = pytest.mark.spark
TABLE = "test.db.t"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each job had; jobs do what this process would with so few bytes."""
    seen: list[int] = []
    run = convert_here.run_splits

    def counted(spark: Any, splits: Any, work: Any) -> Any:
        seen.append(len(splits))
        return run(spark, splits, work)

    monkeypatch.setattr(convert_here, "SMALL", -1)
    monkeypatch.setattr(convert_here, "run_splits", counted)
    return seen


def test_rows_are_written_by_tasks(spark: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    table = plain_table(spark_lake, rows=30)
    (first,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    commit_deletes(table, equality(table, 3, 14), positions(table, first, 0, 9))
    before = sorted({*range(30)} - {0, 3, 9, 14})
    told: list[tuple[int, int]] = []
    done = icelock.spark.convert(spark, TABLE, key_id="keyA", progress=lambda read, whole: told.append((read, whole)))
    assert (jobs, done.files, done.added_files, len(told)) == ([3], 3, 3, 3)
    found = spark_lake.catalog().load_table("db.t")
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == before
    assert sorted(row.id for row in spark.table(TABLE).collect()) == before
    (report,) = audit(spark_lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())


def test_a_mixed_table(sql: Any, spark: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    """Tasks read plain files and encrypted ones, if the client's settings allow plain ones."""
    wanted = sorted(mixed_table(spark_lake, plain_table(spark_lake)).scan().to_arrow()["id"].to_pylist())
    assert wanted == [*range(20), *range(100, 105)]
    for read in (lambda: spark.table(TABLE).collect(), lambda: sql("call test.system.convert('db.t', 'keyA')")):
        with pytest.raises((PolicyError, PySparkException), match="allow-unkeyed"):
            read()
    icelock.spark.register(spark, {"test": {**spark_lake.properties(), **ALLOW}})
    assert sorted(row.id for row in spark.table(TABLE).collect()) == wanted
    [(files, _, added, *_)] = sql("call test.system.convert('db.t', 'keyA')")
    assert (files, added, jobs) == (3, 3, [3])
    icelock.spark.register(spark, {"test": spark_lake.properties()})
    assert sorted(row.id for row in spark.table(TABLE).collect()) == wanted
    (report,) = audit(spark_lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())


@pytest.mark.parametrize("how", ["function", "call"])
def test_history_by_tasks(sql: Any, spark: Any, spark_lake: TestLake, jobs: list[int], how: str) -> None:
    """Whole files, with the rows that deletes take away: deletes are of positions in them. Each snapshot reads as before."""
    table = plain_table(spark_lake, rows=30)
    (first,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    commit_deletes(table, positions(table, first, 0, 9))
    table.append(people(100, 5))
    table = plain_catalog(spark_lake).load_table("db.t")
    table.manage_snapshots().create_tag(table.snapshots()[1].snapshot_id, "old").commit()
    kept = {snapshot.snapshot_id: rows_at(table, snapshot.snapshot_id) for snapshot in table.snapshots()}
    if how == "function":
        done = icelock.spark.convert(spark, TABLE, key_id="keyA", history="keep")
        assert (done.files, done.added_files) == (4, 4)
    else:
        [(files, _, added, *_)] = sql("call test.system.convert('db.t', 'keyA', history => 'keep')")
        assert (files, added) == (4, 4)
    assert jobs == [4], "a task for each data file"
    found = spark_lake.catalog().load_table("db.t")
    assert {number: rows_at(found, number) for number in kept} == kept
    assert sorted(number for (number,) in sql(f"select id from {TABLE} version as of 'old'")) == kept[found.refs()["old"].snapshot_id]
    assert sorted(row.id for row in spark.table(TABLE).collect()) == [*sorted({*range(30)} - {0, 9}), *range(100, 105)]
    (report,) = audit(spark_lake.catalog(), "db.t", depth=["bytes", "foreign"]).tables
    assert (set(report.counts), report.unseen) == ({"plain-object-of-conversion"}, ())
    assert report.objects["encrypted, left over"].files == 0


def rows_at(table: Any, snapshot_id: int) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def test_a_history_whose_task_fails_leaves_the_table_as_it_was(spark: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    table = plain_table(spark_lake, rows=30)
    (second,) = [task.file.file_path for task in table.scan(row_filter="id = 10").plan_files()]
    before = set(spark_lake.files())
    local(second).write_bytes(b"PAR1")
    with pytest.raises(PySparkException):
        icelock.spark.convert(spark, TABLE, key_id="keyA", history="refs")
    assert (len(jobs), set(spark_lake.files())) == (1, before)


@pytest.mark.spark43
def test_a_call(sql: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    """What is cached of the plain table is read again."""
    table = plain_table(spark_lake)
    size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert sql(f"select count(*) from {TABLE}") == [(20,)]
    planned = sql("call test.system.convert(table => 'db.t', key_id => 'keyA', dry_run => true)")
    assert planned == [(2, size, 0, None, "", 6)]
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "v1").commit()
    with pytest.raises(PolicyError, match="v1"):
        sql("call test.system.convert('db.t', 'keyA')")
    [(files, _, added, snapshot, dropped, plain)] = sql("call test.system.convert('db.t', 'keyA', 32, true)")
    assert (files, added, dropped, plain, jobs) == (2, 2, "v1", 6, [2])
    found = spark_lake.catalog().load_table("db.t")
    assert (found.metadata.current_snapshot_id, found.properties["encryption.data-key-length"]) == (snapshot, "32")
    assert sql(f"select count(*), max(id) from {TABLE}") == [(20, 19)]
    sql(f"insert into {TABLE} values (100, 'a', 'b')")
    assert sql(f"select max(id) from {TABLE}") == [(100,)]


def test_a_copy_goes_by_names(sql: Any, spark: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    """The plain table has another id for ``city`` than the copy, whose ids begin anew."""
    table = plain_table(spark_lake)
    with table.update_schema() as change:
        change.delete_column("name").rename_column("city", "town")
    before = sorted((row["id"], row["town"]) for row in table.scan().to_arrow().to_pylist())
    [(files, _, added, snapshot, _, plain)] = sql("call test.system.convert(table => 'db.t', key_id => 'keyA', copy_to => 'db.copy')")
    assert (files, added, plain, jobs) == (2, 2, 0, [2])
    assert sorted(sql("select id, town from test.db.copy")) == before
    found = spark_lake.catalog().load_table("db.copy")
    assert ([field.field_id for field in found.schema().fields], found.metadata.current_snapshot_id) == ([1, 2], snapshot)
    icelock.spark.convert(spark, TABLE, key_id="keyA", copy_to="test.db.other")
    assert sorted(sql("select id, town from test.db.other")) == before
    assert plain_catalog(spark_lake).load_table("db.t").metadata == table.metadata


def test_a_task_that_fails_leaves_the_table_as_it_was(spark: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    table = plain_table(spark_lake)
    (path,) = [task.file.file_path for task in table.scan(row_filter="id = 0").plan_files()]
    local(path).write_bytes(local(path).read_bytes()[:-9])
    files = set(spark_lake.files())
    with pytest.raises(PySparkException):
        icelock.spark.convert(spark, TABLE, key_id="keyA")
    assert jobs == [2]
    assert set(spark_lake.files()) == files
    assert plain_catalog(spark_lake).load_table("db.t").metadata == table.metadata


def test_jobs_that_ended_are_not_run_again(
    spark: Any, spark_lake: TestLake, jobs: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six files in jobs of two: the last job fails at first."""
    monkeypatch.setattr(convert_here, "_AT_ONCE_KEPT", 2)
    place, table = tmp_path / "progress", plain_table(spark_lake, rows=60)
    last = local([task.file.file_path for task in table.scan().plan_files()][-1])
    whole = last.read_bytes()
    last.write_bytes(whole[:-9])
    with pytest.raises(PySparkException):
        icelock.spark.convert(spark, TABLE, key_id="keyA", progress_file=place)
    assert (jobs, place.read_bytes().count(b"\n")) == ([2, 2, 2], 5)
    last.write_bytes(whole)
    done = icelock.spark.convert(spark, TABLE, key_id="keyA", progress_file=place)
    assert (jobs, done.files, done.added_files, done.reused) == ([2, 2, 2, 2], 6, 6, 4)
    assert not place.exists()
    assert sorted(row.id for row in spark.table(TABLE).collect()) == list(range(60))
    found = spark_lake.catalog().load_table("db.t")
    assert leftovers(found, older_than=timedelta(0)).files == ()
    (report,) = audit(spark_lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())


def test_a_file_with_too_few_rows_leaves_nothing_of_its_job(spark: Any, spark_lake: TestLake, jobs: list[int]) -> None:
    """Its task notices it; what the others of the job wrote goes, too."""
    table = plain_table(spark_lake, rows=40)
    first = next(iter(table.scan().plan_files())).file.file_path
    pq.write_table(pq.read_table(local(first)).slice(0, 9), local(first))
    files = set(spark_lake.files())
    with pytest.raises(IntegrityError, match="has 9 rows, its manifest entry says 10"):
        icelock.spark.convert(spark, TABLE, key_id="keyA")
    assert jobs == [4]
    assert set(spark_lake.files()) == files
