"""``icelock.spark.sql`` and ``attach``: tables in every place of a query, versions, and what is refused."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.errors import AnalysisException, ParseException

import icelock.spark
from icelock.catalog.sql import SqlCatalog
from icelock.errors import PolicyError
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark
TABLE: Final = "test.db.t"


@pytest.fixture
def town(spark_lake):
    """Tables ``t`` (ids 0 to 9, then to 19; town-0, -1, -2 in turn) and ``u`` (ids 5 to 14); returns the lake."""
    catalog = spark_lake.catalog()
    table = catalog.create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0))
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "first").commit()
    catalog.load_table("db.t").append(people(10))
    catalog.create_table("db.u", people().schema, properties=KEYED).append(people(5))
    return spark_lake


def values(spark, query, **options):
    return [tuple(row) for row in icelock.spark.sql(spark, query, **options).collect()]


@pytest.mark.spark43
@pytest.mark.usefixtures("town")
def test_tables_in_every_place_of_a_query(spark):
    assert values(spark, "select count(*), sum(id) from test.db.t") == [(20, 190)]
    assert values(spark, "select test.db.t.id, t.city from test.db.t where t.id < 2 order by id") == [(0, "town-0"), (1, "town-1")]
    assert values(spark, "select count(*) from test.db.t a join test.db.u b on a.id = b.id") == [(10,)]
    assert values(spark, "select count(*) from test.db.t where id in (select id from test.db.u where id > 12)") == [(2,)]
    assert values(spark, "select count(*) from test.db.t t where exists (select 1 from test.db.u u where u.id = t.id)") == [(10,)]
    assert values(spark, "select (select max(id) from test.db.u), min(id) from test.db.t") == [(14, 0)]
    assert values(spark, "with a as (select * from test.db.t where id > 17), b as (select * from a) select id from b order by id") == [
        (18,),
        (19,),
    ]
    assert values(spark, "select count(*) from test.db.t union all select count(*) from range(5)") == [(20,), (5,)]
    assert values(spark, "select count(*) from test.db.t a join test.db.t b on a.id = b.id + 1 where a.city = 'town-0'") == [(6,)]
    assert values(spark, "select count(*) from test.db.t where id < 3", engine="python") == [(3,)]


def test_versions(spark, town, monkeypatch):
    first, second = (snapshot.snapshot_id for snapshot in town.catalog().load_table("db.t").snapshots())
    assert values(spark, f"select count(*) from {TABLE} version as of {first}") == [(10,)]
    assert values(spark, "select count(*) from test.db.t version as of 'first'") == [(10,)]
    assert values(spark, "select count(*) from test.db.t version as of 'main'") == [(20,)]
    loads = []
    load = SqlCatalog.load_table
    monkeypatch.setattr(SqlCatalog, "load_table", lambda self, name, **how: loads.append(name) or load(self, name, **how))
    for version in ("first", "main"):
        icelock.spark.sql(spark, f"select * from {TABLE} version as of '{version}'")
        assert loads.pop() == ("db", "t")
        assert loads == []
    both = f"{TABLE} version as of {first} a right join {TABLE} version as of {second} b on a.id = b.id"
    assert values(spark, f"select count(*) from {both} where a.id is null") == [(10,)]


@pytest.mark.usefixtures("town")
def test_files_that_a_query_does_not_need_are_not_read(spark):
    assert len(icelock.spark.sql(spark, "select * from test.db.t").inputFiles()) == 2
    rows = icelock.spark.sql(spark, "select name from test.db.t where id > 12")
    assert sorted(row.name for row in rows.collect()) == [f"canary-{i:05d}" for i in range(13, 20)]
    scan = rows._jdf.queryExecution().executedPlan().toString()
    assert "FileScan icelock" in scan
    assert "ReadSchema: struct<id:bigint,name:string>" in scan
    assert read_files(rows) == 1


def read_files(rows) -> int:
    """Return how many files the scan of a query that has run read, as Spark's own metric says; -1 without a scan."""
    pending = [rows._jdf.queryExecution().executedPlan()]
    while pending:
        plan = pending.pop()
        if plan.getClass().getSimpleName() == "FileSourceScanExec":
            return int(plan.metrics().apply("numFiles").value())
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            pending.append(plan.executedPlan())
        children = plan.children()
        pending.extend(children.apply(index) for index in range(children.size()))
    return -1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("insert into test.db.t select * from test.db.u", "runs queries"),
        ("drop table test.db.t", "runs queries"),
        ("create table x as select * from test.db.t", "runs queries"),
        ("delete from test.db.t", "runs queries"),
        ("select * from test.db.t timestamp as of '2026-01-01'", "as_of_timestamp"),
        ("select * from test.db.t version as of 'nowhere'", "no branch 'nowhere'"),
        ("select * from test.t", "catalog.namespace.table"),
    ],
)
def test_what_is_no_query_of_ours_is_refused(spark, town, query, said):
    before = town.catalog().load_table("db.t").metadata_location
    with pytest.raises(PolicyError, match=said):
        icelock.spark.sql(spark, query)
    assert town.catalog().load_table("db.t").metadata_location == before


@pytest.mark.usefixtures("town")
def test_errors_of_a_query_are_sparks_own(spark):
    with pytest.raises(AnalysisException, match="nope"):
        icelock.spark.sql(spark, "select nope from test.db.t")
    with pytest.raises(AnalysisException, match="elsewhere"):
        icelock.spark.sql(spark, "select * from elsewhere.db.t")
    with pytest.raises(ParseException):
        icelock.spark.sql(spark, "selec")


def test_attach_makes_views_of_a_namespace(spark, town):
    try:
        assert icelock.spark.attach(spark, "test.db", prefix="of ") == ("of t", "of u")
        assert spark.sql("select count(*) from `of t` join `of u` using (id)").collect()[0][0] == 10
        town.catalog().load_table("db.t").append(people(20))
        assert spark.sql("select count(*) from `of t`").collect()[0][0] == 20
        with pytest.raises(PolicyError, match="of t, of u"):
            icelock.spark.attach(spark, "test.db", prefix="of ")
        assert icelock.spark.attach(spark, "test.db", prefix="of ", replace=True) == ("of t", "of u")
        assert spark.sql("select count(*) from `of t`").collect()[0][0] == 30
        with pytest.raises(PolicyError, match=r"catalog\.namespace"):
            icelock.spark.attach(spark, "test")
    finally:
        for name in ("of t", "of u"):
            spark.catalog.dropTempView(name)


def test_a_scan_as_a_dataframe(spark, town):
    scan = town.catalog().load_table("db.t").scan(row_filter="id > 7 and city = 'town-2'", selected_fields=("id",))
    assert sorted(row.id for row in icelock.spark.read(spark, scan).collect()) == [8, 11, 14, 17]
    assert sorted(row.id for row in icelock.spark.read(spark, scan, engine="python").collect()) == [8, 11, 14, 17]
    assert icelock.spark.read(spark, town.catalog().load_table("db.t").scan(limit=3)).count() == 3
    with pytest.raises(PolicyError, match="auto, native, python"):
        icelock.spark.read(spark, scan, engine="rust")
    with pytest.raises(PolicyError, match="a scan says itself what is read"):
        icelock.spark.read(spark, scan, columns=["id"])
