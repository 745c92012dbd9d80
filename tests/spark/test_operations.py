"""Operations by Spark's tasks: overwrite, create, delete, upsert, add_files. Rows are compared with what plain Spark makes of the same."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest
from pyiceberg.exceptions import TableAlreadyExistsError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock.spark
from icelock.errors import PolicyError
from icelock.spark import ChangeResult
from icelock.spark.driver import rewrite_here, write_here
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE

pytestmark = pytest.mark.spark

COW, MOR = "copy-on-write", "merge-on-read"
COLUMNS = ["id", "name", "city"]


@pytest.fixture(params=["here", "tasks"])
def rewrites(request, monkeypatch):
    """Files lose rows, and changed rows are written, in this process, as if they were few, or by Spark's tasks."""
    monkeypatch.setattr(rewrite_here, "SMALL", 1 << 40 if request.param == "here" else -1)
    monkeypatch.setattr(write_here, "_FEW_CHANGES", 1 << 40 if request.param == "here" else -1)


def load(lake, name="db.t"):
    return lake.catalog().load_table(name)


def frame(spark, start, count, parts=2):
    return spark.range(start, start + count, 1, parts).selectExpr(
        "id", "if(id % 7 = 0, null, concat('name-', id)) name", "concat('town-', id % 3) city"
    )


def write(df, mode="append", **options):
    df.write.format("icelock").mode(mode).options(**options).save(TABLE)


def counted(df):
    """Return how often each row occurs, as rows of plain Spark."""
    return Counter(tuple(row) for row in df.select(*COLUMNS).collect())


def stored(lake, **scan):
    table = load(lake).scan(selected_fields=tuple(COLUMNS), **scan).to_arrow()
    return Counter(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


def lineage(lake):
    fields = ("id", "_row_id", "_last_updated_sequence_number")
    return {row["id"]: (row["_row_id"], row[fields[2]]) for row in load(lake).scan(selected_fields=fields).to_arrow().to_pylist()}


def make(lake, *frames, **properties):
    """Make the table with one snapshot for each frame."""
    first, *more = frames
    writer = icelock.spark.write_to(first, TABLE).partitionedBy("city")
    for name, value in {**KEYED, **properties}.items():
        writer.tableProperty(name, value)
    writer.create()
    for df in more:
        write(df)
    lake.calls.take()
    return load(lake)


def operations(lake):
    return [snapshot.summary.operation.value for snapshot in load(lake).snapshots()]


@pytest.mark.turns(2)
@pytest.mark.spark43
@pytest.mark.usefixtures("rewrites")
@pytest.mark.parametrize("mode", [COW, MOR])
def test_delete_keeps_other_rows_and_their_lineage(spark, spark_lake, mode):
    rows = frame(spark, 0, 300)
    make(spark_lake, rows, **{"write.delete.mode": mode})
    before = lineage(spark_lake)
    spark_lake.calls.take()
    done = icelock.spark.delete(spark, TABLE, "id >= 100 and id < 250 and name != 'name-200'", snapshot_properties={"reason": "law"})
    assert spark_lake.calls.take() == ["unwrap keyA"]
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (0, 0, 150 - 21 - 1)  # 21 numbers have no name
    assert done.snapshot_id == load(spark_lake).current_snapshot().snapshot_id
    assert (done.files_added, done.files_removed, done.delete_files_added) == ((3, 3, 0) if mode == COW else (0, 0, 3))
    assert stored(spark_lake) == counted(rows.filter("not coalesce(id >= 100 and id < 250 and name != 'name-200', false)"))
    assert {number: before[number] for number in lineage(spark_lake)} == lineage(spark_lake)
    assert len(load(spark_lake).snapshots()) == 2
    assert load(spark_lake).current_snapshot().summary.additional_properties["reason"] == "law"
    vectors = int(load(spark_lake).current_snapshot().summary.additional_properties["total-delete-files"])
    assert vectors == (0 if mode == COW else 3)  # rows of a town come to one task
    left = stored(spark_lake, row_filter="city = 'town-1'").total()
    done = icelock.spark.delete(spark, TABLE, "city = 'town-1'")  # whole files
    assert (done.rows_deleted, done.files_removed, done.delete_files_removed) == (left, 1, 0 if mode == COW else 1)
    assert stored(spark_lake, row_filter="city = 'town-1'") == Counter()
    snapshots = operations(spark_lake)
    assert snapshots[-1] == "delete"
    assert icelock.spark.delete(spark, TABLE, "id = 1000") == ChangeResult()
    assert operations(spark_lake) == snapshots  # nothing to do, no snapshot


@pytest.mark.turns(2)
@pytest.mark.spark43
@pytest.mark.usefixtures("rewrites")
@pytest.mark.parametrize("mode", [COW, MOR])
def test_upsert_updates_and_inserts(spark, spark_lake, mode):
    rows = frame(spark, 0, 200)
    make(spark_lake, rows, frame(spark, 1000, 50), **{"write.merge.mode": mode})
    before = lineage(spark_lake)
    spark_lake.calls.take()
    source = spark.range(150, 260, 1, 3).selectExpr(
        "id", "if(id % 2 = 0, concat('new-', id), if(id % 7 = 0, null, concat('name-', id))) name", "concat('town-', id % 3) city"
    )
    done = icelock.spark.upsert(source, TABLE, ["id"], branch="main")
    assert spark_lake.calls.take() == ["unwrap keyA"]  # by this process, for all jobs
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (60, 25, 0)
    expected = rows.unionByName(frame(spark, 1000, 50)).join(source, "id", "left_anti").unionByName(source)
    assert stored(spark_lake) == counted(expected)
    after = lineage(spark_lake)
    updated = set(range(150, 200, 2))
    for number, (row_id, sequence) in before.items():
        assert after[number] == (row_id, 3 if number in updated else sequence)
    assert {after[number][1] for number in range(200, 260)} == {3}
    assert min(after[number][0] for number in range(200, 260)) > max(row_id for row_id, _ in before.values())
    summary = load(spark_lake).current_snapshot().summary.additional_properties
    assert operations(spark_lake) == ["append", "append", "overwrite"]
    if mode == MOR:
        assert summary["added-records"] == str(25 + 60)
        assert summary["added-position-deletes"] == "25"


def test_upsert_again_changes_nothing(spark, spark_lake):
    rows = frame(spark, 0, 50)
    make(spark_lake, rows)
    files = spark_lake.files()
    assert icelock.spark.upsert(rows, TABLE, ["id", "city"]) == ChangeResult()
    assert icelock.spark.upsert(rows.filter("id < 0"), TABLE, ["id"]) == ChangeResult()
    assert spark_lake.files() == files


@pytest.mark.parametrize(("update", "insert"), [(True, False), (False, True)])
def test_upsert_of_one_kind_only(spark, spark_lake, update, insert):
    rows = frame(spark, 0, 20)
    make(spark_lake, rows)
    source = frame(spark, 10, 20).withColumn("name", F.lit("new"))
    icelock.spark.upsert(source, TABLE, ["id"], when_matched_update_all=update, when_not_matched_insert_all=insert)
    updated = rows.join(source, "id", "left_anti").unionByName(source.filter("id < 20"))
    inserted = rows.unionByName(source.filter("id >= 20"))
    assert stored(spark_lake) == counted(updated if update else inserted)


def test_upsert_by_keys_of_many_types(spark, spark_lake):
    """UUIDs are text in Spark, maps cannot be compared there, decimals and dates are keys, nested columns are values."""
    from pyiceberg.schema import Schema  # noqa: PLC0415
    from pyiceberg.types import DateType, DecimalType, LongType, MapType, NestedField, StringType, StructType, UUIDType  # noqa: PLC0415

    schema = Schema(
        NestedField(1, "u", UUIDType(), required=True),
        NestedField(2, "day", DateType(), required=False),
        NestedField(3, "price.net", DecimalType(12, 2), required=False),
        NestedField(4, "m", MapType(5, StringType(), 6, LongType(), value_required=False), required=False),
        NestedField(7, "s", StructType(NestedField(8, "x", LongType(), required=False)), required=False),
        identifier_field_ids=[1],
    )
    spark_lake.catalog().create_table("db.t", schema, properties=KEYED)
    uuids = "concat(lpad({}(id), 8, '0'), '-0000-4000-8000-00000000000a') u"
    rest = ["date_add(date'2024-01-01', cast(id as int)) day", "cast(id as decimal(12,2)) `price.net`", "map('a', id, 'b', 1L) m"]
    icelock.spark.upsert(spark.range(0, 20).selectExpr(uuids.format("hex"), *rest, "struct(id as x) s"), TABLE)  # into an empty table
    newer = spark.range(10, 30).selectExpr(
        uuids.format("hex").replace("a') u", "A') u"),
        *rest[:2],
        "map('b', 1L, 'a', if(id = 12, 99L, id)) m",
        "struct(if(id = 13, 0L, id) as x) s",
    )
    icelock.spark.upsert(newer, TABLE)  # by the table's identifier fields
    icelock.spark.upsert(newer, TABLE, ["u", "day", "price.net"])
    table = load(spark_lake)
    assert len(table.snapshots()) == 2
    got = {row["day"].toordinal() - 738_886: row for row in table.scan().to_arrow().to_pylist()}
    assert sorted(got) == list(range(30))
    assert {number for number, row in got.items() if dict(row["m"]) != {"a": number, "b": 1}} == {12}
    assert {number for number, row in got.items() if row["s"] != {"x": number}} == {13}


@pytest.mark.parametrize(
    ("change", "keys", "message"),
    [
        (lambda df: df.unionByName(df.limit(1)), ["id"], "the key id occurs more than once"),
        (
            lambda df: df.withColumn("city", F.expr("if(id = 2, null, city)")),
            ["id", "city"],
            "key column 'city' of the DataFrame has nulls",
        ),
        (lambda df: df.drop("city"), ["id"], "it has no column 'city'"),
        (lambda df: df.withColumn("extra", F.lit(1)), ["id"], "it has column 'extra'"),
        (lambda df: df, ["nope"], "has no column 'nope' to join on"),
        (lambda df: df, None, "has no identifier fields"),
    ],
)
def test_what_cannot_be_merged_is_refused(spark, spark_lake, change, keys, message):
    spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    files = spark_lake.files()
    with pytest.raises(PolicyError, match=message):
        icelock.spark.upsert(change(frame(spark, 0, 3)), TABLE, keys)
    assert spark_lake.files() == files


@pytest.mark.turns(2)
@pytest.mark.usefixtures("rewrites")
@pytest.mark.parametrize("mode", [COW, MOR])
def test_overwrite_by_filter(spark, spark_lake, mode):
    """``write_to`` lets tasks write files again that keep rows; the option of ``df.write`` lets the driver do it."""
    rows, other = frame(spark, 0, 90), frame(spark, 500, 10)
    make(spark_lake, rows, **{"write.delete.mode": mode})
    done = icelock.spark.write_to(other, TABLE).option("snapshot-property.Reason", "law").overwrite("id >= 30 and name is not null")
    assert spark_lake.calls.take() == ["unwrap keyA"]
    assert (done.rows_inserted, done.rows_deleted) == (10, 60 - 8)  # 35, 42 ... 84 have no name
    kept = rows.filter("not (id >= 30 and name is not null)")
    assert stored(spark_lake) == counted(kept.unionByName(other))
    assert operations(spark_lake) == ["append", "overwrite"]
    assert load(spark_lake).current_snapshot().summary.additional_properties["Reason"] == "law"
    write(frame(spark, 0, 5), "overwrite", **{"Overwrite-Filter": "id < 20 or id >= 500"})
    assert stored(spark_lake) == counted(kept.filter("id >= 20").unionByName(frame(spark, 0, 5)))
    assert operations(spark_lake) == ["append", "overwrite", "overwrite"]
    done = icelock.spark.write_to(other, TABLE).overwrite("true")
    assert (done.rows_inserted, done.rows_deleted) == (10, kept.filter("id >= 20").count() + 5)
    assert stored(spark_lake) == counted(other)


def test_overwrite_of_partitions(spark, spark_lake):
    rows, other = frame(spark, 0, 30), frame(spark, 100, 9).filter("city != 'town-2'")
    make(spark_lake, rows)
    write(other, "overwrite", **{"overwrite-mode": "dynamic"})
    expected = rows.filter("city = 'town-2'").unionByName(other)
    assert stored(spark_lake) == counted(expected)
    done = icelock.spark.write_to(frame(spark, 200, 1), TABLE).overwritePartitions()
    assert (done.rows_inserted, done.rows_deleted) == (1, 10)
    assert stored(spark_lake) == counted(expected.filter("city != 'town-2'").unionByName(frame(spark, 200, 1)))
    assert icelock.spark.write_to(other.filter("id < 0"), TABLE).overwritePartitions() == ChangeResult()
    assert len(load(spark_lake).snapshots()) == 3  # no rows, no partitions, no snapshot
    # As in Java, Spark's setting is for SQL: save() replaces all unless the option says otherwise.
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        write(frame(spark, 300, 1), "overwrite", **{"overwrite-mode": "static"})
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert stored(spark_lake) == counted(frame(spark, 300, 1))


def test_writes_to_a_branch(spark, spark_lake):
    rows = frame(spark, 0, 30)
    table = make(spark_lake, rows)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "work").commit()
    write(frame(spark, 100, 5), branch="work")
    icelock.spark.delete(spark, TABLE, "id < 10", branch="work")
    icelock.spark.upsert(frame(spark, 25, 10).withColumn("name", F.lit("new")), TABLE, ["id"], branch="work")
    assert stored(spark_lake) == counted(rows)
    branch = spark.read.format("icelock").option("branch", "work").load(TABLE)
    kept = frame(spark, 100, 5).unionByName(frame(spark, 10, 15)).unionByName(frame(spark, 25, 10).withColumn("name", F.lit("new")))
    assert counted(branch) == counted(kept)


def test_wrong_options_change_nothing(spark, spark_lake):
    """More of them: test_operation_steps.py."""
    spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    files = spark_lake.files()
    with pytest.raises(PolicyError, match=r"^unknown option .overwrite-filters. of a write; did you mean .overwrite-filter."):
        write(frame(spark, 100, 3, 1), "overwrite", **{"Overwrite-Filters": "id = 1"})
    assert spark_lake.files() == files


def test_a_table_is_made_with_its_rows_in_one_commit(spark, spark_lake):
    rows = spark.range(0, 40, 1, 3).selectExpr(
        "id", "concat('canary-', id) name", "timestamp_micros(id * 86400000000) ts", "cast(id as decimal(9,2)) d"
    )
    writer = icelock.spark.write_to(rows, TABLE).using("iceberg").tableProperty("encryption.key-id", "keyA")
    writer.tableProperty("write.parquet.compression-codec", "gzip").option("snapshot-property.by", "ctas")
    done = writer.partitionedBy("months(ts)", "bucket(4, id)", "truncate(8, name)").create()
    calls = spark_lake.calls.take()
    assert (calls.count("wrap keyA"), calls.count("unwrap keyA")) in {
        (1, 1),
        (2, 1),
    }  # the catalog's trial wrap, and the KEK, which is tried
    table = load(spark_lake)
    assert (done.rows_inserted, done.rows_deleted, done.files_added) == (40, 0, len(table.scan().scan_tasks()))
    assert [(field.name, str(field.transform)) for field in table.spec().fields] == [
        ("ts_month", "month"), ("id_bucket", "bucket[4]"), ("name_trunc", "truncate[8]"),
    ]  # fmt: skip
    assert [(field.name, str(field.field_type)) for field in table.schema().fields] == [
        ("id", "long"), ("name", "string"), ("ts", "timestamptz"), ("d", "decimal(9, 2)"),
    ]  # fmt: skip
    assert operations(spark_lake) == ["append"]
    assert table.current_snapshot().summary.additional_properties["by"] == "ctas"
    assert table.properties["write.parquet.compression-codec"] == "gzip"
    names = [path for path in spark_lake.files() if path.endswith(".metadata.json")]
    assert len(names) == 1
    back = spark.read.format("icelock").load(TABLE)
    assert sorted(map(tuple, back.collect())) == sorted(map(tuple, rows.collect()))
    assert not any(b"canary" in content for content in spark_lake.files().values())

    files = spark_lake.files()
    with pytest.raises(TableAlreadyExistsError, match="already exists"):
        icelock.spark.write_to(rows, TABLE).tableProperty("encryption.key-id", "keyA").create()
    assert spark_lake.files() == files
    icelock.spark.write_to(rows.selectExpr("id", "id * 2 twice"), TABLE).partitionedBy("twice").createOrReplace()
    done = icelock.spark.write_to(rows.selectExpr("id", "id * 2 twice").filter("id < 3"), TABLE).replace()
    assert (done.rows_inserted, done.rows_deleted) == (3, None)
    replaced = load(spark_lake)
    assert replaced.metadata.table_uuid == table.metadata.table_uuid
    assert replaced.scan().to_arrow().to_pydict() == {"id": [0, 1, 2], "twice": [0, 2, 4]}
    assert operations(spark_lake) == ["append", "overwrite", "overwrite"]
    assert replaced.spec().is_unpartitioned()
    assert replaced.scan(snapshot_id=replaced.snapshots()[0].snapshot_id).count() == 40


def test_a_job_that_fails_makes_no_table(spark, spark_lake):
    rows = frame(spark, 0, 100).withColumn("name", F.expr("if(id = 99, raise_error('the last row'), name)"))
    with pytest.raises(PySparkException, match="the last row"):
        icelock.spark.write_to(rows, TABLE).tableProperty("encryption.key-id", "keyA").partitionedBy("city").create()
    assert not spark_lake.catalog().table_exists("db.t")
    assert spark_lake.files() == {}


def test_write_to_refuses_what_makes_no_sense(spark, spark_lake):
    spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    files = spark_lake.files()
    rows = frame(spark, 0, 3, 1)
    for wrong, message in (
        (lambda: icelock.spark.write_to(rows, "t"), "is not of the form"),
        (lambda: icelock.spark.write_to(rows, TABLE).using("parquet"), "not 'parquet'"),
        (lambda: icelock.spark.write_to(rows, TABLE).option("brunch", "x"), "did you mean 'branch'"),
        (lambda: icelock.spark.write_to(rows, TABLE).option("overwrite-filter", "x"), "has a method"),
        (lambda: icelock.spark.write_to(rows, TABLE).partitionedBy(F.col("id")), "takes text"),
        (lambda: icelock.spark.write_to(rows, TABLE).partitionedBy("id").append(), "changes an existing one"),
        (lambda: icelock.spark.write_to(rows, TABLE).option("branch", "b").create(), "has its main branch only"),
        (lambda: icelock.spark.write_to(rows, TABLE).overwrite(F.col("id") == 1), "it must be text"),
        (lambda: icelock.spark.delete(spark, TABLE, "id is"), "cannot be read"),
        (lambda: icelock.spark.add_files(spark, TABLE, "x.parquet"), "reencrypt=True"),
        (lambda: icelock.spark.add_files(spark, TABLE, ["a/_x.parquet"], reencrypt=True), "begins with _"),
        (lambda: icelock.spark.delete(spark.newSession(), TABLE, "id = 1"), "register"),
    ):
        with pytest.raises(PolicyError, match=message):
            wrong()
    assert spark_lake.files() == files


def test_plain_parquet_files_are_encrypted_on_the_way(spark, spark_lake, tmp_path):
    rows, more = frame(spark, 0, 30), frame(spark, 100, 5).drop("name")
    rows.write.parquet(str(tmp_path / "plain"))
    more.write.parquet(str(tmp_path / "more"))
    make(spark_lake, frame(spark, 500, 1))
    done = icelock.spark.add_files(
        spark, TABLE, [str(tmp_path / "plain"), str(tmp_path / "more")], reencrypt=True, snapshot_properties={"from": "x"}
    )
    expected = rows.unionByName(more, allowMissingColumns=True).unionByName(frame(spark, 500, 1))
    assert stored(spark_lake) == counted(expected)
    assert load(spark_lake).current_snapshot().summary.additional_properties["from"] == "x"
    assert (done.rows_inserted, done.rows_deleted) == (35, 0)
    parquet = [content for path, content in spark_lake.files().items() if path.endswith(".parquet")]
    assert {content[:4] for content in parquet} == {b"PARE"}
    assert not any(b"name-1" in content for content in parquet)


def test_jobs_that_write_at_once_all_succeed(spark, spark_lake):
    make(spark_lake, frame(spark, 0, 10), **{"commit.retry.num-retries": "20"})
    failed: list[BaseException] = []

    def append(number):
        try:
            icelock.spark.write_to(frame(spark, number * 100, 10), TABLE).append()
        except BaseException as e:  # noqa: BLE001 - told to the test
            failed.append(e)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for number in range(5, 9):
        load(spark_lake).append(pa.table(stored_rows(number)))
    for thread in threads:
        thread.join()
    assert failed == []
    ids = load(spark_lake).scan().to_arrow().column("id").to_pylist()
    assert sorted(ids) == sorted(number * 100 + row for number in range(9) for row in range(10))
    assert len(load(spark_lake).snapshots()) == 9
    assert len({snapshot.key_id for snapshot in load(spark_lake).snapshots()}) == 9


def stored_rows(number):
    ids = range(number * 100, number * 100 + 10)
    return {"id": list(ids), "name": [f"name-{i}" for i in ids], "city": [f"town-{i % 3}" for i in ids]}


def test_a_catalogs_default_key_makes_tables_of_spark_encrypted(spark, lake):
    """Java's SparkCatalog heeds table-default.* as well; icelock.plain makes no plain table here."""
    defaults = {"table-default.encryption.key-id": "keyA", "table-override.write.parquet.compression-codec": "gzip"}
    icelock.spark.register(spark, {"test": lake.properties(**defaults)})
    rows = spark.createDataFrame([(1, "a")], "id long, name string")
    with pytest.raises(PolicyError, match="exclude each other"):
        icelock.spark.write_to(rows, TABLE).tableProperty("encryption.key-id", "keyA").tableProperty("icelock.plain", "true").create()
    with pytest.raises(PolicyError, match="creates encrypted tables only"):
        icelock.spark.write_to(rows, TABLE).tableProperty("icelock.plain", "true").create()
    icelock.spark.write_to(rows, TABLE).createOrReplace()
    made = lake.catalog().load_table("db.t")
    assert made.properties["encryption.key-id"] == "keyA"
    assert made.properties["write.parquet.compression-codec"] == "gzip"
    assert all(data[:4] in {b"AGS1", b"PARE"} for path, data in lake.files().items() if not path.endswith((".metadata.json", ".crc")))
    icelock.spark.write_to(rows, TABLE).createOrReplace()
    assert lake.catalog().load_table("db.t").scan().count() == 1
