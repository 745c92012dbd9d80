"""What was appended between two snapshots, by every way of reading in Spark. Rules: Java BaseIncrementalAppendScan, SparkReadConf."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import ExpiredSnapshotError, PolicyError
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark
TABLE = "test.db.t"


@pytest.fixture
def line(spark_lake):
    """Appends of 0-9, 10-19 and 20-29, a delete of 11 before the last one and an overwrite of 0 after it; returns lake and snapshots."""
    table = spark_lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    table.append(people(0))
    table.append(people(10))
    table.delete("id = 11")
    table.append(people(20))
    table.overwrite(people(90), overwrite_filter="id = 0")
    return spark_lake, [one.snapshot_id for one in table.snapshots()], [one.timestamp_ms for one in table.snapshots()]


def ids(df):
    return sorted(row.id for row in df.select("id").collect())


@pytest.mark.spark43
def test_appends_count_and_nothing_else(spark, line):
    """A row that was deleted later was appended; an overwrite's rows are left out with it."""
    _, snapshots, times = line
    first, second, _, fourth, _ = snapshots
    assert ids(icelock.spark.read(spark, TABLE, start_snapshot_id=first)) == list(range(10, 30))
    assert ids(icelock.spark.read(spark, TABLE, start_snapshot_id=second, end_snapshot_id=fourth)) == list(range(20, 30))
    assert ids(icelock.spark.read(spark, TABLE, start_timestamp=times[0], end_timestamp=times[1])) == list(range(10, 20))
    options = {"start-snapshot-id": first, "end-snapshot-id": second}
    assert ids(spark.read.options(**options).table(TABLE)) == list(range(10, 20))
    assert ids(spark.read.format("icelock").options(**options).load(TABLE)) == list(range(10, 20))
    python = icelock.spark.read(spark, TABLE, start_snapshot_id=first, row_filter="id < 25", columns=["id"], engine="python")
    assert ids(python) == list(range(10, 25))
    assert ids(icelock.spark.read(spark, TABLE, start_snapshot_id=snapshots[-1])) == []


def test_filters_and_counts_of_spark(spark, line):
    df = icelock.spark.read(spark, TABLE, start_snapshot_id=line[1][0])
    assert df.count() == 20
    assert ids(df.filter("id > 15 and id < 22")) == list(range(16, 22))
    assert df.filter("id = 5").count() == 0


@pytest.mark.parametrize("engine", ["native", "python"])
def test_a_dataframe_keeps_its_end(spark, line, engine):
    lake, snapshots, _ = line
    df = icelock.spark.read(spark, TABLE, start_snapshot_id=snapshots[0], engine=engine)
    assert df.count() == 20
    lake.catalog().load_table("db.t").append(people(30))
    assert df.count() == 20
    assert ids(df.filter("id > 27")) == [28, 29]


def test_a_branch_has_appends_of_its_own(spark, line):
    lake, snapshots, _ = line
    table = lake.catalog().load_table("db.t")
    table.manage_snapshots().create_branch(snapshots[1], "side").commit()
    table.append(people(50), branch="side")
    assert ids(icelock.spark.read(spark, TABLE, branch="side", start_snapshot_id=snapshots[0])) == [*range(10, 20), *range(50, 60)]
    with pytest.raises(PolicyError, match="not an ancestor of branch side"):
        icelock.spark.read(spark, TABLE, branch="side", start_snapshot_id=snapshots[0], end_snapshot_id=snapshots[3])


def test_columns_are_the_current_ones(spark, line):
    lake, snapshots, _ = line
    with lake.catalog().load_table("db.t").update_schema() as update:
        update.rename_column("city", "town")
    df = icelock.spark.read(spark, TABLE, start_snapshot_id=snapshots[0], end_snapshot_id=snapshots[1])
    assert df.columns == ["id", "name", "town"]
    assert ids(df) == list(range(10, 20))


def test_what_is_refused(spark, line):
    lake, snapshots, times = line
    first, second, *_ = snapshots
    for wrong, message in [
        ({"end_snapshot_id": second}, "needs a start"),
        ({"start_snapshot_id": second, "end_snapshot_id": first}, "is not an ancestor of the end"),
        ({"start_snapshot_id": first, "snapshot_id": second}, "excludes the option snapshot-id"),
        ({"start_snapshot_id": first, "as_of_timestamp": times[1]}, "excludes the option as-of-timestamp"),
        ({"start_snapshot_id": first, "start_timestamp": times[1]}, "both given"),
        ({"start_timestamp": "2026-01-01T00:00:00"}, "option start-timestamp is .* no time zone"),
    ]:
        with pytest.raises(PolicyError, match=message):
            icelock.spark.read(spark, TABLE, **wrong)
    with pytest.raises(PySparkException, match="option start-snapshot-id is 'x'"):
        spark.read.format("icelock").option("start-snapshot-id", "x").load(TABLE)
    with pytest.raises(PolicyError, match="not what lies between two"):
        spark.read.option("start-snapshot-id", first).table(f"{TABLE}.files").collect()
    lake.catalog().load_table("db.t").maintenance.expire_snapshots().by_ids([first, second]).commit()
    with pytest.raises(ExpiredSnapshotError, match="Read the whole table at snapshot"):
        icelock.spark.read(spark, TABLE, start_snapshot_id=first)
