"""Options of a read in Spark: columns, schema, time travel, branches, and what is refused (C-54, C-55, C-58)."""

from __future__ import annotations

import datetime as dt

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestampNanoType, TimeType, UnknownType
from pyspark.errors import PySparkException
from pyspark.sql import types as sp

import icelock.spark
from icelock.errors import PolicyError
from icelock.metadata.column_types import UnreadType, with_types
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"


@pytest.fixture
def history(spark_lake):
    """A table of three snapshots, with a branch and a tag at the first two; returns the lake."""
    catalog = spark_lake.catalog()
    table = catalog.create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0))
    table.append(people(10))
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().create_branch(first, "audit").create_tag(second, "v2").commit()
    catalog.load_table("db.t").append(people(20))
    return spark_lake


def read(spark, **options):
    return spark.read.format("icelock").options(**options).load(TABLE)


def ids(df):
    return sorted(row.id for row in df.select("id").collect())


@pytest.mark.spark43
def test_time_travel(spark, history):
    snapshots = history.catalog().load_table("db.t").snapshots()
    assert ids(read(spark)) == list(range(30))
    assert ids(read(spark, **{"snapshot-id": str(snapshots[1].snapshot_id)})) == list(range(20))
    assert ids(read(spark, **{"as-of-timestamp": str(snapshots[0].timestamp_ms)})) == list(range(10))
    moment = dt.datetime.fromtimestamp(snapshots[1].timestamp_ms / 1000, dt.UTC).isoformat()
    assert ids(read(spark, **{"as-of-timestamp": moment})) == list(range(20))
    assert ids(read(spark, branch="audit")) == list(range(10))
    assert ids(read(spark, tag="v2")) == list(range(20))


def test_names_of_options_in_any_case(spark, history):
    snapshot = history.catalog().load_table("db.t").snapshots()[0].snapshot_id
    df = spark.read.format("ICELOCK").option("Snapshot-ID", snapshot).option("COLUMNS", "id, name").option("Table", TABLE).load()
    assert df.columns == ["id", "name"]
    assert df.count() == 10


def test_a_dataframe_keeps_its_snapshot(spark, history):
    df = read(spark)
    assert df.count() == 30
    history.catalog().load_table("db.t").append(people(30))
    assert df.count() == 30
    assert ids(df.filter("id > 27")) == [28, 29]
    assert read(spark).count() == 40


def test_a_dataframe_of_an_empty_table_stays_empty(spark, spark_lake):
    table = spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    df = read(spark)
    assert df.count() == 0
    assert df.columns == ["id", "name", "city"]
    table.append(people())
    assert df.count() == 0
    assert read(spark).count() == 10


def test_a_dataframe_ends_when_its_columns_change(spark, history):
    df = read(spark)
    history.catalog().load_table("db.t").update_schema().rename_column("name", "label").commit()
    with pytest.raises(PySparkException, match="changed since the DataFrame was made: load it again"):
        df.count()


def test_columns_in_the_asked_order(spark, history):  # noqa: ARG001 - the fixture makes the table
    assert read(spark, columns="city,id").columns == ["id", "city"]  # the table's order
    assert read(spark, columns="city").distinct().count() == 3


def test_only_named_columns_are_decrypted(spark, spark_lake):
    """C-54: of a wide table, reading one column reads a small part of its files."""
    import pyarrow as pa  # noqa: PLC0415

    wide = pa.table({f"c{n}": pa.array([f"{n}-{i}-{i * 7919}" for i in range(2000)]) for n in range(50)})
    spark_lake.catalog().create_table("db.wide", wide.schema, properties=KEYED).append(wide)
    df = spark.read.format("icelock").option("columns", "c7").load("test.db.wide")
    assert df.columns == ["c7"]
    assert df.filter("c7 = '7-5-39595'").count() == 1
    # that only the leaf columns of the projection are read is tested in tests/unit/arrow; here: the reader is asked for one
    assert '"c7"' in df.schema.json()


@pytest.mark.spark43
def test_a_given_schema_prunes_columns_nested_ones_too(spark, spark_lake):
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(
            2,
            "st",
            StructType(NestedField(3, "x", LongType(), required=False), NestedField(4, "y", StringType(), required=False)),
            required=False,
        ),
        NestedField(5, "s", StringType(), required=False),
    )
    spark_lake.catalog().create_table("db.t", schema, properties=KEYED)
    spark.sql("select id, named_struct('x', id, 'y', 'w') st, 'v' s from range(3)").write.format("icelock").mode("append").save(TABLE)
    df = spark.read.format("icelock").schema("s string, st struct<y: string>").load(TABLE)
    assert df.distinct().collect() == [sp.Row(s="v", st=sp.Row(y="w"))]
    other_case = spark.read.format("icelock").schema("ID bigint").load(TABLE)
    assert sorted(row.ID for row in other_case.filter("id > 0").collect()) == [1, 2]
    assert read(spark, columns="st.x").schema.simpleString() == "struct<st:struct<x:bigint>>"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("nope string", "no column 'nope'; it has id, name, city"),
        ("nam string", "did you mean 'name'"),
        ("id int", "is bigint in Spark, not int"),
        ("name string not null", "may have nulls"),
    ],
)
def test_a_given_schema_must_be_the_tables(spark, history, asked, message):  # noqa: ARG001 - the fixture makes the table
    schema = sp.StructType.fromDDL(asked) if hasattr(sp.StructType, "fromDDL") else asked
    with pytest.raises(PySparkException, match=message):
        spark.read.format("icelock").schema(schema).load(TABLE).collect()


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshotid": "1"}, "unknown option 'snapshotid' of a read or a stream; did you mean 'snapshot-id'"),
        ({"kmsEndpoint": "x"}, "'kmsendpoint' is a setting of a catalog"),
        ({"Encryption.Kms-Impl": "x"}, "'encryption.kms-impl' is a setting of a catalog"),
        ({"whatever": "x"}, "known: columns, snapshot-id"),
        ({"snapshot-id": "1", "branch": "main"}, "snapshot-id and branch exclude each other"),
        ({"snapshot-id": "one"}, "must be a whole number"),
        ({"snapshot-id": "12345"}, "snapshot 12345 is not in the table"),
        ({"as-of-timestamp": "yesterday"}, "milliseconds since 1970, or a time"),
        ({"as-of-timestamp": "2020-01-01T00:00:00"}, "no time zone"),
        ({"as-of-timestamp": "²"}, "milliseconds since 1970, or a time"),
        ({"as-of-timestamp": "--5"}, "milliseconds since 1970, or a time"),
        ({"as-of-timestamp": "1000"}, "had no snapshot at 1000"),
        ({"branch": "nope"}, "has no branch 'nope'; it has: audit, main"),
        ({"branch": "v2"}, "is a tag, not a branch"),
        ({"tag": "audit"}, "is a branch, not a tag"),
        ({"columns": "id,,name"}, "column names separated by commas"),
        ({"columns": "nope"}, "option columns"),
        ({"table": "test.db.other"}, "two tables are named"),
    ],
)
def test_wrong_options_are_refused(spark, history, options, message):  # noqa: ARG001 - the fixture makes the table
    with pytest.raises(PySparkException, match=message):
        read(spark, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t", "not of the form catalog.namespace.table"),
        ("test.t", "not of the form catalog.namespace.table"),
        ("other.db.t", "no catalog 'other'.* given test"),
        ("test.db.nope", "there is no table test.db.nope; create it first"),
        ("test.db.t.snapshots", r"there is no table test.db.t.snapshots; of table test.db.t .* table.changes\(\.\.\.\)"),
        ("test.db.nope.changes", "there is no table test.db.nope"),
    ],
)
def test_wrong_names_are_refused(spark, history, name, message):  # noqa: ARG001 - the fixture makes the table
    with pytest.raises(PySparkException, match=message):
        spark.read.format("icelock").load(name)


def test_columns_that_are_not_read_are_refused_by_name_and_the_others_are_read(spark, spark_lake):
    catalog = spark_lake.catalog()
    table = catalog.create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    table.append(people())
    with table.update_schema() as update:
        update.add_column("v", UnreadType("variant"))
        update.add_column("g", with_types({"type": "geometry(OGC:CRS84)"})["type"])
    with pytest.raises(PySparkException, match=r"column 'v' .* is of type variant, .*option columns"):
        read(spark)
    with pytest.raises(PySparkException, match=r"column 'g' .* is of type geometry\(OGC:CRS84\)"):
        read(spark, columns="id,g")
    for name in ("id", "id,name"):
        assert sorted(row.id for row in read(spark, columns=name).where("id > 7").collect()) == [8, 9]
    with pytest.raises(PolicyError, match="'v'"):
        icelock.spark.read(spark, TABLE)
    assert icelock.spark.read(spark, TABLE, columns=["id"]).count() == 10


def test_types_that_spark_has_not_are_refused_with_a_way_out(spark, spark_lake):
    """C-58: nanoseconds are never cut."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "clock", TimeType(), required=False),
        NestedField(3, "ns", TimestampNanoType(), required=False),
        NestedField(4, "nothing", UnknownType(), required=False),
    )
    spark_lake.catalog().create_table("db.t", schema, properties=KEYED)
    with pytest.raises(PySparkException, match=r"column 'clock' .* is of type time, .*option columns"):
        read(spark)
    with pytest.raises(PySparkException, match=r"column 'ns' .* is of type timestamp_ns"):
        read(spark, columns="ns")
    spark.range(2).write.format("icelock").mode("append").save(TABLE)
    df = read(spark, columns="id,nothing")
    assert df.schema.simpleString() == "struct<id:bigint,nothing:void>"
    assert sorted(map(tuple, df.collect())) == [(0, None), (1, None)]


def test_tables_below_version_3_are_read(spark, spark_lake):
    spark_lake.catalog().create_table("db.t", people().schema, properties={"icelock.plain": "true"}).append(people())
    assert read(spark).filter("id > 6").count() == 3


def test_no_kms(spark, history):
    """C-60: planning says what is missing; nothing is read."""
    keep = {k: v for k, v in history.properties().items() if not k.startswith(("encryption.", "kms."))}
    icelock.spark.register(spark, {"test": keep})
    df = read(spark)
    with pytest.raises(PySparkException, match="encrypted with master key 'keyA', but no KMS is configured for catalog test"):
        df.count()


def test_a_changed_data_file_is_refused(spark, history):
    path = next((history.warehouse).rglob("*.parquet"))
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 1
    path.write_bytes(stored)
    with pytest.raises(PySparkException, match=r"(?s)IntegrityError.*\.parquet"):
        read(spark).collect()


@pytest.mark.parametrize("catalogs", [{"a.b": {}}, {"": {}}, {" a": {}}])
def test_catalog_names_are_checked(spark, catalogs):
    with pytest.raises(PolicyError, match="it cannot have a dot"):
        icelock.spark.register(spark, catalogs)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"encryption.kms_type": "memory"}, "did you mean 'encryption.kms-type'"),
        ({"icelock.spark.plain_rpc": "warn"}, "did you mean 'icelock.spark.plain-rpc'"),
        ({"icelock.spark.plain-rpc": "never"}, "must be 'warn' or 'refuse'"),
    ],
)
def test_misspelt_settings_are_refused_at_register(spark, properties, message):
    with pytest.raises(PolicyError, match=message):
        icelock.spark.register(spark, {"test": properties})
