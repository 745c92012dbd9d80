"""Filters give the same rows pushed and not pushed; what cannot be applied exactly goes back to Spark (C-53)."""

from __future__ import annotations

import re
from functools import reduce

import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyspark.sql.functions import lit

import icelock.spark
from tests.helpers.turns import todays
from tests.lakes.sqlite import KEYED

pytestmark = pytest.mark.spark

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
TABLE = "test.db.t"
SCHEMA = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=True),
    ice.NestedField(2, "i", ice.IntegerType(), required=False),
    ice.NestedField(3, "d", ice.DoubleType(), required=False),
    ice.NestedField(4, "f", ice.FloatType(), required=False),
    ice.NestedField(5, "dec", ice.DecimalType(9, 2), required=False),
    ice.NestedField(6, "big", ice.DecimalType(38, 10), required=False),
    ice.NestedField(7, "dt", ice.DateType(), required=False),
    ice.NestedField(8, "ts", ice.TimestamptzType(), required=False),
    ice.NestedField(9, "ntz", ice.TimestampType(), required=False),
    ice.NestedField(10, "s", ice.StringType(), required=False),
    ice.NestedField(11, "b", ice.BooleanType(), required=False),
    ice.NestedField(12, "bin", ice.BinaryType(), required=False),
    ice.NestedField(13, "u", ice.UUIDType(), required=False),
    ice.NestedField(
        14,
        "st",
        ice.StructType(
            ice.NestedField(15, "x", ice.IntegerType(), required=False), ice.NestedField(16, "y", ice.StringType(), required=False)
        ),
        required=False,
    ),
    ice.NestedField(17, "a.b", ice.IntegerType(), required=False),
)
# Ids 0 to 7; the last row is null everywhere.
ROWS = """
  (0, 1, '1.5', '1.5', '1.50', '1.0000000001', '2024-02-28', '2024-02-28 23:59:59.999999',
     '2024-02-28 23:59:59.999999', 'abc', true, X'00FF', 1, 'p', 1),
  (1, 2, 'NaN', 'NaN', '-1.50', '-1.0000000001', '2024-02-29', '2024-02-29 00:00:00',
     '2024-02-29 00:00:00', 'abd', false, X'', 2, 'q', 2),
  (2, 3, '-Infinity', '0.0', '0.00', '0', '1969-12-31', '1969-12-31 23:59:59.999999',
     '1969-12-31 23:59:59.999999', '', true, X'FF', null, null, 3),
  (3, -1, '-0.0', '-0.0', '99.99', '12345678901234567890.5', '1970-01-01', '1970-01-01 00:00:00',
     '1970-01-01 00:00:00', 'ab', null, X'00', 3, '', null),
  (4, 1, '0.0', 'Infinity', '1.50', null, '2024-02-28', '2024-12-31 12:00:00',
     '2024-12-31 12:00:00', 'Ω', false, null, 1, 'Ω', 1),
  (5, null, '5.0', '5.25', null, '5', null, '2024-02-29 00:00:00.000001', null, '\U0001f512z', true, X'01', null, 'p', 5),
  (6, 7, '0.1', '0.1', '0.10', '0.1', '2024-02-29', null, '2024-02-29 00:00:00.000001', null, false, X'0000', 7, 'p', 7),
  (7, null, null, null, null, null, null, null, null, null, null, null, null, null, null)
"""
UUIDS = (
    "case when id < 3 then 'f79c3e09-677c-4bbd-a479-3f349cb785e' || id when id < 6 then null "
    "else '00000000-0000-0000-0000-00000000000' || id end"
)
INPUT = (
    "select cast(id as bigint) id, cast(i as int) i, cast(d as double) d, cast(f as float) f, cast(dec as decimal(9,2)) dec, "
    "cast(big as decimal(38,10)) big, cast(dt as date) dt, cast(ts as timestamp) ts, cast(ntz as timestamp_ntz) ntz, s, b, bin, "
    f"{UUIDS} u, case when id = 7 then null else named_struct('x', x, 'y', y) end st, `a.b` from values {ROWS} "
    "as t(id, i, d, f, dec, big, dt, ts, ntz, s, b, bin, x, y, `a.b`)"
)
SPECS = {
    "unpartitioned": (),
    "identity": (("s", IdentityTransform()), ("dt", IdentityTransform())),
    "numbers": (("dec", IdentityTransform()), ("i", BucketTransform(4))),
    "floats": (("d", IdentityTransform()),),
    "times": (("ts", DayTransform()), ("ntz", DayTransform())),
    "truncated": (("s", TruncateTransform(2)), ("big", TruncateTransform(10)), ("u", BucketTransform(3))),
}
FILTERS = {
    "i = 1": {0, 4},
    "i <> 1": {1, 2, 3, 6},
    "not (i = 1)": {1, 2, 3, 6},
    "i <=> 1": {0, 4},
    "not (i <=> 1)": {1, 2, 3, 5, 6, 7},
    "i <=> null": {5, 7},
    "i is null": {5, 7},
    "i is not null": {0, 1, 2, 3, 4, 6},
    "i in (1, 3)": {0, 2, 4},
    "i in (1, null)": {0, 4},
    "i not in (1, 3)": {1, 3, 6},
    "i not in (1, null)": set(),
    "i in (1, 3, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25)": {0, 2, 4, 6},
    "not i > 1": {0, 3, 4},
    "i > 1 and i < 7": {1, 2},
    "i > 1 or s = 'abc'": {0, 1, 2, 6},
    "d > 1": {0, 1, 5},
    "d >= 1.5D": {0, 1, 5},
    "d < 1": {2, 3, 4, 6},
    "d <= 0": {2, 3, 4},
    "not d > 1": {2, 3, 4, 6},
    "not d < 1": {0, 1, 5},
    "d = 0": {3, 4},
    "d = '-0.0'": {3, 4},
    "d <> 0": {0, 1, 2, 5, 6},
    "d in (0.0D, 5.0D)": {3, 4, 5},
    "d not in (0.0D, 5.0D)": {0, 1, 2, 6},
    "d = 'NaN'": {1},
    "d <> 'NaN'": {0, 2, 3, 4, 5, 6},
    "d <=> 'NaN'": {1},
    "d > 'NaN'": set(),
    "d >= 'NaN'": {1},
    "d < 'NaN'": {0, 2, 3, 4, 5, 6},
    "d <= 'NaN'": {0, 1, 2, 3, 4, 5, 6},
    "not d < double('NaN')": {1},
    "d in (double('NaN'), 1.5D)": {0, 1},
    "d not in (double('NaN'), 1.5D)": {2, 3, 4, 5, 6},
    "f = float(0.1)": {6},
    "f = 0.1D": set(),
    "f > float(1)": {0, 1, 4, 5},
    "dec = 1.5": {0, 4},
    "dec > 1.499": {0, 3, 4},
    "dec < 0": {1},
    "dec in (1.50, 99.99)": {0, 3, 4},
    "big > 12345678901234567890": {3},
    "big = 1.0000000001BD": {0},
    "big <= 0": {1, 2},
    "dt = date'2024-02-29'": {1, 6},
    "dt < date'1970-01-01'": {2},
    "dt in (date'2024-02-28', date'1970-01-01')": {0, 3, 4},
    "ts >= timestamp'2024-02-29 00:00:00'": {1, 4, 5},
    "ts = timestamp'1969-12-31 23:59:59.999999'": {2},
    "ts > timestamp'2024-02-29 00:00:00'": {4, 5},
    "ntz < timestamp_ntz'1970-01-01 00:00:00'": {2},
    "ntz between timestamp_ntz'2024-02-29 00:00:00' and timestamp_ntz'2024-02-29 00:00:00.000001'": {1, 6},
    "s = 'abc'": {0},
    "s = ''": {2},
    "s <> 'abc'": {1, 2, 3, 4, 5},
    "s > 'abc'": {1, 4, 5},
    "s < 'ab'": {2},
    "s like 'ab%'": {0, 1, 3},
    "not s like 'ab%'": {2, 4, 5},
    "s like '%c'": {0},
    "s like '%b%'": {0, 1, 3},
    "s like '%'": {0, 1, 2, 3, 4, 5},
    "s like '\U0001f512%'": {5},
    "s > '\uffff'": {5},
    "length(s) = 3": {0, 1},
    "b": {0, 2, 5},
    "not b": {1, 4, 6},
    "b is null": {3, 7},
    "bin = X'00FF'": {0},
    "bin > X'00'": {0, 2, 5, 6},
    "bin = X''": {1},
    "u = 'f79c3e09-677c-4bbd-a479-3f349cb785e1'": {1},
    "u = 'F79C3E09-677C-4BBD-A479-3F349CB785E1'": set(),
    "u > 'f79c3e09-677c-4bbd-a479-3f349cb785e0'": {1, 2},
    "u in ('00000000-0000-0000-0000-000000000006', 'no uuid')": {6},
    "u like 'f79%'": {0, 1, 2},
    "st.x = 1": {0, 4},
    "st.x is null": {2, 5, 7},
    "st.y = ''": {3},
    "st.y like 'p%' and st.x > 1": {6},
    "st is null": {7},
    "`a.b` = 1": {0, 4},
    "id = 3 and i = -1": {3},
    "id = 3 and i = 1": set(),
    "id < 5 and s like '%c' and d > 1": {0},
}


@pytest.fixture
def table(spark, spark_lake, request):
    fields = [
        PartitionField(SCHEMA.find_field(name).field_id, 1000 + n, transform, f"p{n}")
        for n, (name, transform) in enumerate(SPECS[request.param])
    ]
    spark_lake.catalog().create_table("db.t", SCHEMA, partition_spec=PartitionSpec(*fields), properties=KEYED)
    # two files at least, so that files are pruned
    rows = spark.sql(INPUT)
    rows.filter("id < 4").coalesce(1).write.format("icelock").mode("append").save(TABLE)
    rows.filter("id >= 4").coalesce(1).write.format("icelock").mode("append").save(TABLE)
    return spark_lake


def ids(df) -> set[int]:
    found = [row.id for row in df.select("id").collect()]
    assert len(found) == len(set(found))
    return set(found)


def answers(df, filters) -> dict[str, set[int]]:
    """Return the ids that each filter keeps; a query holds the scans of many filters, as one takes half a second."""
    found: dict[str, list[int]] = {text: [] for text in filters}
    for texts in batched(filters, 15):
        parts = [df.filter(text).select(lit(text).alias("text"), "id") for text in texts]
        for row in reduce(type(df).union, parts).coalesce(2).collect():
            found[row.text].append(row.id)
    assert all(len(set(kept)) == len(kept) for kept in found.values())
    return {text: set(kept) for text, kept in found.items()}


def batched(items, size):
    items = list(items)
    return [items[start : start + size] for start in range(0, len(items), size)]


def explained(df, mode="simple") -> str:
    return df._sc._jvm.PythonSQLUtils.explainString(df._jdf.queryExecution(), mode)


# Which filters Spark hands over does not hang on the partitions: the newest version has the table with all filters.
UNPARTITIONED = pytest.param("unpartitioned", marks=pytest.mark.newest)


@pytest.mark.turns(3)
@pytest.mark.parametrize("table", [UNPARTITIONED, *list(SPECS)[1:]], indirect=True)
def test_filters_give_the_same_rows_pushed_and_not(spark, table):
    """On a partitioned table the filters on its partition columns, else all; half of them a day."""
    columns = {SCHEMA.find_field(field.source_id).name for field in table.catalog().load_table("db.t").spec().fields}
    about = [text for text in FILTERS if not columns or columns & set(re.findall(r"\w+", text))]
    filters = {text: FILTERS[text] for text in todays(f"filters on {sorted(columns)}", about, 2)}
    pushed = spark.read.format("icelock").load(TABLE)
    assert answers(pushed, filters) == filters
    assert ids(pushed) == set(range(8))


@pytest.mark.parametrize("table", ["identity"], indirect=True)
def test_without_push_down_the_same_rows(spark, table):
    spark.conf.set(PUSH_DOWN, "false")
    icelock.spark.register(spark, {"test": table.properties()})
    assert spark.conf.get(PUSH_DOWN) == "false"
    df = spark.read.format("icelock").load(TABLE)
    assert "EqualTo" not in explained(df.filter("i = 1"), "formatted")
    filters = dict(list(FILTERS.items())[::6])
    assert answers(df, filters) == filters


def test_expected_ids_are_sparks(spark):
    assert answers(spark.sql(INPUT), FILTERS) == FILTERS


@pytest.mark.spark43
@pytest.mark.parametrize("table", ["identity"], indirect=True)
def test_one_dataframe_serves_many_queries(spark, table):  # noqa: ARG001 - the fixture makes the table
    """Spark 4.1 to 4.3 keeps one plan for all queries on a DataFrame, pushed filters included; FreshScans.java cures it."""
    df = spark.read.format("icelock").load(TABLE)
    assert ids(df.filter("i = 1")) == {0, 4}
    assert df.count() == 8
    assert ids(df) == set(range(8))
    left, right = df.filter("id < 5"), df.filter("id >= 3")
    assert {row.id for row in left.join(right, "id").select("id").collect()} == {3, 4}
    assert {row.id for row in df.filter("id = 1").union(df.filter("id = 2")).collect()} == {1, 2}
    early = df.filter("id = 6")
    explained(early)
    assert ids(df.filter("id = 5")) == {5}
    assert ids(early) == {6}
    df.createOrReplaceTempView("v")
    assert [row.n for row in spark.sql("select count(*) n from v where id > (select min(id) from v where i = 1)").collect()] == [7]
    cached = df.filter("id > 2").cache()
    try:
        assert ids(cached) == {3, 4, 5, 6, 7}
        assert ids(df.filter("id > 1")) == {2, 3, 4, 5, 6, 7}
        assert ids(cached.filter("id < 5")) == {3, 4}
    finally:
        cached.unpersist()


@pytest.mark.parametrize("table", ["identity"], indirect=True)
def test_explain_shows_what_is_pushed_and_no_key(spark, table):  # noqa: ARG001 - the fixture makes the table
    df = spark.read.format("icelock").load(TABLE).filter("i = 1 and s like '%c'")
    assert "EndsWith" in explained(df)
    assert "(i#" not in explained(df)  # the other filter is not applied again
    assert "EqualTo(i,1)" in explained(df, "formatted")
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        for word in ("encryption.", "kms", "key_metadata", "keyA", "sqlite"):
            assert word not in explained(df, mode)


@pytest.mark.spark43
@pytest.mark.parametrize("table", ["unpartitioned"], indirect=True)
def test_files_are_pruned_by_pushed_filters(spark, table):  # noqa: ARG001 - the fixture makes the table
    df = spark.read.format("icelock").load(TABLE)
    assert df.rdd.getNumPartitions() == 2
    assert df.filter("id = 0").rdd.getNumPartitions() == 1
