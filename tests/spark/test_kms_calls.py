"""How often the KMS is called, and where from (C-33): once a scan, executors never, at most one wrap a write, and one unwrap to try it."""

from __future__ import annotations

import pytest

import icelock.spark
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"


@pytest.fixture
def table(spark, lake):
    icelock.spark.register(spark, {"test": lake.properties()})
    lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    lake.calls.take()
    return lake


def frame(spark, parts):
    return spark.range(0, 1000, 1, parts).selectExpr("id", "concat('n', id) name", "'x' city")


def write(df, mode="append"):
    df.write.format("icelock").mode(mode).save(TABLE)


def test_calls_of_a_whole_job(spark, table):
    write(frame(spark, 16))
    assert table.calls.take() == ["wrap keyA", "unwrap keyA"]  # minted and tried, and kept
    write(frame(spark, 4))
    write(frame(spark, 2), mode="overwrite")
    assert table.calls.take() == []
    df = spark.read.format("icelock").load(TABLE)
    assert table.calls.take() == []  # the schema needs no key
    assert df.count() == 1000
    assert table.calls.take() == ["unwrap keyA"]
    assert df.filter("id < 10").count() == 10
    assert table.calls.take() == ["unwrap keyA"]


def test_one_unwrap_for_many_files_and_snapshots(spark, table):
    for _ in range(3):
        write(frame(spark, 8))
    table.calls.take()
    df = spark.read.format("icelock").load(TABLE)
    assert df.rdd.getNumPartitions() == 2
    assert df.count() == 3000
    assert len(table.calls.take()) == 2  # two queries: the number of partitions, the count


def test_a_failed_job_wraps_once_at_most(spark, table):
    def fail(iterator):
        yield from iterator
        raise RuntimeError

    with pytest.raises(Exception, match="RuntimeError"):
        write(frame(spark, 2).mapInArrow(fail, "id bigint, name string, city string"))
    assert table.calls.take() == ["wrap keyA", "unwrap keyA"]


def test_the_kek_of_planning_is_the_one_committed(spark, table):
    write(frame(spark, 2))
    keys = table.catalog().load_table("db.t").metadata.encryption_keys
    assert len([key for key in keys if key.encrypted_by_id == "keyA"]) == 1
    write(frame(spark, 2))
    keys = table.catalog().load_table("db.t").metadata.encryption_keys
    assert len([key for key in keys if key.encrypted_by_id == "keyA"]) == 1
