"""Filters on the native scan: which rows they keep, and which files are read for them."""

# ruff: noqa: DTZ001, FBT003 - values as they are

from __future__ import annotations

import datetime as dt
import math
import threading
import time
import uuid
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions.visitors import bind
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyspark.sql import functions as F  # noqa: N812

import icelock.spark
from icelock.errors import PolicyError
from icelock.plan.filters.exact import exact_filter
from icelock.spark.columns.conditions import condition
from tests.spark.native_tables import append, create, evolve, files_read, native, optional, scans, values

pytestmark = pytest.mark.spark

LONG = ice.LongType()
SCHEMA = Schema(
    optional(1, "id", LONG),
    optional(2, "u", ice.UUIDType()),
    optional(3, "d", ice.DoubleType()),
    optional(4, "f", ice.FloatType()),
    optional(5, "dec", ice.DecimalType(38, 10)),
    optional(6, "dt", ice.DateType()),
    optional(7, "ts", ice.TimestampType()),
    optional(8, "tz", ice.TimestamptzType()),
    optional(9, "b", ice.BooleanType()),
    optional(10, "bin", ice.BinaryType()),
    optional(11, "fx", ice.FixedType(2)),
    optional(12, "s", ice.StringType()),
    optional(13, "st", ice.StructType(optional(14, "x", LONG), optional(15, "y", ice.StringType()))),
    optional(16, "i", ice.IntegerType()),
)
U1, U2, U9 = (str(uuid.UUID(int=n)) for n in (1, 2**127 + 5, 9))
ROWS = [
    {
        "id": 1,
        "u": uuid.UUID(U1),
        "d": 1.5,
        "f": 0.1,
        "dec": Decimal("1.0000000001"),
        "dt": dt.date(1500, 2, 3),
        "ts": dt.datetime(2024, 3, 10, 2, 30),
        "tz": dt.datetime(2024, 3, 10, 2, 30, tzinfo=dt.UTC),
        "b": True,
        "bin": b"\x00",
        "fx": b"ab",
        "s": "abc",
        "st": {"x": 1, "y": "a"},
        "i": 2**31 - 1,
    },
    {
        "id": 2,
        "u": uuid.UUID(U2),
        "d": math.nan,
        "f": math.nan,
        "dec": Decimal(-5),
        "dt": dt.date(1, 1, 1),
        "ts": dt.datetime(1900, 1, 1, 0, 0, 0, 1),
        "tz": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        "b": False,
        "bin": b"\xff\xfe",
        "fx": b"\xff\xff",
        "s": "",
        "st": {"x": None, "y": "b"},
        "i": -1,
    },
    {
        "id": 3,
        "d": -0.0,
        "f": 0.0,
        "dec": Decimal("12345678901234567890123456.0000000001"),
        "dt": dt.date(9999, 12, 31),
        "ts": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "tz": dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC),
        "bin": b"",
        "s": "a%_",
        "i": 0,
    },
    {"id": 4},
]
MANY = [float(n) for n in range(100, 120)]
FILTERS = [
    (ex.EqualTo("u", U1), [1]),
    (ex.GreaterThan("u", U9), [2]),
    (ex.LessThanOrEqual("u", U1), [1]),
    (ex.NotEqualTo("u", U1), [2]),
    (ex.In("u", [U1, U9]), [1]),
    (ex.NotIn("u", [U1, U9]), [2]),
    (ex.EqualTo("d", 0.0), [3]),
    (ex.EqualTo("d", -0.0), [3]),
    (ex.In("d", [0.0, 7.0]), [3]),
    (ex.In("d", [1.5, *MANY]), [1]),
    (ex.NotIn("d", [0.0, 1.5]), [2]),
    (ex.NotIn("d", [1.5, *MANY]), [2, 3]),
    (ex.In("d", [-0.0, *MANY]), [3]),
    (ex.GreaterThan("d", -1.0), [1, 3]),
    (ex.GreaterThanOrEqual("d", -0.0), [1, 3]),
    (ex.LessThan("d", 2.0), [1, 3]),
    (ex.NotEqualTo("d", 1.5), [2, 3]),
    (ex.IsNaN("d"), [2]),
    (ex.NotNaN("d"), [1, 3]),
    (ex.Not(ex.IsNaN("d")), [1, 3]),
    (ex.IsNull("d"), [4]),
    (ex.NotNull("d"), [1, 2, 3]),
    (ex.Not(ex.GreaterThan("d", 1.0)), [2, 3]),
    (ex.Not(ex.EqualTo("d", 1.5)), [2, 3]),
    (ex.EqualTo("f", 0.1), [1]),
    (ex.GreaterThan("f", 0.05), [1]),
    (ex.In("f", [0.1, 5.0]), [1]),
    (ex.In("f", [0.0, 5.0]), [3]),
    (ex.LessThan("f", 0.1), [3]),
    (ex.EqualTo("dec", Decimal("1.0000000001")), [1]),
    (ex.GreaterThan("dec", Decimal("12345678901234567890123456.0000000000")), [3]),
    (ex.EqualTo("dt", "1500-02-03"), [1]),
    (ex.EqualTo("dt", "0001-01-01"), [2]),
    (ex.LessThan("dt", "1582-10-10"), [1, 2]),
    (ex.GreaterThanOrEqual("dt", "9999-12-31"), [3]),
    (ex.EqualTo("ts", "2024-03-10T02:30:00"), [1]),
    (ex.LessThan("ts", "1900-01-01T00:00:00.000002"), [2]),
    (ex.In("ts", ["2024-03-10T02:30:00", "1900-01-01T00:00:00.000001"]), [1, 2]),
    (ex.EqualTo("ts", "9999-12-31T23:59:59.999999"), [3]),
    (ex.EqualTo("tz", "2024-03-10T02:30:00+00:00"), [1]),
    (ex.EqualTo("tz", "2024-11-03T01:30:00-05:00"), [3]),
    (ex.LessThan("tz", "1000-01-01T00:00:00+00:00"), [2]),
    (ex.EqualTo("b", True), [1]),
    (ex.NotEqualTo("b", True), [2]),
    (ex.EqualTo("bin", b"\x00"), [1]),
    (ex.GreaterThan("bin", b"\x7f"), [2]),
    (ex.LessThan("bin", b"\x00"), [3]),
    (ex.EqualTo("fx", b"ab"), [1]),
    (ex.GreaterThan("fx", b"ab"), [2]),
    (ex.StartsWith("s", "a"), [1, 3]),
    (ex.StartsWith("s", "a%"), [3]),
    (ex.NotStartsWith("s", "a"), [2]),
    (ex.StartsWith("s", ""), [1, 2, 3]),
    (ex.EqualTo("s", ""), [2]),
    (ex.In("s", ["abc", ""]), [1, 2]),
    (ex.NotIn("s", ["abc", ""]), [3]),
    (ex.EqualTo("st.x", 1), [1]),
    (ex.IsNull("st.x"), [2, 3, 4]),
    (ex.NotNull("st.y"), [1, 2]),
    (ex.Not(ex.EqualTo("st.x", 1)), []),
    (ex.NotIn("st.x", [5, 6]), [1]),
    (ex.EqualTo("i", 2**31 - 1), [1]),
    (ex.GreaterThan("i", 3_000_000_000), []),
    (ex.LessThan("i", 3_000_000_000), [1, 2, 3]),
    (ex.GreaterThan("i", -0.5), [1, 3]),
    (ex.Or(ex.IsNaN("d"), ex.EqualTo("s", "abc")), [1, 2]),
    (ex.And(ex.NotNull("d"), ex.Not(ex.Or(ex.IsNaN("d"), ex.EqualTo("b", True)))), []),
    (ex.Not(ex.In("i", [0, -1])), [1]),
]


def test_every_kind_of_row_filter_keeps_what_arrow_keeps(spark, spark_lake, monkeypatch):
    """The process is in another time zone than the session; one plan holds all filters, each a column."""
    table = create(spark_lake, SCHEMA, ROWS)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        exact = [exact_filter(row_filter, table.schema(), case_sensitive=True) for row_filter, _ in FILTERS]
        kept = [condition(bind(table.schema(), row_filter, case_sensitive=True), table.schema()) for row_filter in exact]
        rows = native(spark).select("id", *(F.coalesce(column, F.lit(False)).alias(f"c{n}") for n, column in enumerate(kept))).collect()
    finally:
        monkeypatch.undo()
        time.tzset()
    for n, (row_filter, expected) in enumerate(FILTERS):
        assert sorted(row.id for row in rows if row[f"c{n}"]) == expected, row_filter
        assert sorted(table.scan(row_filter=row_filter).to_arrow()["id"].to_pylist()) == expected, row_filter


@pytest.mark.turns(3)
@pytest.mark.parametrize("number", [0, 6, 8, 15, 22, 27, 31, 37, 51])
def test_row_filters_of_a_read(spark, spark_lake, number):
    row_filter, expected = FILTERS[number]
    create(spark_lake, SCHEMA, ROWS)
    assert values(native(spark, columns=["id"], row_filter=row_filter)) == expected, row_filter


SPARKS = {
    "d > 5": [2],
    "d >= 1.5": [1, 2],
    "d = double('NaN')": [2],
    "d = 0.0D": [3],
    "d <= -0.0D": [3],
    "not (d < 5)": [2],
    "not (d = 1.5)": [2, 3],
    "d in (0.0D, 9.0D)": [3],
    "d < 2": [1, 3],
    "d = 1.5": [1],
    "f > 0.05": [1, 2],
    "f <=> float('NaN')": [2],
    "d > 5 or id = 1": [1, 2],
    "tz = timestamp'2024-11-03 01:30:00-05:00'": [3],
    "ts = timestamp_ntz'2024-03-10 02:30:00'": [1],
    "dt < date'1582-10-10'": [1, 2],
    "dec = 1.0000000001": [1],
    "bin > X'7f'": [2],
    "s like 'a%'": [1, 3],
    "u = '00000000-0000-0000-0000-000000000001'": [1],
    "st.x = 1": [1],
    "st is null": [3, 4],
    "b = true": [1],
    "b <=> null": [3, 4],
    "i > 3000000000": [],
    "i < 3000000000": [1, 2, 3],
    "isnan(d)": [2],
    "s = ''": [2],
}


@pytest.mark.spark43
def test_sparks_filters_keep_sparks_rows_where_each_is_a_file_of_its_own(spark, spark_lake):
    """Bounds in files leave NaN out and Parquet tells zeros apart: rows that Spark's rules keep must not go with their files."""
    create(spark_lake, SCHEMA, *([row] for row in ROWS))
    create(spark_lake, SCHEMA, ROWS, name="one")
    for table in ("test.db.t", "test.db.one"):
        found = native(spark, table)
        for text, expected in SPARKS.items():
            assert values(found.filter(text).select("id")) == expected, (table, text)


PARTS = Schema(
    optional(1, "id", LONG), optional(2, "c", ice.StringType()), optional(3, "at", ice.TimestamptzType()), optional(4, "n", LONG)
)


def day(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, number, 12, tzinfo=dt.UTC)


@pytest.fixture
def parts(spark, spark_lake):
    """Six files: categories a and b on three days each, ids 0 to 5."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c"), PartitionField(3, 1001, DayTransform(), "day"))
    rows = [{"id": n, "c": "ab"[n % 2], "at": day(1 + n // 2), "n": n * 10} for n in range(6)]
    create(spark_lake, PARTS, rows, partition_spec=spec)
    return native(spark)


@pytest.mark.spark43
def test_filters_prune_files(parts):
    expected = {
        "id >= 0": (6, [0, 1, 2, 3, 4, 5]),
        "c = 'a'": (3, [0, 2, 4]),
        "c = 'zz'": (0, []),
        "at >= timestamp'2026-01-02 00:00:00Z'": (4, [2, 3, 4, 5]),
        "c = 'b' and at < timestamp'2026-01-02 00:00:00Z'": (1, [1]),
        "n = 30": (1, [3]),
        "n = 30 or n = 0": (2, [0, 3]),
        "n = 30 or c = 'a'": (4, [0, 2, 3, 4]),
        "not (c = 'a' and n < 30)": (4, [1, 3, 4, 5]),
        "(c = 'a' or n = 30) and (n % 20 = 0 or c = 'b')": (4, [0, 2, 3, 4]),
        "n % 20 = 0 or c = 'b'": (6, [0, 1, 2, 3, 4, 5]),
        "c is null or at >= timestamp'2026-01-03 00:00:00Z'": (2, [4, 5]),
        "n > 20 and n % 20 = 0": (3, [4]),
        "n in (10, 50, 999)": (2, [1, 5]),
        "c is null": (0, []),
        "c like '%a%'": (3, [0, 2, 4]),
        "upper(c) = 'B' and n > 10": (2, [3, 5]),
        "not (n <= 40)": (1, [5]),
    }
    for text, (files, ids) in expected.items():
        found = parts.filter(text)
        assert files_read(found) == files, text
        assert values(found.select("id")) == ids, text
    assert len(parts.inputFiles()) == 6


@pytest.mark.spark43
def test_an_or_of_partition_and_file_prunes_its_own_scan_only(parts):
    """It goes to no other side of a join, not even by an equality of the partition, and scans with equal ones are read once."""
    either = parts.filter("n = 30 or c = 'a'")
    joined = either.alias("x").join(parts.alias("y"), F.expr("x.c = y.c")).selectExpr("x.id", "y.id other")
    assert values(joined) == [(a, b) for a in (0, 2, 3, 4) for b in range(6) if a % 2 == b % 2]
    assert sorted(scan.metrics().apply("numFiles").value() for scan in scans(joined)) == [4, 6]
    assert "mayMatch" not in joined._jdf.queryExecution().optimizedPlan().toString()
    grouped = either.groupBy("c").count()
    twice = grouped.alias("x").join(grouped.alias("y"), F.expr("x.c = y.c")).select("x.count", "y.count")
    assert values(twice) == [(1, 1), (3, 3)]
    assert twice._jdf.queryExecution().executedPlan().toString().count("ReusedExchange") >= 1
    cached = either.cache()
    try:
        assert values(cached.filter("c = 'b' or n = 0").select("id")) == [0, 3]
        assert values(parts.filter("c = 'b' or n = 0").select("id")) == [0, 1, 3, 5]
    finally:
        cached.unpersist()


def test_filters_prune_whatever_the_query(spark, parts):
    parts.createOrReplaceTempView("parts_view")
    try:
        sql = spark.sql("select id from parts_view where c = 'a' and n > 10")
        assert (files_read(sql), values(sql)) == (2, [2, 4])
        assert files_read(spark.sql("select count(*) from parts_view where c = 'b'")) == 3
    finally:
        spark.catalog.dropTempView("parts_view")
    a, b = parts.filter("c = 'a'"), parts.filter("n >= 30")
    joined = a.alias("x").join(b.alias("y"), F.expr("x.id = y.id")).select("x.id")
    assert values(joined) == [4]
    assert files_read(joined) <= 3 + 3
    assert values(a.select("id").union(b.select("id"))) == [0, 2, 3, 4, 4, 5]
    assert files_read(a.union(b)) == 6
    assert values(a.select("id")) == [0, 2, 4]
    assert parts.count() == 6


def test_adaptive_execution_off(spark, parts):
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        assert values(parts.groupBy("c").agg(F.sum("n"))) == [("a", 60), ("b", 90)]
        assert files_read(parts.filter("c = 'a'").groupBy("c").count()) == 3
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")


@pytest.mark.spark43
def test_dynamic_partition_pruning(spark, parts):
    """The join's other side says which partitions are read."""
    small = spark.createDataFrame([("b", 1), ("zz", 2)], "k string, v int").filter("v = 1")
    joined = parts.join(F.broadcast(small), parts.c == small.k)
    assert values(joined.select("id")) == [1, 3, 5]
    (scan,) = scans(joined)
    assert "dynamicpruning" in scan.toString()


@pytest.mark.spark43
def test_a_cached_frame_is_not_another_ones(spark, parts):
    a = parts.filter("c = 'a'").cache()
    try:
        assert a.count() == 3
        assert values(a.filter("n > 10").select("id")) == [2, 4]
        assert values(parts.filter("c = 'b'").select("id")) == [1, 3, 5]
        assert values(native(spark).filter("c = 'a'").select("id")) == [0, 2, 4]
    finally:
        a.unpersist()


def test_a_frame_reads_its_snapshot_as_long_as_it_is_there(spark, spark_lake, parts):
    append(spark_lake, {"id": 77, "c": "a", "at": day(1), "n": 770})
    assert parts.count() == 6
    assert values(parts.filter("c = 'a'").select("id")) == [0, 2, 4]
    assert native(spark).count() == 7
    oldest = spark_lake.catalog().load_table("db.t").snapshots()[0]
    first, manifest_list = oldest.snapshot_id, Path(oldest.manifest_list.removeprefix("file://"))
    spark_lake.catalog().load_table("db.t").maintenance.expire_snapshots().by_id(first).commit()
    assert not manifest_list.exists()
    assert parts.count() == 6, "what was planned when the DataFrame was made is still there"
    with pytest.raises(FileNotFoundError, match=rf"snapshot {first} of test\.db\.t cannot be planned again.*{manifest_list.name}"):
        parts.filter("n < 999").count()
    with pytest.raises(PolicyError, match=str(first)):
        native(spark, snapshot_id=first)


@pytest.mark.spark43
def test_filters_after_a_rename(spark, spark_lake):
    create(spark_lake, Schema(optional(1, "id", LONG), optional(2, "c", ice.StringType())), [{"id": 1, "c": "x"}], [{"id": 2, "c": "y"}])
    evolve(spark_lake, lambda update: update.rename_column("id", "ident").rename_column("c", "id"))
    append(spark_lake, {"ident": 3, "id": "z"})
    found = native(spark)
    assert (files_read(found.filter("ident = 1")), values(found.filter("ident = 1").select("id"))) == (1, ["x"])
    assert (files_read(found.filter("id >= 'y'")), values(found.filter("id >= 'y'").select("ident"))) == (2, [2, 3])


@pytest.mark.usefixtures("parts")
def test_threads_and_sessions_side_by_side(spark, spark_lake):
    create(spark_lake, PARTS, [{"id": 100 + n, "c": "a", "n": n} for n in range(10)], name="other")
    second = spark.newSession()
    icelock.spark.register(second, {"test": spark_lake.properties()})
    second.conf.set("spark.sql.caseSensitive", "true")
    wrong: list[object] = []

    def work(session, table, expected):
        try:
            for _ in range(3):
                found = sorted(row.id for row in native(session, table).filter("c = 'a'").select("id").collect())
                if found != expected:
                    wrong.append(found)
        except Exception as e:  # noqa: BLE001 - told below
            wrong.append(e)

    jobs = [(spark, "test.db.t", [0, 2, 4]), (second, "test.db.other", list(range(100, 110))), (second, "test.db.t", [0, 2, 4])]
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
