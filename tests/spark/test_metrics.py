"""What the driver's process counts and logs of a job, beside the files that Spark's tasks left on storage."""

from __future__ import annotations

import logging

import pytest

import icelock.spark
from icelock import metrics
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark


def test_the_driver_counts_what_tasks_wrote_and_what_spark_will_read(spark, spark_lake, caplog):
    spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    rows = spark.range(0, 400_000, 1, 3).selectExpr("id", "concat('n', id) name", "'x' city")  # too many for the driver's process
    with metrics.measure() as written, caplog.at_level(logging.INFO, "icelock"):
        icelock.spark.write_to(rows, "test.db.t").append()
    files = [*spark_lake.warehouse.rglob("*.parquet")]
    size = sum(path.stat().st_size for path in files)
    assert len(files) == 3
    assert (written.commits, written.data_files_committed, written.bytes_committed) == (1, 3, size)
    told = [record for record in caplog.records if getattr(record, "event", "") == "commit"]
    assert [(record.table, record.added_rows, record.added_files) for record in told] == [("db.t", 400_000, 3)]
    spark_lake.calls.take()
    with metrics.measure() as read:
        assert icelock.spark.read(spark, "test.db.t").count() == 400_000
    assert (read.files_planned, read.bytes_planned, read.fallbacks) == (3, size, 0)
    assert read.kms_calls == len(spark_lake.calls.take())


def test_a_read_that_spark_does_not_do_itself_is_a_fallback_and_says_why(spark, spark_lake, caplog):
    table = spark_lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.format.default": "avro"})
    table.append(people())
    with metrics.measure() as read, caplog.at_level(logging.INFO, "icelock"):
        assert icelock.spark.read(spark, "test.db.t").count() == 10
    [told] = [record for record in caplog.records if getattr(record, "event", "") == "fallback"]
    assert (told.name, told.levelname, told.table, told.what) == ("icelock.spark", "INFO", "test.db.t", "native-scan")
    assert "not Parquet" in told.why
    assert read.fallbacks == 1
