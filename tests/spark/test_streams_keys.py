"""New keys of tables while a stream runs out of one into the other, and how often the KMS is asked. Rows and calls are counted by hand."""

from __future__ import annotations

import pytest

from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark


@pytest.fixture
def running(sql, spark, spark_lake, tmp_path):
    """Return a function that inserts a row into ``t``, lets a query that runs copy it into ``copy``, and returns the calls of the KMS."""
    for name in ("t", "copy"):
        sql(f"create table test.db.{name} (id bigint, city string) {KEY}")
    rows = spark.readStream.table("test.db.t")
    query = rows.writeStream.option("checkpointLocation", str(tmp_path / "c")).toTable("test.db.copy")

    def copied(number):
        sql(f"insert into test.db.t values ({number}, 'a')")
        query.processAllAvailable()
        assert sorted(sql("select id from test.db.copy")) == [(one,) for one in range(1, number + 1)]
        return spark_lake.calls.take()

    yield copied
    query.stop()


def used(lake, name):
    """Return, for each KEK of a table, the master key that wraps it, and how many snapshots need it; the newest one last."""
    keks = lake.catalog().load_table(f"db.{name}").maintenance.rotate("wrap", dry_run=True).keks
    return [(one.master_key, one.snapshots) for one in sorted(keks, key=lambda one: one.for_new_snapshots)]


def rotate(lake, level, **more):
    for name in ("t", "copy"):
        lake.catalog().load_table(f"db.{name}").maintenance.rotate(level, **more)
    lake.calls.take()


@pytest.mark.spark43
def test_no_batch_asks_the_kms_until_there_are_new_keys(running, spark_lake):
    running(1)
    assert running(2) == []
    assert running(3) == []
    rotate(spark_lake, "kek")
    assert running(4) == ["unwrap keyA"] * 2, "the new KEK of each table, once"
    assert [used(spark_lake, name) for name in ("t", "copy")] == [[("keyA", 3), ("keyA", 1)]] * 2
    spark_lake.calls.take()
    assert running(5) == []
    rotate(spark_lake, "wrap", to_key="keyB")
    assert set(running(6)) <= {"unwrap keyB"}
    assert [used(spark_lake, name) for name in ("t", "copy")] == [[("keyB", 3), ("keyB", 3)]] * 2
    spark_lake.calls.take()
    assert running(7) == []


def test_files_that_are_written_again_under_a_new_key_are_no_new_rows(running, spark_lake):
    running(1)
    running(2)
    for level in ("lists", "data"):
        rotate(spark_lake, level)
    running(3)
    assert running(4) == []
