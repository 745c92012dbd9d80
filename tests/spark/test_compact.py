"""Compaction by Spark's tasks: the same rows with the same row ids, in files of the target size, in an order if one is asked for."""

from __future__ import annotations

import itertools
import re

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform

import icelock.spark
from icelock.errors import PolicyError
from icelock.maintenance import leftovers
from icelock.spark.driver import compact_here
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"
ALL = {"rewrite-all": "true"}
LINEAGE = ("id", "_row_id", "_last_updated_sequence_number")


@pytest.fixture
def table(spark_lake, monkeypatch):
    """Six files, of which one has a vector; tasks do what this process would do with so few bytes."""
    monkeypatch.setattr(compact_here, "SMALL", -1)
    made = spark_lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    for start in range(0, 600, 100):
        made.append(people(start, 100))
    made.delete("id in (7, 8)")
    return made


def lineage(table):
    return {row["id"]: tuple(row.values()) for row in table.refresh().scan(selected_fields=LINEAGE).to_arrow().to_pylist()}


def data_files(table):
    return [task.file for task in table.refresh().scan().plan_files()]


@pytest.mark.spark43
def test_files_are_put_together_by_tasks(spark, table):
    before = lineage(table)
    seen = []
    done = icelock.spark.compact(spark, TABLE, options=ALL, progress=lambda read, whole: seen.append((read, whole)))
    assert (done.groups, done.rewritten_files, done.added_files, done.removed_delete_files) == (1, 6, 1, 1)
    assert seen == [(done.rewritten_bytes, done.rewritten_bytes)]
    assert lineage(table) == before
    assert len(before) == 598
    assert [file.record_count for file in data_files(table)] == [598]
    assert table.current_snapshot().summary.operation.value == "replace"
    assert {file.path for file in leftovers(table).files} == set()


@pytest.mark.parametrize("native", [True, False])
def test_rows_are_sorted_by_ranges(spark, table, monkeypatch, native):
    """Each file has a range, and is sorted; the table's own order is named in it."""
    if not native:
        monkeypatch.setattr("icelock.spark.native.scan.foreign_storage", lambda _scan: "so that the data source reads")
    before = lineage(table)
    table.update_sort_order().desc("id", IdentityTransform()).commit()
    size = sum(file.file_size_in_bytes for file in data_files(table))
    done = icelock.spark.compact(spark, TABLE, sort_by="table", options=ALL | {"target-file-size-bytes": str(size // 3)})
    assert done.added_files >= 2
    assert lineage(table) == before
    bounds = sorted((int.from_bytes(f.lower_bounds[1], "little"), int.from_bytes(f.upper_bounds[1], "little")) for f in data_files(table))
    assert all(upper < lower for (_, upper), (lower, _) in itertools.pairwise(bounds)), bounds
    assert {file.sort_order_id for file in data_files(table)} == {table.sort_order().order_id}


def in_files(table, *columns):
    """Return the rows of each file, as they lie in it; files by their first rows' ``columns``."""
    rows = table.refresh().scan(selected_fields=(*columns, "_file", "_pos")).to_arrow().to_pylist()
    rows.sort(key=lambda row: (row["_file"], row["_pos"]))
    return [[tuple(row[name] for name in columns) for row in of] for _, of in itertools.groupby(rows, key=lambda row: row["_file"])]


# How Spark and Iceberg order doubles: NaN is greater than all numbers, and nulls go where the order says.
NUMBERS = [None, float("-inf"), -1.5, 0.0, 2.5, float("inf"), float("nan")]
ORDERS = {
    "x asc nulls first, id": lambda row: (place(row[0]), row[1]),
    "x asc nulls last, id desc": lambda row: (row[0] is None, place(row[0]), -row[1]),
    "x desc nulls first, id": lambda row: (row[0] is not None, -place(row[0]), row[1]),
    "x desc nulls last, id": lambda row: (-place(row[0]), row[1]),
}


def place(number):
    return next(n for n, known in enumerate(NUMBERS) if known is number or known == number or str(known) == str(number))


@pytest.mark.turns(2)
@pytest.mark.spark43
@pytest.mark.parametrize("order", ORDERS)
def test_ranges_with_nulls_and_nan(spark, spark_lake, order):
    """Files follow each other in the order, and have as many rows each as others: all 700 are the sample."""
    made = spark_lake.catalog().create_table("db.t", pa.schema({"id": pa.int64(), "x": pa.float64()}), properties=KEYED)
    for start in range(0, 700, 100):
        made.append(pa.table({"id": range(start, start + 100), "x": pa.array([NUMBERS[i * 5 % 7] for i in range(start, start + 100)])}))
    size = sum(file.file_size_in_bytes for file in data_files(made))
    options = ALL | {"target-file-size-bytes": str(size // 3), "min-file-size-bytes": "0"}
    done = icelock.spark.compact(spark, TABLE, sort_by=order, options=options)
    found = sorted(in_files(made, "x", "id"), key=lambda rows: ORDERS[order](rows[0]))
    assert len(found) == done.added_files >= 3
    expected = sorted(((NUMBERS[i * 5 % 7], i) for i in range(700)), key=ORDERS[order])
    assert repr([row for rows in found for row in rows]) == repr(expected)
    sizes = [len(rows) for rows in found]
    assert max(sizes) - min(sizes) <= 1, sizes


def test_where_ranges_begin_says_a_sample_of_the_columns_that_are_compared(spark, table, monkeypatch):
    """Spark's own sample reads whole rows; no plan shows a bound, which is a value of a row."""
    monkeypatch.setattr(compact_here, "_SAMPLED", 50)
    store = spark._jsparkSession.sharedState().statusStore()
    before = store.executionsCount()
    size = sum(file.file_size_in_bytes for file in data_files(table))
    options = ALL | {"target-file-size-bytes": str(size // 3), "min-file-size-bytes": "0"}
    counts = lineage(table)
    icelock.spark.compact(spark, TABLE, sort_by="name", options=options)
    assert lineage(table) == counts
    files = in_files(table, "name", "id")
    assert len(files) >= 3
    assert all(100 < len(rows) < 300 for rows in files), [len(rows) for rows in files]
    ran = store.executionsList(before, 100)
    plans = [ran.apply(number).physicalPlanDescription() for number in range(ran.size())]
    read = [
        {name.partition(":")[0] for shown in re.findall(r"ReadSchema: struct<([^>]*)>", plan) for name in shown.split(",")}
        for plan in plans
    ]
    assert [names - {"_tmp_metadata_row_index"} for names in read[:1]] == [{"name"}]  # Spark counts that one
    assert len(read) == 2
    assert read[1] >= {"id", "name", "city"}
    assert not any("canary" in plan for plan in plans)


@pytest.mark.spark43
def test_z_order_and_partitions_and_procedure(spark, sql, table):
    before = lineage(table)
    table.update_spec().add_field("city", IdentityTransform()).commit()
    done = icelock.spark.compact(spark, TABLE, z_order_by=["id", "name"], options=ALL)
    assert lineage(table) == before
    assert {file.spec_id for file in data_files(table)} == {table.spec().spec_id}
    assert done.added_files == len({file.partition[0] for file in data_files(table)})
    [counts] = sql("call test.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'), where => 'id < 100')")
    assert counts[0] == done.added_files
    assert lineage(table) == before
    assert sql("call test.system.rewrite_data_files('db.t')") == [(0, 0, 0, 0, 0)]


def test_what_fails_leaves_nothing(spark, table):
    before = {file.file_path for file in data_files(table)}
    victim = data_files(table)[0].file_path.removeprefix("file://")
    with open(victim, "r+b") as stored:  # noqa: PTH123
        stored.seek(-40, 2)
        stored.write(bytes(20))
    for how in ({}, {"sort_by": "id"}):
        with pytest.raises(Exception, match=r"does not authenticate|failed authentication"):
            icelock.spark.compact(spark, TABLE, options=ALL, **how)
        assert {file.file_path for file in data_files(table)} == before
        assert {file.path for file in leftovers(table).files} == set()


def test_orders_that_make_no_sense_are_refused_before_a_job(spark, table):
    for how, said in (
        ({"sort_by": "nothing"}, "nothing"),
        ({"z_order_by": ["id"], "sort_by": "id"}, "not both"),
        ({"sort_by": "table"}, "no sort order"),
    ):
        with pytest.raises(PolicyError, match=said):
            icelock.spark.compact(spark, TABLE, **how)
    assert len(table.refresh().snapshots()) == 7
