"""Streams into tables. Rows are counted by hand; a batch that runs again is made by taking its entry out of the checkpoint's commit log."""

from __future__ import annotations

import os
import shutil

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock.spark
from icelock.errors import PolicyError
from tests.helpers.checkpoints import forget_last_batch
from tests.lakes.sqlite import KEY, KEYED

pytestmark = pytest.mark.spark
QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


class Source:
    """Rows that come batch by batch: a folder of JSON files, one file a batch."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.folder = folder
        folder.mkdir()
        self._count = 0

    def add(self, *lines):
        self._count += 1
        file = self.folder / f"{self._count:03}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (self._count, self._count))  # Spark takes files by their age

    def rows(self, schema="id bigint, city string"):
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path / "source")


@pytest.fixture
def town(sql):
    """A table without rows; returns ``sql``."""
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    return sql


@pytest.fixture
def into(tmp_path):
    """Run a query into a table until it has read what is there; return it."""

    def run(rows, table="test.db.t", *, mode="append", checkpoint="checkpoint", **options):
        writer = rows.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        query = writer.options(**{name.replace("_", "-"): str(value) for name, value in options.items()}).toTable(table)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    return run


def row(number, city="a"):
    return f'{{"id": {number}, "city": "{city}"}}'


def summaries(lake, name="db.t"):
    table = lake.catalog().load_table(name)
    return [(one.summary.operation, one.summary.additional_properties.get(EPOCH)) for one in table.snapshots()]


@pytest.mark.spark43
def test_each_batch_is_one_snapshot_and_is_written_once(town, source, into, tmp_path, spark_lake):
    source.add(row(1), row(2))
    source.add(row(3))
    query = into(source.rows())
    assert town("select id from test.db.t order by id") == [(1,), (2,), (3,)]
    assert summaries(spark_lake) == [(Operation.APPEND, "0"), (Operation.APPEND, "1")]
    table = spark_lake.catalog().load_table("db.t")
    assert {one.summary.additional_properties[QUERY] for one in table.snapshots()} == {query.id}
    assert all(task.key_metadata is not None for task in table.scan().scan_tasks())
    assert forget_last_batch(tmp_path / "checkpoint") == 1
    into(source.rows())
    assert len(summaries(spark_lake)) == 2, "the batch ran again, and added nothing"
    source.add(row(4))
    into(source.rows())
    assert town("select id from test.db.t order by id") == [(1,), (2,), (3,), (4,)]
    assert summaries(spark_lake)[2:] == [(Operation.APPEND, "2")]


def test_storage_that_fails_ends_the_query_which_goes_on_afterwards(town, source, into, spark_lake):
    """The error is what storage said, of the file, not Spark's about a worker; no file is left, and no row is lost or twice."""
    source.add(row(1))
    into(source.rows())
    data = spark_lake.warehouse / "db" / "t" / "data"
    data.rename(data.with_name("away"))
    data.write_text("no folder")
    source.add(row(2))
    with pytest.raises(OSError, match=r"\[Errno \d+\].*db/t/data"):
        into(source.rows())
    data.unlink()
    data.with_name("away").rename(data)
    source.add(row(3))
    into(source.rows())
    assert town("select id from test.db.t order by id") == [(1,), (2,), (3,)]
    assert len(list(data.rglob("*.parquet"))) == 3


def test_a_batch_is_known_after_its_snapshot_was_expired(town, source, into, tmp_path, spark_lake):
    source.add(row(1))
    source.add(row(2))
    query = into(source.rows())
    table = spark_lake.catalog().load_table("db.t")
    marked = table.current_snapshot().snapshot_id
    town("insert into test.db.t values (9, 'by somebody else')")
    table = spark_lake.catalog().load_table("db.t")
    table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in table.snapshots()[:-1]]).commit()
    table.refresh()
    assert [one.summary.additional_properties.get(QUERY) for one in table.snapshots()] == [None]
    assert table.properties[f"icelock.stream.{query.id}"].startswith(f"1 {marked} ")
    forget_last_batch(tmp_path / "checkpoint")
    into(source.rows())
    assert town("select id from test.db.t order by id") == [(1,), (2,), (9,)]


def test_a_batch_that_was_rolled_back_is_written_again(town, source, into, tmp_path, spark_lake):
    source.add(row(1))
    source.add(row(2))
    into(source.rows())
    first = spark_lake.catalog().load_table("db.t").snapshots()[0].snapshot_id
    spark_lake.catalog().load_table("db.t").manage_snapshots().rollback_to_snapshot(first).commit()
    forget_last_batch(tmp_path / "checkpoint")
    into(source.rows())
    assert town("select id from test.db.t order by id") == [(1,), (2,)]


@pytest.mark.spark43
def test_state_and_complete_mode(town, source, into, tmp_path, spark_lake):
    source.add(row(1, "a"), row(2, "b"))

    def counts(rows):
        return rows.groupBy("city").agg(F.count("*").alias("id"))

    into(counts(source.rows()), mode="complete")
    assert town("select * from test.db.t order by city") == [(1, "a"), (1, "b")]
    source.add(row(3, "b"))
    into(counts(source.rows()), mode="complete")
    assert town("select * from test.db.t order by city") == [(1, "a"), (2, "b")]
    assert [operation for operation, _ in summaries(spark_lake)][1:] == [Operation.OVERWRITE]
    forget_last_batch(tmp_path / "checkpoint")
    source.add(row(4, "b"))
    into(counts(source.rows()), mode="complete")
    assert town("select * from test.db.t order by city") == [(1, "a"), (3, "b")], "the state of the batch that ran again was made"


def test_watermarks_and_windows_in_append_mode(sql, source, into):
    sql(f"create table test.db.w (start timestamp, n bigint) {KEY}")
    schema = "at timestamp"
    for minute in ("12:00:10", "12:00:20", "12:02:00", "12:05:00"):
        source.add(f'{{"at": "2026-01-31 {minute}"}}')
    windows = source.rows(schema).withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).count()
    into(windows.selectExpr("window.start as start", "count as n"), "test.db.w")
    assert sql("select cast(start as string), n from test.db.w order by 1") == [("2026-01-31 12:00:00", 2), ("2026-01-31 12:02:00", 1)]


def test_a_batch_that_runs_again_moves_the_watermark(sql, source, into, tmp_path):
    """A batch writes windows of those before it, and its own rows say how late it is: they are looked at although nothing is written."""
    sql(f"create table test.db.w (start timestamp, n bigint) {KEY}")
    source.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        for minute in ("12:00:10", "12:02:00", "12:05:00", "12:06:00"):
            if minute == "12:06:00":
                assert sql("select cast(start as string), n from test.db.w") == [("2026-01-31 12:00:00", 1)]
                forget_last_batch(tmp_path / "checkpoint")
            source.add(f'{{"at": "2026-01-31 {minute}"}}')
            windows = source.rows("at timestamp").withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).count()
            into(windows.selectExpr("window.start as start", "count as n"), "test.db.w")
    finally:
        source.spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    assert sql("select cast(start as string), n from test.db.w order by 1") == [("2026-01-31 12:00:00", 1), ("2026-01-31 12:02:00", 1)]


@pytest.mark.parametrize("options", [{}, {"fanout_enabled": "true"}, {"distribution_mode": "none", "fanout_enabled": "true"}])
def test_partitioned_and_sorted_tables(sql, source, into, options, spark_lake):
    sql(f"create table test.db.p (id bigint, city string) partitioned by (city) {KEY}")
    source.add(*(row(number, f"town-{number % 3}") for number in range(30)))
    into(source.rows(), "test.db.p", **options)
    assert sql("select city, count(*), sum(id) from test.db.p group by city order by city") == [
        ("town-0", 10, 135),
        ("town-1", 10, 145),
        ("town-2", 10, 155),
    ]
    paths = {task.partition[0] for task in spark_lake.catalog().load_table("db.p").scan().scan_tasks()}
    assert paths == {"town-0", "town-1", "town-2"}


@pytest.mark.parametrize("options", [{}, {"fanout_enabled": "true"}, {"distribution_mode": "none"}])
def test_files_of_a_sorted_table_are_sorted(sql, source, into, options, spark_lake):
    """Partitioned by city, and sorted by falling ids: whatever the options say, as ``fanout-enabled`` is for unsorted tables."""
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "city", StringType(), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "city"))
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    spark_lake.catalog().create_table("db.s", schema, partition_spec=spec, sort_order=order, properties=KEYED)
    for begin in (0, 40):
        source.add(*(row((number * 7) % 40 + begin, f"town-{number % 2}") for number in range(40)))
    into(source.rows(), "test.db.s", **options)
    assert sql("select count(*), sum(id), max(id) from test.db.s") == [(80, 3160, 79)]
    files = {}
    for path, _, city, number in sorted(sql("select _file, _pos, city, id from test.db.s")):
        files.setdefault((path, city), []).append(number)
    assert len({path for path, _ in files}) == len(files), "a file has rows of one partition"
    assert all(found == sorted(found, reverse=True) for found in files.values())


def test_a_new_table_is_made_by_the_query(sql, source, into, spark_lake):
    source.add(row(1))
    with pytest.raises(PolicyError, match=r"encryption\.key-id"):
        into(source.rows(), "test.db.made")
    assert sql("show tables in test.db") == []
    assert spark_lake.files() == {}


def test_options_that_a_stream_does_not_have(town, source, into):
    source.add(row(1))
    with pytest.raises(PolicyError, match="overwrite-mode"):
        into(source.rows(), overwrite_mode="dynamic")
    with pytest.raises(PolicyError, match="unknown option"):
        into(source.rows(), checkpoint="another", fanout="true")
    assert town("select * from test.db.t") == []


def test_columns_that_do_not_fit(town, source, into):
    source.add('{"id": 1, "town": "a"}')
    with pytest.raises(PolicyError, match="town"):
        into(source.rows("id bigint, town string"))
    assert town("select * from test.db.t") == []


@pytest.mark.spark43
def test_from_one_table_into_another(town, spark, into, tmp_path, spark_lake):
    town(f"create table test.db.copy (id bigint, city string) {KEY}")
    for number in (1, 2, 3):
        town(f"insert into test.db.t values ({number}, 'a')")
    rows = spark.readStream.option("streaming-max-files-per-micro-batch", "1").table("test.db.t")
    into(rows, "test.db.copy")
    town("insert into test.db.t values (4, 'b')")
    forget_last_batch(tmp_path / "checkpoint")
    into(spark.readStream.option("streaming-max-files-per-micro-batch", "1").table("test.db.t"), "test.db.copy")
    assert town("select id from test.db.copy order by id") == [(1,), (2,), (3,), (4,)]
    assert [epoch for _, epoch in summaries(spark_lake, "db.copy")] == ["0", "1", "2", "3"]


def test_two_queries_into_one_table_know_their_own_batches(town, source, into, tmp_path, spark_lake):
    source.add(row(1))
    other = Source(source.spark, tmp_path / "other")
    other.add(row(11))
    other.add(row(12))
    into(source.rows())
    into(other.rows(), checkpoint="second")
    forget_last_batch(tmp_path / "checkpoint")
    forget_last_batch(tmp_path / "second")
    into(source.rows())
    into(other.rows(), checkpoint="second")
    assert town("select id from test.db.t order by id") == [(1,), (11,), (12,)]
    assert len(summaries(spark_lake)) == 3


def test_a_new_checkpoint_is_a_new_stream(town, source, into, tmp_path):
    source.add(row(1))
    into(source.rows())
    shutil.rmtree(tmp_path / "checkpoint")
    into(source.rows())
    assert town("select id from test.db.t") == [(1,), (1,)]


def later(source, into, *numbers):
    """Run a query over rows that came after those it has read."""
    for number in numbers:
        source.add(row(number))
    into(source.rows())


@pytest.mark.spark43
@pytest.mark.parametrize("case", [((2,), "other offsets when batch 1"), ((2, 3), "batch 1 of stream .*has batch 2")])
def test_a_checkpoint_that_is_put_back_loses_no_row(town, source, into, tmp_path, case):
    """What is planned again under an old number has rows that came since; Java's writer passes over them, and reads on behind them."""
    batches, message = case
    later(source, into, 1)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    later(source, into, *batches)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    with pytest.raises(PolicyError, match=message):
        later(source, into, 4)
    assert town("select id from test.db.t order by id") == [(number,) for number in (1, *batches)]


def test_offsets_that_were_changed_on_storage(town, spark, into, tmp_path, spark_lake):
    """A query that has read one snapshot is told that it has read two: the rows of the second would be missing."""
    town(f"create table test.db.copy (id bigint, city string) {KEY}")
    for number in (1, 2, 3):
        town(f"insert into test.db.t values ({number}, 'a')")
        if number == 1:
            into(spark.readStream.table("test.db.t"), "test.db.copy")
    first, second, _ = (str(one.snapshot_id) for one in spark_lake.catalog().load_table("db.t").snapshots())
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace(first, second))
    offsets.with_name(".0.crc").unlink()
    with pytest.raises(PolicyError, match="had other offsets when batch 0 was written"):
        into(spark.readStream.table("test.db.t"), "test.db.copy")
    assert town("select id from test.db.copy") == [(1,)]
    offsets.write_text(offsets.read_text().replace(second, first))
    into(spark.readStream.table("test.db.t"), "test.db.copy")
    assert town("select id from test.db.copy order by id") == [(1,), (2,), (3,)]


WRITES = {
    "write_to": lambda rows, number: (
        icelock.spark.write_to(rows, "test.db.t").options(**{"streaming-query-id": "orders", "streaming-epoch-id": number}).append()
    ),
    "upsert": lambda rows, number: icelock.spark.upsert(rows, "test.db.t", ["id"], batch=("orders", number)),
    "merge": lambda rows, number: (
        icelock.spark.merge(rows.sparkSession, "test.db.t", rows, ["id"])
        .when_matched_update({"city": "concat(t.city, s.city)"})
        .when_not_matched_insert()
        .of_batch("orders", number)
        .execute()
    ),
}


@pytest.mark.parametrize("kind", WRITES)
def test_foreach_batch_writes_once_by_its_number(town, source, tmp_path, kind, spark_lake):
    source.add(row(1))
    source.add(row(2))
    changed = []

    def write(rows, number):
        result = WRITES[kind](rows, number)
        changed.append((result.rows_inserted, result.rows_updated, result.snapshot_id is not None))

    def run():
        writer = source.rows().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    forget_last_batch(tmp_path / "c")
    run()
    source.add(row(2, "b"))
    run()
    again = {"write_to": (1, 0, True), "upsert": (0, 1, True), "merge": (0, 1, True)}[kind]
    assert changed == [(1, 0, True), (1, 0, True), (0, 0, False), again]
    expected = {"write_to": [(1, "a"), (2, "a"), (2, "b")], "upsert": [(1, "a"), (2, "b")], "merge": [(1, "a"), (2, "ab")]}[kind]
    assert town("select * from test.db.t order by id, city") == expected
    assert [epoch for _, epoch in summaries(spark_lake)] == ["0", "1", "2"]


@pytest.mark.spark43
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.turns(3, sweep="batches of a new checkpoint")) for kind in WRITES])
def test_foreach_batch_passes_over_no_row_of_a_checkpoint_that_began_anew(town, source, tmp_path, kind):
    """The checkpoint is deleted: its next batch has the old number, and rows that the table has not."""

    def run():
        writer = source.rows().writeStream.foreachBatch(WRITES[kind]).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()

    source.add(row(1))
    run()
    shutil.rmtree(tmp_path / "c")
    (source.folder / "001.json").unlink()
    source.add(row(2))
    with pytest.raises(StreamingQueryException, match=r"stream orders had other offsets when batch 0 was written[\s\S]*a new id"):
        run()
    assert town("select * from test.db.t") == [(1, "a")]


def test_both_options_or_none(town, spark):
    writer = icelock.spark.write_to(spark.range(1).selectExpr("id", "'a' as city"), "test.db.t").option("streaming-epoch-id", 1)
    with pytest.raises(PolicyError, match="streaming-query-id"):
        writer.append()
    with pytest.raises(PolicyError, match="no batch of a stream"):
        writer.option("streaming-query-id", "q").createOrReplace()
    assert town("select * from test.db.t") == []
