"""Which reader reads: what the engine says, what is told when one cannot, and what becomes of sessions."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType, TimeType

import icelock.spark
from icelock.errors import PolicyError
from icelock.spark.jvm import native as jvm_side
from icelock.spark.native.reach import unreachable
from tests.spark.native_tables import TABLE, append, create, native, optional, values

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "c", StringType()))
ROWS = [{"id": 1, "c": "x"}, {"id": 2, "c": "y"}]


def plan_of(frame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def told(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO and record.name.startswith("icelock")]


@pytest.mark.spark43
def test_the_engine_that_is_asked_for(spark, spark_lake, caplog):
    create(spark_lake, SCHEMA, ROWS)
    with caplog.at_level(logging.INFO, logger="icelock"):
        automatic, insisted = icelock.spark.read(spark, TABLE), native(spark)
        python = icelock.spark.read(spark, TABLE, engine="python")
    assert told(caplog) == []
    assert ["FileScan icelock" in plan_of(frame) for frame in (automatic, insisted, python)] == [True, True, False]
    assert "BatchScan icelock" in plan_of(python)
    assert values(automatic) == values(insisted) == values(python) == [(1, "x"), (2, "y")]
    with pytest.raises(PolicyError, match="unknown engine 'java'; use one of auto, native, python"):
        icelock.spark.read(spark, TABLE, engine="java")


@pytest.mark.spark43
def test_avro_files_beside_parquet_files(spark, spark_lake, caplog):
    create(spark_lake, SCHEMA, ROWS)
    with spark_lake.catalog().load_table("db.t").transaction() as tx:
        tx.set_properties({"write.format.default": "avro"})
    append(spark_lake, {"id": 3, "c": "z"})
    with caplog.at_level(logging.INFO, logger="icelock"):
        found = icelock.spark.read(spark, TABLE)
    (line,) = told(caplog)
    assert "not Parquet files" in line
    assert "FileScan icelock" in plan_of(found)
    assert "BatchScan icelock" in plan_of(found)
    assert values(found) == [(1, "x"), (2, "y"), (3, "z")]
    assert values(found.filter("id > 1").select("c")) == ["y", "z"]
    with pytest.raises(PolicyError, match="not Parquet files"):
        native(spark)


@pytest.mark.spark43
def test_a_platform_that_lets_no_class_in(spark, spark_lake, caplog, monkeypatch):
    create(spark_lake, SCHEMA, ROWS)

    def refuse(*_):
        msg = "no class may be loaded here"
        raise RuntimeError(msg)

    other = spark.newSession()
    icelock.spark.register(other, {"test": spark_lake.properties()})
    monkeypatch.setattr(jvm_side, "load_native", refuse)
    with caplog.at_level(logging.INFO, logger="icelock"):
        found = icelock.spark.read(other, TABLE)
    (line,) = told(caplog)
    assert TABLE in line
    assert "JVM is out of reach" in line
    assert values(found) == [(1, "x"), (2, "y")]
    with pytest.raises(PolicyError, match="JVM is out of reach"):
        native(other)
    monkeypatch.undo()
    assert values(native(other)) == [(1, "x"), (2, "y")]


@pytest.mark.spark43
def test_what_spark_has_no_type_for_is_refused_as_by_the_data_source(spark, spark_lake):
    create(spark_lake, Schema(optional(1, "id", LongType()), optional(2, "at", TimeType())), [{"id": 1}])
    for engine in ("auto", "native"):
        with pytest.raises(PolicyError, match="no exact type for"):
            icelock.spark.read(spark, TABLE, engine=engine)
        assert values(icelock.spark.read(spark, TABLE, columns=["id"], engine=engine)) == [1]


def test_settings_that_change_between_reads(spark, spark_lake):
    create(spark_lake, SCHEMA, *([{"id": n, "c": "x"}] for n in range(4)))
    assert native(spark).rdd.getNumPartitions() <= 4
    spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 40))
    try:
        assert native(spark).rdd.getNumPartitions() == 4
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")


def test_a_storage_that_hadoop_does_not_reach_is_told_with_its_reason(spark, spark_lake):
    """The reason is Hadoop's own sentence; py4j's names a method and a number alone."""
    (task,) = create(spark_lake, SCHEMA, ROWS).scan().scan_tasks()
    reason = unreachable(spark, [replace(task, path="s3://lake/db/a.parquet")])
    assert reason is not None
    assert 'No FileSystem for scheme "s3"' in reason


@pytest.mark.spark43
def test_a_session_that_was_not_registered(spark, spark_lake):
    create(spark_lake, SCHEMA, ROWS)
    other = spark.newSession()
    with pytest.raises(PolicyError, match=r"call icelock\.spark\.register"):
        native(other)
    icelock.spark.register(other, {"test": spark_lake.properties()})
    first, second = native(spark), native(other)
    second.createOrReplaceTempView("of_the_second")
    assert other.sql("select sum(id) from of_the_second").first()[0] == 3
    assert not spark.catalog.tableExists("of_the_second")
    assert values(first.select("id")) == [1, 2]


def test_a_scan_to_spark(spark, spark_lake):
    table = create(spark_lake, SCHEMA, ROWS, [{"id": 3, "c": "z"}])
    scan = table.scan(row_filter="id >= 2", selected_fields=("id",), limit=5)
    assert values(icelock.spark.read(spark, scan, engine="native")) == [2, 3]
    assert values(icelock.spark.read(spark, table.scan(snapshot_id=table.history()[0].snapshot_id), engine="native").select("id")) == [1, 2]
