"""Statements on tables with equality deletes, as Flink and Java write them: what is deleted by value is neither read nor changed."""

from __future__ import annotations

import pytest

from tests.helpers.table_model import row, rows_of
from tests.unit.table.test_rewrite_deletes import with_older_deletes, without

pytestmark = pytest.mark.spark
GONE = (0, 4, 7, 9, 12, 15)


@pytest.fixture
def table(spark_lake):
    return with_older_deletes(spark_lake)


@pytest.mark.spark43
@pytest.mark.usefixtures("table")
def test_queries(sql):
    ids = [number for number in range(20) if number not in GONE]
    assert sql("select count(*) from test.db.t") == [(14,)]
    assert sql("select id from test.db.t where id between 3 and 8 order by id") == [(3,), (5,), (6,), (8,)]
    assert sql("select sum(a.id), count(*) from test.db.t a join test.db.t b on a.id = b.id") == [(sum(ids), 14)]
    assert sql("select count(*) from (select id from test.db.t where id in (select id + 1 from test.db.t)) where id < 10") == [(3,)]
    assert sql("select id from test.db.t where id not in (select id from test.db.t where id > 2) order by id") == [(1,), (2,)]


def test_an_update_and_a_delete(sql, table):
    sql("update test.db.t set n = 7 where id in (3, 4)")
    sql("delete from test.db.t where id % 5 = 3 and n <> 7")
    sql("delete from test.db.t where id in (select id from test.db.t where id > 17)")
    left = [one for one in without(*GONE, 8, 13, 18, 19) if one[0] != 3]
    found = rows_of(table.refresh())
    assert [one for one in found if one[0] != 3] == left
    assert [one[1] for one in found if one[0] == 3] == [7]


def test_a_merge(sql, table):
    """Id 4 was deleted by its value: it is inserted, and id 5 updated."""
    sql(
        "merge into test.db.t t using (select 4 id, 2 n, 'new' s union all select 5, 2, 'newer') f on t.id = f.id"
        " when matched then update set s = f.s when not matched then insert (id, n, s) values (f.id, f.n, f.s)"
    )
    left = [one for one in without(*GONE) if one[0] != 5]
    assert rows_of(table.refresh()) == sorted([*left, (4, 2, "new"), (5, row(5)[1], "newer")], key=lambda one: one[0])
