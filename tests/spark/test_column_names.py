"""Columns whose names mean something: in a transform's text, or to Spark as the place of a row."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform, YearTransform

import icelock.spark
from icelock.errors import PolicyError
from tests.helpers.second_spark import on_second
from tests.lakes.sqlite import KEY, KEYED

pytestmark = pytest.mark.spark

COLUMNS = "id int, x timestamp, `years(x)` int, `total (usd)` int, `a,b` int, `a``.b` int, p struct<`c, d`: int>"
# What is in PARTITIONED BY, and the path of the column that it is about.
PARTITIONS = {
    "`years(x)`": (("years(x)",), IdentityTransform()),
    "years(x)": (("x",), YearTransform()),
    "`total (usd)`": (("total (usd)",), IdentityTransform()),
    "bucket(4, `a,b`)": (("a,b",), BucketTransform(4)),
    "bucket(3, `a``.b`)": (("a`.b",), BucketTransform(3)),
    "bucket(2, p.`c, d`)": (("p", "c, d"), BucketTransform(2)),
}
ROW = (1, datetime(2020, 2, 29), 7, 8, 9, 10, (11,))  # noqa: DTZ001 - as Spark gives it


@pytest.mark.turns(3)
@pytest.mark.parametrize("by", on_second(PARTITIONS, "bucket(3, `a``.b`)", "years(x)"))
def test_a_partition_is_of_the_column_that_is_named(sql, spark_lake, by):
    path, transform = PARTITIONS[by]
    sql(f"create table test.db.made ({COLUMNS}) partitioned by ({by}) {KEY}")
    sql("insert into test.db.made select 1, timestamp'2020-02-29', 7, 8, 9, 10, named_struct('c, d', 11)")
    assert sql("select * from test.db.made") == [ROW]
    sql(f"create table test.db.selected partitioned by ({by}) {KEY} as select * from test.db.made")
    for name in ("made", "selected"):
        table = spark_lake.catalog().load_table(f"db.{name}")
        fields = table.schema().fields
        *outer, last = path
        for part in outer:
            fields = next(field for field in fields if field.name == part).field_type.fields
        (field,) = table.spec().fields
        assert (field.source_id, field.transform) == (next(each for each in fields if each.name == last).field_id, transform), name
        assert sql(f"select * from test.db.{name}") == [ROW]


@pytest.mark.parametrize("text", ["`years(x)", "`years(x)`x", "years(`x`, `x`)", "bucket(4, a,b)", "bucket(`a,b`, 4)", "`none`"])
def test_what_is_no_column_is_refused(spark, spark_lake, text):  # noqa: ARG001 - the lake is known to the session
    rows = spark.sql("select 1 id, timestamp'2020-02-29' x, 1 `a,b`")
    writer = icelock.spark.write_to(rows, "test.db.t").partitionedBy(text).tableProperty(*next(iter(KEYED.items())))
    with pytest.raises(PolicyError, match=r"is not a partition transform|cannot be partitioned by"):
        writer.create()


@pytest.mark.turns(3)
@pytest.mark.parametrize("column", ["_file", "_Pos", "_row_id"])
@pytest.mark.parametrize("kind", ["bigint", "bigint not null"])
def test_a_column_that_hides_a_rows_place(sql, column, kind):
    sql(f"create table test.db.t (id int, {column} {kind}) {KEY}")
    sql("insert into test.db.t values (1, 2)")
    changes = (
        "update test.db.t set id = 3",
        "delete from test.db.t where id in (select 1)",
        "merge into test.db.t t using (select 1 id) s on t.id = s.id when matched then update set t.id = 3",
    )
    for change in changes:
        with pytest.raises(Exception, match=f"has a column {column}, which hides the metadata column.*RENAME COLUMN {column}"):
            sql(change)
    sql(f"alter table test.db.t rename column {column} to place")
    sql("update test.db.t set id = 3")
    assert sql("select * from test.db.t") == [(3, 2)]
