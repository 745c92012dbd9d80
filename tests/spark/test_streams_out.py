"""Streams out of tables. Every expected row was written by the test."""

from __future__ import annotations

import json
import time

import pytest
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import KeyUnavailableError, PolicyError
from tests.helpers.counting_kms import KEYS
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark, tmp_path):
    """Run a query over ``spark.readStream`` until it has read what is there; return the ids of each batch, sorted.

    ``run.progress`` are the rows that Spark counted for each batch, ``run.frames`` the rows that the batches were given as.
    """

    def run(table="test.db.t", *, checkpoint="checkpoint", change=lambda rows: rows, trigger=None, mode="append", **options):
        batches: list[list[object]] = []

        def keep(rows, _number):
            batches.append(sorted((tuple(row) if len(row) > 1 else row[0] for row in rows.collect()), key=repr))

        rows = change(spark.readStream.options(**{name.replace("_", "-"): str(value) for name, value in options.items()}).table(table))
        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / checkpoint)).outputMode(mode)
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
            run.progress = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        return batches

    return run


@pytest.fixture
def town(sql):
    """A table without rows; returns ``sql``."""
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    return sql


def ids(rows):
    return rows.select("id")


@pytest.mark.spark43
def test_each_row_comes_once_over_restarts(town, stream):
    town("insert into test.db.t values (1, 'a'), (2, 'b')")
    assert stream(change=ids) == [[1, 2]]
    assert stream.progress == [2], "Spark counts the rows of the source"
    assert stream(change=ids) == []
    town("insert into test.db.t values (3, 'c')")
    town("insert into test.db.t values (4, 'd')")
    assert stream(change=ids) == [[3, 4]]
    assert stream(change=ids, checkpoint="another") == [[1, 2, 3, 4]]


def test_limits_and_triggers(town, stream):
    for one in range(5):
        town(f"insert into test.db.t values ({one}, 'a')")
    for names in ("streaming_max_files_per_micro_batch", "max_files_per_micro_batch"):
        assert stream(change=ids, checkpoint=names, **{names: 2}) == [[0, 1], [2, 3], [4]]
    assert stream(change=ids, checkpoint="rows", max_rows_per_micro_batch=3) == [[0, 1, 2], [3, 4]]
    assert stream(change=ids, checkpoint="once", trigger={"once": True}, max_files_per_micro_batch=2) == [[0, 1, 2, 3, 4]]


def test_a_query_that_goes_on(town, spark, tmp_path):
    seen: list[int] = []
    rows = spark.readStream.option("stream-from-timestamp", "now").table("test.db.t").select("id")
    town("insert into test.db.t values (1, 'before the query starts, and after it was defined')")
    writer = rows.writeStream.foreachBatch(lambda batch, _: seen.extend(row.id for row in batch.collect()))
    query = writer.trigger(processingTime="50 milliseconds").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        wait_until(lambda: query.lastProgress is not None or not query.isActive)
        town("insert into test.db.t values (2, 'b')")
        wait_until(lambda: seen == [2] or not query.isActive)
        town("insert into test.db.t values (3, 'c')")
        wait_until(lambda: seen == [2, 3] or not query.isActive)
        assert query.isActive
    finally:
        query.stop()
    assert seen == [2, 3]


def test_where_it_begins_is_kept_with_the_checkpoint(town, stream, tmp_path, spark_lake):
    town("insert into test.db.t values (1, 'a')")
    first = spark_lake.catalog().load_table("db.t").current_snapshot().snapshot_id
    assert stream(change=ids, stream_from_timestamp="now") == []
    kept = json.loads((tmp_path / "checkpoint" / "sources" / "0" / "offsets" / "0").read_text())
    assert kept == {"version": 1, "snapshot_id": first, "position": 1, "scan_all_files": False}
    town("insert into test.db.t values (2, 'b')")
    assert stream(change=ids, stream_from_timestamp="now") == [[2]]
    assert stream(change=ids, checkpoint="after", start_snapshot_id=first) == [[2]]


def test_columns_and_files_that_a_query_does_not_need_are_not_read(town, sql, spark, tmp_path):
    sql(f"create table test.db.p (id bigint, city string) partitioned by (city) {KEY}")
    town("insert into test.db.p select id, concat('town-', id % 3) from range(9)")
    rows = spark.readStream.table("test.db.p").filter("city = 'town-1'").select("id")
    query = (
        rows.writeStream.format("memory")
        .queryName("some")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    query.awaitTermination()
    assert sorted(row.id for row in spark.table("some").collect()) == [1, 4, 7]
    plan = query._jsq.streamingQuery().lastExecution().executedPlan()
    (scan,) = scans_below(plan)
    assert "FileScan icelock" in plan.toString()
    assert scan.metrics().apply("numFiles").value() == 1
    assert list(scan.requiredSchema().fieldNames()) == ["id"]


def scans_below(plan):
    """Return the file scans of an executed plan."""
    found, plans = [], [plan]
    while plans:
        node = plans.pop()
        if node.getClass().getSimpleName() == "FileSourceScanExec":
            found.append(node)
        plans += [node.children().apply(index) for index in range(node.children().size())]
    return found


@pytest.mark.spark43
def test_state_goes_on_over_batches(town, stream):
    town("insert into test.db.t values (1, 'a'), (2, 'b')")
    count = {"change": lambda rows: rows.groupBy().count(), "mode": "complete", "checkpoint": "count"}
    by_city = {"change": lambda rows: rows.groupBy("city").count(), "mode": "complete", "checkpoint": "cities"}
    distinct = {"change": lambda rows: rows.select("city").distinct(), "checkpoint": "distinct"}
    assert stream(**count) == [[2]]
    assert stream(**by_city) == [[("a", 1), ("b", 1)]]
    assert stream(**distinct) == [["a", "b"]]
    town("insert into test.db.t values (3, 'b'), (4, 'c')")
    assert stream(**count) == [[4]], "the count of a batch is added to that of those before it"
    assert stream(**by_city) == [[("a", 1), ("b", 2), ("c", 1)]]
    assert stream(**distinct) == [["c"]]


def test_two_streams_of_one_table_in_a_query(town, stream):
    town("insert into test.db.t values (1, 'a'), (2, 'b')")

    def both(rows):
        return rows.select("id").union(rows.selectExpr("id + 10"))

    assert stream(change=both) == [[1, 11, 12, 2]]
    town("insert into test.db.t values (3, 'c')")
    assert stream(change=both) == [[13, 3]]


@pytest.mark.parametrize(
    ("statement", "operation"),
    [("delete from test.db.t where id = 1", "delete"), ("insert overwrite test.db.t values (9, 'z')", "overwrite")],
)
def test_snapshots_that_are_no_appends(town, stream, statement, operation, spark_lake):
    town("insert into test.db.t values (1, 'a')")
    town("insert into test.db.t values (2, 'b')")
    town(statement)
    table = spark_lake.catalog().load_table("db.t")
    with pytest.raises(PolicyError, match=f"snapshot {table.current_snapshot().snapshot_id} is of operation {operation}"):
        stream(change=ids)
    town("insert into test.db.t values (3, 'c')")
    assert stream(change=ids, **{f"streaming_skip_{operation}_snapshots": "true"}) == [[3]], "the rows before it came before the error"


def test_a_stream_beside_compaction_and_expiry(town, stream, spark_lake):
    seen = []
    for one in range(6):
        town(f"insert into test.db.t values ({one}, 'a')")
        if one % 2:
            spark_lake.catalog().load_table("db.t").maintenance.compact(options={"rewrite-all": "true"})
        seen += stream(change=ids)
        expire = spark_lake.catalog().load_table("db.t").maintenance.expire_snapshots()
        expire.retain_last(1).older_than(int(time.time() * 1000) + 60_000).commit()
    assert seen == [[0], [1], [2], [3], [4], [5]]


def test_a_checkpoint_whose_snapshot_was_expired(town, stream, spark_lake):
    town("insert into test.db.t values (1, 'a')")
    stream(change=ids)
    gone = spark_lake.catalog().load_table("db.t").current_snapshot().snapshot_id
    for one in (2, 3):
        town(f"insert into test.db.t values ({one}, 'a')")
    spark_lake.catalog().load_table("db.t").maintenance.expire_snapshots().by_id(gone).commit()
    with pytest.raises(PolicyError, match=f"read up to snapshot {gone}, which is not in the history.*start-snapshot-id"):
        stream(change=ids)


def test_changes_of_columns(town, stream, spark, tmp_path):
    """A query keeps the columns that it was defined with, by field id; one that is started again has those of then."""
    seen: list[list[object]] = []
    town("insert into test.db.t values (1, 'a')")
    rows = spark.readStream.table("test.db.t")
    query = rows.writeStream.foreachBatch(lambda batch, _: seen.append([tuple(row) for row in batch.collect()]))
    query = query.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        wait_until(lambda: len(seen) == 1 or not query.isActive)
        town("alter table test.db.t add column more int")
        town("alter table test.db.t rename column city to town")
        town("insert into test.db.t values (2, 'b', 7)")
        wait_until(lambda: len(seen) == 2 or not query.isActive)
        town("alter table test.db.t drop column town")
        town("insert into test.db.t values (3, 8)")
        query.processAllAvailable()  # Spark has noted the batch too: stopped before, it would run it again
    finally:
        query.stop()
    assert seen == [[(1, "a")], [(2, "b")], [(3, None)]]
    town("insert into test.db.t values (4, 9)")
    assert stream(checkpoint="c") == [[(4, 9)]]


@pytest.mark.usefixtures("town")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_files_per_micro_batch": 0}, "1 or more"),
        ({"max_rows_per_micro_batch": "many"}, "whole number"),
        ({"streaming_skip_delete_snapshots": "perhaps"}, "true or false"),
        ({"start_snapshot_id": 1, "stream_from_timestamp": "now"}, "exclude each other"),
        ({"max_files_per_micro_batch": 1, "streaming_max_files_per_micro_batch": 1}, "by two names"),
        ({"stream_from_timestamp": "yesterday"}, "milliseconds since 1970"),
        ({"start_snapshot_id": 1}, "option start-snapshot-id is 1, which is not in the history"),
        ({"snapshot_id": 1}, "option snapshot-id is for batch reads"),
    ],
)
def test_options_that_cannot_be(stream, options, message):
    with pytest.raises(PolicyError, match=message):
        stream(**options)


def test_what_is_no_stream(town, stream):
    town("insert into test.db.t values (1, 'a')")
    for table in ("test.db.t.snapshots", "test.db.t.at_timestamp_9999999999999"):
        with pytest.raises(PySparkException, match=r"(?i)streaming|micro"):
            stream(table)


@pytest.mark.spark43
def test_a_checkpoint_has_no_key(town, stream, tmp_path, spark_lake):
    town("insert into test.db.t values (1, 'a'), (2, 'b')")
    stream(change=lambda rows: rows.groupBy("city").count(), mode="complete")
    kept = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert b"snapshot_id" in kept
    keys = [task.key_metadata.reveal() for task in spark_lake.catalog().load_table("db.t").scan().scan_tasks()]
    assert not any(key in kept for key in (*keys, *KEYS.values()))
    assert b".parquet" not in kept, "nor the name of a file"


def test_a_kms_that_fails_ends_the_query_which_goes_on_afterwards(town, stream, spark, spark_lake, tmp_path):
    town("insert into test.db.t values (1, 'a')")
    icelock.spark.register(spark, {"test": spark_lake.properties(**{"encryption.kek-cache-seconds": "0"})})
    assert stream(change=ids) == [[1]]
    town("insert into test.db.t values (2, 'b')")
    spark_lake.calls.deny("unwrap")
    with pytest.raises(KeyUnavailableError, match="the right to unwrap with keyA is missing"):
        stream(change=ids)
    (tmp_path / "kms-deny").unlink()
    town("insert into test.db.t values (3, 'c')")
    assert stream(change=ids) == [[2, 3]]


def test_the_kms_is_not_asked_again_for_later_batches(town, stream, spark_lake):
    town("insert into test.db.t values (1, 'a')")
    town("insert into test.db.t values (2, 'b')")
    stream(change=ids, max_files_per_micro_batch=1)
    spark_lake.calls.take()
    town("insert into test.db.t values (3, 'c')")
    spark_lake.calls.take()
    assert stream(change=ids) == [[3]]
    assert spark_lake.calls.take() == []


def test_a_branch_is_a_stream_of_its_own_both_ways(town, stream, spark, spark_lake, tmp_path):
    town("insert into test.db.t values (1, 'a')")
    table = spark_lake.catalog().load_table("db.t")
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "side").commit()
    town("insert into test.db.t values (2, 'of main')")
    rows = spark.readStream.table("test.db.t").selectExpr("id + 10 as id", "city")
    writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "c")).option("branch", "side").trigger(availableNow=True)
    writer.toTable("test.db.t").awaitTermination()
    assert stream("test.db.t.branch_side", change=ids) == [[1, 11, 12]]
    assert stream(change=ids, checkpoint="main") == [[1, 2]]
