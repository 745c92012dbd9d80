"""Streams beside others: two into one table, two of one checkpoint, upkeep of both tables, a clock that goes fast. Every row is counted."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

import icelock.spark
from icelock.keys.kek import MAX_AGE_SECONDS, KekCache
from icelock.table.maintenance.removal import storage_clock
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([pa.field("id", pa.int64())])
THREE_HOURS, LIFESPAN_OF_A_KEK = timedelta(hours=3), timedelta(days=730)


def create(lake, *names, **properties):
    for name in names:
        lake.catalog().create_table(f"db.{name}", SCHEMA, properties={**KEYED, **properties})


def add(lake, name, *ids):
    lake.catalog().load_table(f"db.{name}").append(pa.table({"id": list(ids)}, schema=SCHEMA))


def ids(lake, name="copy"):
    return Counter(lake.catalog().load_table(f"db.{name}").scan().to_arrow()["id"].to_pylist())


def keks(lake, name):
    """Return the ids of a table's KEKs."""
    return {key.key_id for key in lake.catalog().load_table(f"db.{name}").metadata.encryption_keys if key.encrypted_by_id == "keyA"}


@pytest.fixture
def copying(spark, tmp_path):
    """Start a query that copies a table, one file a batch; all are stopped in the end."""
    started = []

    def start(source, target="copy", *, checkpoint=None, trigger=None):
        rows = spark.readStream.option("streaming-max-files-per-micro-batch", "1").table(f"test.db.{source}")
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / (checkpoint or source)))
        query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).toTable(f"test.db.{target}")
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


def caught_up(lake, query, wanted):
    """Wait until a copy has so many rows, or its query failed, whose error is raised."""
    wait_until(lambda: ids(lake).total() >= wanted or not query.isActive, 120)
    if not query.isActive:
        query.awaitTermination()


def test_two_streams_into_one_table_at_once(spark_lake, copying):
    """Each commits while the other does: conflicts are tried again, and no batch is lost or twice."""
    create(spark_lake, "a", "b")
    create(spark_lake, "copy", **{"commit.retry.num-retries": "50"})
    for number in range(10):
        add(spark_lake, "a", number)
        add(spark_lake, "b", 100 + number)
    queries = [copying(name, trigger={"availableNow": True}) for name in ("a", "b")]
    for query in queries:
        query.awaitTermination()
    assert ids(spark_lake) == Counter([*range(10), *range(100, 110)])
    summaries = [one.summary.additional_properties for one in spark_lake.catalog().load_table("db.copy").snapshots()]
    found = [(one["spark.sql.streaming.queryId"], int(one["spark.sql.streaming.epochId"])) for one in summaries]
    assert sorted(found) == sorted((query.id, number) for query in queries for number in range(10))
    assert [one for one, _ in found] != sorted(one for one, _ in found), "they took turns"


def test_two_queries_that_use_one_checkpoint_by_mistake(spark, spark_lake, copying):
    """In one application: Spark refuses the second."""
    create(spark_lake, "t", "copy")
    for number in range(6):
        add(spark_lake, "t", number)
    spark.conf.set("spark.sql.streaming.stopActiveRunOnRestart", "false")
    try:
        first = copying("t")
        with pytest.raises(Py4JJavaError, match="another query with same id is already active"):
            copying("t")
        caught_up(spark_lake, first, 6)
    finally:
        spark.conf.unset("spark.sql.streaming.stopActiveRunOnRestart")
    assert ids(spark_lake) == Counter(range(6))


def has_read(lake, checkpoint, name="t"):
    """Whether a query has read up to a table's last snapshot, and says so in its checkpoint."""
    head = lake.catalog().load_table(f"db.{name}").current_snapshot().snapshot_id
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    return str(head) in (checkpoint / "offsets" / last.name).read_text()


def test_a_stream_beside_upkeep_of_both_tables(spark_lake, copying, tmp_path):
    """Compaction, expiry (also of the snapshots that carry its mark) and rotation of keys, while it runs, and when it is started again."""
    create(spark_lake, "t", "copy", **{"commit.retry.num-retries": "50"})
    query, wanted = copying("t"), 0
    for turn, level in enumerate(("kek", "wrap", "lists", "data")):
        for _ in range(3):
            add(spark_lake, "t", wanted)
            wanted += 1
            spark_lake.catalog().load_table("db.copy").maintenance.compact(options={"rewrite-all": "true"})
        for name in ("t", "copy"):
            spark_lake.catalog().load_table(f"db.{name}").maintenance.rotate(level)
        caught_up(spark_lake, query, wanted)
        spark_lake.catalog().load_table("db.t").maintenance.compact(options={"rewrite-all": "true"})
        assert wait_until(lambda: has_read(spark_lake, tmp_path / "t"), 120)
        for name in ("t", "copy"):
            expire = spark_lake.catalog().load_table(f"db.{name}").maintenance.expire_snapshots()
            expire.retain_last(1).older_than(int(time.time() * 1000) + 60_000).commit()
        if turn == 1:
            query.stop()
            query = copying("t")
    caught_up(spark_lake, query, wanted)
    assert ids(spark_lake) == Counter(range(wanted))


def test_a_day_and_the_life_of_a_key_by_a_fast_clock(spark_lake, spark, copying, monkeypatch):
    """A batch every three hours, so that each opens its KEK again and snapshots are expired by age; after two years there is a new KEK."""
    passed = [0.0]
    real_time, real_ns, real_monotonic = time.time, time.time_ns, time.monotonic
    monkeypatch.setattr(time, "time", lambda: real_time() + passed[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(passed[0] * 1e9))
    written_ms = storage_clock.written_ms  # the storage's clock is the machine's, and goes as fast
    monkeypatch.setattr(storage_clock, "written_ms", lambda io, path: (written_ms(io, path) or 0) + int(passed[0] * 1000))
    monkeypatch.setattr(KekCache.__init__, "__defaults__", (lambda: real_monotonic() + passed[0], MAX_AGE_SECONDS))
    icelock.spark.register(spark, {"test": spark_lake.properties()})
    create(spark_lake, "t", "copy")
    before = {name: keks(spark_lake, name) for name in ("t", "copy")}
    query, writer = copying("t"), spark_lake.catalog()
    for number in range(9):
        passed[0] += (LIFESPAN_OF_A_KEK if number == 8 else THREE_HOURS).total_seconds()
        writer.load_table("db.t").append(pa.table({"id": [number]}, schema=SCHEMA))
        caught_up(spark_lake, query, number + 1)
        for name in ("t", "copy"):
            expire = spark_lake.catalog().load_table(f"db.{name}").maintenance.expire_snapshots()
            expire.retain_last(1).older_than(int((time.time() - THREE_HOURS.total_seconds()) * 1000)).commit()
    assert ids(spark_lake) == Counter(range(9))
    for name in ("t", "copy"):
        table = spark_lake.catalog().load_table(f"db.{name}")
        assert len(table.snapshots()) <= 3
        assert len(keks(spark_lake, name) - before[name]) == 1
