"""Deleted rows stay deleted on the native scan: deletion vectors, position delete files, files with deletes beside files without."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType
from tests.spark.native_tables import TABLE, append, create, files_read, native, optional, values
from tests.unit.arrow.deleting import roaring64
from tests.unit.table.test_older_deletes import commit, positions

import icelock.spark

pytestmark = [pytest.mark.spark, pytest.mark.spark43]

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "s", StringType()))
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def rows(start: int, count: int) -> list[dict[str, object]]:
    return [{"id": i, "s": f"s{i % 3}"} for i in range(start, start + count)]


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
    """The function itself: positions up to 2^33, in the portable form written by hand."""
    create(spark_lake, SCHEMA, rows(0, 1))
    native(spark)  # compiles it
    beyond = [2**31, 2**32 - 1, 2**32, 2**32 + 7, 2**33]
    kept = [2**31 + 1, 2**32 + 1, 2**32 + 65536, 2**33 + 1, 3 * 2**32]
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    loader = jvm.Thread.currentThread().getContextClassLoader()
    made = loader.loadClass("icelock.NativeScan$DeletedRows").getDeclaredConstructor(gateway.new_array(jvm.Class, 0))
    function = made.newInstance(gateway.new_array(jvm.Object, 0))
    bitmap = roaring64([0, 1, 65535, 65536, *range(70_000, 80_000), *beyond])
    # Only numbers beyond 31 bits come to Java as long.
    assert [position for position in beyond if function.call(bitmap, position)] == []
    assert [position for position in kept if not function.call(bitmap, position)] == []
    assert function.call(None, 2**31) is True


def test_equal_to_the_data_source(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 10), properties=MERGE_ON_READ).delete("id = 3 or id = 12")
    append(spark_lake, *rows(30, 2))
    columns = ["id", "_pos", "_row_id", "_last_updated_sequence_number", "_file"]
    expected = values(icelock.spark.read(spark, TABLE, columns=columns, engine="python"))
    assert len(expected) == 20
    assert values(native(spark, columns=columns)) == expected
