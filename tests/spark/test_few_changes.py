"""Changes of few rows, which this process collects and writes, and of more, which tasks write; how often a statement loads its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyspark.errors import SparkRuntimeException

import icelock.spark
from icelock.catalog.base import EncryptedCatalog
from icelock.spark.driver import jobs_here, write_here
from icelock.spark.settings import catalogs
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark

MODES: Final = ["copy-on-write", "merge-on-read"]
UPDATE: Final = "update test.db.t set n = n + 100 where id in (1, 2)"
MERGE: Final = """
    merge into test.db.t t using (select * from values (2l, 7), (3l, 7), (50l, 7) as v(id, n)) s on t.id = s.id
    when matched and t.id = 3 then delete when matched then update set n = t.n + s.n when not matched then insert *
"""
START: Final = [(number, number) for number in range(12)]
UPDATED: Final = [(0, 0), (1, 101), (2, 102), *START[3:]]
MERGED: Final = [(0, 0), (1, 1), (2, 9), *START[4:], (50, 7)]


@pytest.fixture
def made(sql, spark_lake) -> Callable[..., list[tuple[object, ...]]]:
    """Return a function that makes table ``t`` with the ids 0 to 11 in one file, and returns its rows."""

    def make(mode: str = MODES[1], more: str = "") -> list[tuple[object, ...]]:
        sql("drop table if exists test.db.t")
        modes = "".join(f", 'write.{purpose}.mode' = '{mode}'" for purpose in ("update", "merge", "delete"))
        sql(f"create table test.db.t (id bigint, n int) {more} {KEY[:-1]}{modes})")
        rows = pa.table({"id": pa.array(range(12), pa.int64()), "n": pa.array(range(12), pa.int32())})
        spark_lake.catalog().load_table("db.t").append(rows)
        return sql("select * from test.db.t order by id")

    return make


@pytest.fixture
def at_most(monkeypatch) -> Callable[[int], None]:
    """Return a function that sets how many rows are few."""
    return lambda most: monkeypatch.setattr(write_here, "_FEW_CHANGES", most)


@pytest.fixture
def few(monkeypatch) -> list[bool]:
    """Return which writes were of few rows, as they are done."""
    write, found = jobs_here.write_here, []

    def noted(plan: Any, rows: Any, *, few: bool) -> Any:
        found.append(few)
        return write(plan, rows, few=few)

    monkeypatch.setattr(jobs_here, "write_here", noted)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_both_ways_are_one_result(sql, made, few, at_most, mode):
    """12 rows may change, and 3 more come: the limit decides, and nothing else."""
    for statement, rows, most in ((UPDATE, UPDATED, 12), (MERGE, MERGED, 15)):
        for limit in (most, most - 1, -1):
            at_most(limit)
            assert made(mode) == START
            sql(statement)
            assert sql("select * from test.db.t order by id") == rows
            lineage = dict(sql("select id, _row_id from test.db.t"))
            assert [lineage[number] for number in (1, 2)] == [1, 2]
            assert sql("select count(*) from test.db.t.snapshots") == [(2,)]
    assert few == [True, False, False] * 2


@pytest.mark.spark43
def test_a_source_whose_rows_nobody_counted_and_large_files_go_to_tasks(sql, spark, made, few, monkeypatch):
    made()
    spark.createDataFrame([(2, 7), (3, 7), (50, 7)], "id long, n int").createOrReplaceTempView("rows_of_python")
    sql(MERGE.replace("select * from values (2l, 7), (3l, 7), (50l, 7) as v(id, n)", "select * from rows_of_python"))
    assert sql("select * from test.db.t order by id") == MERGED
    monkeypatch.setattr(write_here, "_FEW_BYTES", 0)
    sql("update test.db.t set n = 0 where id = 50")
    assert few == [False, False]


def test_rows_of_our_tables_are_counted(sql, made, few, at_most):
    """12 rows may change, and as many come as their files have: 3, or twice 3; deleted ones leave the number open."""
    sql(f"create table test.db.s (id bigint, n int) {KEY}")
    sql("insert into test.db.s values (2, 7), (3, 7), (50, 7)")
    few.clear()
    sources = {
        "select * from test.db.s": 15,
        "select distinct id, max(n) over (partition by id) n from (select * from test.db.s where n = 7 order by id)": 15,
        "select * from test.db.s where id < 50 union all select id, n from test.db.s where id = 50": 18,
        "select a.* from test.db.s a join test.db.s b using (id)": None,
    }
    for source, most in sources.items():
        for limit in (1 << 20,) if most is None else (most, most - 1):
            at_most(limit)
            made()
            sql(MERGE.replace("select * from values (2l, 7), (3l, 7), (50l, 7) as v(id, n)", source))
            assert sql("select * from test.db.t order by id") == MERGED, source
    assert few == [True, False] * 3 + [False]
    sql("insert into test.db.s values (4, 0)")
    sql("delete from test.db.s where id in (50, 4)")
    made()
    sql("merge into test.db.t t using test.db.s s on t.id = s.id when matched then delete")
    assert sql("select id from test.db.t where id < 5") == [(0,), (1,), (4,)]


@pytest.mark.parametrize("limit", [1 << 20, -1])
def test_properties_of_distribution_are_checked_in_either_way(sql, made, at_most, limit):
    made()
    at_most(limit)
    sql("alter table test.db.t set tblproperties ('write.distribution-mode' = 'sorted')")
    with pytest.raises(Exception, match=r"write\.distribution-mode is 'sorted'"):
        sql(UPDATE)
    assert sql("select * from test.db.t order by id") == START


@pytest.mark.parametrize("by_tasks", [False, True])
def test_an_upsert_of_few_rows(spark, made, few, at_most, by_tasks):
    at_most(13 if by_tasks else 14)
    made()
    done = icelock.spark.upsert(spark.createDataFrame([(2, 7), (50, 7)], "id long, n int"), "test.db.t", ["id"])
    assert (done.rows_updated, done.rows_inserted, few) == (1, 1, [not by_tasks])
    assert [tuple(row) for row in spark.table("test.db.t").orderBy("id").collect()] == [(0, 0), (1, 1), (2, 7), *START[3:], (50, 7)]


@pytest.mark.parametrize("by_tasks", [False, True])
def test_partitions_and_sort_order(sql, spark_lake, made, at_most, by_tasks):
    """Rows that were not distributed are in files by partition, sorted."""
    at_most(-1 if by_tasks else 1000)
    made(more="partitioned by (bucket(2, id))")
    table = spark_lake.catalog().load_table("db.t")
    with table.update_sort_order() as order:
        order.desc("n", "identity")
    sql("update test.db.t set n = 100 - n")
    table.refresh()
    written = [task.file for task in table.scan("n > 50").plan_files()]
    assert sorted(file.partition[0] for file in written) == [0, 1]
    assert {file.sort_order_id for file in written} == {1}
    rows = sql("select _file, _pos, n from test.db.t")
    for file in written:
        numbers = [n for _, _, n in sorted(row for row in rows if row[0] == file.file_path)]
        assert len(numbers) == file.record_count
        assert numbers == sorted(numbers, reverse=True)
    assert sorted(n for _, _, n in rows) == list(range(89, 101))


@pytest.mark.parametrize("mode", MODES)
def test_what_fails_leaves_nothing(sql, spark_lake, made, few, mode):
    made(mode)
    before = spark_lake.files()
    with pytest.raises(SparkRuntimeException, match="MERGE_CARDINALITY_VIOLATION"):
        sql(MERGE.replace("(3l, 7)", "(2l, 8)"))
    with pytest.raises(Exception, match="at fault"):
        sql("update test.db.t set n = if(id > 4, cast(raise_error('at fault') as int), n)")
    assert few == [True, True]
    assert spark_lake.files() == before


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Return what is asked of catalogs, as it is asked."""
    load, configured, found = EncryptedCatalog.load_table, catalogs.load_configured, []

    def loaded(self: Any, *given: Any, **named: Any) -> Any:
        found.append("load")
        return load(self, *given, **named)

    def opened(*given: Any) -> Any:
        found.append("open")
        return configured(*given)

    monkeypatch.setattr(EncryptedCatalog, "load_table", loaded)
    monkeypatch.setattr(catalogs, "load_configured", opened)
    return found


STATEMENTS: Final = {
    "insert": "insert into test.db.t values (20, 20)",
    "overwrite": "insert overwrite test.db.t values (20, 20)",
    "delete by filter": "delete from test.db.t where id < 4",
    "delete by rows": "delete from test.db.t where id % 4 = 1",
    "update": UPDATE,
    "merge": MERGE,
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_loads_its_table_when_it_is_resolved_and_at_its_commit(sql, made, asked, mode, statement):
    """And what the catalog has kept of a commit is read back; the catalog stays open."""
    made(mode)
    asked.clear()
    sql(STATEMENTS[statement])
    assert asked == ["load"] * 3


def test_what_is_long_ago_is_asked_again(sql, made, asked, monkeypatch):
    monkeypatch.setattr(jobs_here, "_FRESH_SECONDS", -1)
    made()
    asked.clear()
    sql(UPDATE)
    assert asked[:3] == ["load", "open", "load"]
    assert sql("select * from test.db.t order by id") == UPDATED


@pytest.fixture
def meanwhile(monkeypatch, spark_lake):
    """Return a function that runs something between a statement's resolution and its planning."""
    plan = jobs_here.planned_write

    def during(other: Callable[[Any], object]) -> None:
        def planned(*given: Any) -> Any:
            monkeypatch.setattr(jobs_here, "planned_write", plan)
            other(spark_lake.catalog().load_table("db.t"))
            return plan(*given)

        monkeypatch.setattr(jobs_here, "planned_write", planned)

    return during


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_is_checked_against_the_table_as_it_is_then(sql, made, meanwhile, mode):
    """However early the table that a statement was planned on was loaded."""
    made(mode)
    row = pa.table({"id": pa.array([60], pa.int64()), "n": pa.array([60], pa.int32())})
    meanwhile(lambda table: table.append(row))
    sql(STATEMENTS["insert"])
    assert sql("select * from test.db.t where id >= 20 order by id") == [(20, 20), (60, 60)]
    meanwhile(lambda table: table.delete("id = 1"))
    with pytest.raises(ValidationException):
        sql(UPDATE)
    assert sql("select * from test.db.t where id in (1, 2)") == [(2, 2)]


def test_columns_that_others_drop_meanwhile_are_a_conflict(sql, spark_lake, made, meanwhile):
    made()

    def drop(table: Any) -> None:
        with table.update_schema() as update:
            update.delete_column("n")

    before = spark_lake.files()
    meanwhile(drop)
    with pytest.raises(ValidationException):
        sql(UPDATE)
    assert [name for name in spark_lake.files() if name.endswith(".parquet")] == [name for name in before if name.endswith(".parquet")]
