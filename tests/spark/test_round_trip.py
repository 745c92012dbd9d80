"""Rows written by hand come back as they were: every type, through Spark both ways, and as plain Python sees them (C-51, C-52, C-57)."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import Row
from pyspark.sql import types as sp

from tests.lakes.sqlite import KEYED

pytestmark = pytest.mark.spark

UTC = dt.UTC
PRIMITIVES = (
    ice.BooleanType(),
    ice.IntegerType(),
    ice.LongType(),
    ice.FloatType(),
    ice.DoubleType(),
    ice.DecimalType(9, 2),
    ice.DecimalType(18, 4),
    ice.DecimalType(38, 10),
    ice.DateType(),
    ice.TimestampType(),
    ice.TimestamptzType(),
    ice.StringType(),
    ice.UUIDType(),
    ice.FixedType(4),
    ice.BinaryType(),
)
NAMES = ("b", "i", "l", "f", "d", "dec9", "dec18", "dec38", "dt", "ntz", "ts", "s", "u", "fx", "bin")
NAN = float("nan")
NTZ = [dt.datetime.fromisoformat(text) for text in ("1969-12-31T23:59:59.999999", "2026-10-25T02:30:00", "2026-03-29T02:30:00.000001")]
ROWS = [
    (
        True, 2147483647, -(2**63), 1.5, math.pi, Decimal("1234567.89"), Decimal("-99999999999999.9999"),
        Decimal("1234567890123456789012345678.0123456789"), dt.date(1969, 12, 31), NTZ[0],
        dt.datetime(2026, 3, 29, 1, 30, 0, 1, UTC), "öäü \U0001f512", "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        bytearray(b"\x00\x01\xfe\xff"), bytearray(b""),
    ),
    (
        False, -2147483648, 2**63 - 1, -0.0, NAN, Decimal("-0.01"), Decimal("0.0000"), Decimal("-0.0000000001"), dt.date(9999, 12, 31),
        NTZ[1], dt.datetime(1883, 11, 18, 12, 0, 0, tzinfo=UTC), "", "00000000-0000-0000-0000-000000000000",
        bytearray(4), bytearray(b"\xff" * 40),
    ),
    (None,) * 15,
]  # fmt: skip


def optional(names, kinds, start=1):
    return [ice.NestedField(start + n, name, kind, required=False) for n, (name, kind) in enumerate(zip(names, kinds, strict=True))]


def shown(value):
    """Return a value in a form that compares: NaN as text, zone-aware instants in UTC, bytes."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(shown, value)) if type(value) in (tuple, list) else tuple(map(shown, value))
    return value


def instants(rows):
    """PySpark returns TIMESTAMP in the local zone without saying so; as instants they compare."""
    return [
        tuple(v.astimezone(UTC) if isinstance(v, dt.datetime) and n == "ts" else v for n, v in zip(NAMES, row, strict=True)) for row in rows
    ]


def spark_type(kind):
    schema = sp.StructType.fromJson({"type": "struct", "fields": []})
    assert isinstance(schema, sp.StructType)
    return {
        ice.BooleanType: sp.BooleanType(), ice.IntegerType: sp.IntegerType(), ice.LongType: sp.LongType(),
        ice.FloatType: sp.FloatType(), ice.DoubleType: sp.DoubleType(),
        ice.DateType: sp.DateType(), ice.TimestampType: sp.TimestampNTZType(), ice.TimestamptzType: sp.TimestampType(),
        ice.StringType: sp.StringType(),
        ice.UUIDType: sp.StringType(), ice.FixedType: sp.BinaryType(), ice.BinaryType: sp.BinaryType(),
    }.get(type(kind)) or sp.DecimalType(kind.precision, kind.scale)  # fmt: skip


FLAT = sp.StructType([sp.StructField(name, spark_type(kind)) for name, kind in zip(NAMES, PRIMITIVES, strict=True)])


@pytest.mark.spark43
def test_every_primitive_type(spark, spark_lake):
    spark_lake.catalog().create_table("db.flat", Schema(*optional(NAMES, PRIMITIVES)), properties=KEYED)
    spark.createDataFrame(ROWS, FLAT).write.format("icelock").mode("append").save("test.db.flat")
    df = spark.read.format("icelock").load("test.db.flat")
    assert df.schema == FLAT
    assert sorted(map(shown, instants(df.collect())), key=repr) == sorted(map(shown, ROWS), key=repr)
    plain = spark_lake.catalog().load_table("db.flat").scan().to_arrow()
    assert plain.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert plain.schema.field("u").type == pa.uuid()
    assert plain.schema.field("fx").type == pa.binary(4)
    stored = {row["i"]: row for row in plain.to_pylist()}
    assert str(stored[2147483647]["u"]) == "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    assert stored[2147483647]["ts"] == ROWS[0][10]
    assert stored[-2147483648]["ntz"] == ROWS[1][9]
    assert stored[-2147483648]["fx"] == bytes(4)


@pytest.mark.spark43
def test_nested_types_with_every_primitive_inside(spark, spark_lake):
    """UUID and fixed have other forms in Spark, below structs, lists and maps too."""
    kinds = tuple(PRIMITIVES)
    inner = ice.StructType(*optional(NAMES, kinds, 100))
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=True),
        ice.NestedField(2, "st", inner, required=False),
        ice.NestedField(3, "us", ice.ListType(200, ice.UUIDType(), element_required=False), required=False),
        ice.NestedField(
            4,
            "ss",
            ice.ListType(201, ice.StructType(ice.NestedField(202, "fx", ice.FixedType(4), required=True)), element_required=True),
            required=False,
        ),
        ice.NestedField(5, "m", ice.MapType(203, ice.StringType(), 204, ice.UUIDType(), value_required=False), required=False),
        ice.NestedField(6, "mt", ice.MapType(205, ice.StringType(), 206, ice.TimestamptzType(), value_required=True), required=False),
    )
    spark_lake.catalog().create_table("db.nested", schema, properties=KEYED)
    uid = ROWS[0][12]
    rows = [
        Row(id=1, st=Row(**dict(zip(NAMES, ROWS[0], strict=True))), us=[uid, None, uid], ss=[Row(fx=bytearray(b"abcd"))],
            m={"a": uid, "b": None}, mt={"x": ROWS[0][10]}),
        Row(id=2, st=Row(**dict.fromkeys(NAMES)), us=[], ss=[], m={}, mt={}),
        Row(id=3, st=None, us=None, ss=None, m=None, mt=None),
    ]  # fmt: skip
    wanted = sp.StructType(
        [
            sp.StructField("id", sp.LongType(), nullable=False),
            sp.StructField("st", FLAT),
            sp.StructField("us", sp.ArrayType(sp.StringType())),
            sp.StructField("ss", sp.ArrayType(sp.StructType([sp.StructField("fx", sp.BinaryType(), nullable=False)]), containsNull=False)),
            sp.StructField("m", sp.MapType(sp.StringType(), sp.StringType())),
            sp.StructField("mt", sp.MapType(sp.StringType(), sp.TimestampType(), valueContainsNull=False)),
        ]
    )
    spark.createDataFrame(rows, wanted).coalesce(1).write.format("icelock").mode("append").save("test.db.nested")
    df = spark.read.format("icelock").load("test.db.nested")
    assert df.schema == wanted
    got = {row.id: row for row in df.collect()}
    assert shown(got[1].us) == [uid, None, uid]
    assert got[1].ss == [Row(fx=bytearray(b"abcd"))]
    assert got[1].m == {"a": uid, "b": None}
    assert {k: v.astimezone(UTC) for k, v in got[1].mt.items()} == {"x": ROWS[0][10]}
    assert shown(instants([got[1].st])) == shown([ROWS[0]])
    assert tuple(got[2])[1:] == (Row(**dict.fromkeys(NAMES)), [], [], {}, {})
    assert tuple(got[3])[1:] == (None,) * 5
    assert spark_lake.catalog().load_table("db.nested").scan().to_arrow().num_rows == 3


@pytest.mark.spark43
def test_empty_nested_columns(spark, spark_lake):
    """C-57: Spark sends empty nested columns with offset buffers of 0 bytes."""
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=False),
        ice.NestedField(2, "ls", ice.ListType(10, ice.StringType(), element_required=False), required=False),
        ice.NestedField(3, "m", ice.MapType(11, ice.StringType(), 12, ice.StringType(), value_required=False), required=False),
        ice.NestedField(
            4, "ll", ice.ListType(13, ice.ListType(14, ice.StringType(), element_required=False), element_required=False), required=False
        ),
        ice.NestedField(5, "n", ice.StringType(), required=False),
    )
    spark_lake.catalog().create_table("db.empties", schema, properties=KEYED)
    df = spark.sql(
        "select id, array() as ls, map() as m, array(cast(array() as array<string>)) as ll, cast(null as string) as n from range(100)"
    ).selectExpr("id", "cast(ls as array<string>) ls", "cast(m as map<string,string>) m", "ll", "n")
    df.write.format("icelock").mode("append").save("test.db.empties")
    back = spark.read.format("icelock").load("test.db.empties")
    assert back.filter("size(ls) = 0 and size(m) = 0 and size(ll) = 1 and size(ll[0]) = 0 and n is null").count() == 100


@pytest.mark.spark43
def test_nan_and_zero_come_back_bit_for_bit(spark, spark_lake):
    schema = Schema(ice.NestedField(1, "d", ice.DoubleType(), required=False), ice.NestedField(2, "f", ice.FloatType(), required=False))
    spark_lake.catalog().create_table("db.floats", schema, properties=KEYED)
    values = [(-0.0, -0.0), (math.inf, -math.inf), (5e-324, 1e-45), (NAN, NAN)]
    spark.createDataFrame(values, "d double, f float").write.format("icelock").mode("append").save("test.db.floats")
    got = {repr((row.d, row.f)) for row in spark.read.format("icelock").load("test.db.floats").collect()}
    assert got == {"(-0.0, -0.0)", "(inf, -inf)", "(5e-324, 1.401298464324817e-45)", "(nan, nan)"}


@pytest.mark.turns(2)
@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", pytest.param("America/Denver", marks=pytest.mark.spark43), "Asia/Kolkata"])
def test_instants_do_not_depend_on_the_session_zone(spark, spark_lake, zone):
    """C-52: at changes to and from summer time, before 1970, in structs and lists."""
    table = "test.db.zones"
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=False),
        ice.NestedField(2, "ts", ice.TimestamptzType(), required=False),
        ice.NestedField(3, "ntz", ice.TimestampType(), required=False),
        ice.NestedField(4, "st", ice.StructType(ice.NestedField(10, "ts", ice.TimestamptzType(), required=False)), required=False),
        ice.NestedField(5, "ls", ice.ListType(11, ice.TimestamptzType(), element_required=False), required=False),
    )
    spark_lake.catalog().create_table("db.zones", schema, properties=KEYED)
    micros = [-1, 0, 1_774_774_800_000_000, 1_774_771_199_999_999, 1_792_918_800_000_000, -2_717_650_800_000_001]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        values = ", ".join(f"({n}, {us}L)" for n, us in enumerate(micros))
        df = spark.sql(
            f"select cast(id as bigint) id, timestamp_micros(us) ts, timestamp_ntz'2026-03-29 02:30:00.000001' ntz, "
            f"named_struct('ts', timestamp_micros(us)) st, array(timestamp_micros(us), null) ls from values {values} as t(id, us)"
        )
        df.write.format("icelock").mode("append").save(table)
        back = spark.read.format("icelock").load(table)
        got = (
            back.selectExpr("id", "unix_micros(ts) a", "unix_micros(st.ts) b", "unix_micros(ls[0]) c", "cast(ntz as string) n")
            .orderBy("id")
            .collect()
        )
        assert [tuple(row) for row in got] == [(n, us, us, us, "2026-03-29 02:30:00.000001") for n, us in enumerate(micros)]
        literal = "timestamp'2026-03-29T09:00:00Z'"  # 1774774800 s
        assert {row.id for row in back.filter(f"ts >= {literal}").collect()} == {2, 4}
        assert {row.id for row in back.filter(f"st.ts = {literal}").collect()} == {2}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    plain = spark_lake.catalog().load_table("db.zones").scan().to_arrow()
    assert sorted(plain.column("ts").cast(pa.int64()).to_pylist()) == sorted(micros)
    assert set(plain.column("ntz").to_pylist()) == {NTZ[2]}
