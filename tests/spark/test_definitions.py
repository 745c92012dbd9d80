"""What CREATE TABLE and ALTER TABLE keep of a column: defaults that are constants, no collations, names and types that Iceberg has."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from icelock.errors import PolicyError
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark

WAYS = {
    "create": "create table test.db.t (id int, c {} {}) " + KEY,
    "add": "alter table test.db.t add column c {} {}",
    "alter": "alter table test.db.t alter column c set {1}",
}


@pytest.fixture
def define(sql):
    """Return a function that gives a new table a column ``c`` of a type and with a clause, in one of three ways."""

    def run(way, kind, clause=""):
        sql("drop table if exists test.db.t")
        if way != "create":
            sql(f"create table test.db.t (id int{f', c {kind}' if way == 'alter' else ''}) {KEY}")
        sql(WAYS[way].format(kind, clause))

    return run


@pytest.mark.turns(3)
@pytest.mark.spark43
@pytest.mark.parametrize("way", WAYS)
def test_a_default_is_a_constant(define, sql, way):
    """Spark's default is an expression of each INSERT; Iceberg's is a value."""
    for kind, default in [
        ("timestamp", "current_timestamp()"),
        ("timestamp", "now()"),
        ("timestamp_ntz", "localtimestamp()"),
        ("date", "current_date()"),
        ("date", "date_add(current_date(), 1)"),
        ("string", "upper(current_user())"),
        ("string", "current_timezone()"),
        ("string", "current_catalog()"),
        ("bigint", "unix_timestamp()"),
        ("date", "date'today'"),
        ("timestamp", "TIMESTAMP 'now'"),
        ("date", "to_date('now')"),
    ]:
        with pytest.raises(PolicyError, match="not a constant"):
            define(way, kind, f"default {default}")
    for kind, default, value in [
        ("int", "1 + 2 * 3", 7),
        ("bigint", "cast('41' as int) + 1", 42),
        ("string", "concat('a', upper('b'))", "aB"),
        ("string", "'now'", "now"),
        ("string", "'date today'", "date today"),
        ("date", "date'2020-02-28' + interval 1 day", sql("select date'2020-02-29'")[0][0]),
        ("int", "null", None),
    ]:
        define(way, kind, f"default {default}")
        sql("insert into test.db.t (id) values (1)")
        assert sql("select c from test.db.t") == [(value,)]


def test_a_default_of_no_number_is_refused(define):
    """Java writes them as text, and refuses to read text as a number (SingleValueParser, 1.12.0)."""
    for kind, default in [("double", "double('NaN')"), ("float", "float('-Infinity')")]:
        with pytest.raises(PolicyError, match="finite"):
            define("create", kind, f"default {default}")


@pytest.mark.parametrize("way", WAYS)
def test_a_default_that_cannot_be_kept_is_refused(define, way):
    for kind, default in [("date", "date'+12000-01-01'"), ("timestamp", "timestamp'-0044-03-15 00:00:00'"), ("array<int>", "array(1)")]:
        with pytest.raises(PolicyError, match="cannot be kept"):
            define(way, kind, f"default {default}")


def test_a_random_default_is_refused(define):
    with pytest.raises(Exception, match=r"(?i)deterministic|constant"):
        define("create", "double", "default rand()")


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_a_default_is_the_same_under_any_setting_of_the_parser(define, sql, spark, escaped):
    define("create", "string", "default 'x\\\\y it\\'s \"so\"'")
    setting = "spark.sql.parser.escapedStringLiterals"
    spark.conf.set(setting, escaped)
    try:
        sql("insert into test.db.t (id) values (1)")
        assert "DEFAULT" in sql("show create table test.db.t")[0][0]
    finally:
        spark.conf.unset(setting)
    assert sql("select c from test.db.t") == [('x\\y it\'s "so"',)]


COLLATED = [
    "create table test.db.u (id int, s string collate utf8_lcase) " + KEY,
    "create table test.db.u (id int, s array<struct<x: string collate utf8_lcase>>) " + KEY,
    f"create table test.db.u {KEY} as select 'a' collate utf8_lcase as s",
    f"create table test.db.u {KEY} as select id, map('k', s collate unicode_ci) as m from test.db.t",
    "create or replace table test.db.t (s string collate utf8_lcase) " + KEY,
    "alter table test.db.t add column c string collate utf8_lcase",
    "alter table test.db.t add column c array<string collate utf8_lcase>",
    "alter table test.db.t alter column s type string collate utf8_lcase",
]
UNNAMED = [
    ("create table test.db.u (`a.b` int, a struct<b: int>) " + KEY, "a.b.*rename one"),
    ("create table test.db.u (`a.element` int, a array<int>) " + KEY, "a.element.*rename one"),
    (f"create table test.db.u {KEY} as select 1 as `a.b`, named_struct('b', 2) as a", "a.b.*rename one"),
    (f"create table test.db.u {KEY} as select map() as m", "m.key.*cast it"),
    (f"create table test.db.u {KEY} as select array() as a", "a.element.*cast it"),
    (f"create table test.db.u {KEY} as select named_struct('b', array(null)) as a", "a.b.element.*cast it"),
    (f"create table test.db.u {KEY} as select named_struct('b', null) as a from range(200)", "a.b.*cast it"),
]


@pytest.mark.spark43
def test_a_collation_is_refused(sql):
    """SQL compares a column by its collation wherever it is named; Iceberg keeps none."""
    sql(f"create table test.db.t (id int, s string) {KEY}")
    sql("insert into test.db.t values (1, 'A'), (2, 'a')")
    for statement in COLLATED:
        with pytest.raises(PolicyError, match=r"(?i)collation utf8_lcase|collation unicode_ci"):
            sql(statement)
    assert sql("show tables in test.db") == [("db", "t", False)]
    assert sql("select id from test.db.t where s collate utf8_lcase = 'a' order by id") == [(1,), (2,)]
    sql("insert into test.db.t select 3, 'B' collate utf8_lcase")
    assert sql("select id from test.db.t where s = 'b'") == []


def test_what_iceberg_has_no_name_or_type_for(sql):
    for statement, said in UNNAMED:
        with pytest.raises(PolicyError, match=said):
            sql(statement)
    assert sql("show tables in test.db") == []


def test_a_column_without_a_type(sql):
    sql(
        f"create table test.db.u {KEY} as select 1 as id, null as c, cast(array() as array<int>) as a, cast(map() as map<string, int>) as m"
    )
    assert sql("select * from test.db.u") == [(1, None, [], {})]
    with pytest.raises(PolicyError, match=r"d.element.*cast it"):
        sql("alter table test.db.u add column d array<void>")


@pytest.mark.spark43
def test_what_iceberg_has_not_is_no_silent_success(sql):
    """Java refuses each of these; CREATE and ALTER must not keep quiet about what they leave out."""
    sql(f"create table test.db.t (id int) {KEY}")
    for statement in (
        "alter table test.db.t cluster by (id)",
        "alter table test.db.t cluster by none",
        f"create table test.db.u (id int) cluster by (id) {KEY}",
        f"create table test.db.u cluster by (id) {KEY} as select 1 as id",
    ):
        with pytest.raises(PolicyError, match=r"no CLUSTER BY: .*set_write_order"):
            sql(statement)
    for statement in ("add constraint c check (id > 0)", "add constraint k primary key (id)"):
        with pytest.raises(AnalysisException, match="does not support table constraint"):
            sql(f"alter table test.db.t {statement}")
    with pytest.raises(PolicyError, match=r"test\.db\.t stays in its folder.*in file:/tmp/x, make another"):
        sql("alter table test.db.t set location 'file:/tmp/x'")
    assert sql("show tables in test.db") == [("db", "t", False)]


@pytest.mark.spark43
def test_a_part_of_a_table_is_not_dropped_or_altered_by_its_name(sql):
    """Spark asks whether there is such a table, and there is something to read: DROP said that it was done."""
    sql(f"create table test.db.t (id int) {KEY}")
    sql("insert into test.db.t values (1)")
    sql("call test.system.create_branch('db.t', 'b')")
    for statement in (
        "drop table test.db.t.branch_b",
        "drop table if exists test.db.t.branch_b purge",
        "drop table test.db.t.files",
        "alter table test.db.t.branch_b add column c int",
        "merge with schema evolution into test.db.t.branch_b t using (select 1 id, 2 c) s on t.id = s.id when not matched then insert *",
    ):
        with pytest.raises(PolicyError, match=r"part of table test\.db\.t: .*ALTER TABLE test\.db\.t.*drop_branch"):
            sql(statement)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("drop table test.db.nowhere")
    assert sql("select id from test.db.t.branch_b") == [(1,)]
    assert sql("describe test.db.t") == [("id", "int", None)]
