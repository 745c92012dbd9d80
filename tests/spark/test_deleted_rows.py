"""``_deleted`` in Spark: where it is named, deleted rows are there too, as in Java's TestSparkReaderDeletes; worked out by hand."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock.spark
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
ALL = [(number, number in {3, 7}) for number in range(11)]


@pytest.fixture
def town(sql):
    """Table ``t``: ids 0 to 9 in one file, of which 3 and 7 are deleted by a vector, and 10 in another; returns ``sql``."""
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    sql("alter table test.db.t set tblproperties ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')")
    sql("insert into test.db.t select id, concat('town-', id) from range(0, 10, 1, 1)")
    sql("delete from test.db.t where id in (select explode(array(3l, 7l)))")
    sql("insert into test.db.t values (10, 'town-10')")
    return sql


@pytest.mark.spark43
def test_deleted_rows_are_there_where_the_column_is_named(town, spark):
    assert town("select id, _deleted from test.db.t order by id") == ALL
    assert town("select id from test.db.t where _deleted order by id") == [(3,), (7,)]
    assert town("select id from test.db.t where not _deleted and id between 2 and 4 order by id") == [(2,), (4,)]
    assert town("select _deleted, count(*) from test.db.t group by 1 order by 1") == [(False, 9), (True, 2)]
    assert town("select a.id from test.db.t a join test.db.t b on a.id = b.id where a._deleted") == []  # b's rows are live
    assert [tuple(row) for row in spark.table("test.db.t").select("id", "_deleted").orderBy("id").collect()] == ALL
    assert spark.table("test.db.t").select("_deleted").schema["_deleted"].nullable is False
    with_files = town("select id, _pos, _deleted from test.db.t where id in (7, 10) order by id")
    assert with_files == [(7, 7, True), (10, 0, False)]
    restored = spark.table("test.db.t").where("_deleted").select("id", F.concat("city", F.lit("!")).alias("city"))
    restored.writeTo("test.db.t").append()
    assert town("select * from test.db.t where id in (3, 7) order by id") == [(3, "town-3!"), (7, "town-7!")]


def test_naming_another_metadata_column_shows_no_deleted_row(town):
    live = [(number,) for number in range(11) if number not in {3, 7}]
    assert town("select id from test.db.t where _pos >= 0 order by id") == live
    assert sorted(town("select id from test.db.t order by _file")) == live
    assert len(town("select _file, _pos, _row_id from test.db.t")) == 9
    assert town("select id from (select id, _deleted, _pos from test.db.t) where id < 5 order by id") == live[:4]  # pruned, as in Java


@pytest.mark.spark43
def test_changes_of_rows_are_about_live_rows(town):
    with pytest.raises(AnalysisException, match="_deleted"):
        town("update test.db.t set city = 'x' where _deleted")
    town("delete from test.db.t where _deleted or id = 1")
    assert town("select id, city from test.db.t order by id") == [(number, f"town-{number}") for number in (0, 2, 4, 5, 6, 8, 9, 10)]
    assert town("select summary['added-position-deletes'] from test.db.t.snapshots order by committed_at")[-1] == ("3",)  # 1, and the two
    assert town("select id from test.db.t where _deleted order by id") == [(1,), (3,), (7,)]
    town("update test.db.t set city = 'z' where _pos = 0 and id = 0")
    assert town("select id from test.db.t where city = 'z'") == [(0,)]


def test_by_read_and_by_the_data_source(town, spark):
    for engine in ("auto", "python"):
        rows = icelock.spark.read(spark, "test.db.t", columns=["id", "_deleted"], row_filter="id > 5", engine=engine)
        assert sorted(map(tuple, rows.collect())) == ALL[6:]
    town("alter table test.db.t add column _deleted string")
    assert town("select id, _deleted from test.db.t where id = 2") == [(2, None)]  # the table's column goes first
    assert town("select count(*) from test.db.t where _deleted is null") == [(9,)]
