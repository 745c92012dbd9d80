"""The Avro schema of a new data file, as Java's ``TypeToSchema`` makes it (spec, Appendix A, "Avro"; format.md "Avro data files").

    record table; a struct is record r<its field id>; every field, element, key and value has its id
    optional         ["null", T], default null
    decimal(P, S)    fixed decimal_P_S of the fewest bytes that hold P digits
    timestamptz      long timestamp-micros, adjust-to-utc true
    map              Avro's own where keys are strings, else an array of records k<key id>_v<value id>

A named type (fixed, record) is written out once and referred to by name after that. Names that Avro forbids are escaped;
``iceberg-field-name`` has the real one.

Not here: values (``arrow.write.avro_values``), the file (``io.avro.write``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyiceberg import types as ice
from pyiceberg.schema import make_compatible_name

from icelock.errors import PolicyError

_SIMPLE: Final[dict[type[ice.IcebergType], Any]] = {
    ice.BooleanType: "boolean",
    ice.IntegerType: "int",
    ice.LongType: "long",
    ice.FloatType: "float",
    ice.DoubleType: "double",
    ice.DateType: {"type": "int", "logicalType": "date"},
    ice.TimeType: {"type": "long", "logicalType": "time-micros"},
    ice.TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    ice.TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    ice.TimestampNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    ice.TimestamptzNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    ice.StringType: "string",
    ice.BinaryType: "bytes",
}


def avro_data_schema(fields: Sequence[ice.NestedField]) -> dict[str, Any]:
    """Return the schema of a data file with these columns, as JSON values.

    Raises:
        PolicyError: a type that is not written; names the column.
    """
    return _Converter().record("table", fields, "")


def decimal_length(precision: int) -> int:
    """Return the fewest bytes for all signed numbers of so many digits (Java ``TypeUtil.decimalRequiredBytes``)."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


class _Converter:
    def __init__(self) -> None:
        self._named: set[str] = set()

    def record(self, name: str, fields: Sequence[ice.NestedField], path: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [self._field(field, path) for field in fields]}

    def _field(self, field: ice.NestedField, path: str) -> dict[str, Any]:
        name = make_compatible_name(field.name)
        written: dict[str, Any] = {"name": name, "type": self._optional(field, path)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.optional:
            written["default"] = None
        if name != field.name:
            written["iceberg-field-name"] = field.name
        return {**written, "field-id": field.field_id}

    def _optional(self, field: ice.NestedField, path: str) -> Any:
        kind = self._type(field.field_type, f"{path}{field.name}", field.field_id)
        return ["null", kind] if field.optional else kind

    def _type(self, kind: ice.IcebergType, path: str, field_id: int) -> Any:
        if isinstance(kind, ice.StructType):
            return self.record(f"r{field_id}", kind.fields, f"{path}.")
        if isinstance(kind, ice.ListType):
            return {"type": "array", "items": self._optional(kind.element_field, f"{path}."), "element-id": kind.element_id}
        if isinstance(kind, ice.MapType):
            return self._map(kind, path)
        return self._primitive(kind, path)

    def _primitive(self, kind: ice.IcebergType, path: str) -> Any:
        if isinstance(kind, ice.DecimalType):
            logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            return self._fixed(f"decimal_{kind.precision}_{kind.scale}", decimal_length(kind.precision), logical)
        if isinstance(kind, ice.FixedType):
            return self._fixed(f"fixed_{len(kind)}", len(kind), {})
        if isinstance(kind, ice.UUIDType):
            return self._fixed("uuid_fixed", 16, {"logicalType": "uuid"})
        if type(kind) not in _SIMPLE:
            raise PolicyError(
                f"column {path!r} is of type {kind}, which Avro files cannot hold: drop the column or set write.format.default=parquet"
            )
        return _SIMPLE[type(kind)]

    def _map(self, kind: ice.MapType, path: str) -> dict[str, Any]:
        if isinstance(kind.key_type, ice.StringType):
            values = self._optional(kind.value_field, f"{path}.")
            return {"type": "map", "values": values, "key-id": kind.key_id, "value-id": kind.value_id}
        key_field: dict[str, Any] = {"name": "key", "type": self._type(kind.key_type, f"{path}.key", kind.key_id), "field-id": kind.key_id}
        value_field: dict[str, Any] = {"name": "value", "type": self._optional(kind.value_field, f"{path}.")}
        if not kind.value_required:
            value_field["default"] = None
        value_field["field-id"] = kind.value_id
        entry = {"type": "record", "name": f"k{kind.key_id}_v{kind.value_id}", "fields": [key_field, value_field]}
        return {"type": "array", "items": entry, "logicalType": "map"}

    def _fixed(self, name: str, size: int, logical: dict[str, Any]) -> Any:
        if name in self._named:
            return name
        self._named.add(name)
        return {"type": "fixed", "name": name, "size": size, **logical}
