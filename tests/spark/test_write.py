"""Spark writes: append, overwrite, partitions without sorted input, and what is refused before any task runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, MonthTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType, UUIDType
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import KmsError, PolicyError
from tests.helpers.tables import load
from tests.lakes.sqlite import KEY, KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"


def make(lake, schema=None, properties=KEYED, **more):
    return lake.catalog().create_table("db.t", people().schema if schema is None else schema, properties=properties, **more)


def frame(spark, start=0, count=10, parts=1):
    return spark.range(start, start + count, 1, parts).selectExpr(
        "id", "concat('canary-', lpad(id, 5, '0')) name", "concat('town-', id % 3) city"
    )


def write(df, mode="append", table=TABLE):
    df.write.format("icelock").mode(mode).save(table)


def data_files(lake):
    return sorted(path for path in lake.files() if path.startswith("db/t/data/"))


@pytest.mark.spark43(daily=True)
def test_append_and_overwrite_make_one_snapshot_each(spark, spark_lake):
    make(spark_lake)
    write(frame(spark, 0, 10, 3))
    write(frame(spark, 10, 10, 2))
    assert spark.read.format("icelock").load(TABLE).count() == 20
    write(frame(spark, 100, 5), mode="overwrite")
    table = load(spark_lake)
    assert [s.summary.operation.value for s in table.snapshots()] == ["append", "append", "overwrite"]
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(100, 105))
    first = table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()
    assert sorted(first.column("name").to_pylist()) == sorted(people().column("name").to_pylist())
    assert table.inspect.entries().num_rows > 0


def test_nothing_of_the_rows_is_on_storage_in_the_clear(spark, spark_lake):
    make(spark_lake)
    write(frame(spark, 0, 100, 2))
    stored = spark_lake.files()
    assert len(stored) > 4
    for path, content in stored.items():
        assert b"canary" not in content, path
    assert {content[:4] for path, content in stored.items() if path.endswith(".parquet")} == {b"PARE"}


@pytest.mark.spark43
def test_partitions_are_written_from_unsorted_input(spark, spark_lake):
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "day", DateType(), required=False),
        NestedField(3, "k", StringType(), required=False),
    )
    spec = PartitionSpec(PartitionField(2, 1000, MonthTransform(), "month"), PartitionField(3, 1001, IdentityTransform(), "k"))
    make(spark_lake, schema, partition_spec=spec)
    df = spark.range(0, 3000, 1, 2).selectExpr(
        "id",
        "case when id % 11 = 0 then null else date_add(date'2024-01-31', cast(id * 7 % 365 as int)) end day",
        "concat('k', id * 13 % 5) k",
    )
    write(df)
    table = load(spark_lake)
    assert table.scan().count() == 3000
    groups = {tuple(row) for row in df.selectExpr("date_trunc('month', day) m", "k").distinct().collect()}
    files = table.inspect.files().num_rows
    assert len(groups) <= files <= 2 * len(groups)  # one file a partition and task at most
    wanted = df.filter("day >= date'2024-03-01' and day < date'2024-04-01' and k = 'k3'").count()
    read = spark.read.format("icelock").load(TABLE).filter("day >= date'2024-03-01' and day < date'2024-04-01' and k = 'k3'")
    assert read.count() == wanted > 0
    assert read.rdd.getNumPartitions() <= 2


def test_sort_order_is_kept(spark, spark_lake):
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST))
    make(spark_lake, sort_order=order)
    write(frame(spark, 0, 1000))
    (task,) = load(spark_lake).scan().scan_tasks()
    assert task.record_count == 1000
    assert load(spark_lake).scan().to_arrow().column("id").to_pylist() == list(range(999, -1, -1))


def test_sizes_follow_the_tables_properties(spark, spark_lake):
    sized = {
        **KEYED,
        "write.target-file-size-bytes": "20000",
        "write.parquet.row-group-size-bytes": "5000",
        "write.parquet.compression-codec": "uncompressed",
    }
    make(spark_lake, properties=sized)
    write(spark.range(0, 20_000, 1, 1).selectExpr("id", "sha(cast(id as string)) name", "'x' city"))
    files = load(spark_lake).inspect.files()
    assert files.num_rows > 10
    assert max(files.column("file_size_in_bytes").to_pylist()) < 60_000


def test_row_groups_are_javas_in_tasks_and_smaller_in_python(spark, spark_lake):
    """By split offsets, of which a file has one for each row group; Spark reads many groups slower than few, Python faster."""
    make(spark_lake)
    write(spark.range(0, 300_000, 1, 1).selectExpr("id", "cast(id as string) name", "'x' city"))
    table = load(spark_lake)
    table.append(table.scan().to_arrow())
    assert sorted(map(len, load(spark_lake).inspect.files()["split_offsets"].to_pylist())) == [1, 3]


def test_columns_by_name_in_any_order_and_case(spark, spark_lake):
    make(spark_lake)
    write(frame(spark).selectExpr("CITY as City", "id as ID", "name"))
    got = load(spark_lake).scan().to_arrow()
    assert sorted(got.column("city").to_pylist()) == sorted(people().column("city").to_pylist())


def test_case_counts_when_the_session_says_so(spark, spark_lake):
    make(spark_lake)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        icelock.spark.register(spark, {"test": spark_lake.properties()})
        with pytest.raises(PolicyError, match="no column 'ID'"):
            write(spark.range(3).selectExpr("id as ID"))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_missing_optional_columns_are_null(spark, spark_lake):
    make(spark_lake)
    write(spark.range(3))
    assert load(spark_lake).scan().to_arrow().column("name").null_count == 3


def test_narrower_types_are_taken(spark, spark_lake):
    schema = Schema(NestedField(1, "i", IntegerType(), required=False), NestedField(2, "l", LongType(), required=False))
    make(spark_lake, schema)
    write(spark.range(3).selectExpr("cast(id as tinyint) i", "cast(id as smallint) l"))
    assert load(spark_lake).scan().to_arrow().to_pydict() == {"i": [0, 1, 2], "l": [0, 1, 2]}


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (["id", "1 extra", "2 more"], "no column 'extra', 'more'"),
        (["'x' id"], "column 'id'"),
        (["id", "timestamp'2024-01-01' name"], "column 'name'"),
        (["id", "interval 1 day name"], "which no Iceberg column takes"),
        (["id", "id as ID"], "more than one column for 'id'"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_tasks(spark, spark_lake, select, message):
    make(spark_lake)
    before = spark_lake.files()
    spark_lake.calls.take()
    with pytest.raises(PolicyError, match=message):
        write(spark.range(3).selectExpr(*select))
    assert spark_lake.files() == before
    assert spark_lake.calls.take() == []


def test_a_missing_required_column_is_refused(spark, spark_lake):
    make(spark_lake, Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=True)))
    before = spark_lake.files()
    with pytest.raises(PolicyError, match="column 'name' is required, and the input lacks it"):
        write(spark.range(3))
    assert spark_lake.files() == before


@pytest.mark.parametrize("value", ["null", "'not a uuid'"])
def test_a_row_that_does_not_fit_fails_the_job_and_leaves_nothing(spark, spark_lake, value):
    make(spark_lake, Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "u", UUIDType(), required=True)))
    before = spark_lake.files()
    good = "'f79c3e09-677c-4bbd-a479-3f349cb785e7'"
    with pytest.raises(PySparkException, match="column 'u'"):
        write(spark.range(0, 40_000, 1, 2).selectExpr("id", f"case when id = 39999 then {value} else {good} end u"))
    assert spark_lake.files() == before


def test_plain_tables_are_refused(spark, spark_lake):
    make(spark_lake, properties={"icelock.plain": "true"})
    with pytest.raises(PolicyError, match="is plain, and catalog test writes encrypted tables"):
        write(spark.range(3))
    assert data_files(spark_lake) == []


def test_missing_tables_are_refused(spark, spark_lake):  # noqa: ARG001 - the fixture makes the lake
    with pytest.raises(PySparkException, match=r"there is no table test.db.nope; create it first"):
        write(spark.range(3), table="test.db.nope")


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_other_modes_are_refused_by_spark(spark, spark_lake, mode):
    make(spark_lake)
    with pytest.raises(PySparkException, match=r"UNSUPPORTED_DATA_SOURCE_SAVE_MODE|UNSUPPORTED"):
        write(frame(spark), mode=mode)
    assert data_files(spark_lake) == []


@pytest.mark.parametrize("option", ["columns", "snapshot-id", "Encryption.Key-Id", "tabel"])
def test_options_of_a_write_are_checked(spark, spark_lake, option):
    make(spark_lake)
    with pytest.raises(PolicyError, match=r"unknown option|is a property of a table"):
        frame(spark).write.format("icelock").mode("append").option(option, "x").save(TABLE)


@pytest.mark.parametrize("denied", ["wrap", "unwrap"])
def test_a_kms_that_refuses_stops_the_write_before_tasks(spark, spark_lake, denied):
    make(spark_lake)
    if denied == "unwrap":
        load(spark_lake).append(people())  # by another catalog, so that the session's has no key yet
    before = spark_lake.files()
    spark_lake.calls.deny(denied)
    with pytest.raises(KmsError, match=f"the right to {denied} with keyA is missing"):
        write(frame(spark, 10))
    assert spark_lake.files() == before


@pytest.mark.spark43
def test_empty_input_and_empty_partitions(spark, spark_lake):
    make(spark_lake)
    write(frame(spark, 0, 2, 4))  # more partitions than rows
    assert load(spark_lake).scan().count() == 2
    assert len(data_files(spark_lake)) == 1  # so few rows are written by the user's process
    write(frame(spark).filter("id < 0"))
    assert load(spark_lake).scan().count() == 2
    write(frame(spark).filter("id < 0"), mode="overwrite")
    assert load(spark_lake).scan().count() == 0


def test_overwrite_of_what_is_read(spark, spark_lake):
    make(spark_lake)
    write(frame(spark, 0, 20))
    write(spark.read.format("icelock").load(TABLE).filter("id % 2 = 0"), mode="overwrite")
    assert sorted(load(spark_lake).scan().to_arrow().column("id").to_pylist()) == list(range(0, 20, 2))


def test_a_table_in_pyicebergs_configuration(spark, spark_lake, monkeypatch):
    """A catalog that ``register`` was not given; planning processes see the driver's environment from before they started."""
    make(spark_lake)
    monkeypatch.setenv("PYICEBERG_CATALOG__ELSEWHERE__URI", "sqlite:///nowhere.db")
    icelock.spark.register(spark, {})
    with pytest.raises(PolicyError, match=r"no catalog 'test'.* was given none"):
        write(frame(spark))


def test_demo_of_the_readme_in_small(spark, spark_lake):
    """Append through Spark, read with plain Python, filtered and projected."""
    make(spark_lake)
    write(frame(spark, 0, 100))
    got = load(spark_lake).scan(row_filter="city = 'town-1' and id < 10", selected_fields=("id",)).to_arrow()
    assert sorted(got.column("id").to_pylist()) == [1, 4, 7]
    assert not list(Path(spark_lake.folder).rglob("*.crc"))


@pytest.mark.spark43
@pytest.mark.parametrize("count", [2, 200])
def test_few_rows_are_written_as_many_are(sql, count):
    """A null struct may have required fields (specification); CTAS makes structs of literals, whose fields are never null, optional."""
    sql(f"create table test.db.t (id int not null, s struct<m: int not null, n: struct<z: string not null>>) {KEY}")
    struct = "if(id = 0, null, named_struct('m', int(id), 'n', if(id = 1, null, named_struct('z', 'x'))))"
    sql(f"insert into test.db.t select int(id), {struct} from range({count})")
    assert sql("select id, s.m, s.n.z from test.db.t where id < 2 order by id") == [(0, None, None), (1, 1, None)]
    assert sql("select count(*), count(s), count(s.n), count(s.n.z) from test.db.t") == [(count, count - 1, count - 2, count - 2)]
    sql(f"""create table test.db.u {KEY} as select if(id = 0, null, named_struct('x', 1)) s, array(named_struct('x', 1), null) a,
        map('k', array(named_struct('y', 1), null)) m from range({count})""")
    assert sql("select count(*), count(s.x), sum(size(a)), count(a[1]), sum(m['k'][0].y) from test.db.u") == [
        (count, count - 1, 2 * count, 0, count)
    ]
