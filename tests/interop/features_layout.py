"""Features of which both engines write the same rows into the same kind of table: types, keys, codecs, partitions, files.

Not here: tables that change after the first rows (``features_schema``, ``features_rows``).
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DecimalType, FixedType, IcebergType, LongType, NestedField, TimeType, UUIDType

from icelock.errors import PolicyError
from tests.interop.matrix import JAVA_SPARK, SPARK_JAVA, WRITING, Append, Engines, Expected, Feature, Refused, rows_of
from tests.interop.views import EVERYTHING, View

UTC: Final = dt.UTC
NAN: Final = math.nan
INF: Final = math.inf
ODD_TEXT: Final = (None, "", "a b=c%2F", "ä/ö#?&", "日本語", "null", "x+y", "plain")


def layout(
    name: str,
    group: str,
    title: str,
    data: pa.Table,
    *,
    by: Sequence[tuple[str, Transform[Any, Any]]] = (),
    where: str = "",
    properties: Mapping[str, str] | None = None,
    refused: Refused | None = None,
) -> Feature:
    """Return a feature whose rows are written into a table of either engine.

    ``where`` is one more thing to read; ``refused`` says how icelock refuses to write it.
    """

    def expected() -> Expected:
        rows: dict[View, list[str] | None] = {EVERYTHING: rows_of(data)}
        return {**rows, View(where=where): None} if where else rows

    def java(engines: Engines, table: str) -> Expected:
        engines.java.create(table, data.schema, by=", ".join(sql(*field) for field in by), properties=properties)
        engines.java.insert(table, data)
        return expected()

    def write(engines: Engines, table: str, append: Append) -> Expected:
        engines.ours.create(table, data.schema, partition_spec=spec(data, by), properties=properties)
        append(table, data)
        return expected()

    cells = dict.fromkeys(WRITING, refused) if refused else {}
    return Feature(name=name, group=group, title=title, java=java, ours=write, cells=cells)


def sql(column: str, transform: Transform[Any, Any]) -> str:
    """Return a partition field as Spark's SQL says it."""
    column = f"`{column}`"
    if isinstance(transform, (BucketTransform, TruncateTransform)):
        kind, number = str(transform).rstrip("]").split("[")
        return f"{kind}({number}, {column})"
    return column if isinstance(transform, IdentityTransform) else f"{transform}s({column})"


def spec(data: pa.Table, by: Sequence[tuple[str, Transform[Any, Any]]]) -> PartitionSpec:
    """Return a partition spec over columns whose ids count from 1, as those of a top-level Arrow schema do."""
    fields = [
        PartitionField(data.schema.get_field_index(column) + 1, 1000 + i, transform, f"{column}_{i}")
        for i, (column, transform) in enumerate(by)
    ]
    return PartitionSpec(*fields)


def primitives() -> pa.Table:
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.int64(), [-(2**63), 2**63 - 1, 0, None]),
        "b": (pa.bool_(), [True, False, False, None]),
        "i": (pa.int32(), [-(2**31), 2**31 - 1, 0, None]),
        "f": (pa.float32(), [NAN, -0.0, INF, None]),
        "d": (pa.float64(), [NAN, -0.0, -INF, None]),
        "dec9": (pa.decimal128(9, 2), [Decimal("9999999.99"), Decimal("-0.01"), Decimal("0.00"), None]),
        "dec18": (pa.decimal128(18, 4), [Decimal("-99999999999999.9999"), Decimal("1.2700"), Decimal("1.2800"), None]),
        "dec38": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), Decimal("-1.0000000000"),
                                          Decimal("0E-10"), None]),
        "dt": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31), None]),
        "ts": (pa.timestamp("us", "UTC"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
                                          dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None]),
        "ntz": (pa.timestamp("us"), [dt.datetime(1883, 11, 18, 12), dt.datetime(2026, 10, 25, 2, 30), dt.datetime(1970, 1, 1), None]),
        "s": (pa.string(), ["", "öäü \U0001f512\n\t\"'", "x" * 3000, None]),
        "bin": (pa.binary(), [b"", b"\x00\xff", bytes(range(256)), None]),
    }  # fmt: skip
    return pa.table({name: pa.array(column, kind) for name, (kind, column) in values.items()})


def _nested(*, empty: bool = False) -> pa.Table:
    point = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    fields = {
        "id": pa.int64(),
        "st": point,
        "li": pa.list_(pa.int64()),
        "ls": pa.list_(point),
        "m": pa.map_(pa.string(), pa.decimal128(5, 1)),
        "mi": pa.map_(pa.int32(), point),
        "deep": pa.list_(pa.map_(pa.string(), pa.list_(pa.struct([("d", pa.date32())])))),
    }
    full = {"x": 1, "tags": ["a", None, ""]}
    rows = [
        (1, full, [1, None, -1], [full, None, {"x": None, "tags": []}], [("k", Decimal("1.5")), ("n", None)], [(7, full), (-1, None)],
         [[("k", [{"d": dt.date(2024, 2, 29)}, None]), ("e", [])], None]),
        (2, {"x": None, "tags": None}, [], [], [], [], []),
        (3, None, None, None, None, None, None),
    ]  # fmt: skip
    columns = zip(*(rows[1:] if empty else rows), strict=True)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(fields.items(), columns, strict=True)})


def _simple(rows: int = 40) -> pa.Table:
    ids = range(rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": pa.array([f"wört-{i % 7}" if i % 11 else None for i in ids]),
            "d": pa.array([i / 8 for i in ids]),
        }
    )


def _named() -> pa.Table:
    return pa.table({"id": pa.array([1, 2, 3], pa.int64()), "a b": ["x", "y/z", None], "é-c": ["ä", "", "q"], "1st": [1.5, None, -0.5]})


def _times(count: int = 8) -> pa.Table:
    """Rows around the epoch, in leap years and at the ends of years, with nulls."""
    at = [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1970, 1, 1),
        dt.datetime(1900, 2, 28, 12, 30),
        dt.datetime(2024, 2, 29, 0, 0, 0, 1),
        dt.datetime(2024, 12, 31, 23, 30),
        None,
        dt.datetime(2025, 1, 1),
        dt.datetime(1969, 1, 1, 5),
    ][:count]
    return pa.table(
        {
            "id": pa.array(range(len(at)), pa.int64()),
            "ts": pa.array([v and v.replace(tzinfo=UTC) for v in at], pa.timestamp("us", "UTC")),
            "ntz": pa.array(at, pa.timestamp("us")),
            "dt": pa.array([v and v.date() for v in at], pa.date32()),
        }
    )


def _odd() -> pa.Table:
    ids = range(len(ODD_TEXT))
    stamps = [None if i == 3 else dt.datetime(1969, 12, 31, 20 + i % 4, i, tzinfo=UTC) for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": pa.array(ODD_TEXT, pa.string()),
            "i": pa.array([None if i == 2 else i * 7 - 20 for i in ids], pa.int32()),
            "l": pa.array([None if i == 4 else (i - 4) * 10**12 for i in ids], pa.int64()),
            "dec": pa.array([None if i == 1 else Decimal(i * 333 - 999).scaleb(-2) for i in ids], pa.decimal128(9, 2)),
            "dt": pa.array([None if i == 5 else dt.date(1969, 12, 28) + dt.timedelta(days=i) for i in ids], pa.date32()),
            "ts": pa.array(stamps, pa.timestamp("us", "UTC")),
            "bin": pa.array([None if i == 6 else bytes([i, 255 - i, 47]) for i in ids], pa.binary()),
            "b": pa.array([None, True, False, True, False, True, False, True]),
            "d": pa.array([None, 1.5, NAN, -0.0, INF, -INF, 0.1, 1e300]),
        }
    )


# Types that need Iceberg's API on Java's side


def _uuids() -> pa.Table:
    values = [uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), uuid.UUID(int=0), None]
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "u": pa.array([v and v.bytes for v in values], pa.uuid()),
            "fx": pa.array([b"\x00\x01\xfe\xff", b"\x00" * 4, None], pa.binary(4)),
        }
    )


def _uuid_by_java(engines: Engines, table: str) -> Expected:
    types = engines.java.jvm.org.apache.iceberg.types.Types
    schema = engines.java.schema(id=types.LongType.get(), u=types.UUIDType.get(), fx=types.FixedType.ofLength(4))
    engines.java.create_by_api(table, schema)
    values = "(1, 'f79c3e09-677c-4bbd-a479-3f349cb785e7', X'0001FEFF'), (2, '00000000-0000-0000-0000-000000000000', X'00000000')"
    engines.java.sql(f"INSERT INTO {{t}} VALUES {values}, (3, NULL, NULL)", t=table)
    return {EVERYTHING: rows_of(_uuids())}


def _uuid_by_us(engines: Engines, table: str, append: Append) -> Expected:
    kinds = (("id", LongType()), ("u", UUIDType()), ("fx", FixedType(4)))
    engines.ours.create(table, Schema(*(NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(kinds, 1))))
    append(table, _uuids())
    return {EVERYTHING: rows_of(_uuids())}


TIMES: Final = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "t": pa.array([dt.time(12, 34, 56, 789012), dt.time(23, 59, 59, 999999), None], pa.time64("us")),
    }
)


def _time_by_java(engines: Engines, table: str) -> Expected:
    types = engines.java.jvm.org.apache.iceberg.types.Types
    engines.java.create_by_api(table, engines.java.schema(id=types.LongType.get(), t=types.TimeType.get()))
    rows = [{"id": 1, "t": "12:34:56.789012"}, {"id": 2, "t": "23:59:59.999999"}, {"id": 3, "t": None}]
    engines.java.jvm.RowChanges.append(engines.java.table(table), "parquet", engines.java.rows(*rows))
    return {EVERYTHING: rows_of(TIMES)}


def _time_by_us(engines: Engines, table: str, append: Append) -> Expected:
    fields = NestedField(1, "id", LongType(), required=False), NestedField(2, "t", TimeType(), required=False)
    engines.ours.create(table, Schema(*fields))
    append(table, TIMES)
    read = list(engines.java.jvm.RowChanges.read(engines.java.table(table)))
    assert sorted(read) == ["1|12:34:56.789012", "2|23:59:59.999999", "3|null"]
    return {}


NO_SPARK_TIME: Final = Refused(error=PolicyError, match="time", why="Spark has no TIME type for tables")


# Partition values of fixed types, two columns of each: a manifest's schema names a type once
_FIXED_KINDS: Final[Mapping[str, IcebergType]] = {
    "id": LongType(),
    "fx": FixedType(4),
    "fy": FixedType(4),
    "wide": FixedType(70),
    "u": UUIDType(),
    "v": UUIDType(),
    "dec": DecimalType(9, 2),
    "eur": DecimalType(9, 2),
}
_FIXED_PARTS: Final = [(name, IdentityTransform()) for name in _FIXED_KINDS if name != "id"]


def _fixed_parts() -> pa.Table:
    """Four rows in four partitions; the first bytes of a value look like a length, a branch or a number."""
    one, two = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, bytes(16)
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.int64(), [1, 2, 3, 4]),
        "fx": (pa.binary(4), [b"\x08\x00\x02\xff", b"\x00" * 4, b"\xff" * 4, None]),
        "fy": (pa.binary(4), [b"\x00" * 4, None, b"\x08" * 4, b"abcd"]),
        "wide": (pa.binary(70), [b"w" * 70, b"\x80" * 70, None, b"\x02" * 70]),
        "u": (pa.uuid(), [one, two, None, one]),
        "v": (pa.uuid(), [two, None, one, one]),
        "dec": (pa.decimal128(9, 2), [Decimal("1.27"), Decimal("-1.29"), None, Decimal("0.00")]),
        "eur": (pa.decimal128(9, 2), [Decimal("9999999.99"), None, Decimal("-0.01"), Decimal("2.00")]),
    }
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def _fixed_parts_by_java(engines: Engines, table: str) -> Expected:
    types = engines.java.jvm.org.apache.iceberg.types.Types
    fixed, decimal = types.FixedType.ofLength(4), types.DecimalType.of(9, 2)
    kinds = {"fx": fixed, "fy": fixed, "wide": types.FixedType.ofLength(70), "u": types.UUIDType.get(), "v": types.UUIDType.get()}
    schema = engines.java.schema(id=types.LongType.get(), **kinds, dec=decimal, eur=decimal)
    made = engines.java.jvm.org.apache.iceberg.PartitionSpec.builderFor(schema)
    for name, _ in _FIXED_PARTS:
        made = made.identity(name)
    engines.java.create_by_api(table, schema, made.build())

    def literal(value: Any, kind: pa.DataType) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, uuid.UUID):
            return f"'{value}'"
        return f"X'{value.hex()}'" if pa.types.is_fixed_size_binary(kind) else str(value)

    rows = [", ".join(literal(row[field.name], field.type) for field in _fixed_parts().schema) for row in _fixed_parts().to_pylist()]
    engines.java.sql("INSERT INTO {t} VALUES " + ", ".join(f"({row})" for row in rows), t=table)
    return {EVERYTHING: rows_of(_fixed_parts()), View(where="id >= 3"): None}


def _fixed_parts_by_us(engines: Engines, table: str, append: Append) -> Expected:
    schema = Schema(*(NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(_FIXED_KINDS.items(), 1)))
    engines.ours.create(table, schema, partition_spec=spec(_fixed_parts(), _FIXED_PARTS))
    append(table, _fixed_parts())
    return {EVERYTHING: rows_of(_fixed_parts()), View(where="id >= 3"): None}


def _void_by_java(engines: Engines, table: str) -> Expected:
    iceberg = engines.java.jvm.org.apache.iceberg
    types = iceberg.types.Types
    schema = engines.java.schema(id=types.LongType.get(), s=types.StringType.get(), d=types.DoubleType.get())
    made = iceberg.PartitionSpec.builderFor(schema).alwaysNull("d", "d_void").bucket("id", 2, "id_b").build()
    engines.java.create_by_api(table, schema, made)
    engines.java.insert(table, _simple(10))
    return {EVERYTHING: rows_of(_simple(10)), View(where="d > 0.5"): None}


def _void_by_us(engines: Engines, table: str, append: Append) -> Expected:
    engines.ours.create(table, _simple().schema, partition_spec=spec(_simple(), (("d", VoidTransform()), ("id", BucketTransform(2)))))
    append(table, _simple(10))
    return {EVERYTHING: rows_of(_simple(10)), View(where="d > 0.5"): None}


TYPES: Final = (
    layout("types-primitive", "Types", "boolean to binary, at their ends, null, NaN, -0.0", primitives(), where="id is not null"),
    layout("types-nested", "Types", "struct, list, map, in each other; empty and null", _nested(), where="id >= 2"),
    layout("types-nested-empty", "Types", "struct, list, map without any value", _nested(empty=True), where="id >= 3"),
    Feature(name="types-uuid-fixed", group="Types", title="uuid, fixed", java=_uuid_by_java, ours=_uuid_by_us),
    Feature(
        name="types-time",
        group="Types",
        title="time (Java's own reader and writer)",
        java=_time_by_java,
        ours=_time_by_us,
        cells={JAVA_SPARK: NO_SPARK_TIME, SPARK_JAVA: NO_SPARK_TIME},
        java_appends=False,
    ),
)

KEYS: Final = tuple(
    layout(f"key-{n}", "Keys", f"data keys of {n} bytes", _simple(), properties={"encryption.data-key-length": str(n)})
    for n in (16, 24, 32)
)


def codecs(name: str, group: str, title: str, setting: str, names: Sequence[str], properties: Mapping[str, str]) -> Feature:
    """Return a feature whose table has a file of each codec."""
    pieces = {codec: _simple().slice(i * 5, 5) for i, codec in enumerate(names)}

    def java(engines: Engines, table: str) -> Expected:
        engines.java.create(table, _simple().schema, properties=properties)
        for codec, rows in pieces.items():
            engines.java.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{setting}' = '{codec}')", t=table)
            engines.java.insert(table, rows)
        return {EVERYTHING: rows_of(*pieces.values())}

    def ours(engines: Engines, table: str, append: Append) -> Expected:
        made = engines.ours.create(table, _simple().schema, properties=properties)
        for codec, rows in pieces.items():
            made.transaction().set_properties({setting: codec}).commit_transaction()
            append(table, rows)
            made.refresh()
        return {EVERYTHING: rows_of(*pieces.values())}

    return Feature(name=name, group=group, title=title, java=java, ours=ours)


PARQUET_CODECS: Final = ("zstd", "gzip", "snappy", "lz4", "lz4_raw", "uncompressed")
AVRO_CODECS: Final = ("gzip", "zstd", "snappy", "uncompressed")
AVRO: Final = {"write.format.default": "avro"}

_NINE: Final = ("s", "i", "l", "dec", "dt", "ts", "bin", "b", "d")
_TIMES: Final = ("ts", "dt", "ntz")


def partitions(name: str, title: str, data: pa.Table, transform: Transform[Any, Any], columns: Sequence[str], where: str) -> Feature:
    """Return a feature whose table is partitioned by one transform of several columns."""
    return layout(f"partition-{name}", "Partitions", title, data, by=[(column, transform) for column in columns], where=where)


PARTITIONS: Final = (
    partitions("identity", "identity, of nine types, odd values", _odd(), IdentityTransform(), _NINE, "s = 'a b=c%2F' or i < -10"),
    partitions("bucket", "bucket, of seven types", _odd(), BucketTransform(4), _NINE[:7], "s = 'null'"),
    partitions("truncate", "truncate, of five types", _odd(), TruncateTransform(3), ("s", "i", "l", "dec", "bin"), "i >= 0"),
    partitions("year", "year", _times(), YearTransform(), _TIMES, "dt < '1970-01-01'"),
    partitions("month", "month", _times(), MonthTransform(), _TIMES, "dt < '1970-01-01'"),
    partitions("day", "day", _times(), DayTransform(), _TIMES, "ts >= '2024-12-31T00:00:00+00:00'"),
    partitions("hour", "hour", _times(), HourTransform(), ("ts", "ntz"), "ts < '1970-01-01T00:00:00+00:00'"),
    Feature(
        name="partition-fixed",
        group="Partitions",
        title="identity, of fixed, uuid and decimal, two columns of each",
        java=_fixed_parts_by_java,
        ours=_fixed_parts_by_us,
    ),
    Feature(name="partition-void", group="Partitions", title="void", java=_void_by_java, ours=_void_by_us),
)

BLOOM: Final = Refused(error=PolicyError, match="bloom", why="Arrow cannot write encrypted bloom filters")
PAGES_2: Final = Refused(error=PolicyError, match="page-version", why="encrypted v2 pages do not cross between Java and Arrow")

FILES: Final = (
    codecs("parquet-codecs", "Parquet", f"codecs {', '.join(PARQUET_CODECS)}", "write.parquet.compression-codec", PARQUET_CODECS, {}),
    layout("parquet-bloom", "Parquet", "bloom filters", _simple(), where="id = 17", refused=BLOOM,
           properties={"write.parquet.bloom-filter-enabled.column.id": "true"}),
    layout("parquet-pages", "Parquet", "many pages and page indexes, selective reads", _simple(5000), where="id >= 2500 and id < 2510",
           properties={"write.parquet.page-row-limit": "100", "write.parquet.page-size-bytes": "2048"}),
    layout("parquet-row-groups", "Parquet", "many row groups, selective reads", _simple(5000), where="id >= 4990",
           properties={"write.parquet.row-group-size-bytes": "4096", "write.parquet.row-group-check-min-record-count": "100"}),
    codecs("avro-codecs", "Avro", f"Avro data files, codecs {', '.join(AVRO_CODECS)}", "write.avro.compression-codec", AVRO_CODECS, AVRO),
    layout("avro-types", "Avro", "Avro data files, primitive types", primitives(), properties=AVRO),
    layout("avro-nested", "Avro", "Avro data files, nested types", _nested(), properties=AVRO),
    layout("avro-partitioned", "Avro", "Avro data files, partitioned", _odd(), properties=AVRO, where="i >= 0",
           by=[("s", IdentityTransform()), ("i", BucketTransform(3)), ("ts", DayTransform())]),
    layout("column-names", "Metadata", "column names with spaces, accents and digits", _named(), where="id > 2",
           by=[("a b", IdentityTransform())]),
    layout("avro-column-names", "Avro", "Avro data files, column names with spaces, accents and digits", _named(), where="id > 2",
           by=[("é-c", TruncateTransform(1))], properties=AVRO),
    layout("object-store", "Metadata", "object store file layout", _simple(), properties={"write.object-storage.enabled": "true"}),
    layout("metadata-gzip", "Metadata", "metadata.json compressed with gzip", _simple(),
           properties={"write.metadata.compression-codec": "gzip"}),
)  # fmt: skip

FEATURES: Final = (*TYPES, *KEYS, *PARTITIONS, *FILES)
