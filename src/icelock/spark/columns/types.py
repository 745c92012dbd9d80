"""Iceberg types as Spark types, Spark types as the Arrow form that Spark takes (cases C-51, C-52, C-58), and paths of columns.

    timestamptz → TIMESTAMP          uuid → STRING            unknown → VOID
    timestamp   → TIMESTAMP_NTZ      fixed, binary → BINARY   time, *_ns, geometry, geography, variant → refused

Batches that differ from the Arrow form in any way (large offsets, decimal width, time zone, nullability) make the JVM fail without reason,
and PySpark 4.3 compares the schemas. The form is that of ``pyspark.sql.pandas.types.to_arrow_schema``, whose parameters change between
versions; a test compares the two.

Not here: converting batches (``spark.columns.batches``).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import types as sp

from icelock.errors import PolicyError
from icelock.metadata.column_types import UnreadType

_PRIMITIVES: Final[dict[type[ice.IcebergType], sp.DataType]] = {
    ice.BooleanType: sp.BooleanType(),
    ice.IntegerType: sp.IntegerType(),
    ice.LongType: sp.LongType(),
    ice.FloatType: sp.FloatType(),
    ice.DoubleType: sp.DoubleType(),
    ice.DateType: sp.DateType(),
    ice.TimestampType: sp.TimestampNTZType(),
    ice.TimestamptzType: sp.TimestampType(),
    ice.StringType: sp.StringType(),
    ice.UUIDType: sp.StringType(),
    ice.FixedType: sp.BinaryType(),
    ice.BinaryType: sp.BinaryType(),
    ice.UnknownType: sp.NullType(),
}
_ARROW: Final[dict[type[sp.DataType], pa.DataType]] = {
    sp.BooleanType: pa.bool_(),
    sp.ByteType: pa.int8(),
    sp.ShortType: pa.int16(),
    sp.IntegerType: pa.int32(),
    sp.LongType: pa.int64(),
    sp.FloatType: pa.float32(),
    sp.DoubleType: pa.float64(),
    sp.DateType: pa.date32(),
    sp.TimestampType: pa.timestamp("us", tz="UTC"),
    sp.TimestampNTZType: pa.timestamp("us"),
    sp.StringType: pa.string(),
    sp.CharType: pa.string(),
    sp.VarcharType: pa.string(),
    sp.BinaryType: pa.binary(),
    sp.NullType: pa.null(),
}


def quoted(*names: str) -> str:
    """Return a column's path as Spark's functions take it, quoting any special characters."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def spark_schema(schema: Schema, *, table: str) -> sp.StructType:
    """Return the Spark schema of a scan's schema; docs become column comments. A type that Spark lacks is a PolicyError."""
    return _struct(schema.as_struct(), "", table)


def has_spark_type(kind: ice.IcebergType) -> bool:
    """Whether Spark has a type for an Iceberg type, apart from nested ones."""
    return not isinstance(kind, ice.PrimitiveType) or isinstance(kind, ice.DecimalType) or type(kind) in _PRIMITIVES


def contains(kind: sp.DataType, wanted: tuple[type[sp.DataType], ...]) -> bool:
    """Whether a type is one of these, or contains one."""
    if isinstance(kind, sp.StructType):
        return any(contains(field.dataType, wanted) for field in kind.fields)
    if isinstance(kind, sp.ArrayType):
        return isinstance(kind, wanted) or contains(kind.elementType, wanted)
    if isinstance(kind, sp.MapType):
        return isinstance(kind, wanted) or contains(kind.keyType, wanted) or contains(kind.valueType, wanted)
    return isinstance(kind, wanted)


def arrow_schema(schema: sp.StructType) -> pa.Schema:
    """Return the Arrow schema that batches of a Spark schema must have; a type that no Iceberg column has is a PolicyError."""
    return pa.schema([_arrow_field(field, "") for field in schema.fields])


def _struct(struct: ice.StructType, path: str, table: str) -> sp.StructType:
    return sp.StructType(
        [
            sp.StructField(
                field.name,
                spark_type(field.field_type, path + field.name, table),
                nullable=field.optional,
                metadata={"comment": field.doc} if field.doc else None,
            )
            for field in struct.fields
        ]
    )


def spark_type(kind: ice.IcebergType, path: str, table: str) -> sp.DataType:
    """Return the Spark type of an Iceberg type; if there is none, a PolicyError names ``path`` and ``table``."""
    if isinstance(kind, ice.StructType):
        return _struct(kind, f"{path}.", table)
    if isinstance(kind, ice.ListType):
        return sp.ArrayType(spark_type(kind.element_type, f"{path}.element", table), containsNull=not kind.element_required)
    if isinstance(kind, ice.MapType):
        return sp.MapType(
            spark_type(kind.key_type, f"{path}.key", table),
            spark_type(kind.value_type, f"{path}.value", table),
            valueContainsNull=not kind.value_required,
        )
    if isinstance(kind, ice.DecimalType):
        return sp.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, UnreadType):
        raise PolicyError(
            f"column {path!r} of table {table} is of type {kind}, whose values icelock does not read; name the columns to read without it "
            "(option columns)"
        )
    found = _PRIMITIVES.get(type(kind))
    if found is None:
        raise PolicyError(
            f"column {path!r} of table {table} is of type {kind}, which Spark has no exact type for; name the columns to read without it "
            "(option columns), or read it with plain Python: table.scan().to_arrow()"
        )
    return found


def _arrow_field(field: sp.StructField, path: str) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.dataType, path + field.name), nullable=field.nullable)


def _arrow_type(kind: sp.DataType, path: str) -> pa.DataType:
    if isinstance(kind, sp.StructType):
        return pa.struct([_arrow_field(field, f"{path}.") for field in kind.fields])
    if isinstance(kind, sp.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType, f"{path}.element"), nullable=kind.containsNull))
    if isinstance(kind, sp.MapType):
        key = pa.field("key", _arrow_type(kind.keyType, f"{path}.key"), nullable=False)
        return pa.map_(key, pa.field("value", _arrow_type(kind.valueType, f"{path}.value"), nullable=kind.valueContainsNull))
    if isinstance(kind, sp.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _ARROW.get(type(kind))
    if found is None:
        raise PolicyError(f"column {path!r} is of Spark type {kind.simpleString()}, which no Iceberg column takes: cast it or drop it")
    return found
