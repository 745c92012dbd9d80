"""Changes in Spark, beside those of plain Python: the table ``changes`` and ``create_changelog_view``. Values are worked out by hand."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

import icelock.spark.driver.changelog as driver_changelog
from icelock.errors import ExpiredSnapshotError, PolicyError
from icelock.spark.columns.changelog import changelog
from icelock.table.changes.telling import Wanted
from tests.golden.test_static_table import open_table
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
MODES = ("copy-on-write", "merge-on-read")


@pytest.fixture
def orders(sql, spark_lake):
    """Return a function that makes ``test.db.orders`` in a mode, and does the history of the tests; it returns the snapshots."""

    def make(mode):
        settings = ", ".join(f"'write.{what}.mode' = '{mode}'" for what in ("delete", "update", "merge"))
        sql(f"create table test.db.orders (id bigint, v string) {KEY}")
        sql(f"alter table test.db.orders set tblproperties ({settings})")
        sql("insert into test.db.orders select * from values (1l, 'a'), (2l, 'b'), (3l, 'c'), (4l, 'd') as t(id, v)")  # 0
        sql("update test.db.orders set v = 'A' where id = 1")  # 1
        sql("delete from test.db.orders where id = 2")  # 2
        sql(
            "merge into test.db.orders t using (select * from values (3l, 'C'), (9l, 'i') as s(id, v)) s on t.id = s.id "
            "when matched then update set * when not matched then insert *"
        )  # 3
        sql("call test.system.rewrite_data_files('db.orders', options => map('rewrite-all', 'true'))")
        sql("update test.db.orders set v = v where id = 4")
        sql("update test.db.orders set v = 'AA' where id = 1")
        return [one.snapshot_id for one in spark_lake.catalog().load_table("db.orders").snapshots()]

    return make


def of_view(sql, name="orders_changes"):
    return sorted(sql(f"select id, v, _change_type, _change_ordinal from {name}"))


def by_format(spark, **options):
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return spark.read.format("icelock").options(**given).load("test.db.orders.changes")


@pytest.mark.spark43
@pytest.mark.parametrize("mode", MODES)
def test_the_table_of_changes(sql, spark, spark_lake, orders, mode):
    snapshots = orders(mode)
    found = sorted(sql("select id, v, _change_type, _change_ordinal from test.db.orders.changes"))
    assert found == [
        (1, "A", "DELETE", 5),
        (1, "A", "INSERT", 1),
        (1, "AA", "INSERT", 5),
        (1, "a", "DELETE", 1),
        (1, "a", "INSERT", 0),
        (2, "b", "DELETE", 2),
        (2, "b", "INSERT", 0),
        (3, "C", "INSERT", 3),
        (3, "c", "DELETE", 3),
        (3, "c", "INSERT", 0),
        (4, "d", "INSERT", 0),
        (9, "i", "INSERT", 3),
    ]
    python = spark_lake.catalog().load_table("db.orders").changes(updates=False).to_arrow()
    rows = sql("select * from test.db.orders.changes")
    assert sorted(rows) == sorted(tuple(one.values()) for one in python.to_pylist())
    assert sorted(map(tuple, by_format(spark).collect())) == sorted(rows), "the tasks of the data source compare"
    some = spark.read.option("start-snapshot-id", snapshots[1]).option("end-snapshot-id", snapshots[2]).table("test.db.orders.changes")
    assert [tuple(row) for row in some.collect()] == [(2, "b", "DELETE", 0, snapshots[2])]
    assert some.schema.simpleString() == "struct<id:bigint,v:string,_change_type:string,_change_ordinal:int,_commit_snapshot_id:bigint>"
    assert sql("select count(*), max(_change_ordinal) from test.db.orders.changes where _change_type = 'DELETE'") == [(4, 5)]


@pytest.mark.spark43
@pytest.mark.parametrize("mode", MODES)
def test_updates_by_row_id_and_net_changes(sql, spark, orders, mode):
    """The same in both modes, and as ``table.changes``; ``SET v = v`` is no change."""
    first, *_ = orders(mode)
    options = f"options => map('start-snapshot-id', '{first}')"
    assert sql(f"call test.system.create_changelog_view(table => 'db.orders', {options}, compute_updates => true)") == [
        ("`orders_changes`",)
    ]
    assert of_view(sql) == [
        (1, "A", "UPDATE_AFTER", 0),
        (1, "A", "UPDATE_BEFORE", 4),
        (1, "AA", "UPDATE_AFTER", 4),
        (1, "a", "UPDATE_BEFORE", 0),
        (2, "b", "DELETE", 1),
        (3, "C", "UPDATE_AFTER", 2),
        (3, "c", "UPDATE_BEFORE", 2),
        (9, "i", "INSERT", 2),
    ]
    net = "call test.system.create_changelog_view('db.orders', 'net', map('start-snapshot-id', '{}'), {}, null, true)"
    assert sql(net.format(first, "null")) == [("net",)]
    assert of_view(sql, "net") == [
        (1, "AA", "INSERT", 4),
        (1, "a", "DELETE", 0),
        (2, "b", "DELETE", 1),
        (3, "C", "INSERT", 2),
        (3, "c", "DELETE", 2),
        (9, "i", "INSERT", 2),
    ]
    sql(net.format(first, "true"))
    by_format(spark, start_snapshot_id=first, compute_updates="true", net_changes="true").createOrReplaceTempView("by_format")
    for view in ("net", "by_format"):
        assert of_view(sql, view) == [
            (1, "AA", "UPDATE_AFTER", 4),
            (1, "a", "UPDATE_BEFORE", 0),
            (2, "b", "DELETE", 1),
            (3, "C", "UPDATE_AFTER", 2),
            (3, "c", "UPDATE_BEFORE", 2),
            (9, "i", "INSERT", 2),
        ]


def test_identifier_columns(sql, spark_lake):
    """A row that is replaced has a new row id; an identifier that two changed rows have is an error of the query, as in Java."""
    sql(f"create table test.db.t (id bigint, x double, m map<string, double>, a struct<p: int, q: array<float>>) {KEY}")
    value = "select id, {}, map('k', double('NaN')), named_struct('p', 1, 'q', array(float(0))) from range(3)"
    sql(f"insert into test.db.t {value.format('double(0)')}")
    zero = "double('-0.0')"
    sql(f"insert overwrite test.db.t {value.format(zero)} where id < 2 union all {value.format('double(0)')} where id = 2")
    first = spark_lake.catalog().load_table("db.t").snapshots()[0].snapshot_id
    call = "call test.system.create_changelog_view('db.t', 'v', map('start-snapshot-id', '{}'), identifier_columns => array({}))"
    sql(call.format(first, "'id'"))
    pairs = [(n, x, what) for n in (0, 1) for x, what in (("-0.0", "UPDATE_AFTER"), ("0.0", "UPDATE_BEFORE"))]
    assert sorted(sql("select id, string(x), _change_type from v")) == pairs
    sql(f"insert overwrite test.db.t {value.format('double(7)').replace('select id', 'select id + 10')}")
    sql(f"insert overwrite test.db.t {value.format('double(7)').replace('select id', 'select id + 20')}")
    before = spark_lake.catalog().load_table("db.t").snapshots()[-2].snapshot_id
    sql(call.format(before, "'x'"))
    with pytest.raises(Exception, match="do not tell rows apart"):
        sql("select * from v")
    with pytest.raises(PolicyError, match="identifier field 'nope' is no column"):
        sql(call.format(first, "'nope'"))


@pytest.mark.parametrize("name", ["cow_update", "mor_dv", "maint"])
def test_golden_tables_of_java_s(sql, golden, name):
    """As plain Python tells it, which is held against Java's rows (tests/golden/test_java_changes.py)."""
    python = open_table(name).changes(updates=False).to_arrow()
    rows = sql(f"select * from {golden(name)}.changes")
    assert sorted((row[0], row[2], str(row[3]), *row[-3:]) for row in rows) == sorted(
        (row[0], row[2], str(row[3]), *row[-3:]) for row in (tuple(one.values()) for one in python.to_pylist())
    )


def test_nothing_changed(sql):
    sql(f"create table test.db.t (id bigint) {KEY}")
    assert sql("select * from test.db.t.changes") == []
    sql("call test.system.create_changelog_view('db.t')")
    assert sql("select * from t_changes") == []


def test_what_is_refused(sql, spark, spark_lake, orders):
    first, second, *_ = orders("copy-on-write")
    with pytest.raises(PolicyError, match="not one version"):
        sql(f"select * from test.db.orders.changes version as of {first}")
    with pytest.raises(PolicyError, match="is not an ancestor of the end"):
        spark.read.options(**{"start-snapshot-id": second, "end-snapshot-id": first}).table("test.db.orders.changes").collect()
    with pytest.raises(PolicyError, match="unknown option 'start-snapshot'"):
        sql("call test.system.create_changelog_view('db.orders', options => map('start-snapshot', '1'))")
    with pytest.raises(PolicyError, match="not the option snapshot-id"):
        by_format(spark, snapshot_id=first)
    with pytest.raises(PolicyError, match="are options of what changed"):
        spark.read.format("icelock").option("net-changes", "true").load("test.db.orders")
    with pytest.raises(PolicyError, match="without a schema of your own"):
        spark.read.format("icelock").schema("id bigint").load("test.db.orders.changes").collect()
    with pytest.raises(AnalysisException):
        sql("insert into test.db.orders.changes values (1, 'a', 'INSERT', 0, 1)")
    spark_lake.catalog().load_table("db.orders").maintenance.expire_snapshots().by_ids([first, second]).commit()
    with pytest.raises(ExpiredSnapshotError, match="Read the whole table at snapshot"):
        sql(f"call test.system.create_changelog_view('db.orders', options => map('start-snapshot-id', '{first}'))")


@pytest.mark.parametrize("few", [0, 1_000])
def test_rows_that_were_moved_are_not_compared(sql, monkeypatch, few):
    """Their ids are read by tasks, or, where they are few, by this process; only what changed is shuffled."""
    sql(f"create table test.db.t (id bigint, v string) {KEY}")
    sql("insert into test.db.t select id, 'a' from range(0, 300, 1, 2)")
    sql("update test.db.t set v = 'b' where id in (7, 250)")
    sql("delete from test.db.t where id = 8")
    compared = []

    def compare(rows, told, *, numbered):
        compared.append(rows.count())
        return changelog(rows, told, numbered=numbered)

    monkeypatch.setattr(driver_changelog, "_FEW_ROWS", few)
    monkeypatch.setattr(driver_changelog, "changelog", compare)
    sql("call test.system.create_changelog_view('db.t', compute_updates => true)")
    assert sql("select id, v, _change_type, _change_ordinal from t_changes where _change_ordinal > 0 order by 4, 1, 2") == [
        (7, "a", "UPDATE_BEFORE", 1),
        (7, "b", "UPDATE_AFTER", 1),
        (250, "a", "UPDATE_BEFORE", 1),
        (250, "b", "UPDATE_AFTER", 1),
        (8, "a", "DELETE", 2),
    ]
    assert sql("select count(*) from test.db.t.changes where _change_type = 'DELETE'") == [(3,)], "jobs run while Spark plans"
    assert compared == [5, 5]


ROWS_WITHOUT_IDS = """
    select id, x, s, cast(null as bigint) _icelock_row_id, cast(null as bigint) _icelock_last_updated,
           kind _change_type, ordinal _change_ordinal, 7L + ordinal _commit_snapshot_id
    from values
        (1, double(0), 'same', 'DELETE', 0), (1, double(0), 'same', 'INSERT', 0),
        (2, double(0), 'zero', 'DELETE', 0), (2, double('-0.0'), 'zero', 'INSERT', 0),
        (3, double('NaN'), 'nan', 'DELETE', 0), (3, double('NaN'), 'nan', 'INSERT', 0),
        (4, null, null, 'DELETE', 0), (4, null, null, 'INSERT', 0),
        (5, double(1), 'twice', 'DELETE', 0), (5, double(1), 'twice', 'DELETE', 0), (5, double(1), 'twice', 'INSERT', 0),
        (6, double(1), 'came', 'INSERT', 0), (6, double(1), 'came', 'DELETE', 1)
    as t(id, x, s, kind, ordinal)
"""


LEFT_OF_EACH = [(2, "-0.0", "INSERT", 0), (2, "0.0", "DELETE", 0), (5, "1.0", "DELETE", 0)]


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (
            {"updates": False},
            [(2, "-0.0", "INSERT", 0), (2, "0.0", "DELETE", 0), (5, "1.0", "DELETE", 0), (6, "1.0", "DELETE", 1), (6, "1.0", "INSERT", 0)],
        ),
        ({"updates": False, "net_changes": True}, [(2, "-0.0", "INSERT", 0), (2, "0.0", "DELETE", 0), (5, "1.0", "DELETE", 0)]),
        (
            {"net_changes": True, "identifier_fields": ("id",)},
            [(2, "-0.0", "UPDATE_AFTER", 0), (2, "0.0", "UPDATE_BEFORE", 0), (5, "1.0", "DELETE", 0)],
        ),
    ],
)
def test_rows_without_ids_are_compared_by_their_values(spark, told, wanted, numbered):
    """Each lost row takes one equal gained one away; zeros of two signs differ, NaN and null are what they are."""
    found = changelog(spark.sql(ROWS_WITHOUT_IDS), Wanted(**told), numbered=numbered)
    assert sorted(map(tuple, found.selectExpr("id", "string(x)", "_change_type", "_change_ordinal").collect())) == wanted
