"""Rows spread over tasks before a write: Java's modes and defaults, files counted by hand, Iceberg's transforms as Spark's columns."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections import Counter

import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform, parse_transform
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock.spark
from icelock.errors import PolicyError
from icelock.spark.columns.transforms import spark_transform
from icelock.spark.driver.distribution import Layout, distributed
from tests.lakes.sqlite import KEY, KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"
CITY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))
BY_ID = SortOrder(SortField(source_id=1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST))
NOVEMBER = dt.datetime(2017, 11, 16, 22, 31, 8, tzinfo=dt.UTC)
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
SCHEMA = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=False),
    ice.NestedField(2, "name", ice.StringType(), required=False),
    ice.NestedField(3, "city", ice.StringType(), required=False),
)
COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"


def make(lake, properties=None, **more):
    lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **(properties or {})}, **more)


def rows(spark, count=300, parts=4):
    """Rows of three towns in each of the tasks."""
    return spark.range(0, count, 1, parts).selectExpr("id", "concat('n', id) name", "concat('town-', id % 3) city")


def files(lake):
    """Return the files of each partition, and the order that each names."""
    found = lake.catalog().load_table("db.t").scan().plan_files()
    partitions = Counter(task.file.partition[0] if len(task.file.partition) else None for task in found)
    return partitions, {task.file.sort_order_id for task in found}


def written(lake):
    table = lake.catalog().load_table("db.t")
    return sorted(table.scan().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize(
    ("properties", "options", "each"),
    [
        pytest.param({}, {}, 1, marks=pytest.mark.spark43),  # hash, for the table is partitioned
        ({"write.distribution-mode": "none"}, {}, 4),  # each of the 4 tasks has rows of each town
        ({"write.distribution-mode": "none"}, {"distribution-mode": "hash"}, 1),
        ({"write.distribution-mode": "range"}, {}, 1),
        ({"write.distribution-mode": "hash"}, {"Distribution-Mode": "NONE", "fanout-enabled": "true"}, 4),
        ({"write.distribution-mode": "hash"}, {"use-table-distribution-and-ordering": "false"}, 4),
    ],
)
def test_files_of_a_partitioned_table(spark, spark_lake, properties, options, each):
    make(spark_lake, properties, partition_spec=CITY)
    icelock.spark.write_to(rows(spark), TABLE).options(**options).append()
    assert files(spark_lake)[0] == {"town-0": each, "town-1": each, "town-2": each}
    assert written(spark_lake) == list(range(300))


def test_an_unsorted_table_without_partitions_is_written_as_it_comes(spark, spark_lake):
    make(spark_lake, {"write.distribution-mode": "hash"})
    df = rows(spark)
    table = spark_lake.catalog().load_table("db.t")
    layout = Layout(schema=table.schema(), spec=table.spec(), sort_order=table.sort_order(), properties=table.properties)
    assert distributed(df, layout, {"distribution-mode": "range"}, case_sensitive=False) is df
    icelock.spark.write_to(df, TABLE).append()
    assert files(spark_lake)[0] == {None: 4}


@pytest.mark.parametrize(("mode", "together"), [(None, True), ("hash", False), ("none", False)])
def test_a_sorted_table_gets_sorted_files(spark, spark_lake, mode, together):
    """Two tasks hold the even and the odd numbers; only ranges bring neighbours together."""
    make(spark_lake, {"write.distribution-mode": mode} if mode else {}, sort_order=BY_ID)
    df = spark.range(0, 2000, 1, 2).selectExpr("if(id < 1000, id * 2, id * 2 - 1999) id", "'x' name", "'y' city")
    spark.conf.set(COALESCE, "false")
    try:
        icelock.spark.write_to(df, TABLE).append()
    finally:
        spark.conf.unset(COALESCE)
    table = spark_lake.catalog().load_table("db.t")
    tasks = list(table.scan().plan_files())
    assert len(tasks) == 2
    assert {task.file.sort_order_id for task in tasks} == {table.sort_order().order_id}
    assert table.sort_order().order_id != 0
    ends = []
    for task in tasks:
        low, high = (int.from_bytes(bound[1], "little") for bound in (task.file.lower_bounds, task.file.upper_bounds))
        ends.append((low, high))
    ends.sort()
    assert (ends[0][1] < ends[1][0]) is together
    assert sum(task.file.record_count for task in tasks) == 2000
    assert written(spark_lake) == list(range(2000))


@pytest.mark.parametrize(
    ("properties", "options", "order", "sorts"),
    [
        ({}, {}, None, True),
        ({"write.spark.fanout.enabled": "true"}, {}, None, False),
        ({"write.spark.fanout.enabled": "true"}, {"fanout-enabled": "false"}, None, True),
        ({"write.spark.fanout.enabled": "true"}, {}, BY_ID, True),  # the table's order counts more
    ],
)
def test_fanout_spares_the_sort_of_an_unsorted_table(spark, properties, options, order, sorts):
    layout = Layout(schema=SCHEMA, spec=CITY, sort_order=order or UNSORTED_SORT_ORDER, properties=properties)
    plan = distributed(rows(spark), layout, options, case_sensitive=False)._jdf.queryExecution().analyzed().toString()
    assert ("Sort [" in plan) is sorts


def test_rows_of_a_task_come_by_partition_and_sort_order(spark, spark_lake):
    make(spark_lake, partition_spec=CITY, sort_order=BY_ID)
    icelock.spark.write_to(rows(spark), TABLE).option("distribution-mode", "hash").append()
    table = spark_lake.catalog().load_table("db.t")
    counts, orders = files(spark_lake)
    assert counts == {"town-0": 1, "town-1": 1, "town-2": 1}
    assert orders == {table.sort_order().order_id}
    by_town = table.scan(row_filter="city = 'town-1'").to_arrow().column("id").to_pylist()
    assert by_town == [number for number in range(299, -1, -1) if number % 3 == 1]


def test_columns_that_the_rows_lack_or_name_otherwise(spark, spark_lake):
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"), PartitionField(1, 1001, BucketTransform(2), "b"))
    make(spark_lake, partition_spec=spec)
    icelock.spark.write_to(spark.range(0, 40, 1, 4).selectExpr("id as ID", "'x' NAME"), TABLE).append()
    assert files(spark_lake)[0] == {None: 2}  # by the bucket alone
    assert written(spark_lake) == list(range(40))


@pytest.mark.parametrize(("name", "value"), [("distribution-mode", "hashed"), ("fanout-enabled", "maybe")])
def test_wrong_values_are_refused(spark, spark_lake, name, value):
    wanted = "none, hash, range" if name == "distribution-mode" else "true or false"
    with pytest.raises(PolicyError, match=f"option {name} is '{value}'; it must be {wanted}"):
        icelock.spark.write_to(rows(spark), TABLE).option(name, value)
    table_property = {"distribution-mode": "write.distribution-mode", "fanout-enabled": "write.spark.fanout.enabled"}[name]
    make(spark_lake, {table_property: value}, partition_spec=CITY)
    before = spark_lake.files()
    with pytest.raises(PolicyError, match=f"table property {table_property} is '{value}'; it must be {wanted}"):
        icelock.spark.write_to(rows(spark), TABLE).append()
    assert spark_lake.files() == before


def test_created_and_overwritten_tables_are_spread_too(spark, spark_lake):
    writer = icelock.spark.write_to(rows(spark), TABLE).tableProperty("encryption.key-id", "keyA")
    writer.partitionedBy("city").create()
    assert files(spark_lake)[0] == {"town-0": 1, "town-1": 1, "town-2": 1}
    icelock.spark.write_to(rows(spark, 30), TABLE).overwrite("city = 'town-1'")
    assert files(spark_lake)[0] == {"town-0": 2, "town-1": 1, "town-2": 2}
    icelock.spark.write_to(rows(spark, 30), TABLE).overwritePartitions()
    assert files(spark_lake)[0] == {"town-0": 1, "town-1": 1, "town-2": 1}


VALUES = {
    # the hashes of the spec's Appendix B: bucket[N] is (hash & 2^31-1) % N
    "i": ("int", ice.IntegerType(), [34, -1, None], {"bucket[1000]": [2017239379 % 1000, None, None], "truncate[10]": [30, -10, None]}),
    "l": (
        "bigint",
        ice.LongType(),
        [34, -(2**63), None],
        {"bucket[1000]": [2017239379 % 1000, None, None], "truncate[10]": [30, None, None]},
    ),
    "s": (
        "string",
        ice.StringType(),
        ["iceberg", "äöü", None],
        {"bucket[1000]": [1210000089 % 1000, None, None], "truncate[2]": ["ic", "äö", None]},
    ),
    "d": (
        "date",
        ice.DateType(),
        [dt.date(2017, 11, 16), dt.date(1969, 12, 31), None],
        {
            "bucket[1000]": [(-653330422 & 0x7FFFFFFF) % 1000, None, None],
            "year": [47, -1, None],
            "month": [574, -1, None],
            "day": [17486, -1, None],
        },
    ),
    "z": (
        "timestamp",
        ice.TimestamptzType(),
        [NOVEMBER, BEFORE_1970, None],
        {
            "bucket[1000]": [(-2047944441 & 0x7FFFFFFF) % 1000, None, None],
            "year": [47, -1, None],
            "month": [574, -1, None],
            "day": [17486, -1, None],
            "hour": [17486 * 24 + 22, -1, None],
        },
    ),
    "n": (
        "timestamp_ntz",
        ice.TimestampType(),
        [NOVEMBER.replace(tzinfo=None), BEFORE_1970.replace(tzinfo=None), None],
        {
            "bucket[1000]": [(-2047944441 & 0x7FFFFFFF) % 1000, None, None],
            "year": [47, -1, None],
            "month": [574, -1, None],
            "day": [17486, -1, None],
            "hour": [17486 * 24 + 22, -1, None],
        },
    ),
    "c": (
        "decimal(9,2)",
        ice.DecimalType(9, 2),
        [decimal.Decimal("14.20"), decimal.Decimal("-0.01"), None],
        {
            "bucket[1000]": [(-500754589 & 0x7FFFFFFF) % 1000, None, None],
            "truncate[50]": [decimal.Decimal("14.00"), decimal.Decimal("-0.50"), None],
        },
    ),
    "u": (
        "string",
        ice.UUIDType(),
        ["F79C3E09-677C-4BBD-A479-3F349CB785E7", None, None],
        {"bucket[1000]": [1488055340 % 1000, None, None], "identity": [str(uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")), None, None]},
    ),
    "b": (
        "binary",
        ice.BinaryType(),
        [b"\x00\x01\x02\x03", b"", None],
        {"bucket[1000]": [(-188683207 & 0x7FFFFFFF) % 1000, None, None], "truncate[3]": [b"\x00\x01\x02", b"", None]},
    ),
}


def test_transforms_are_icebergs_in_any_time_zone(spark):
    schema = ", ".join(f"{name} {kind}" for name, (kind, *_) in VALUES.items())
    data = [tuple(values[row] for _, _, values, _ in VALUES.values()) for row in range(3)]
    before = spark.conf.get("spark.sql.session.timeZone")
    df = spark.createDataFrame(data, schema)
    wanted, columns = {}, []
    for name, (_, kind, _, transforms) in VALUES.items():
        for text, results in transforms.items():
            wanted[f"{name} {text}"] = results
            transform = parse_transform(text)
            columns.append(spark_transform(F.col(name), transform, ice.NestedField(1, name, kind, required=False)).alias(f"{name} {text}"))
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
        got = [row.asDict() for row in df.select(*columns).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for name, results in wanted.items():
        found = [row[name] for row in got]
        assert found[0] == results[0], name
        assert found[2] is None, name
        if "bucket" not in name:
            assert found[1] == results[1], name
        elif found[1] is not None:
            assert 0 <= found[1] < 1000


@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_rows_of_any_year_are_found_by_their_partitions(sql, kind):
    """Partition values by hand: years since 1970, and months since January 1970; Arrow's years end at 32767."""
    days = {1: "+40000-02-01", 2: "-0044-03-15", 3: "2020-06-01", 4: "+32768-01-01"}
    for transform, values in {
        "years": {1: 38030, 2: -2014, 3: 50, 4: 30798},
        "months": {1: 38030 * 12 + 1, 2: -2014 * 12 + 2, 3: 605, 4: 30798 * 12},
    }.items():
        sql(f"create table test.db.{transform} (id int, x {kind}) partitioned by ({transform}(x)) {KEY}")
        rows = ", ".join(f"({number}, {kind}'{day}')" for number, day in days.items())
        sql(f"insert into test.db.{transform} select * from values {rows} as v(id, x) distribute by id % 2")
        part = f"x_{transform[:-1]}"
        assert dict(sql(f"select id, _partition.{part} from test.db.{transform}")) == values
        for number in (1, 3, 4):
            assert sql(f"select id from test.db.{transform} where x = {kind}'{days[number]}'") == [(number,)]
        assert sql(f"select id from test.db.{transform} where x > {kind}'2020-01-01' order by id") == [(1,), (3,), (4,)]
        assert sql(f"select id from test.db.{transform} where x < {kind}'1000-01-01' order by id") == [(2,)]
        sql(f"delete from test.db.{transform} where x < {kind}'2000-01-01'")
        assert sql(f"select id from test.db.{transform} order by id") == [(1,), (3,), (4,)]


def test_the_bounds_of_far_days_are_shown(sql):
    sql(f"create table test.db.t (id int, x date) partitioned by (days(x)) {KEY}")
    sql("insert into test.db.t values (1, date'+40000-02-01'), (2, date'2020-06-01')")
    shown = sql("select partition_summaries[0].lower_bound, partition_summaries[0].upper_bound from test.db.t.manifests")
    assert shown == [("2020-06-01", "40000-02-01")]  # Java's String.format("%04d-%02d-%02d")


def test_nested_columns_and_void_fields(spark):
    schema = Schema(
        ice.NestedField(1, "s", ice.StructType(ice.NestedField(2, "a.b", ice.IntegerType(), required=False)), required=False),
        ice.NestedField(3, "v", ice.IntegerType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"), PartitionField(3, 1001, VoidTransform(), "y"))
    order = SortOrder(order_id=0)
    df = spark.range(0, 8, 1, 2).selectExpr("named_struct('a.b', cast(id % 2 as int)) s", "cast(id as int) v")
    got = distributed(df, Layout(schema=schema, spec=spec, sort_order=order), {}, case_sensitive=True)
    assert got.schema == df.schema
    parts = [part for part in got.rdd.map(lambda row: row.s["a.b"]).glom().collect() if part]
    assert sorted(value for part in parts for value in part) == [0] * 4 + [1] * 4
    assert all(part == sorted(part) for part in parts)
