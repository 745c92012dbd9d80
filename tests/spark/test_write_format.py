"""``df.write.format("icelock")`` in a classic session: written as ``write_to`` does, with the rows' columns by their names."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

import icelock
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"


def save(df, mode="append", table=TABLE, **options):
    df.write.format("icelock").mode(mode).options(**options).save(table)


def rows(spark, *ids, parts=1, city="concat('town-', id % 3)"):
    return spark.createDataFrame([(one,) for one in ids], "id bigint").repartition(parts).selectExpr("id", "'n' name", f"{city} city")


@pytest.fixture
def table(spark, spark_lake):  # noqa: ARG001 - the lake is in the session
    return spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)


def ids(lake, **scan):
    return sorted(load(lake).scan(**scan).to_arrow().column("id").to_pylist())


@pytest.mark.spark43
def test_the_users_process_commits(spark, spark_lake, table):  # noqa: ARG001 - the table is there
    """Its counters have the commit, which no process of Spark's makes; and columns are found by their names, in any order."""
    with icelock.metrics.measure() as measured:
        save(rows(spark, 1, 2, 3).select("city", "id"))
    assert measured.commits == 1
    assert measured.data_files_committed == 1
    assert load(spark_lake).scan().to_arrow().select(["id", "name", "city"]).sort_by("id").to_pydict() == {
        "id": [1, 2, 3],
        "name": [None, None, None],
        "city": ["town-1", "town-2", "town-0"],
    }


def test_rows_are_spread_by_partition_as_the_table_says(spark, spark_lake):
    """Four tasks have rows of three partitions each: without a shuffle that is twelve files."""
    spec = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="city"))
    properties = {**KEYED, "write.distribution-mode": "hash"}
    spark_lake.catalog().create_table("db.t", people().schema, partition_spec=spec, properties=properties)
    save(spark.range(0, 30_000, 1, 4).selectExpr("id", "'n' name", "concat('town-', id % 3) city"))
    assert [task.file.record_count for task in load(spark_lake).scan().plan_files()] == [10_000] * 3


def test_an_overwrite_by_filter_takes_single_rows_of_a_file(spark, spark_lake, table):  # noqa: ARG001 - the table is there
    save(rows(spark, 1, 2, 3, 4))
    save(rows(spark, 30), "overwrite", **{"overwrite-filter": "id = 3"})
    assert ids(spark_lake) == [1, 2, 4, 30]


def test_dynamic_overwrite(spark, spark_lake, table):
    """Of the partitions that get rows; a table without partitions is one."""
    save(rows(spark, 1, 2))
    save(rows(spark, 7), "overwrite", **{"overwrite-mode": "dynamic"})
    assert ids(spark_lake) == [7]
    with load(spark_lake).update_spec() as update:
        update.add_identity("city")
    save(rows(spark, 10, 11), "overwrite")
    save(rows(spark, 13), "overwrite", **{"overwrite-mode": "dynamic"})
    assert ids(spark_lake) == [11, 13]
    assert table.name() == ("db", "t")


def test_a_branch_by_option_and_by_name(spark, spark_lake, table):
    save(rows(spark, 1))
    table.refresh().manage_snapshots().create_branch(load(spark_lake).current_snapshot().snapshot_id, "b").commit()
    save(rows(spark, 2), branch="b")
    save(rows(spark, 3), table=f"{TABLE}.branch_b")
    main, branch = ids(spark_lake), sorted(load(spark_lake).scan().use_ref("b").to_arrow().column("id").to_pylist())
    assert (main, branch) == ([1], [1, 2, 3])
