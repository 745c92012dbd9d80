"""Columns of the native scan: by field id at every level, whatever their names are and were.

Files are written under one schema and read under another, by Spark's own Parquet reader. Expected rows are written out.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyiceberg import types as ice
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import PolicyError
from tests.lakes.sqlite import KEYED
from tests.spark.native_tables import TABLE, append, create, evolve, native, optional, values

pytestmark = pytest.mark.spark

FAILED = (Py4JError, PySparkException)
MERGE_ON_READ = {"write.delete.mode": "merge-on-read"}
LONG, INT, STRING = ice.LongType(), ice.IntegerType(), ice.StringType()
NESTED = Schema(
    optional(1, "id", LONG),
    optional(2, "s", ice.StructType(optional(3, "x", INT), optional(4, "y", STRING))),
    optional(5, "l", ice.ListType(6, ice.StructType(optional(7, "p", INT), optional(8, "q", STRING)), element_required=False)),
    optional(
        9,
        "m",
        ice.MapType(10, STRING, 11, ice.StructType(optional(12, "v", INT), optional(13, "w", ice.FloatType())), value_required=False),
    ),
)


def nested(number: int) -> dict[str, object]:
    return {
        "id": number,
        "s": {"x": number, "y": f"y{number}"},
        "l": [{"p": number, "q": f"q{number}"}],
        "m": [("k", {"v": number, "w": number / 2})],
    }


def renamed(update) -> None:
    update.rename_column("id", "ident")
    update.rename_column("s.x", "z")
    update.rename_column("l.p", "pp")
    update.rename_column("m.v", "vv")


def changed(update) -> None:
    """The old names come back with other types, one dropped field's too, and what is left is promoted."""
    update.add_column("id", STRING)
    update.add_column(("s", "x"), STRING)
    update.delete_column("l.element.q")
    update.update_column("s.z", LONG)
    update.update_column("m.w", ice.DoubleType())


def last(update) -> None:
    update.add_column(("l", "q"), LONG)
    update.move_first("m")


@pytest.fixture
def evolved(spark, spark_lake):
    create(spark_lake, NESTED, [nested(1), nested(2)])
    for step in (renamed, changed, last):
        evolve(spark_lake, step)
    new = {"ident": 3, "s": {"z": 5_000_000_000, "y": "y3", "x": "new"}, "l": [{"pp": 3, "q": 77}], "m": [("k", {"vv": 3, "w": 1e300})]}
    append(spark_lake, {**new, "id": "t"})
    return native(spark)


@pytest.mark.spark43
def test_whole_rows_after_renames_drops_and_promotions(spark_lake, evolved):
    expected = [
        ([("k", {"vv": 1, "w": 0.5})], 1, {"z": 1, "y": "y1", "x": None}, [{"pp": 1, "q": None}], None),
        ([("k", {"vv": 2, "w": 1.0})], 2, {"z": 2, "y": "y2", "x": None}, [{"pp": 2, "q": None}], None),
        ([("k", {"vv": 3, "w": 1e300})], 3, {"z": 5_000_000_000, "y": "y3", "x": "new"}, [{"pp": 3, "q": 77}], "t"),
    ]
    found = evolved.orderBy("ident").toArrow()
    assert found.column_names == ["m", "ident", "s", "l", "id"]
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
    assert spark_lake.catalog().load_table("db.t").scan().to_arrow().sort_by("ident").to_pylist() == found.to_pylist()


@pytest.mark.spark43
def test_parts_of_columns_are_read_by_id(evolved):
    """Nested column pruning: Spark asks the file for one field of a struct."""
    expected = {
        "s.z": [1, 2, 5_000_000_000],
        "s.x": [None, None, "new"],
        "s.y": ["y1", "y2", "y3"],
        "l.pp": [[1], [2], [3]],
        "l.q": [[None], [None], [77]],
        "l[0].pp": [1, 2, 3],
        "m['k'].vv": [1, 2, 3],
        "m['k'].w": [0.5, 1.0, 1e300],
        "id": [None, None, "t"],
    }
    for column, found in expected.items():
        assert [row[1] for row in evolved.selectExpr("ident i", column).orderBy("i").collect()] == found, column


def test_filters_on_names_that_meant_other_columns(evolved):
    expected = {
        "s.z = 1": [1],
        "s.z > 3000000000": [3],
        "s.x is null": [1, 2],
        "s.x = 'new'": [3],
        "id is null": [1, 2],
        "id = 't'": [3],
        "id <> 't'": [],
        "ident = 2": [2],
        "l[0].q is null": [1, 2],
        "m['k'].vv = 2": [2],
        "m['k'].w > 1e299": [3],
    }
    for condition, found in expected.items():
        assert values(evolved.filter(condition).select("ident")) == found, condition
    assert values(evolved.filter("s.z = 1").select("s.x")) == [None]


def test_names_that_were_swapped(spark, spark_lake):
    inner = ice.StructType(
        optional(4, "u", INT), optional(5, "v", STRING), optional(6, "d", ice.DecimalType(9, 2)), optional(7, "e", ice.DecimalType(9, 3))
    )
    schema = Schema(optional(1, "a", INT), optional(2, "b", ice.DoubleType()), optional(3, "s", inner))
    create(spark_lake, schema, [{"a": 1, "b": 2.5, "s": {"u": 1, "v": "v", "d": Decimal("1.25"), "e": Decimal("7.125")}}])
    for old, new in (
        ("a", "t"),
        ("b", "a"),
        ("t", "b"),
        ("s.u", "t"),
        ("s.v", "u"),
        ("s.t", "v"),
        ("s.d", "t"),
        ("s.e", "d"),
        ("s.t", "e"),
    ):
        evolve(spark_lake, lambda update, old=old, new=new: update.rename_column(old, new))
    found = native(spark)
    assert [tuple(row) for row in found.select("a", "b", "s.u", "s.v", "s.d", "s.e").collect()] == [
        (2.5, 1, "v", 1, Decimal("7.125"), Decimal("1.25"))
    ]
    assert values(found.filter("a = 2.5 and s.d = 7.125").select("s.e")) == [Decimal("1.25")]
    assert values(found.filter("a = 1").select("b")) == []


def test_a_column_under_a_dropped_ones_name(spark, spark_lake):
    create(spark_lake, Schema(optional(1, "id", LONG), optional(2, "a", LONG)), [{"id": 1, "a": 5}])
    evolve(spark_lake, lambda update: update.delete_column("a"))
    evolve(spark_lake, lambda update: update.add_column("a", LONG))
    append(spark_lake, {"id": 2, "a": 6})
    found = native(spark)
    assert values(found.filter("a is null").select("id")) == [1]
    assert values(found.filter("a = 5").select("id")) == []
    assert values(found.filter("a = 6").select("id")) == [2]
    assert values(found.filter("a <=> 5 or id = 1").select("a")) == [None]


@pytest.mark.spark43
def test_a_filter_beyond_the_digits_that_a_file_has(spark, spark_lake):
    """Spark cuts a decimal to 32 bits for a file that has so many: 50000000.00 would become 7050327.04, and the row's group is left out."""
    create(spark_lake, Schema(optional(1, "id", LONG), optional(2, "d", ice.DecimalType(9, 2)), optional(3, "n", INT)))
    append(spark_lake, {"id": 1, "d": Decimal("9000000.00"), "n": 2_000_000_000})
    evolve(spark_lake, lambda update: update.update_column("d", ice.DecimalType(18, 2)).update_column("n", LONG))
    append(spark_lake, {"id": 2, "d": Decimal("10000000000.01"), "n": 5_000_000_000})
    found = native(spark)
    conditions = {"d < 50000000": [1], "d = 9000000": [1], "d > 10000000000": [2], "n < 5000000000": [1], "n > 3000000000": [2]}
    for condition, expected in conditions.items():
        assert values(found.filter(condition).select("id")) == expected, condition


@pytest.mark.spark43
def test_a_struct_whose_fields_are_all_newer_is_no_null(spark, spark_lake):
    schema = Schema(
        optional(1, "id", LONG), optional(2, "s", ice.StructType(optional(3, "a", LONG), optional(4, "l", ice.ListType(5, LONG))))
    )
    create(spark_lake, schema, [{"id": 1, "s": {"a": 1, "l": [1]}}, {"id": 2, "s": None}])
    evolve(spark_lake, lambda update: update.add_column(("s", "n"), STRING))
    for name in ("s.a", "s.l", None):
        found = native(spark)
        assert values(found.filter("s is not null").select("id")) == [1]
        assert values(found.selectExpr("id", "s is null", "s.n")) == [(1, False, None), (2, True, None)]
        if name:
            evolve(spark_lake, lambda update, name=name: update.delete_column(name))


DEFAULTS = {
    "b": (ice.BooleanType(), True, "b"),
    "i": (INT, -5, "i = -5"),
    "l": (LONG, -(2**63), "l < -9223372036854775807"),
    "f": (ice.FloatType(), 0.5, "f > 0.4 and f < 0.6"),
    "d": (ice.DoubleType(), 1e300, "d > 1e299"),
    "dec": (ice.DecimalType(9, 2), Decimal("-1.50"), "dec = -1.5"),
    "dec18": (ice.DecimalType(18, 4), Decimal("12345678901234.5678"), "dec18 = 12345678901234.5678"),
    "dt": (ice.DateType(), dt.date(1, 1, 1), "dt = date'0001-01-01'"),
    "ts": (ice.TimestampType(), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "ts < timestamp_ntz'1970-01-01'"),  # noqa: DTZ001
    "tz": (ice.TimestamptzType(), dt.datetime(2020, 5, 5, 1, 2, 3, 4, tzinfo=dt.UTC), "tz > timestamp'2020-05-05 00:00:00+00:00'"),
    "s": (STRING, 'it\'s \\ "q" ${x} %s \n é 𝄞 `;--', "s like 'it%'"),
    "e": (STRING, "", "e = ''"),
}
SETTINGS = (
    ("spark.sql.session.timeZone", "America/New_York"),
    ("spark.sql.parser.escapedStringLiterals", "true"),
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.parquet.enableVectorizedReader", "false"),
    ("spark.sql.parquet.enableNestedColumnVectorizedReader", "false"),
    ("spark.sql.parquet.binaryAsString", "true"),
    ("spark.sql.parquet.fieldId.read.ignoreMissing", "true"),
)


@pytest.mark.spark43(daily=True)
def test_defaults_stand_for_older_rows_and_for_no_null(spark, spark_lake):
    create(spark_lake, Schema(optional(1, "id", LONG)), [{"id": 1}, {"id": 2}])
    for name, (kind, value, _) in DEFAULTS.items():
        evolve(spark_lake, lambda update, name=name, kind=kind, value=value: update.add_column(name, kind, default_value=value))
    append(spark_lake, {"id": 3})
    older = {name: value for name, (_, value, _) in DEFAULTS.items()}
    expected = [{"id": 1, **older}, {"id": 2, **older}, {"id": 3, **dict.fromkeys(DEFAULTS)}]
    for setting, value in SETTINGS:
        before = spark.conf.get(setting, None)
        spark.conf.set(setting, value)
        try:
            assert native(spark).toArrow().sort_by("id").to_pylist() == expected, setting
        finally:
            spark.conf.unset(setting)
            if setting.endswith("timeZone"):
                spark.conf.set(setting, before)
    found = native(spark)
    for name, (_, _, condition) in DEFAULTS.items():
        assert values(found.filter(condition).select("id")) == [1, 2], condition
        assert values(found.filter(f"{name} is null").select("id")) == [3]


@pytest.mark.spark43
def test_a_required_column_is_its_default_in_older_files(spark, spark_lake):
    """Spark's reader takes no file without a required column; the specification has the default for it, and never a null."""
    create(spark_lake, Schema(optional(1, "id", LONG)), [{"id": 1}, {"id": 2}])
    evolve(spark_lake, lambda update: update.add_column("n", LONG, required=True, default_value=7))
    append(spark_lake, {"id": 3, "n": 8})
    found = native(spark)
    assert values(found.orderBy("id")) == [(1, 7), (2, 7), (3, 8)]
    assert values(found.filter("n = 7").select("id").orderBy("id")) == [1, 2]
    assert (found.filter("n is null").count(), found.filter("n is not null").count()) == (0, 3)
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        spark.sql("update test.db.t set n = n + 1 where id < 3")
        spark.sql("merge into test.db.t t using (values (2L, 5L) as s(id, n)) s on t.id = s.id when matched then update set n = t.n + s.n")
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
    assert values(spark.sql("select * from test.db.t order by id")) == [(1, 9), (2, 19), (3, 8)]


def test_defaults_that_sparks_reader_does_not_know_are_left_to_python(spark, spark_lake):
    inner = Schema(optional(1, "id", LONG), optional(2, "s", ice.StructType(optional(3, "a", LONG))))
    create(spark_lake, inner, [{"id": 1, "s": {"a": 1}}])
    given = {"bin": (ice.BinaryType(), b"\x00\xff"), "fx": (ice.FixedType(2), b"ab"), "u": (ice.UUIDType(), uuid.UUID(int=7))}
    for name, (kind, value) in given.items():
        evolve(spark_lake, lambda update, name=name, kind=kind, value=value: update.add_column(name, kind, default_value=value))
        with pytest.raises(PolicyError, match=f"column {name} has a default"):
            native(spark, columns=["id", name])
    evolve(spark_lake, lambda update: update.add_column(("s", "n"), LONG, default_value=9))
    with pytest.raises(PolicyError, match=r"column s\.n has a default"):
        native(spark, columns=["s"])
    assert values(native(spark, columns=["id"])) == [1]
    (row,) = icelock.spark.read(spark, TABLE).collect()
    assert (row.bin, row.fx, row.u, row.s.n) == (b"\x00\xff", b"ab", str(uuid.UUID(int=7)), 9)


@pytest.mark.spark43
def test_names_of_all_kinds(spark, spark_lake):
    """``_metadata`` is a name that Spark's own scan uses, for the positions of rows among others."""
    position = ice.StructType(optional(2, "row_index", LONG))
    names = ("a.b", "c`d", " é x", "1a", "select", "日本")
    schema = Schema(optional(1, "_metadata", position), *(optional(10 + i, name, LONG) for i, name in enumerate(names)))
    made = create(
        spark_lake, schema, [{"_metadata": {"row_index": 7}, **dict.fromkeys(names, n)} for n in range(4)], properties=MERGE_ON_READ
    )
    made.delete(EqualTo("1a", 1))
    found = native(spark, columns=["_metadata", *names, "_pos"])
    assert values(found.selectExpr("_metadata.row_index", "_pos", "`a.b`", "`c``d`", "` é x`", "`1a`", "`select`", "`日本`")) == [
        (7, n, *[n] * len(names)) for n in (0, 2, 3)
    ]
    for name in names:
        quoted = "`" + name.replace("`", "``") + "`"
        assert values(found.filter(f"{quoted} > 1").select("_pos")) == [2, 3], name


def test_names_that_differ_in_case_alone(spark, spark_lake):
    inner = ice.StructType(optional(4, "x", LONG), optional(5, "X", LONG))
    create(
        spark_lake,
        Schema(optional(1, "a", LONG), optional(2, "A", LONG), optional(3, "s", inner)),
        [{"a": 1, "A": 2, "s": {"x": 3, "X": 4}}],
    )
    with pytest.raises(PolicyError, match="only by case"):
        native(spark)
    (row,) = icelock.spark.read(spark, TABLE).collect()
    assert (row[0], row[1], row[2][0], row[2][1]) == (1, 2, 3, 4)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        found = native(spark, columns=["A", "s"])
        assert values(found.select("A", "s.x", "s.X")) == [(2, 3, 4)]
        assert values(found.filter("s.X = 4").select("s.x")) == [3]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert values(native(spark, columns=["a"]).select("A")) == [1]


ALL = Schema(
    optional(1, "id", LONG),
    optional(2, "u", ice.UUIDType()),
    optional(3, "fx", ice.FixedType(3)),
    optional(4, "bin", ice.BinaryType()),
    optional(5, "dec", ice.DecimalType(38, 10)),
    optional(6, "neg", ice.DecimalType(4, 2)),
    optional(7, "dt", ice.DateType()),
    optional(8, "ts", ice.TimestampType()),
    optional(9, "tz", ice.TimestamptzType()),
    optional(10, "s", STRING),
    optional(11, "b", ice.BooleanType()),
    optional(12, "i", INT),
)
FULL = {
    "id": 1, "u": uuid.UUID(int=5), "fx": b"abc", "bin": b"\x00\xff", "dec": Decimal("-12345678901234567890123456.0000000001"),
    "neg": Decimal("-0.05"), "dt": dt.date(1, 1, 1), "ts": dt.datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
    "tz": dt.datetime(1, 1, 1, 0, 0, 0, 5, tzinfo=dt.UTC), "s": "a/b=c #%'\"é", "b": False, "i": -(2**31),
}  # fmt: skip
SHOWN = {**FULL, "u": str(FULL["u"])}
NONE = {"id": 2, **dict.fromkeys(list(FULL)[1:])}


@pytest.mark.spark43
def test_types_and_names_of_types_after_a_rename(spark, spark_lake):
    create(spark_lake, ALL, [FULL, NONE])
    assert native(spark).toArrow().sort_by("id").to_pylist() == [SHOWN, NONE]
    for name in list(FULL)[1:]:
        evolve(spark_lake, lambda update, name=name: update.rename_column(name, f"r_{name}"))
    found = native(spark).toArrow().sort_by("id").to_pylist()
    assert [list(row.values()) for row in found] == [list(SHOWN.values()), list(NONE.values())]
    assert values(native(spark, row_filter="r_u = '00000000-0000-0000-0000-000000000005'").select("id")) == [1]
    assert values(native(spark).filter("r_u is null").select("id")) == [2]


@pytest.mark.spark43
def test_partition_values_are_constants(spark, spark_lake):
    """Every column is one; the rows come back as they were written, null ones too."""
    names = [name for name in FULL if name != "id"]
    fields = [PartitionField(ALL.find_field(name).field_id, 1000 + i, IdentityTransform(), f"p_{name}") for i, name in enumerate(names)]
    create(spark_lake, ALL, [FULL], [NONE], partition_spec=PartitionSpec(*fields))
    found = native(spark)
    assert found.toArrow().sort_by("id").to_pylist() == [SHOWN, NONE]
    assert values(found.select("s")) == values(found.select("s").select("s")) == sorted(["a/b=c #%'\"é", None], key=repr)
    assert found.select("dec").count() == 2
    for condition in (
        "dt = date'0001-01-01'",
        "neg = -0.05",
        "u is not null",
        "s like 'a/b=c%'",
        "not b",
        "fx = X'616263'",
        "ts is not null",
        # What has no form that the plan understands: Spark leaves filters on partition values to whoever lists the files.
        "s like '%=c%'",
        "length(s) = 11",
        "hex(fx) = '616263'",
        "year(dt) = 1 and month(tz) = 1",
        "abs(neg) = 0.05",
        "i + 1 < 0",
        "not (b or u is null)",
    ):
        assert values(found.filter(condition).select("id")) == [1], condition


def test_several_specs_and_metadata_columns(spark, spark_lake):
    schema = Schema(optional(1, "id", LONG), optional(2, "c", STRING))
    create(spark_lake, schema, [{"id": 1, "c": "x"}])
    for steps in ("identity", "bucket", "void"):
        with spark_lake.catalog().load_table("db.t").update_spec() as update:
            if steps == "identity":
                update.add_field("c", IdentityTransform(), "c_id")
            elif steps == "bucket":
                update.add_field("id", BucketTransform(4), "b").add_field("c", TruncateTransform(1), "t")
            else:
                update.remove_field("c_id")
        append(spark_lake, {"id": {"identity": 2, "bucket": 3, "void": 4}[steps], "c": "yy"})
    spark_lake.catalog().load_table("db.t").overwrite(
        pa.Table.from_pylist([{"id": 9, "c": "zz"}], schema=pa.schema([("id", pa.int64()), ("c", pa.string())])), overwrite_filter="id = 3"
    )
    columns = ["id", "c", "_pos", "_spec_id", "_file", "_row_id", "_last_updated_sequence_number", "_partition"]
    found = native(spark, columns=columns)
    rows = found.toArrow().sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 4, 9]
    assert [(row["_spec_id"], row["_pos"], row["_row_id"]) for row in rows[:3]] == [(0, 0, 0), (1, 0, 1), (3, 0, 3)]
    assert [row["_partition"]["c_id"] for row in rows] == [None, "yy", None, None]
    assert [row["_partition"]["t"] for row in rows] == [None, None, "y", "z"]
    assert rows == spark_lake.catalog().load_table("db.t").scan(selected_fields=tuple(columns)).to_arrow().sort_by("id").to_pylist()
    assert values(found.filter("_spec_id = 1").select("id")) == [2]
    assert values(found.filter("_row_id = 3").select("_pos", "id")) == [(0, 4)]
    assert found.count() == 4
    assert values(found.filter("_partition.t = 'z'").select("id")) == [9]
    assert values(found.filter("_file like '%c_id=yy%'").select("id")) == [2]
    assert values(found.filter("upper(c) = 'YY'").select("id")) == [2, 4]


@pytest.mark.spark43
def test_dates_of_a_column_that_became_a_timestamp(spark, spark_lake):
    """The promotion that version 3 brought; PyIceberg cannot make it, so the file is made as an older schema's would be."""
    from tests.unit.table.test_older_deletes import parquet  # noqa: PLC0415

    noon = dt.datetime(2020, 2, 29, 12)  # noqa: DTZ001 - without a zone
    table = create(spark_lake, Schema(optional(1, "id", LONG), optional(2, "at", ice.TimestampType())), [{"id": 1, "at": noon}])
    fields = [("id", pa.int64(), b"1"), ("at", pa.date32(), b"2")]
    schema = pa.schema([pa.field(name, kind, metadata={b"PARQUET:field_id": number}) for name, kind, number in fields])
    old = pa.Table.from_pylist(
        [{"id": 2, "at": dt.date(1969, 12, 31)}, {"id": 3, "at": None}, {"id": 4, "at": dt.date(9999, 1, 1)}], schema
    )
    with table.transaction() as tx:
        tx.append_data_files([parquet(table, old, "dates")])
    found = native(spark)
    midnights = [dt.datetime(1969, 12, 31), None, dt.datetime(9999, 1, 1)]  # noqa: DTZ001
    assert [row[:] for row in found.orderBy("id").collect()] == list(zip(range(1, 5), [noon, *midnights], strict=True))
    assert values(found.filter("at < timestamp_ntz'1970-01-01 00:00:00'").select("id")) == [2]
    assert values(found.filter("at = timestamp_ntz'9999-01-01 00:00:00' or at is null").select("id")) == [3, 4]
    assert values(native(spark, row_filter="at >= '2020-02-29T12:00:00'").select("id")) == [1, 4]


def test_empty_tables(spark, spark_lake):
    table = create(spark_lake, Schema(optional(1, "id", LONG), optional(2, "c", STRING)))
    found = native(spark)
    assert (found.count(), found.collect(), found.columns) == (0, [], ["id", "c"])
    append(spark_lake, {"id": 1, "c": "x"})
    assert found.count() == 0
    spark_lake.catalog().load_table("db.t").delete()
    assert native(spark).filter("id = 1").collect() == []
    assert native(spark, columns=["id", "_pos"]).collect() == []
    assert table.properties["encryption.key-id"] == KEYED["encryption.key-id"]


def test_a_wide_table(spark, spark_lake):
    """More columns than whole-stage code generation takes."""
    names = [f"c{i}" for i in range(150)]
    create(
        spark_lake,
        Schema(optional(1, "id", LONG), *(optional(i, name, LONG) for i, name in enumerate(names, 2))),
        [{"id": 1, **dict.fromkeys(names, 3)}],
    )
    assert values(native(spark)) == [(1, *[3] * 150)]
    assert values(native(spark).filter("c149 = 3").select("c0")) == [3]


@pytest.mark.spark43
def test_a_file_without_ids_is_an_error(spark, spark_lake):
    from tests.unit.table.test_older_deletes import parquet  # noqa: PLC0415

    table = create(spark_lake, Schema(optional(1, "id", LONG)), [{"id": 1}])
    file = parquet(table, pa.table({"id": pa.array([5], pa.int64())}), "bare")
    with table.transaction() as tx:
        tx.append_data_files([file])
    with pytest.raises(FAILED, match=r"(?i)field id"):
        native(spark).collect()
