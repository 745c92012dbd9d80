"""Spark's own statements on icelock's tables. Expected rows are SQL's: written down by hand, or what plain Spark makes of the same rows."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock.spark
from icelock.errors import PolicyError
from icelock.table.change_result import ChangeResult
from tests.helpers.second_spark import on_second
from tests.lakes.sqlite import KEY, KEYED

pytestmark = pytest.mark.spark


@pytest.fixture
def town(sql):
    """Table ``t`` with the ids 0 to 9 and town-0, -1, -2 in turn, in one file; returns ``sql``."""
    sql(f"create table test.db.t (id bigint, city string) {KEY}")
    sql("insert into test.db.t select id, concat('town-', id % 3) from range(0, 10, 1, 1)")
    return sql


@pytest.mark.spark43
def test_a_table_is_read_by_its_name_in_every_place_of_a_query(town, spark):
    assert town("select id, city from test.db.t where id < 2 order by id") == [(0, "town-0"), (1, "town-1")]
    assert town("select count(*) from test.db.t a join test.db.t b on a.id = b.id + 1") == [(9,)]
    assert town("select count(*) from test.db.t where id in (select id + 5 from test.db.t where city = 'town-0')") == [(2,)]
    assert spark.table("test.db.t").filter("id > 7").count() == 2
    town("use test.db")
    try:
        assert town("select max(id) from t") == [(9,)]
    finally:
        town("use spark_catalog.default")


@pytest.mark.spark43
def test_the_scan_is_that_of_read(town, spark):
    def plan(rows):
        text = rows.filter("id > 3").select("city")._jdf.queryExecution().executedPlan().toString()
        return "\n".join(part.partition("#")[0] for part in text.replace(",", "\n").splitlines())

    assert "FileScan icelock" in plan(spark.table("test.db.t"))
    assert plan(spark.table("test.db.t")) == plan(icelock.spark.read(spark, "test.db.t"))
    assert town("explain select * from test.db.t where id > 3")[0][0].count("PushedFilters: [IsNotNull(id), GreaterThan(id,3)]") == 1


@pytest.mark.spark43
def test_a_self_join_reads_equal_sides_once(town, spark):
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        town("create table test.db.p (id bigint, city string) partitioned by (city) " + KEY)
        town("insert into test.db.p select id, city from test.db.t")
        town("insert into test.db.t select 11, 'a second file, as one file is not exchanged'")
        for table in ("test.db.t", "test.db.p"):
            rows = spark.sql(f"select * from {table} a join {table} b on a.id = b.id")
            assert len(rows.collect()) == {"test.db.t": 11, "test.db.p": 10}[table]
            assert rows._jdf.queryExecution().executedPlan().toString().count("ReusedExchange") == 1
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.spark43
def test_versions(town, spark_lake):
    table = spark_lake.catalog().load_table("db.t")
    first = table.current_snapshot()
    table.manage_snapshots().create_tag(first.snapshot_id, "first").create_branch(first.snapshot_id, "side").commit()
    town("insert into test.db.t select id + 10, city from test.db.t")
    assert town("select count(*) from test.db.t") == [(20,)]
    for version in (f"version as of {first.snapshot_id}", "version as of 'first'", "for system_version as of 'side'"):
        assert town(f"select count(*) from test.db.t {version}") == [(10,)]
    assert town(f"select count(*) from test.db.t timestamp as of timestamp_millis({first.timestamp_ms})") == [(10,)]
    assert town("select count(*) from test.db.t.tag_first") == [(10,)]
    assert town(f"select count(*) from test.db.t.snapshot_id_{first.snapshot_id}") == [(10,)]
    assert town(f"select count(*) from test.db.t.at_timestamp_{first.timestamp_ms}") == [(10,)]
    table.refresh().manage_snapshots().create_tag(table.current_snapshot().snapshot_id, str(first.snapshot_id)).commit()
    assert town(f"select count(*) from test.db.t version as of '{first.snapshot_id}'") == [(10,)]  # Java: a number is a snapshot's
    town("insert into test.db.t.branch_side values (100, 'far')")
    assert town("select count(*), max(id) from test.db.t.branch_side") == [(11, 100)]
    assert town("select count(*) from test.db.t") == [(20,)]
    with pytest.raises(PolicyError, match=r"no branch or tag 'nowhere'; it has: .*first, main, side"):
        town("select * from test.db.t version as of 'nowhere'")
    with pytest.raises(AnalysisException, match="append"):
        town("insert into test.db.t.tag_first values (1, 'x')")
    with pytest.raises(AnalysisException, match="append"):
        town(f"insert into test.db.t.snapshot_id_{first.snapshot_id} values (1, 'x')")
    with pytest.raises(PolicyError, match="exclude each other"):
        town(f"select * from test.db.t.branch_side version as of {first.snapshot_id}")


@pytest.mark.parametrize("setting", ["spark.wap.branch", "spark.wap.id"])
def test_a_session_that_stages_writes_does_not_publish_them(town, spark, spark_lake, setting):
    spark_lake.catalog().load_table("db.t").manage_snapshots().create_branch(town("select * from test.db.t.history")[0][1], "side").commit()
    spark.conf.set(setting, "audit")
    try:
        town("insert into test.db.t values (10, 'x')")  # a table that does not ask for audits
        town("alter table test.db.t set tblproperties ('write.wap.enabled' = 'true')")
        with pytest.raises(PolicyError, match=f"{setting}: icelock does not stage writes"):
            town("insert into test.db.t values (11, 'x')")
        town("insert into test.db.t.branch_side values (12, 'x')")
    finally:
        spark.conf.unset(setting)
    assert town("select count(*), max(id) from test.db.t") == [(11, 10)]


@pytest.mark.spark43
def test_an_overwrite_with_rows_of_the_table_itself_loses_no_other_writers(town, spark):
    rows = spark.table("test.db.t").selectExpr("id + 100 as id", "city")
    town("insert into test.db.t values (999, 'town-9')")
    with pytest.raises((ValidationException, CommitFailedException)):
        rows.write.insertInto("test.db.t", overwrite=True)
    assert town("select count(*), max(id) from test.db.t") == [(11, 999)]
    town("insert overwrite test.db.t select id + 100, city from test.db.t")
    assert town("select count(*), min(id) from test.db.t") == [(11, 100)]


def test_names_that_folders_cannot_have(sql, spark_lake):
    for statement in (
        f"create table test.db.`../../x` (id bigint) {KEY}",
        f"create table test.db.`..` (id bigint) {KEY}",
        "create namespace test.`..`",
    ):
        with pytest.raises(PolicyError, match="cannot be a name"):
            sql(statement)
    assert not list(spark_lake.folder.parent.glob("x/*"))
    assert sql("show tables in test.db") == []
    sql(f"create table test.db.`c.d` {KEY} as select 1 as id")
    sql("insert into test.db.`c.d` values (2)")
    sql("update test.db.`c.d` set id = 3 where id = 1")
    assert sql("select * from test.db.`c.d` order by id") == [(2,), (3,)]


@pytest.mark.spark43
def test_metadata_columns(town):
    assert town("select id, _pos, _row_id, _spec_id from test.db.t where id = 3") == [(3, 3, 3, 0)]
    assert [name for name, *_ in town("describe test.db.t")][:2] == ["id", "city"]


@pytest.mark.spark43
def test_create_table_says_what_was_asked_for(sql, spark_lake):
    sql(f"""create table test.db.t (
        id bigint not null comment 'the id', city string default 'nowhere', at timestamp, n int default 7,
        born date default date'2020-02-29'
    ) partitioned by (days(at), bucket(4, id)) {KEY}""")
    table = spark_lake.catalog().load_table("db.t")
    id_, city, _, n, born = table.schema().fields
    assert (id_.required, id_.doc) == (True, "the id")
    assert (city.write_default, n.write_default, born.write_default) == ("nowhere", 7, date(2020, 2, 29))
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]"]
    assert table.current_snapshot() is None
    sql("insert into test.db.t (id) values (1)")
    assert sql("select id, city, n, born from test.db.t") == [(1, "nowhere", 7, date(2020, 2, 29))]
    with pytest.raises(SparkRuntimeException, match="NOT_NULL_ASSERT_VIOLATION"):
        sql("insert into test.db.t values (null, 'x', null, 1, null)")
    assert "DEFAULT" in sql("show create table test.db.t")[0][0]
    sql(f"create table test.db.u (id bigint, city string) partitioned by (city, bucket(4, id)) {KEY}")
    assert [kind for name, kind, _ in sql("describe test.db.u") if name.startswith("Part ")] == ["city", "bucket(4, id)"]


def test_names_that_need_quotes_and_comments_of_fields(sql, spark_lake):
    sql(f"""create table test.db.t (
        `a-b` int, `c d` string, `e.f` int, s struct<`x y`: int comment 'an x', z: array<struct<i: int comment 'an i'>>>
    ) partitioned by (`a-b`, bucket(2, `c d`), `e.f`, truncate(10, s.`x y`)) {KEY}""")
    sql("insert into test.db.t values (1, 'x', 2, named_struct('x y', 7, 'z', array(named_struct('i', 1)))), (3, 'y', 4, null)")
    assert sql("select `a-b`, `c d` from test.db.t where `e.f` = 2 and s.`x y` = 7") == [(1, "x")]
    sql("delete from test.db.t where `a-b` = 3")
    shown = [kind for name, kind, _ in sql("describe test.db.t") if name.startswith("Part ")]
    assert shown == ["`a-b`", "bucket(2, `c d`)", "`e.f`", "truncate(10, s.`x y`)"]
    schema = spark_lake.catalog().load_table("db.t").schema()
    assert [schema.find_field(name).doc for name in ("s.x y", "s.z.element.i")] == ["an x", "an i"]


@pytest.mark.spark43
@pytest.mark.parametrize(
    "statement",
    [
        "create table test.db.p (id bigint)",
        "create table test.db.p as select 1 as id",
        "create or replace table test.db.p (id bigint)",
        "create or replace table test.db.p as select 1 as id",
        "create table test.db.p (id bigint) using parquet",
    ],
)
def test_no_statement_makes_a_plain_table(sql, spark_lake, statement):
    with pytest.raises(PolicyError, match=r"would be plain|has Iceberg tables"):
        sql(statement)
    assert not spark_lake.catalog().table_exists("db.p")


def test_the_key_cannot_be_taken_away(town, spark_lake):
    with pytest.raises(PolicyError, match="cannot be removed"):
        town("alter table test.db.t unset tblproperties ('encryption.key-id')")
    town("create or replace table test.db.t as select 1 as a")  # keeps its key
    assert spark_lake.catalog().load_table("db.t").properties["encryption.key-id"] == KEYED["encryption.key-id"]
    assert town("select * from test.db.t") == [(1,)]


@pytest.mark.spark43
def test_create_as_select_and_replace_are_one_commit_each(sql, spark_lake):
    sql(f"create table test.db.t partitioned by (b) {KEY} as select id as a, id % 2 as b from range(4)")
    assert sql("select * from test.db.t order by a") == [(0, 0), (1, 1), (2, 0), (3, 1)]
    sql(f"create or replace table test.db.t {KEY} as select 'x' as c")
    table = spark_lake.catalog().load_table("db.t")
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [entry.snapshot_id for entry in table.history()]
    assert len(table.snapshots()) == 2
    assert sql("select * from test.db.t") == [("x",)]
    sql(f"create or replace table test.db.new {KEY} as select 1 as a")
    # Spark overwrites what it replaces, or would have replaced, and Java says so
    counts = "summary['added-records'], summary['deleted-records'], summary['total-records']"
    of_t, of_new = (sql(f"select operation, {counts} from test.db.{name}.snapshots order by committed_at") for name in ("t", "new"))
    assert of_t == [("append", "4", None, "4"), ("overwrite", "1", None, "1")]
    assert of_new == [("overwrite", "1", None, "1")]


@pytest.mark.spark43
def test_insert(town):
    town("insert into test.db.t values (10, 'ten')")
    town("insert into test.db.t by name select 'eleven' as city, 11l as id")
    town("insert into test.db.t (city, id) values ('twelve', 12)")
    town("insert into test.db.t (id) values (13)")
    assert town("select * from test.db.t where id > 9 order by id") == [(10, "ten"), (11, "eleven"), (12, "twelve"), (13, None)]
    with pytest.raises(AnalysisException, match="INSERT_COLUMN_ARITY_MISMATCH"):
        town("insert into test.db.t values (1)")


@pytest.mark.spark43(daily=True)
def test_insert_overwrite(sql):
    sql(f"create table test.db.t (id bigint, city string) partitioned by (city) {KEY}")
    sql("insert into test.db.t values (1, 'a'), (2, 'b'), (3, null)")
    sql("set spark.sql.sources.partitionOverwriteMode = dynamic")
    try:
        sql("insert overwrite test.db.t values (4, 'a')")
        assert sql("select * from test.db.t order by id") == [(2, "b"), (3, None), (4, "a")]
    finally:
        sql("reset spark.sql.sources.partitionOverwriteMode")
    sql("insert overwrite test.db.t partition (city = 'b') select 5")
    assert sql("select * from test.db.t order by id") == [(3, None), (4, "a"), (5, "b")]
    sql("insert into test.db.t replace where id < 5 select id + 100, city from test.db.t where id < 5")
    assert sql("select * from test.db.t order by id") == [(5, "b"), (103, None), (104, "a")]
    sql("insert overwrite test.db.t select * from test.db.t where city = 'b'")
    assert sql("select * from test.db.t") == [(5, "b")]
    sql("truncate table test.db.t")
    assert sql("select * from test.db.t") == []


def test_a_dynamic_overwrite_is_about_partitions_of_the_present_spec(sql, spark):
    """As Java: rows in files of an older spec stay, until they are written under the present one."""
    sql(f"create table test.db.t (id int, c string, r string) partitioned by (c) {KEY}")
    sql("insert into test.db.t values (1, 'A', 'us'), (2, 'A', 'eu'), (3, 'B', 'us')")
    sql("call test.system.add_partition_field('db.t', 'r')")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        sql("insert overwrite test.db.t values (4, 'A', 'us')")
        assert sql("select id from test.db.t order by id") == [(1,), (2,), (3,), (4,)]
        sql("call test.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
        sql("insert overwrite test.db.t values (5, 'A', 'us')")
        assert sql("select id from test.db.t order by id") == [(2,), (3,), (5,)]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("id = 1", [2, 3]),
        ("city = 'a'", [2, 3]),
        ("not (city = 'a')", [1, 3]),
        ("city is null", [1, 2]),
        ("not (city <=> 'a')", [1]),
        ("city not in ('a', null)", [1, 2, 3]),
        ("city in ('a', null)", [2, 3]),
        pytest.param("n > 1", [1], marks=pytest.mark.spark43),  # NaN is greater than any number
        ("id % 2 = 1", [2]),
        pytest.param("id in (select max(id) from test.db.t)", [1, 2], marks=pytest.mark.spark43),
        ("true", []),
    ],
)
def test_delete_has_the_rules_of_sql(sql, condition, left):
    sql(f"create table test.db.t (id bigint, city string, n double) {KEY}")
    sql("insert into test.db.t values (1, 'a', 1d), (2, 'b', 2d), (3, null, double('NaN'))")
    sql(f"delete from test.db.t where {condition}")
    assert [row[0] for row in sql("select id from test.db.t order by id")] == left


@pytest.mark.spark43
def test_alter_table(town, spark_lake):
    town("alter table test.db.t add columns (place struct<x: int, y: string> comment 'where' after id, n int)")
    town("alter table test.db.t add column place.z double first")
    town("alter table test.db.t alter column n type bigint")
    town("alter table test.db.t rename column city to town")
    town("alter table test.db.t alter column town comment 'its name'")
    town("alter table test.db.t alter column n first")
    town("alter table test.db.t add column d date default date'2026-01-01'")
    town("alter table test.db.t alter column n set default 5")
    town("alter table test.db.t set tblproperties ('a' = 'b', 'c' = 'd')")
    town("alter table test.db.t unset tblproperties ('c', 'never there')")
    assert [(name, kind) for name, kind, _ in town("describe test.db.t")][:5] == [
        ("n", "bigint"),
        ("id", "bigint"),
        ("place", "struct<z:double,x:int,y:string>"),
        ("town", "string"),
        ("d", "date"),
    ]
    assert town("select id, town, n, d from test.db.t where id = 1") == [(1, "town-1", None, date(2026, 1, 1))]
    town("alter table test.db.t drop columns (place, town)")
    town("insert into test.db.t (id) values (100)")
    assert town("select * from test.db.t where id = 100") == [(5, 100, date(2026, 1, 1))]
    properties = spark_lake.catalog().load_table("db.t").properties
    assert (properties["a"], properties.get("c")) == ("b", None)
    town("alter table test.db.t add column inner struct<x: int not null, y: array<struct<z: int not null>>>")
    added = spark_lake.catalog().load_table("db.t").schema()
    assert [added.find_field(name).required for name in ("inner", "inner.x", "inner.y", "inner.y.element.z")] == [False, True, False, True]


@pytest.mark.spark43
def test_tables_and_namespaces(town, spark):
    town("create namespace test.more comment 'a shop' with dbproperties ('x' = 'y')")
    assert sorted(town("show namespaces in test")) == [("db",), ("more",)]
    described = dict(row for row in town("describe namespace extended test.more"))
    assert described["Comment"] == "a shop"
    assert "x,y" in described["Properties"]
    town("alter namespace test.more set dbproperties ('x' = 'z')")
    town("create table test.more.other (id int) tblproperties ('encryption.key-id' = 'keyA')")
    with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_ALREADY_EXISTS.*test.more.other"):
        town("alter table test.db.t rename to test.more.other")
    with pytest.raises(AnalysisException, match=r"SCHEMA_NOT_FOUND.*`nope`"):
        town("alter table test.db.t rename to test.nope.u")
    with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_NOT_FOUND.*`nope`"):
        town("alter table test.db.nope rename to test.db.t")
    town("drop table test.more.other purge")
    town("alter table test.db.t rename to test.db.u")
    assert [row[1] for row in town("show tables in test.db")] == ["u"]
    assert spark.catalog.tableExists("test.db.u")
    assert not spark.catalog.tableExists("test.db.t")
    assert [table.name for table in spark.catalog.listTables("test.db")] == ["u"]
    town("drop table test.db.u purge")
    town("drop table if exists test.db.u")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        town("select * from test.db.u")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        town("drop table test.db.u")
    town("drop namespace test.more")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        town("show tables in test.more")
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        town("create namespace test.db")


@pytest.mark.spark43
def test_views_see_new_rows(town, spark, spark_lake):
    """A permanent one is in Spark's own catalog, and any session that knows the table's catalog can select from it."""
    town("create temporary view young as select * from test.db.t where id < 100")
    town("create view spark_catalog.default.all_of_them as select id from test.db.t")
    other = spark.newSession()
    try:
        with pytest.raises(AnalysisException, match="REQUIRES_SINGLE_PART_NAMESPACE"):
            other.sql("select * from spark_catalog.default.all_of_them")
        icelock.spark.register(other, {"test": spark_lake.properties()})
        town("insert into test.db.t values (10, 'ten')")
        assert town("select count(*) from young") == [(11,)]
        assert town("select count(*) from spark_catalog.default.all_of_them") == [(11,)]
        assert other.sql("select count(*) from spark_catalog.default.all_of_them").collect() == [(11,)]
        for statement in ("create view test.db.v as select id from test.db.t", "show views in test.db"):
            with pytest.raises(AnalysisException, match=r"MISSING_CATALOG_ABILITY.VIEWS"):
                town(statement)
    finally:
        town("drop view spark_catalog.default.all_of_them")
        spark.catalog.dropTempView("young")


def test_a_cached_table_is_read_again_after_a_change(town, spark):
    town("cache table test.db.t")
    try:
        assert town("select count(*) from test.db.t") == [(10,)]
        town("insert into test.db.t values (10, 'ten')")
        assert town("select count(*) from test.db.t") == [(11,)]
        town("delete from test.db.t where id >= 5")
        assert town("select count(*) from test.db.t") == [(5,)]
    finally:
        spark.catalog.clearCache()


@pytest.mark.spark43
def test_data_frame_methods(town, spark):
    rows = spark.createDataFrame([(20, "x")], "id bigint, city string")
    rows.writeTo("test.db.t").append()
    rows.write.insertInto("test.db.t")
    rows.write.mode("append").saveAsTable("test.db.t")
    assert town("select count(*) from test.db.t where id = 20") == [(3,)]
    rows.writeTo("test.db.t").overwrite(
        spark.range(1).select("id").schema and __import__("pyspark.sql.functions").sql.functions.col("id") == 20
    )
    assert town("select count(*) from test.db.t where id = 20") == [(1,)]
    rows.writeTo("test.db.new").tableProperty("encryption.key-id", KEYED["encryption.key-id"]).create()
    assert town("select * from test.db.new") == [(20, "x")]
    with pytest.raises(PolicyError, match=r"'encryption.key-id' is a property of a table, .*tableProperty"):
        rows.write.option("encryption.key-id", "keyA").saveAsTable("test.db.by_option")
    assert not spark.catalog.tableExists("test.db.by_option")


@pytest.mark.spark43
def test_an_excluded_rule_is_said_in_a_sentence(town, spark):
    spark.conf.set("spark.sql.optimizer.excludedRules", "icelock.TableRelations")
    try:
        with pytest.raises(Exception, match="rules are not in this session's optimizer"):
            town("select * from test.db.t")
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")
    assert town("select count(*) from test.db.t") == [(10,)]


@pytest.mark.parametrize("mode", on_second(["copy-on-write", "merge-on-read"], "merge-on-read"))
def test_update(sql, spark_lake, mode):
    sql(f"create table test.db.t (id bigint, city string, n double) {KEY}")
    sql(f"alter table test.db.t set tblproperties ('write.update.mode' = '{mode}')")
    sql("insert into test.db.t values (1, 'a', 1), (2, 'b', 2), (3, null, null)")
    before = dict(sql("select id, _row_id from test.db.t"))
    sql("update test.db.t set city = concat(city, '!'), n = n + 1 where id in (1, 2)")
    assert sql("select id, city, n from test.db.t order by id") == [(1, "a!", 2.0), (2, "b!", 3.0), (3, None, None)]
    assert dict(sql("select id, _row_id from test.db.t")) == before
    sql("update test.db.t set n = (select max(n) from test.db.t) where city is null")
    assert sql("select n from test.db.t order by id") == [(2.0,), (3.0,), (3.0,)]
    sql("update test.db.t set n = 0 where id > 100")
    table = spark_lake.catalog().load_table("db.t")
    assert len(table.snapshots()) == 3  # an update of no row makes none
    vectors = table.snapshots()[1].summary.additional_properties.get("added-dvs")
    assert vectors == (None if mode == "copy-on-write" else "1")


@pytest.mark.parametrize("mode", on_second(["copy-on-write", "merge-on-read"], "merge-on-read"))
def test_merge_with_every_clause(sql, mode):
    sql(f"create table test.db.t (id bigint, city string, n int) {KEY}")
    sql(f"alter table test.db.t set tblproperties ('write.merge.mode' = '{mode}')")
    sql("insert into test.db.t values (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4), (5, 'e', 5)")
    before = dict(sql("select id, _row_id from test.db.t"))
    sql("""
        merge into test.db.t as t using
            (select * from values (1l, 'A', 10), (2l, 'B', 20), (6l, 'F', 60), (7l, 'G', 70) as v(id, city, n)) s on t.id = s.id
        when matched and t.id = 1 then delete
        when matched then update set city = s.city, n = t.n + s.n
        when not matched and s.id = 6 then insert *
        when not matched then insert (id, n) values (s.id, -1)
        when not matched by source and t.id = 3 then delete
        when not matched by source and t.id = 4 then update set city = 'left'
    """)
    rows = [(2, "B", 22), (4, "left", 4), (5, "e", 5), (6, "F", 60), (7, None, -1)]
    assert sql("select * from test.db.t order by id") == rows
    after = dict(sql("select id, _row_id from test.db.t"))
    assert {id_: after[id_] for id_ in (2, 4, 5)} == {id_: before[id_] for id_ in (2, 4, 5)}
    assert not {after[6], after[7]} & {*before.values()}


def test_merge_of_one_row_by_two_is_refused(town, spark_lake):
    before = spark_lake.catalog().load_table("db.t").current_snapshot()
    with pytest.raises(SparkRuntimeException, match="MERGE_CARDINALITY_VIOLATION"):
        town("""
            merge into test.db.t t using (select * from values (1l, 'x'), (1l, 'y') as v(id, city)) s on t.id = s.id
            when matched then update set city = s.city
        """)
    assert spark_lake.catalog().load_table("db.t").current_snapshot() == before


@pytest.mark.spark43
def test_merge_with_schema_evolution(town):
    town("""
        merge with schema evolution into test.db.t t using (select 1l as id, 'x' as city, 5 as more) s on t.id = s.id
        when matched then update set * when not matched then insert *
    """)
    assert town("select id, city, more from test.db.t where id < 3 order by id") == [(0, "town-0", None), (1, "x", 5), (2, "town-2", None)]


def test_merge_into_of_data_frames(town, spark):
    source = spark.createDataFrame([(1, "x"), (10, "y")], "id bigint, city string").alias("s")
    source.mergeInto("test.db.t", F.expr("test.db.t.id = s.id")).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert town("select * from test.db.t where id in (1, 10) order by id") == [(1, "x"), (10, "y")]


def test_changes_of_a_branch(town, spark_lake):
    table = spark_lake.catalog().load_table("db.t")
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "side").commit()
    town("update test.db.t.branch_side set city = 'far' where id = 1")
    town("delete from test.db.t.branch_side where id in (select 2l)")
    assert town("select * from test.db.t.branch_side where id < 4 order by id") == [(0, "town-0"), (1, "far"), (3, "town-0")]
    assert town("select count(*) from test.db.t where city = 'far'") == [(0,)]


def test_merge_in_python_says_what_it_did(town, spark):
    source = spark.createDataFrame(
        [(1, "x", False), (2, None, True), (10, "y", False), (11, "z", True)], "id bigint, city string, gone boolean"
    )
    result = (
        icelock.spark.merge(spark, "test.db.t", source, ["id"])
        .when_matched_delete(condition="s.gone")
        .when_matched_update({"city": "concat(t.city, s.city)"})
        .when_not_matched_insert({"id": "s.id", "city": "upper(s.city)"}, condition="not s.gone")
        .when_not_matched_by_source_update({"city": "'last'"}, condition="t.id = 9")
        .when_not_matched_by_source_delete(condition="t.id = 8")
        .execute()
    )
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 2, 2)
    assert result.snapshot_id == town("select max_by(snapshot_id, committed_at) from test.db.t.snapshots")[0][0]
    assert town("select id, city from test.db.t where id in (1, 2, 8, 9, 10, 11) order by id") == [(1, "town-1x"), (9, "last"), (10, "Y")]
    assert town("show views in spark_catalog.default like 'icelock*'") == []
    nothing = icelock.spark.merge(spark, "test.db.t", source, "t.id = s.id + 1000").when_matched_delete().execute()
    assert nothing == ChangeResult()
    with pytest.raises(PolicyError, match="no clause"):
        icelock.spark.merge(spark, "test.db.t", source, "t.id = s.id").execute()
    with pytest.raises(PolicyError, match="source must be a Spark DataFrame, and is a str"):
        icelock.spark.merge(spark, "test.db.t", "test.db.s", "t.id = s.id")


@pytest.mark.parametrize("rows", ["(a int)", "as select 1 as a"])
def test_location(sql, spark_lake, tmp_path, rows):
    columns, query = (rows, "") if rows.startswith("(") else ("", rows)
    sql(f"create table test.db.t {columns} location '{tmp_path}/elsewhere' {KEY} {query}")
    assert spark_lake.catalog().load_table("db.t").location().removeprefix("file:") == f"{tmp_path}/elsewhere"
    with pytest.raises(PolicyError, match="moving it from"):
        sql(f"create or replace table test.db.t {columns} location '{tmp_path}/third' {query}")


@pytest.mark.spark43
def test_catalogs_of_settings_and_names_that_are_sparks_own(spark, spark_lake):
    other = spark.newSession()
    other.conf.set("spark.sql.catalog.test", "icelock.SparkCatalog")
    for name, value in spark_lake.properties().items():
        other.conf.set(f"spark.sql.catalog.test.{name}", value)
    other.sql("create table default.plain_one using parquet as select 1 as a")
    try:
        icelock.spark.register(other, {"default": spark_lake.properties()})
        assert [tuple(row) for row in other.sql("show namespaces in test").collect()] == [("db",)]
        assert other.sql("select * from default.plain_one").count() == 1
        icelock.spark.register(other)
        assert other.sql("show tables in test.db").count() == 0
    finally:
        other.sql("drop table default.plain_one")


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("int", "bigint", True),
        ("float", "double", True),
        ("decimal(10, 2)", "decimal(14, 2)", True),
        ("int", "double", False),
        ("int", "string", False),
        ("bigint", "decimal(20, 0)", False),
        ("decimal(10, 2)", "decimal(14, 4)", False),
        ("date", "timestamp", False),
        ("timestamp", "timestamp_ntz", False),
        ("boolean", "string", False),
    ],
)
def test_types_change_as_the_specification_allows(sql, before, after, allowed):
    sql(f"create table test.db.t (x {before}, k int) {KEY}")
    if not allowed:
        with pytest.raises(PolicyError, match="cannot become"):
            sql(f"alter table test.db.t alter column x type {after}")
        return
    sql("insert into test.db.t values (7, 1)")
    sql(f"alter table test.db.t alter column x type {after}")
    assert sql("select k from test.db.t where x = 7") == [(1,)]


def test_a_column_does_not_become_required(town):
    with pytest.raises(AnalysisException, match="nullable column to non-nullable"):
        town("alter table test.db.t alter column city set not null")
    with pytest.raises(PolicyError, match="required"):
        town("alter table test.db.t add column more int not null")


@pytest.mark.parametrize(("columns", "query"), [("(id int)", ""), ("", "as select 1 as id")])
def test_a_table_needs_a_namespace(sql, columns, query):
    with pytest.raises(PolicyError, match=r"has no namespace: name it test\.namespace\.t"):
        sql(f"create table test.t {columns} {KEY} {query}")


def test_a_column_that_partitions_is_dropped_with_its_field(sql, spark_lake):
    sql(f"create table test.db.t (id int, city string) partitioned by (city) {KEY}")
    with pytest.raises(PolicyError, match="first call drop_partition_field"):
        sql("alter table test.db.t drop column city")
    sql("call test.system.drop_partition_field('db.t', 'city')")
    sql("alter table test.db.t drop column city")
    assert [field.name for field in spark_lake.catalog().load_table("db.t").schema().fields] == ["id"]


def test_a_plain_table_is_not_in_the_way(sql, spark_lake):
    catalog = spark_lake.catalog()
    catalog.create_table("db.p", pa.schema([("id", pa.int32())]), properties={"icelock.plain": "true"})
    assert [(name, "Provider: iceberg" in shown) for _, name, _, shown in sql("show table extended in test.db like 'p'")] == [("p", True)]
    sql("drop table test.db.p")
    assert not catalog.table_exists("db.p")


@pytest.mark.spark43
def test_what_sparks_own_writer_asks_for(sql, spark, spark_lake):
    icelock.spark.register(spark, {"test": {**spark_lake.properties(), "table-default.encryption.key-id": KEYED["encryption.key-id"]}})
    rows = spark.createDataFrame([(1, "x")], "id bigint, city string")
    rows.write.saveAsTable("test.db.t")
    rows.write.mode("append").saveAsTable("test.db.t")
    assert sql("select * from test.db.t") == [(1, "x"), (1, "x")]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        sql("insert overwrite test.db.t values (2, 'y')")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert sql("select * from test.db.t") == [(2, "y")]
    shown = sql("show create table test.db.t")[0][0]
    sql("drop table test.db.t")
    sql(shown)
    assert sql("select count(*) from test.db.t") == [(0,)]


@pytest.mark.spark43
def test_errors_are_sparks_own_or_sentences(town, spark):
    assert town("show tables in test") == []
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        town("drop namespace test.db")
    with pytest.raises(Exception, match=r"does not support overwrite by expression: test\.db\.t"):
        spark.table("test.db.t").writeTo("test.db.t").overwrite(F.length("city") > 2)
