"""Deleted rows stay deleted on the native scan: deletion vectors, position delete files, files with deletes beside files without."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.expressions import In
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType

import icelock.spark
from tests.spark.native_tables import TABLE, append, create, files_read, native, optional, scans, values
from tests.unit.arrow.deleting import roaring64
from tests.unit.table.test_older_deletes import commit, positions

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "s", StringType()))
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def rows(start: int, count: int) -> list[dict[str, object]]:
    return [{"id": i, "s": f"s{i % 3}"} for i in range(start, start + count)]


@pytest.mark.spark43
def test_vectors_on_some_files(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0, 10), rows(10, 10), rows(20, 10), properties=MERGE_ON_READ)
    table.delete("id in (0, 3, 9) or id = 15")
    found = native(spark)
    left = [n for n in range(30) if n not in (0, 3, 9, 15)]
    assert values(found.select("id")) == sorted(left, key=repr)
    assert found.count() == 26
    assert found.selectExpr("sum(id)").first()[0] == sum(range(30)) - 27
    assert values(found.filter("id < 5").select("id")) == [1, 2, 4]
    assert values(found.filter("id = 3").select("id")) == []
    assert values(native(spark, row_filter="id = 3 or id = 4").select("id")) == [4]
    assert found.filter("s = 's0'").count() == 10 - 4
    assert values(native(spark, columns=["id", "_pos"]).filter("id < 6")) == [(1, 1), (2, 2), (4, 4), (5, 5)]
    lineage = native(spark, columns=["id", "_row_id", "_last_updated_sequence_number"]).filter("id in (1, 16, 25)")
    assert values(lineage) == [(1, 1, 1), (16, 16, 2), (25, 25, 3)]
    assert files_read(found.filter("id > 21")) == 1
    # Further deletes make one vector of both.
    spark_lake.catalog().load_table("db.t").delete("id = 4")
    assert values(native(spark).filter("id < 6").select("id")) == [1, 2, 5]
    assert values(found.filter("id < 6").select("id")) == [1, 2, 4, 5], "the DataFrame reads the snapshot that it was made of"
    before = spark_lake.catalog().load_table("db.t").history()[2].snapshot_id
    assert values(native(spark, snapshot_id=before).filter("id < 5").select("id")) == [0, 1, 2, 3, 4]


MANY_GROUPS = {"write.parquet.row-group-limit": "1000", "write.parquet.row-group-size-bytes": "8192", "write.parquet.page-row-limit": "100"}


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(None, marks=pytest.mark.spark43),
        "spark.sql.codegen.wholeStage",
        "spark.sql.parquet.enableVectorizedReader",
        "spark.sql.files.maxPartitionBytes",
    ],
)
def test_positions_in_a_file_without_deletes(spark, spark_lake, setting):
    """They count all rows of the file, whichever row groups and pages a filter or a split leaves out."""
    table = create(spark_lake, SCHEMA, properties=MANY_GROUPS)
    table.append(pa.table({"id": pa.array(range(20_000), pa.int64()), "s": pa.array([f"value {n}" for n in range(20_000)])}))
    if setting is not None:
        spark.conf.set(setting, "8192" if setting.endswith("Bytes") else "false")
    try:
        found = native(spark, columns=["_pos", "id", "s", "_row_id"])
        assert found.filter("id <> _pos or id <> _row_id or s <> concat('value ', _pos)").count() == 0
        assert found.selectExpr("count(*)", "sum(_pos)", "max(_pos)").first()[:] == (20_000, sum(range(20_000)), 19_999)
        assert values(found.filter("id in (7, 1234, 19999)").select("_pos", "s")) == [
            (1234, "value 1234"),
            (19999, "value 19999"),
            (7, "value 7"),
        ]
        assert values(native(spark, columns=["_pos"]).filter("_pos % 9999 = 5")) == [10004, 5]
    finally:
        if setting is not None:
            spark.conf.unset(setting)


@pytest.mark.spark43
def test_many_splits_of_a_file_with_a_vector(spark, spark_lake):
    """A split begins in the middle of a file; positions count from its beginning."""
    table = create(
        spark_lake,
        SCHEMA,
        properties={**MERGE_ON_READ, "write.parquet.row-group-limit": "1000", "write.parquet.row-group-size-bytes": "8192"},
    )
    table.append(pa.table({"id": pa.array(range(20_000), pa.int64()), "s": pa.array([f"value {n}" for n in range(20_000)])}))
    spark_lake.catalog().load_table("db.t").delete("id >= 500 and id < 19500")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "8192")
    try:
        found = native(spark)
        assert found.rdd.getNumPartitions() > 3
        assert found.selectExpr("count(*)", "sum(id)").first()[:] == (1000, sum(range(500)) + sum(range(19500, 20000)))
        assert values(native(spark, columns=["id", "_pos"]).filter("id <> _pos")) == []
        assert values(found.filter("id between 498 and 501 or id > 19998").select("id")) == [19999, 498, 499]
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    # One split; the row groups before the filter's are left out.
    assert native(spark).filter("id >= 19498").selectExpr("count(*)", "min(id)", "max(id)").first()[:] == (500, 19500, 19999)


@pytest.mark.parametrize(
    "setting", ["spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled", "spark.sql.parquet.enableVectorizedReader"]
)
def test_vectors_whatever_the_settings(spark, spark_lake, setting):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 10), properties=MERGE_ON_READ).delete("id = 3 or id = 12")
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        assert native(spark).count() == 18
        assert values(native(spark).filter("id in (2, 3, 4, 12)").select("id")) == [2, 4]
    finally:
        spark.conf.set(setting, before)


def test_position_delete_files(spark, spark_lake):
    """Of one file, and of several, as a table that came from version 2 has them; a vector goes before them."""
    table = create(spark_lake, SCHEMA, rows(0, 10), rows(10, 10), rows(20, 10), properties=MERGE_ON_READ)
    by_first = {table.scan(row_filter=f"id = {n}").scan_tasks()[0].path: n for n in (0, 10, 20)}
    first, second, _ = sorted(by_first, key=by_first.get)
    commit(table, positions(table, "one", {first: [1, 2]}), positions(table, "both", {first: [5], second: [0, 9]}))
    found = native(spark)
    left = [n for n in range(30) if n not in (1, 2, 5, 10, 19)]
    assert values(found.select("id")) == sorted(left, key=repr)
    assert found.count() == 25
    assert values(found.filter("id > 8 and id < 12").select("id")) == [11, 9]
    assert values(native(spark, columns=["id", "_pos"]).filter("id in (0, 1, 6)")) == [(0, 0), (6, 6)]


def test_all_rows_of_a_file_deleted(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0, 5), rows(10, 5), properties=MERGE_ON_READ)
    (path,) = {task.path for task in table.scan(row_filter="id = 0").scan_tasks()}
    commit(table, positions(table, "whole", {path: range(5)}))
    found = native(spark)
    assert values(found.select("id")) == [10, 11, 12, 13, 14]
    assert found.filter("id < 5").count() == 0


def test_the_bitmap_beyond_32_bits(spark, spark_lake):
    """Positions up to 2^33, in the portable form written by hand; the reader asks for them in ascending order."""
    create(spark_lake, SCHEMA, rows(0, 1))
    native(spark)  # compiles it
    deleted = [0, 1, 65535, 65536, *range(70_000, 80_000), 2**31, 2**32 - 1, 2**32, 2**32 + 7, 2**33]
    kept = [2, 65534, 65537, 69_999, 80_000, 2**31 + 1, 2**32 + 1, 2**32 + 65536, 2**33 + 1, 3 * 2**32]
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    loader = jvm.Thread.currentThread().getContextClassLoader()
    constructor = loader.loadClass("icelock.DeletedPositions").getDeclaredConstructors()[0]
    for of in ([], deleted):
        arguments = gateway.new_array(jvm.Object, 1)
        arguments[0] = roaring64(of)
        made = constructor.newInstance(arguments)
        assert [position for position in sorted(deleted + kept) if made.has(position)] == of


def every_kind(count: int) -> pa.Table:
    """Rows of every kind of column that a batch has, each third one null; row n has values made of n."""

    def column(kind: pa.DataType, made: Callable[[int], object]) -> pa.Array:
        return pa.array([None if n % 3 == 2 else made(n) for n in range(count)], kind)

    pair = pa.struct([("n", pa.int32()), ("inner", pa.struct([("t", pa.string())]))])
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "flag": column(pa.bool_(), lambda n: n % 2 == 0),
            "i": column(pa.int32(), lambda n: n),
            "f": column(pa.float32(), float),
            "d": column(pa.float64(), lambda n: n / 2),
            "small": column(pa.decimal128(9, 2), Decimal),
            "large": column(pa.decimal128(30, 2), Decimal),
            "day": column(pa.date32(), lambda n: n),
            "ts": column(pa.timestamp("us", "UTC"), lambda n: n),
            "b": column(pa.binary(), lambda n: str(n).encode()),
            "s": column(pa.string(), lambda n: f"text {n}"),
            "pair": column(pair, lambda n: {"n": n, "inner": {"t": f"t{n}"}}),
            "many": column(pa.list_(pa.int32()), lambda n: [n, None, n + 1]),
            "named": column(pa.map_(pa.string(), pa.int64()), lambda n: {f"k{n}": n}),
        }
    )


@pytest.mark.spark43
@pytest.mark.parametrize("more", [0, 100], ids=["batches", "rows"])
def test_vectors_on_every_kind_of_column(spark, spark_lake, more):
    """A batch's columns are seen through the live rows; of more than 100 columns (``maxFields``) Spark's reader gives row by row."""
    data = every_kind(10_000)  # two batches of 4,096 and a part of one
    for number in range(more):
        data = data.append_column(f"c{number}", data.column("id"))
    table = create(spark_lake, data.schema, properties=MERGE_ON_READ)
    table.append(data)
    # A batch with all rows deleted, one with none, one with every fourth.
    spark_lake.catalog().load_table("db.t").delete("id < 4096")
    fourth = [n for n in range(8192, 10_000) if n % 4 == 0]
    spark_lake.catalog().load_table("db.t").delete(In("id", fourth))
    left = [n for n in range(4096, 10_000) if n < 8192 or n % 4]
    frame = native(spark).orderBy("id")
    found = frame.toArrow()
    frame.collect()
    assert [scan.supportsColumnar() for scan in scans(frame)] == [not more]
    assert found.column("id").to_pylist() == left
    expected = data.take(pa.array(left))
    for name in data.column_names:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name
    assert native(spark).filter("pair.inner.t is null").count() == sum(n % 3 == 2 for n in left)
    assert native(spark).selectExpr("sum(many[2])", "sum(pair.n)").first()[:] == (
        sum(n + 1 for n in left if n % 3 != 2),
        sum(n for n in left if n % 3 != 2),
    )
    positions_too = native(spark, columns=[*data.column_names, "_pos"]).filter("id > 9990").orderBy("id")
    assert [row[:] for row in positions_too.select("id", "_pos", "s").collect()] == [
        (n, n, None if n % 3 == 2 else f"text {n}") for n in left if n > 9990
    ]
    assert {row["_pos"] for row in positions_too.collect()} == {n for n in left if n > 9990}


def test_equal_to_the_data_source(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 10), properties=MERGE_ON_READ).delete("id = 3 or id = 12")
    append(spark_lake, *rows(30, 2))
    columns = ["id", "_pos", "_row_id", "_last_updated_sequence_number", "_file"]
    expected = values(icelock.spark.read(spark, TABLE, columns=columns, engine="python"))
    assert len(expected) == 20
    assert values(native(spark, columns=columns)) == expected
