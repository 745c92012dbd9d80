"""Filters decide as Spark's SQL does: plain Spark on the same rows says what each takes, and every way in takes that."""

# ruff: noqa: DTZ001 - values as they are

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import GreaterThan
from pyiceberg.expressions.visitors import bind
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyspark.sql import functions as F  # noqa: N812

import icelock.spark
from icelock.plan.filters.exact import exact_filter
from icelock.plan.filters.text import parse_filter
from icelock.spark.columns.conditions import condition
from tests.helpers.turns import todays
from tests.spark.native_tables import TABLE, create, native, optional, values

pytestmark = pytest.mark.spark

INNER = ice.StructType(ice.NestedField(10, "r", ice.LongType(), required=True), optional(11, "o", ice.LongType()))
SCHEMA = Schema(
    optional(1, "id", ice.LongType()),
    optional(2, "i", ice.IntegerType()),
    optional(3, "s", ice.StringType()),
    optional(4, "d", ice.DecimalType(9, 2)),
    optional(5, "day", ice.DateType()),
    optional(6, "b", ice.BooleanType()),
    optional(7, "f", ice.DoubleType()),
    optional(8, "ts", ice.TimestampType()),
    optional(9, "st", INNER),
)
NAMES = [field.name for field in SCHEMA.fields]
PLAIN = "id long, i int, s string, d decimal(9,2), day date, b boolean, f double, ts timestamp_ntz, st struct<r: long, o: long>"
ROWS: list[tuple[Any, ...]] = [
    (1, 1, "a", Decimal("1.00"), dt.date(2024, 1, 1), True, 1.5, dt.datetime(2024, 1, 1), (1, 1)),
    (2, 2, "ab", Decimal("1.01"), dt.date(1969, 12, 31), False, -0.0, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), (2, None)),
    (3, 7, "", Decimal("-5.50"), dt.date(2024, 2, 29), None, 0.0, None, (7, 7)),
    (4, None, None, None, None, None, None, None, None),
    (5, 2**31 - 1, "\U0001f600", Decimal("9999999.99"), dt.date(9999, 12, 31), True, math.inf, dt.datetime(2024, 1, 1, 0, 0, 1), (9, 0)),
    (6, -1, "\uffff", None, dt.date(1, 1, 1), False, -math.inf, dt.datetime(1, 1, 1), None),
    (7, 0, "it's", Decimal("0.00"), None, None, 2.5, None, (0, -1)),
]
FILTERS = [
    *(f"i {op} 2" for op in ("=", "!=", "<>", "<", "<=", ">", ">=")),
    *(f"not (i {op} 2)" for op in ("=", "!=", "<", "<=", ">", ">=")),
    *(f"{name} is {kind}" for name in ("i", "s", "st", "st.r", "st.o") for kind in ("null", "not null")),
    "i in (1, 2)",
    "i not in (1, 2)",
    "not (i in (1, 2))",
    "not (i not in (1, 2))",
    "i not in (1, 2, 3000000000)",
    "i < 3000000000",
    "i != 3000000000",
    "i > 1.5",
    "i <= -0.5",
    "i = 1.5",
    "not (i = 1 and s = 'a')",
    "not (i = 1 or s = 'a')",
    "not (not (i > 1 and (b = true or d is null)))",
    "i = 1 or (b != true and not (s in ('a', 'ab')))",
    "s = ''",
    "s != 'a'",
    "s = 'it''s'",
    "s like 'a%'",
    "s not like 'a%'",
    "not (s like 'a%')",
    "s not like '%'",
    "s > '\uffff'",
    "s <= 'ab'",
    "s not in ('a', '')",
    "d > 1.005",
    "d not in (1.00, 1.01)",
    "d < 99999999999",
    "day >= '2024-01-01'",
    "day not in ('2024-01-01', '0001-01-01')",
    "not (day < '1970-01-01')",
    "ts > '2024-01-01T00:00:00'",
    "ts not in ('2024-01-01T00:00:00', '0001-01-01T00:00:00')",
    "b = true",
    "b != true",
    "not (b = false)",
    "f = 0",
    "f in (0, 3)",
    "f not in (0, 3)",
    "f < 0",
    "not (f >= 1.5)",
    "st.r != 1",
    "st.r not in (1, 2)",
    "st.o not in (1, 5)",
    "true",
    "false",
]
SPECS = {"plain": PartitionSpec(), "i": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))}
SPECS["s"] = PartitionSpec(PartitionField(3, 1000, BucketTransform(2), "p"))


def rows_of(files: list[list[int]]) -> list[list[dict[str, Any]]]:
    def row(number: int) -> dict[str, Any]:
        found = dict(zip(NAMES, ROWS[number - 1], strict=True))
        return {**found, "st": None if found["st"] is None else dict(zip(("r", "o"), found["st"], strict=True))}

    return [[row(number) for number in file] for file in files]


def ids(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def oracle(spark):
    """Return what plain Spark takes, by filter."""
    view = spark.createDataFrame(ROWS, PLAIN)
    answers = view.select("id", *(F.coalesce(F.expr(text), F.lit(False)).alias(f"c{n}") for n, text in enumerate(FILTERS))).collect()  # noqa: FBT003
    return {text: sorted(row.id for row in answers if row[f"c{n}"]) for n, text in enumerate(FILTERS)}


def test_every_filter_takes_the_rows_that_plain_spark_takes(spark, spark_lake, oracle):
    """Scans, counts and deletes of Python on three layouts, a third of the filters a day; and the conditions of Spark's own reader."""
    assert oracle["i not in (1, 2)"] == [3, 5, 6, 7], "the oracle is one: SQL, by hand"
    for name, spec in SPECS.items():
        table = create(spark_lake, SCHEMA, *rows_of([[1, 2, 3, 4], [5, 6, 7]]), name=name, partition_spec=spec)
        for text, taken in todays(f"filters, {name}", [*oracle.items()], 6):
            scan = table.scan(row_filter=text)
            assert (sorted(scan.to_arrow()["id"].to_pylist()), scan.count()) == (taken, len(taken)), (name, text)
            # Staged, and thrown away.
            tx = table.transaction()
            tx.delete(text)
            left = tx.staged.branch_scan(parse_filter("true"), case_sensitive=True, branch="main").to_arrow()
            assert sorted(left["id"].to_pylist()) == [row[0] for row in ROWS if row[0] not in taken], (name, text)
    schema = table.schema()
    bound = [bind(schema, exact_filter(parse_filter(text), schema, case_sensitive=True), case_sensitive=True) for text in FILTERS]
    kept = [F.coalesce(condition(one, schema), F.lit(False)).alias(f"c{n}") for n, one in enumerate(bound)]  # noqa: FBT003
    rows = native(spark, "test.db.plain").select("id", *kept).collect()
    for n, text in enumerate(FILTERS):
        assert sorted(row.id for row in rows if row[f"c{n}"]) == oracle[text], text


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_operations_of_tasks_keep_rows_that_the_filter_leaves_undecided(spark, spark_lake, mode):
    properties = {"write.delete.mode": mode}
    table = create(spark_lake, SCHEMA, *rows_of([[1, 2, 3, 4], [5, 6, 7]]), properties=properties)
    first = table.current_snapshot().snapshot_id
    assert values(icelock.spark.read(spark, TABLE, row_filter="i not in (1, 2)", columns=["id"], engine="python")) == [3, 5, 6, 7]
    icelock.spark.delete(spark, TABLE, "i not in (1, 2)")
    assert ids(table.refresh()) == [1, 2, 4]
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    new = spark.createDataFrame([(9, 9, None, None, None, None, None, None, None)], PLAIN)
    icelock.spark.write_to(new, TABLE).overwrite("not (i in (1, 2))")
    assert ids(table.refresh()) == [1, 2, 4, 9]
    new.write.format("icelock").mode("overwrite").option("overwrite-filter", "i < 3000000000").save(TABLE)
    assert ids(table.refresh()) == [4, 9]


def test_nanoseconds_are_filtered_and_deleted_by_though_spark_has_no_type_for_them(spark, spark_lake):
    schema = Schema(optional(1, "id", ice.LongType()), optional(2, "t", ice.TimestampNanoType()))
    rows = [{"id": 1, "t": 1}, {"id": 2, "t": 2}, {"id": 3, "t": 10**18}, {"id": 4, "t": None}]
    table = create(spark_lake, schema, rows)
    found = icelock.spark.read(spark, TABLE, columns=["id"], row_filter="t > '1970-01-01T00:00:00.000000001'")
    assert values(found) == [2, 3]
    icelock.spark.delete(spark, TABLE, "t not in ('1970-01-01T00:00:00.000000002', '1999-01-01T00:00:00')")
    assert ids(table.refresh()) == [2, 4]
    icelock.spark.delete(spark, TABLE, GreaterThan("t", dt.datetime(1970, 1, 1)))
    assert ids(table.refresh()) == [4]
