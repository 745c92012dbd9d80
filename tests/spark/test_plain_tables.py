"""Plain tables of versions 1 and 2 in a catalog that also has encrypted ones, by Spark's statements. Expected rows are SQL's, by hand."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException

import icelock.spark
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import CommitError, PolicyError
from icelock.spark.statements import plain_tables
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
MARK = b"told-in-the-clear"


@contextmanager
def dynamic(sql):
    sql("set spark.sql.sources.partitionOverwriteMode = dynamic")
    try:
        yield
    finally:
        sql("reset spark.sql.sources.partitionOverwriteMode")


def plain(version: int = 2) -> str:
    return f"tblproperties ('icelock.plain' = 'true', 'format-version' = '{version}')"


def fill(sql, version: int = 2) -> None:
    """Make a plain table ``p`` partitioned by ``city``, with ids 0 to 9."""
    sql(f"create table test.db.p (id bigint, city string, n double) partitioned by (city) {plain(version)}")
    sql("insert into test.db.p select id, concat('town-', id % 3), id / 2 from range(0, 10, 1, 2)")


@pytest.fixture
def cities(sql):
    fill(sql)
    return sql


@pytest.mark.spark43
@pytest.mark.parametrize("version", [1, 2])
def test_rows_are_inserted_read_replaced_and_deleted(sql, spark, spark_lake, version):
    fill(sql, version)
    assert sql("select id, city, n from test.db.p where city = 'town-1' order by id") == [
        (1, "town-1", 0.5),
        (4, "town-1", 2.0),
        (7, "town-1", 3.5),
    ]
    assert spark.table("test.db.p").count() == icelock.spark.read(spark, "test.db.p", engine="python").count() == 10
    assert "FileScan icelock" in spark.table("test.db.p")._jdf.queryExecution().executedPlan().toString()
    sql("delete from test.db.p where n > 3 or id = 0")  # rows of three files, and no file as a whole
    assert sql("select id from test.db.p order by id") == [(1,), (2,), (3,), (4,), (5,), (6,)]
    sql("insert overwrite test.db.p partition (city = 'town-2') values (20, 1.5)")
    assert sql("select id from test.db.p order by id") == [(1,), (3,), (4,), (6,), (20,)]
    with dynamic(sql):
        sql("insert overwrite test.db.p values (30, 'town-0', null), (31, 'town-9', null)")
    assert sql("select id, n from test.db.p order by id") == [(1, 0.5), (4, 2.0), (20, 1.5), (30, None), (31, None)]
    sql("truncate table test.db.p")
    assert sql("select count(*) from test.db.p") == [(0,)]
    made = [one.summary for one in spark_lake.catalog().load_table("db.p").metadata.snapshots]
    assert made[0]["added-records"] == "10"
    # Java's BaseOverwriteFiles.operation: a delete is what adds no file
    assert [one.operation.value for one in made] == ["append", "overwrite", "overwrite", "overwrite", "delete"]


def test_a_null_is_neither_equal_nor_unequal(sql):
    sql(f"create table test.db.p (id bigint, n int) {plain()}")
    sql("insert into test.db.p values (1, 1), (2, 2), (3, null)")
    sql("delete from test.db.p where n <> 1")
    assert sql("select id from test.db.p order by id") == [(1,), (3,)]
    sql("delete from test.db.p where n not in (5, 6)")
    assert sql("select id from test.db.p order by id") == [(3,)]
    sql("delete from test.db.p where n is null")
    assert sql("select count(*) from test.db.p") == [(0,)]


def test_versions_and_metadata_tables(cities, spark_lake):
    first = spark_lake.catalog().load_table("db.p").current_snapshot().snapshot_id
    cities("insert into test.db.p values (10, 'town-0', 1.0)")
    assert cities(f"select count(*) from test.db.p version as of {first}") == [(10,)]
    assert cities("select operation, summary['added-records'] from test.db.p.snapshots order by committed_at") == [
        ("append", "10"),
        ("append", "1"),
    ]
    assert cities("select partition.city, sum(record_count) from test.db.p.files group by 1 order by 1") == [
        ("town-0", 5),
        ("town-1", 3),
        ("town-2", 3),
    ]
    assert cities("select id, _pos from test.db.p where id = 10") == [(10, 0)]


def test_columns_and_properties_are_altered(cities):
    cities("alter table test.db.p add column more string")
    cities("alter table test.db.p rename column n to number")
    cities("alter table test.db.p set tblproperties ('a' = 'b')")
    cities("insert into test.db.p values (10, 'town-0', 1.0, 'x')")
    assert cities("select id, number, more from test.db.p where id > 8 order by id") == [(9, 4.5, None), (10, 1.0, "x")]
    with pytest.raises(PolicyError, match="key-id"):
        cities("alter table test.db.p set tblproperties ('encryption.key-id' = 'keyA')")


def test_a_table_is_made_of_a_query_and_joined_with_an_encrypted_one(sql, spark_lake):
    sql(f"create table test.db.t (id bigint, name string) {KEY}")
    sql("insert into test.db.t values (1, 'secret'), (2, 'other')")
    sql(f"create table test.db.p partitioned by (bucket(4, id)) {plain()} as select id, '{MARK.decode()}' as note from range(3)")
    assert sql("select t.name, p.note from test.db.t t join test.db.p p on t.id = p.id where t.id = 1") == [("secret", MARK.decode())]
    assert any(MARK in content for name, content in spark_lake.files().items() if name.startswith("db/p/")), "it is plain"
    sql("insert into test.db.t select id + 10, note from test.db.p")
    assert not [name for name, content in spark_lake.files().items() if name.startswith("db/t/") and MARK in content]
    sql("delete from test.db.p where id = 1")
    with dynamic(sql):
        sql("insert overwrite test.db.p values (0, 'x')")
    assert sql("select * from test.db.p where id = 0") == [(0, "x")]
    assert sql("select count(*) from test.db.p where id = 1") == [(0,)]


def test_a_static_overwrite_replaces_all_rows(cities):
    cities("insert overwrite test.db.p select 9, 'town-9', 0.5")
    assert cities("select id from test.db.p") == [(9,)]
    cities("insert overwrite test.db.p select id + 1, 'x', n from test.db.p")
    assert cities("select id, city from test.db.p") == [(10, "x")]
    cities("insert into test.db.p replace where true select 11, 'y', 1.0")
    assert cities("select id from test.db.p") == [(11,)]
    cities("insert overwrite test.db.p select * from test.db.p where false")
    assert cities("select count(*) from test.db.p") == [(0,)]


def test_nan_is_a_number_greater_than_others(sql):
    sql(f"create table test.db.p (id bigint, f double) {plain()}")
    sql("insert into test.db.p values (1, 0.0), (2, double('NaN')), (3, 5.0), (4, null)")
    sql("insert into test.db.p replace where f <> 0 select id + 10, f from test.db.p where f <> 0")
    assert sql("select id from test.db.p order by id") == [(1,), (4,), (12,), (13,)]
    sql("delete from test.db.p where f not in (0.0, 5.0)")
    assert sql("select id from test.db.p order by id") == [(1,), (4,), (13,)]


def test_zeros_and_nan_are_partitions(sql, spark_lake):
    sql(f"create table test.db.p (id bigint, f double) partitioned by (f) {plain()}")
    sql("insert into test.db.p values (1, 0.0), (2, double('-0.0')), (3, double('NaN')), (4, null)")
    with dynamic(sql):
        sql("insert overwrite test.db.p values (10, 0.0)")
        with pytest.raises(PolicyError, match="PyIceberg cannot take files out of its partition of NaN"):
            sql("insert overwrite test.db.p values (13, double('NaN'))")
    assert sql("select id from test.db.p order by id") == [(2,), (3,), (4,), (10,)]
    assert len(list(spark_lake.warehouse.rglob("*.parquet"))) == 5


def test_names_that_avro_does_not_have(sql):
    sql(f"create table test.db.p (`x.y` int, `ü /` string, s struct<`a.b`: int>) {plain()}")
    sql("insert into test.db.p values (1, 'a', named_struct('a.b', 2))")
    assert sql("select `x.y`, `ü /`, s.`a.b` from test.db.p") == [(1, "a", 2)]


def test_no_class_of_a_tables_choice_is_loaded(sql, spark_lake):
    evil = "tblproperties ('icelock.plain' = 'true', 'write.py-location-provider.impl' = 'no_such_module.Evil')"
    for statement in (f"create table test.db.p (id bigint) {evil}", f"create table test.db.p {evil} as select 1 as id"):
        with pytest.raises(PolicyError, match="would load a class of the table's choice"):
            sql(statement)
    with pytest.raises(PolicyError, match="column 'n' is unknown"):
        sql(f"create table test.db.p {plain()} as select 1 as id, null as n")
    assert not spark_lake.catalog().table_exists("db.p")


def test_rows_of_the_table_itself_are_not_older_than_the_table(cities, spark):
    rows = spark.table("test.db.p").selectExpr("id + 100 as id", "city", "n")
    cities("insert into test.db.p values (999, 'town-9', 1.0)")
    with pytest.raises(ValidationException, match="another writer committed since"):
        rows.write.insertInto("test.db.p", overwrite=True)
    assert cities("select count(*), max(id) from test.db.p") == [(11, 999)]


def test_what_pyiceberg_cannot_do_is_refused_and_changes_nothing(cities):
    for statement in (
        "update test.db.p set n = 0 where id = 1",
        "merge into test.db.p t using (select 1 as id) s on t.id = s.id when matched then delete",
        "delete from test.db.p where id in (select max(id) from test.db.p)",
    ):
        with pytest.raises(PolicyError, match="is plain, and PyIceberg"):
            cities(statement)
    assert cities("select count(*) from test.db.p") == [(10,)]
    with pytest.raises(PolicyError, match="not encrypted"):
        cities("call test.system.expire_snapshots('db.p')")


def test_no_statement_makes_a_plain_table_or_fills_one_unasked(sql, spark, spark_lake):
    with pytest.raises(PolicyError, match="would be plain"):
        sql("create table test.db.p (id bigint)")
    with pytest.raises(PolicyError, match="would be plain"):
        sql(f"create or replace table test.db.p (id bigint) {plain()}")
    sql(f"create table test.db.p (id bigint) {plain()}")
    icelock.spark.register(spark, {"test": spark_lake.properties()})  # a new catalog: it did not make the table
    with pytest.raises(PolicyError, match="is plain, and catalog test writes encrypted tables"):
        sql("insert into test.db.p values (1)")
    with pytest.raises(PolicyError, match="is plain, and catalog test writes encrypted tables"):
        sql("delete from test.db.p where id = 1")
    assert not [name for name in spark_lake.files() if name.endswith(".parquet")]
    icelock.spark.register(spark, {"test": spark_lake.properties(**{"icelock.plain-tables": "db.*"})})
    sql("insert into test.db.p values (1)")
    sql("create table test.db.q as select * from test.db.p")
    assert sql("select * from test.db.q") == [(1,)]


def test_files_of_a_commit_that_may_have_been_made_stay(cities, spark_lake, monkeypatch):
    before = {name for name in spark_lake.files() if name.endswith(".parquet")}
    original = EncryptedCatalog.commit_table

    def lost(*given):
        original(*given)
        raise CommitError("the catalog could not be asked; the commit was made")

    with monkeypatch.context() as patch:
        patch.setattr(EncryptedCatalog, "commit_table", lost)
        with pytest.raises(CommitError, match="the commit was made"):
            cities("insert into test.db.p values (50, 'town-1', 1.0)")
    assert len({name for name in spark_lake.files() if name.endswith(".parquet")} - before) == 1
    assert cities("select max(id), count(*) from test.db.p") == [(50, 11)]


def test_files_of_a_refused_commit_are_deleted(cities, spark_lake, monkeypatch):
    before = set(spark_lake.files())

    def refuse(*_: object) -> None:
        raise CommitFailedException("another writer was first")

    monkeypatch.setattr(plain_tables, "_add", refuse)
    with pytest.raises(CommitFailedException, match="another writer"):
        cities("insert into test.db.p values (50, 'town-1', 1.0)")
    assert set(spark_lake.files()) == before
