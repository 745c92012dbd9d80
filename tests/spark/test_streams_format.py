"""Streams by ``format("icelock")`` in a classic session. Every expected row was written by the test."""

from __future__ import annotations

import pytest

import icelock.spark
from icelock.errors import PolicyError
from icelock.spark.jvm.rules import activate
from tests.helpers.checkpoints import forget_last_batch
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark


@pytest.fixture
def town(sql):
    """Two tables without rows; returns ``sql``."""
    for name in ("t", "copy"):
        sql(f"create table test.db.{name} (id bigint, city string) {KEY}")
    return sql


@pytest.fixture
def copy(spark, tmp_path):
    """Copy what a stream of ``t`` has into ``copy``, both by format, and return the rows that Spark counted for each batch."""

    def run(change=lambda rows: rows, *, checkpoint="checkpoint", mode="append", into=None, table="test.db.t", **options):
        rows = change(spark.readStream.format("icelock").options(**options).load(table))
        writer = rows.writeStream.format("icelock").outputMode(mode).option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.options(**(into or {})).trigger(availableNow=True).start("test.db.copy")
        try:
            query.awaitTermination()
        finally:
            query.stop()
        run.plan = query._jsq.streamingQuery().lastExecution()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    return run


@pytest.mark.spark43
def test_out_of_a_table_and_into_another_once(town, copy, tmp_path, spark_lake):
    for one in (1, 2, 3):
        town(f"insert into test.db.t values ({one}, 'a')")
    assert copy(**{"max-files-per-micro-batch": 2}) == [2, 1]
    assert "FileScan icelock" in copy.plan.executedPlan().toString()
    forget_last_batch(tmp_path / "checkpoint")
    town("insert into test.db.t values (4, 'b')")
    assert copy() == [1, 1], "the batch that ran again, and the new one"
    assert town("select id from test.db.copy order by id") == [(1,), (2,), (3,), (4,)]
    made = spark_lake.catalog().load_table("db.copy").snapshots()
    assert [snapshot.summary.additional_properties["spark.sql.streaming.epochId"] for snapshot in made] == ["0", "1", "2"]


def test_state_complete_mode_and_batches_without_rows(town, copy, spark_lake):
    town("insert into test.db.t values (1, 'a'), (2, 'b'), (3, 'a')")

    def counted(rows):
        return rows.groupBy("city").count().selectExpr("count as id", "city")

    copy(counted, mode="complete")
    town("insert into test.db.t values (4, 'b'), (5, 'c')")
    copy(counted, mode="complete")
    assert town("select * from test.db.copy order by city") == [(2, "a"), (2, "b"), (1, "c")]
    made = len(spark_lake.catalog().load_table("db.copy").snapshots())
    copy(lambda rows: rows.filter("id > 100"), checkpoint="none")
    assert len(spark_lake.catalog().load_table("db.copy").snapshots()) == made


def test_branches_and_the_option_table(town, spark, copy, spark_lake, tmp_path):
    town("insert into test.db.t values (1, 'a')")
    for name in ("t", "copy"):
        table = spark_lake.catalog().load_table(f"db.{name}")
        if name == "copy":
            table.append(table.scan().to_arrow())
            table.refresh()
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "side").commit()
    town("insert into test.db.t values (2, 'of main')")
    town("insert into test.db.t.branch_side values (3, 'of side')")
    copy(branch="side", into={"branch": "side", "table": "test.db.copy"})
    assert town("select id from test.db.copy.branch_side order by id") == [(1,), (3,)]
    assert town("select id from test.db.copy") == []
    rows = spark.readStream.option("branch", "side").table("test.db.t.branch_side")
    with pytest.raises(PolicyError, match="two branches are named"):
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start().processAllAvailable()


def test_what_is_refused(town, copy):
    town("insert into test.db.t values (1, 'a')")
    for options, message in (
        ({"max-files-per-micro-batch": 0}, "1 or more"),
        ({"stream-from-timestamp": "yesterday"}, "milliseconds since 1970"),
        ({"columns": "id"}, "option columns is for batch reads"),
        ({"snapshot-id": "1"}, "snapshot 1 is not|option snapshot-id is for batch reads"),
        ({"into": {"overwrite-mode": "dynamic"}}, "overwrite-mode"),
        ({"into": {"streaming-query-id": "q"}}, "for the writes of foreachBatch"),
        ({"into": {"table": "test.db.t"}}, "two tables are named"),
    ):
        with pytest.raises(PolicyError, match=message):
            copy(checkpoint=f"c{len(message)}", **options)
    assert town("select * from test.db.copy") == []


def test_columns_that_changed_since_the_dataframe_was_made(town, spark, tmp_path):
    rows = spark.readStream.format("icelock").load("test.db.t")
    town("alter table test.db.t rename column city to town")
    query = rows.writeStream.format("icelock").option("checkpointLocation", str(tmp_path / "c")).start("test.db.copy")
    with pytest.raises(PolicyError, match="changed since the DataFrame was made: load it again"):
        query.awaitTermination()


def test_batches_of_the_format_are_as_ever(town, spark):
    spark.range(3).selectExpr("id", "'a' as city").write.format("icelock").mode("append").save("test.db.t")
    rows = spark.read.format("icelock").option("columns", "id").load("test.db.t")
    assert sorted(row.id for row in rows.filter("id > 0").collect()) == [1, 2]
    spark.range(1).selectExpr("id", "'a' as city").write.format("icelock").mode("overwrite").save("test.db.t")
    assert town("select id from test.db.t") == [(0,)]


@pytest.mark.spark43
def test_a_checkpoint_goes_from_the_table_to_the_data_source_and_back(town, spark, spark_lake, tmp_path):
    """A session whose SQL does not know the catalog has the data source's streams."""
    other = spark.newSession()
    icelock.spark.register(other, {"test": spark_lake.properties()})
    other.conf.unset("spark.sql.catalog.test")
    town("insert into test.db.t values (1, 'a')")
    for number, session in enumerate((other, spark, other, spark, other)):
        activate(session)
        town(f"insert into test.db.t values ({number + 2}, 'a')")
        if number == 3:  # a batch of the data source's runs again
            forget_last_batch(tmp_path / "checkpoint")
        rows = session.readStream.format("icelock").load("test.db.t")
        writer = rows.writeStream.format("icelock").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start("test.db.copy")
        query.awaitTermination()
        plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
        assert ("FileScan icelock" in plan) == (session is spark)
        activate(spark)
        assert town("select id from test.db.copy order by id") == [(one,) for one in range(1, number + 3)]
