"""Rows of a table that go back into it: what other writers committed after they were read is not lost.

Plain Python does the same from the version that a table object has; Java has the option ``validate-from-snapshot-id`` for it.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import PolicyError
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE

pytestmark = pytest.mark.spark

BY_CITY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
LATER = people(100, 3)
CONFLICT = (ValidationException, PySparkException)


def ids(lake, **at):
    return sorted(load(lake).scan(**at).to_arrow().column("id").to_pylist())


@pytest.fixture
def table(spark_lake):
    made = spark_lake.catalog().create_table("db.t", people().schema, partition_spec=BY_CITY, properties=KEYED)
    made.append(people())
    return spark_lake


def read(spark, **options):
    return icelock.spark.read(spark, TABLE, **options)


def by_source(spark, **options):
    return spark.read.format("icelock").options(**options).load(TABLE)


def by_view(spark):
    read(spark).createOrReplaceTempView("own")
    return spark.sql("with c as (select * from own) select * from c")


def in_subquery(spark):
    read(spark).createOrReplaceTempView("own")
    return spark.sql("select id, 'n' name, 'town-0' city from range(3) where id <= (select max(id) from own)")


def cached(spark):
    rows = read(spark).cache()
    rows.count()
    return rows.filter("id >= 0")


READS = {
    "native": read,
    "python": lambda spark: read(spark, engine="python"),
    "data source": by_source,
    "view": by_view,
    "subquery": in_subquery,
    "cached": cached,
    "sql": lambda spark: icelock.spark.sql(spark, f"select a.* from {TABLE} a join {TABLE} b on a.id = b.id"),
    "union": lambda spark: spark.range(1).selectExpr("id", "'n' name", "'c' city").union(by_source(spark)),
    "count": lambda spark: read(spark).selectExpr("count(*) id").selectExpr("id", "'n' name", "'c' city"),
}
WRITES = {
    "overwrite": lambda rows: icelock.spark.write_to(rows, TABLE).overwrite("true"),
    "by filter": lambda rows: icelock.spark.write_to(rows, TABLE).overwrite("id >= 0"),
    "partitions": lambda rows: icelock.spark.write_to(rows, TABLE).overwritePartitions(),
    "replace": lambda rows: icelock.spark.write_to(rows, TABLE).replace(),
    "create or replace": lambda rows: icelock.spark.write_to(rows, TABLE).createOrReplace(),
    "format": lambda rows: rows.write.format("icelock").mode("overwrite").save(TABLE),
    "format by filter": lambda rows: rows.write.format("icelock").mode("overwrite").option("overwrite-filter", "id >= 0").save(TABLE),
    "format dynamic": lambda rows: rows.write.format("icelock").mode("overwrite").option("overwrite-mode", "dynamic").save(TABLE),
    "upsert": lambda rows: icelock.spark.upsert(rows.withColumn("name", rows.city), TABLE, ["id"]),
}


def refused(lake, write, rows):
    before, files = ids(lake), lake.files()
    with pytest.raises(CONFLICT, match=r"conflict|ValidationException|is no longer an ancestor of"):
        write(rows)
    assert ids(lake) == before
    assert lake.files() == files


@pytest.mark.turns(3)
@pytest.mark.parametrize("write", WRITES)
def test_rows_that_came_since_they_were_read_are_a_conflict(spark, table, write):
    rows = read(spark)
    load(table).append(people(5, 1) if write == "upsert" else LATER)
    refused(table, WRITES[write], rows)
    if write != "upsert":  # two rows have the key now
        WRITES[write](read(spark))
        assert ids(table) == [*range(10), *range(100, 103)]


@pytest.mark.turns(3)
@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("write", ["overwrite", "format"])
def test_wherever_the_plan_reads_the_table(spark, table, how, write):
    rows = READS[how](spark)
    load(table).append(LATER)
    refused(table, WRITES[write], rows)
    spark.catalog.clearCache()


@pytest.mark.spark43
@pytest.mark.parametrize("write", ["overwrite", "format"])
def test_without_commits_of_others_own_rows_are_written(spark, table, write):
    WRITES[write](read(spark).filter("id < 4"))
    assert ids(table) == [0, 1, 2, 3]
    WRITES[write](by_source(spark).filter("id < 2"))
    assert ids(table) == [0, 1]
    WRITES[write](spark.range(7, 9).selectExpr("id", "'n' name", "'c' city"))
    assert ids(table) == [7, 8]


def test_commits_outside_of_what_is_overwritten_are_none(spark, table):
    """The filter says what a conflict is, as in Java (OverwriteFiles.conflictDetectionFilter is the overwrite's filter)."""
    rows = read(spark).filter("city = 'town-0'")
    elsewhere = pa.table({"id": pa.array([100], pa.int64()), "name": ["n"], "city": ["elsewhere"]})
    load(table).append(elsewhere)
    icelock.spark.write_to(rows, TABLE).overwritePartitions()
    rows = read(spark).filter("city = 'town-0'")  # the rows of before were replaced
    load(table).append(elsewhere)
    icelock.spark.write_to(rows, TABLE).overwrite("city = 'town-0'")
    assert ids(table) == [*range(10), 100, 100]
    rows = read(spark).filter("city = 'town-0'")
    load(table).append(elsewhere.set_column(2, "city", pa.array(["town-0"])))
    refused(table, lambda rows: icelock.spark.write_to(rows, TABLE).overwrite("city = 'town-0'"), rows)


def test_the_oldest_of_several_reads_counts(spark, table):
    old = read(spark)
    load(table).append(LATER)
    refused(table, WRITES["overwrite"], read(spark).unionByName(old))


def test_rows_of_another_table_are_no_own_rows(spark, table):
    table.catalog().create_table("db.other", people().schema, properties=KEYED).append(people(50, 2))
    rows = icelock.spark.read(spark, "test.db.other")
    load(table).append(LATER)
    WRITES["overwrite"](rows)
    assert ids(table) == [50, 51]


def test_an_old_snapshot_is_written_back(spark, table):
    """What a read by time travel replaces is the table that there was when it was made, not the old snapshot."""
    first = load(table).current_snapshot().snapshot_id
    load(table).append(LATER)
    rows, late = read(spark, snapshot_id=first), by_source(spark, **{"snapshot-id": str(first)})
    WRITES["overwrite"](rows)
    assert ids(table) == list(range(10))
    refused(table, WRITES["format"], late)


def test_a_branch_is_validated_from_its_own_head(spark, table):
    with load(table).manage_snapshots() as manage:
        manage.create_branch(load(table).current_snapshot().snapshot_id, "side")
    rows = read(spark)
    load(table).append(LATER)  # main: not what is written
    icelock.spark.write_to(rows.filter("id < 3"), TABLE).option("branch", "side").overwrite("true")
    assert sorted(load(table).scan().use_ref("side").to_arrow().column("id").to_pylist()) == [0, 1, 2]
    rows = read(spark)
    load(table).append(LATER, branch="side")
    refused(table, lambda rows: icelock.spark.write_to(rows, TABLE).option("branch", "side").overwrite("true"), rows)


def test_a_table_that_was_empty_or_rolled_back(spark, spark_lake):
    made = spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    rows = read(spark)
    made.append(people())
    refused(spark_lake, WRITES["overwrite"], rows)
    first = load(spark_lake).current_snapshot().snapshot_id
    made.append(LATER)
    rows = read(spark)
    with load(spark_lake).manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    refused(spark_lake, WRITES["overwrite"], rows)


def test_what_the_plan_cannot_tell_is_said_by_an_option(spark, table):
    seen = str(load(table).current_snapshot().snapshot_id)
    rows = spark.createDataFrame(read(spark).collect(), read(spark).schema)
    load(table).append(LATER)
    refused(table, lambda rows: icelock.spark.write_to(rows, TABLE).option("validate-from-snapshot-id", seen).overwrite("true"), rows)
    refused(
        table,
        lambda rows: rows.write.format("icelock").mode("overwrite").option("validate-from-snapshot-id", seen).save(TABLE),
        rows,
    )
    with pytest.raises(PolicyError, match="has no snapshot 77"):
        icelock.spark.write_to(rows, TABLE).option("validate-from-snapshot-id", 77).overwrite("true")
    # What the user says goes before what the plan says.
    now = str(load(table).current_snapshot().snapshot_id)
    stale = read(spark, snapshot_id=int(seen))
    icelock.spark.write_to(stale, TABLE).option("validate-from-snapshot-id", now).overwrite("true")
    assert ids(table) == list(range(10))


def test_a_read_with_the_users_schema_is_not_known(spark, table):
    rows = spark.read.format("icelock").schema("id bigint, name string, city string").load(TABLE)
    with pytest.raises(PolicyError, match="validate-from-snapshot-id"):
        WRITES["overwrite"](rows)
    with pytest.raises(PolicyError, match="validate-from-snapshot-id"):
        WRITES["format"](rows)
    assert ids(table) == list(range(10))


def test_other_columns_since_the_write_was_planned(spark, table):
    """The table loses a column while tasks run."""
    rows = spark.range(200, 400, 1, 1).selectExpr("id", "'n' name", "'c' city")
    properties = table.properties()

    def drop_once(batches):
        import icelock  # noqa: PLC0415 - on an executor

        yield from batches
        with icelock.load_catalog("test", **properties).load_table("db.t").update_schema() as update:
            update.delete_column("name")

    with pytest.raises(CONFLICT, match=r"'name' \(id 2\) was dropped"):
        icelock.spark.write_to(rows.mapInArrow(drop_once, rows.schema), TABLE).append()
    assert ids(table) == list(range(10))
