"""count(*) of a whole table is answered by its manifests, as Java Iceberg answers it; everything else is read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

import icelock.spark
from icelock.errors import PolicyError
from icelock.table.read.scan import DataScan
from tests.spark.native_tables import TABLE, append, create, native, optional, scans

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "s", StringType()))


def rows(start: int, count: int) -> list[dict[str, object]]:
    return [{"id": i, "s": None if i % 3 == 0 else f"s{i % 3}"} for i in range(start, start + count)]


def answer(frame) -> tuple[list[object], bool]:
    """Return the values of the only row, and whether files were read for it."""
    (row,) = frame.collect()
    return list(row), bool(scans(frame))


@pytest.mark.spark43
def test_counts_of_all_rows_read_no_file(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 7))
    found = native(spark)
    assert found.count() == 17
    for counted in ("count(*)", "count(1)", "count('x', 2)"):
        assert answer(found.selectExpr(counted)) == ([17], False)
    assert answer(found.selectExpr("count(*)", "count(1) as n")) == ([17, 17], False)
    assert answer(found.select("s").union(found.select("s")).selectExpr("count(*)")) == ([34], False)
    assert answer(icelock.spark.sql(spark, f"select count(*) from {TABLE}")) == ([17], False)
    assert answer(icelock.spark.sql(spark, f"select * from (select count(*) n from {TABLE}) where n > 1")) == ([17], False)
    append(spark_lake, *rows(20, 1))
    assert (found.count(), native(spark).count()) == (17, 18), "a DataFrame counts the snapshot that it was made of"


def test_an_empty_table(spark, spark_lake):
    create(spark_lake, SCHEMA)
    assert answer(native(spark).selectExpr("count(*)")) == ([0], False)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ("count(s)", [11]),
        ("count(distinct 1)", [1]),
        ("count(null)", [0]),
        ("count(*) filter (where id > 14)", [2]),
        ("count(*) + 1", [18]),
        ("sum(1)", [17]),
    ],
)
def test_other_aggregates(spark, spark_lake, counted, expected):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 7))
    assert [list(row) for row in native(spark).selectExpr(counted).collect()] == [expected]


def test_parts_of_a_table_are_read(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 7))
    found = native(spark)
    assert answer(found.filter("id < 3").selectExpr("count(*)")) == ([3], True)
    assert answer(native(spark, row_filter="id < 3").selectExpr("count(*)")) == ([3], True)
    assert answer(found.limit(4).selectExpr("count(*)"))[0] == [4]
    assert answer(found.distinct().selectExpr("count(*)"))[0] == [17]
    assert answer(found.selectExpr("explode(array(1, 2))").selectExpr("count(*)"))[0] == [34]
    assert sorted(row[:] for row in found.groupBy("s").count().collect() if row.s) == [("s1", 6), ("s2", 5)]
    assert found.filter("id < 3").crossJoin(found.select("s")).count() == 3 * 17


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_deleted_rows_are_not_counted(spark, spark_lake, mode):
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 7), properties={"write.delete.mode": mode}).delete("id in (1, 12)")
    assert answer(native(spark).selectExpr("count(*)")) == ([15], mode == "merge-on-read")


def test_a_plain_file_is_refused_and_not_counted(spark, spark_lake, monkeypatch):
    """As for reading it: no manifest of an encrypted table may name one, whoever wrote it."""
    create(spark_lake, SCHEMA, rows(0, 10), rows(10, 7))
    tasks = DataScan.scan_tasks

    def one_plain(self):
        first, *others = tasks(self)
        return [replace(first, key_metadata=None), *others]

    monkeypatch.setattr(DataScan, "scan_tasks", one_plain)
    found = native(spark)
    with pytest.raises(PolicyError, match="refused to read a plain file"):
        found.count()


def test_partitions(spark, spark_lake):
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"))
    create(spark_lake, SCHEMA, rows(0, 9), partition_spec=spec)
    assert answer(native(spark).selectExpr("count(*)")) == ([9], False)
    assert answer(native(spark).filter("s = 's1'").selectExpr("count(*)"))[0] == [3]


@pytest.mark.spark43
def test_one_small_file_is_one_partition_without_exchange(spark, spark_lake):
    """Spark would put an exchange between two aggregates, though there is one task."""
    create(spark_lake, SCHEMA, rows(0, 9))
    frame = native(spark).selectExpr("sum(id)", "max(s)")
    assert answer(frame) == ([36, "s2"], True)
    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()
    assert native(spark).rdd.getNumPartitions() == 1
