"""What a session has cached of a table shows each change that the session makes, and with it those of other writers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import icelock.spark
from tests.helpers.second_spark import on_second
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
T = "test.db.t"


@pytest.fixture
def cached(sql, spark) -> Iterator[None]:
    """Table ``t`` of the rows 0 and 1, cached."""
    sql(f"create table {T} (id int, g int) {KEY}")
    sql(f"insert into {T} values (0, 0), (1, 0)")
    spark.table(T).cache().count()
    yield
    spark.catalog.clearCache()


def is_cached(spark) -> bool:
    return "InMemoryTableScan" in spark.table(T)._jdf.queryExecution().executedPlan().toString()


STATEMENTS = {
    "update {t} set g = 5 where id = 0": [(0, 5), (1, 0), (9, 0)],
    "delete from {t} where id = 0": [(1, 0), (9, 0)],
    "delete from {t} where id in (select 0)": [(1, 0), (9, 0)],
    "merge into {t} t using (select 0 id) s on t.id = s.id when matched then update set g = 5": [(0, 5), (1, 0), (9, 0)],
    "insert into {t} values (2, 0)": [(0, 0), (1, 0), (2, 0), (9, 0)],
    "alter table {t} set tblproperties ('a' = 'b')": [(0, 0), (1, 0), (9, 0)],
    "call test.system.create_branch('db.t', 'x')": [(0, 0), (1, 0), (9, 0)],
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("statement", on_second(STATEMENTS, next(iter(STATEMENTS))))
def test_a_statement_after_another_writers_commit(sql, cached, spark, spark_lake, statement):  # noqa: ARG001 - the table
    spark_lake.catalog().load_table("db.t").append(pa.table({"id": pa.array([9], pa.int32()), "g": pa.array([0], pa.int32())}))
    assert sql(f"select count(*) from {T}") == [(2,)]
    sql(statement.format(t=T))
    assert sorted(sql(f"select * from {T}")) == STATEMENTS[statement]
    assert is_cached(spark)


@pytest.mark.spark43
def test_functions(sql, cached, spark):  # noqa: ARG001 - the table
    def ids() -> list[int]:
        return sorted(id_ for (id_,) in sql(f"select id from {T}"))

    icelock.spark.write_to(spark.sql("select 2 id, 0 g"), T).append()
    assert ids() == [0, 1, 2]
    icelock.spark.write_to(spark.sql("select 3 id, 1 g"), T).overwrite("id = 2")
    assert ids() == [0, 1, 3]
    icelock.spark.delete(spark, T, "id = 0")
    assert ids() == [1, 3]
    icelock.spark.upsert(spark.sql("select 4 id, 7 g"), T, ["id"])
    assert ids() == [1, 3, 4]
    icelock.spark.merge(spark, T, spark.sql("select 3 id"), on="t.id = s.id").when_matched_delete().execute()
    assert ids() == [1, 4]
    spark.sql("select 5 id, 0 g").write.format("icelock").mode("append").save(T)
    assert ids() == [1, 4, 5]
    spark.sql("select 6 id, 0 g").write.format("icelock").mode("overwrite").option("overwrite-mode", "static").save(T)
    assert ids() == [6]
    assert is_cached(spark)


@pytest.mark.spark43
def test_queries_and_branches(sql, cached, spark, spark_lake):  # noqa: ARG001 - the table
    sql("call test.system.create_branch('db.t', 'side')")
    first = spark_lake.catalog().load_table("db.t").current_snapshot().snapshot_id
    texts = {
        "subquery": f"select 1 from range(1) where 0 in (select id from {T})",
        "view": "select count(*) from by_view",
        "branch": f"select count(*) from {T}.branch_side",
        "snapshots": f"select count(*) from {T}.snapshots",
        "version": f"select count(*) from {T} version as of {first}",
    }
    spark.sql(f"select id + 1 as id from {T}").createOrReplaceTempView("by_view")
    try:
        for text in texts.values():
            spark.sql(text).cache().count()
        sql("call test.system.fast_forward('db.t', 'side', 'main')")
        icelock.spark.delete(spark, T, "id = 0")
        assert {name: sql(text) for name, text in texts.items()} == {
            "subquery": [],
            "view": [(1,)],
            "branch": [(2,)],
            "snapshots": [(2,)],
            "version": [(2,)],
        }
        icelock.spark.delete(spark, T, "id = 1", branch="side")
        assert sql(texts["branch"]) == [(1,)]
    finally:
        spark.catalog.dropTempView("by_view")


@pytest.mark.spark43
def test_an_older_dataframe_that_is_cached_is_not_the_table(sql, spark):
    """A DataFrame keeps its rows; Spark takes what is cached of a table for the table's name."""
    sql(f"create table {T} (id int, g int) {KEY}")
    sql(f"insert into {T} values (0, 0), (1, 0)")
    older = spark.table(T)
    try:
        sql(f"insert into {T} values (2, 0)")
        assert older.cache().count() == 2
        assert sql(f"select count(*) from {T}") == [(3,)]
        assert spark.table(T).cache().count() == 3
        sql(f"delete from {T} where id = 0")
        assert sorted(sql(f"select id from {T}")) == [(1,), (2,)]
        assert older.count() == 2
        assert is_cached(spark)
    finally:
        spark.catalog.clearCache()
