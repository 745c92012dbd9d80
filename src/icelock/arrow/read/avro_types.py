"""Avro types as Arrow types: the writer's schema of an Avro data file, and decoded values as Arrow arrays.

The Arrow schema has field ids where the Avro schema has them (``field-id``, ``element-id``, ``key-id``, ``value-id``), in the
same metadata as for Parquet, so that both formats share one projection. A map with keys that are not strings is an array
of records ``key``, ``value`` with the logical type ``map`` (spec, Appendix A, "Avro").

fastavro gets the schema without logical types: its own conversions support neither nanoseconds nor the year 10000. They are
converted here, on whole columns.

Not here: the file (``io.avro.read``), which columns are read as what (``arrow.read.project``).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from icelock.arrow.nested import list_array, map_array, struct_array
from icelock.arrow.read.file_schema import FIELD_ID
from icelock.errors import FormatError
from icelock.io.avro.check import MOST_TYPES

_MOST_DIGITS: Final = 38
_DECIMAL_BYTES: Final = 16
_UUID_BYTES: Final = 16
_DEEPEST: Final = 100

Values = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """A type of a file: ``arrow``, the ``schema`` that fastavro gets, and ``build``, which returns an array for decoded values."""

    arrow: pa.DataType
    schema: Any
    build: Callable[[Values], pa.Array]
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroColumn:
    """A field of a record; its name is Avro's, possibly an escaped form of Iceberg's."""

    name: str
    field: pa.Field
    type: AvroType

    @property
    def decode(self) -> dict[str, Any]:
        """The field of the schema that fastavro gets."""
        return {"name": self.name, "type": self.type.schema}


def avro_columns(schema: Any, *, location: str) -> tuple[AvroColumn, ...]:
    """Return the columns of a data file.

    Raises:
        FormatError: the schema is not a record, or has a type that Iceberg's Avro files do not have.
    """
    try:
        return _Reader().columns(schema)
    except (_Unreadable, KeyError, TypeError, ValueError, AttributeError) as e:
        raise FormatError(
            f"{location}: the file's Avro schema is not one of an Iceberg data file ({type(e).__name__.lstrip('_')}: {e}); rewrite it"
        ) from e


class _Unreadable(Exception):  # noqa: N818 - it does not leave this module
    """Says what is wrong with a schema."""


@dataclass(slots=True)
class _Reader:
    """Reads one schema. ``named`` has the types that can be referred to by name; each gets a new name for fastavro."""

    named: dict[str, Any] = field(default_factory=dict)
    names: Iterator[int] = field(default_factory=itertools.count)
    depth: int = 0
    made: int = 0

    def columns(self, schema: Any) -> tuple[AvroColumn, ...]:
        if not isinstance(schema, Mapping) or schema.get("type") != "record":
            raise _Unreadable("it is not a record")
        self._remember(schema)
        return tuple(self._column(one) for one in schema["fields"])

    def _column(self, written: Mapping[str, Any]) -> AvroColumn:
        found = self._type(written["type"])
        return AvroColumn(name=written["name"], field=_field(written["name"], found, written.get("field-id")), type=found)

    def _type(self, written: Any) -> AvroType:
        self.depth += 1
        self.made += 1
        if self.depth > _DEEPEST or self.made > MOST_TYPES:
            raise _Unreadable(f"a type holds itself, or there are more than {MOST_TYPES}")
        try:
            return self._union(written) if isinstance(written, list) else self._single(written)
        finally:
            self.depth -= 1

    def _union(self, branches: list[Any]) -> AvroType:
        others = [branch for branch in branches if branch not in ("null", {"type": "null"})]
        if len(others) != 1 or len(branches) > 2 or isinstance(others[0], list):  # noqa: PLR2004 - null and one type
            raise _Unreadable(f"a union that is not of null and one type: {branches}")
        inner = self._type(others[0])
        schema = [inner.schema if branch is others[0] else "null" for branch in branches]
        return AvroType(arrow=inner.arrow, schema=schema, build=inner.build, optional=len(branches) > 1)

    def _single(self, written: Any) -> AvroType:
        if isinstance(written, str):
            written = self.named.get(written, {"type": written})
        kind = written["type"]
        if isinstance(kind, (Mapping, list)):
            return self._type(kind)
        reader = {"record": self._record, "fixed": self._fixed, "array": self._array, "map": self._map}.get(kind)
        if reader is not None:
            return reader(written)
        return self._type(kind) if kind in self.named else _primitive(kind, written)

    def _remember(self, written: Mapping[str, Any]) -> None:
        name, namespace = written["name"], written.get("namespace")
        self.named.update({name: written, f"{namespace}.{name}" if namespace else name: written, name.rpartition(".")[2]: written})

    def _fixed(self, written: Mapping[str, Any]) -> AvroType:
        self._remember(written)
        return _fixed(written["size"], written, f"f{next(self.names)}")

    def _record(self, written: Mapping[str, Any]) -> AvroType:
        self._remember(written)
        columns = tuple(self._column(one) for one in written["fields"])
        arrow = pa.struct([column.field for column in columns])
        schema = {"type": "record", "name": f"r{next(self.names)}", "fields": [column.decode for column in columns]}

        def build(values: Values) -> pa.Array:
            children = [column.type.build([None if value is None else value[column.name] for value in values]) for column in columns]
            if not children:
                return pa.array([None if value is None else {} for value in values], arrow)
            return struct_array(pa.array([None if value is None else True for value in values], pa.bool_()), children, arrow)

        return AvroType(arrow=arrow, schema=schema, build=build)

    def _array(self, written: Mapping[str, Any]) -> AvroType:
        if written.get("logicalType") == "map":
            return self._map_of_records(written)
        items = self._type(written["items"])
        arrow = pa.list_(_field("element", items, written.get("element-id")))

        def build(values: Values) -> pa.Array:
            inner = items.build([item for value in values if value is not None for item in value])
            return list_array(_lengths(values), inner, arrow)

        return AvroType(arrow=arrow, schema={"type": "array", "items": items.schema}, build=build)

    def _map(self, written: Mapping[str, Any]) -> AvroType:
        value_type = self._type(written["values"])
        key_type = _primitive("string", {})
        arrow = pa.map_(_field("key", key_type, written.get("key-id")), _field("value", value_type, written.get("value-id")))

        def build(values: Values) -> pa.Array:
            keys = key_type.build([key for value in values if value is not None for key in value])
            items = value_type.build([item for value in values if value is not None for item in value.values()])
            return map_array(_lengths(values), keys, items, arrow)

        return AvroType(arrow=arrow, schema={"type": "map", "values": value_type.schema}, build=build)

    def _map_of_records(self, written: Mapping[str, Any]) -> AvroType:
        pair = self._type(written["items"])
        names = [one.name for one in pair.arrow] if pa.types.is_struct(pair.arrow) else []
        if names != ["key", "value"] or pair.optional or pair.arrow.field(0).nullable:
            raise _Unreadable("a map whose records are not a required key and a value")
        arrow = pa.map_(pair.arrow.field(0), pair.arrow.field(1))

        def build(values: Values) -> pa.Array:
            pairs = pair.build([one for entries in values if entries is not None for one in entries])
            return map_array(_lengths(values), pairs.field(0), pairs.field(1), arrow)

        return AvroType(arrow=arrow, schema={"type": "array", "items": pair.schema}, build=build)


def _field(name: str, found: AvroType, field_id: int | None) -> pa.Field:
    metadata = None if field_id is None else {FIELD_ID: str(int(field_id)).encode()}
    return pa.field(name, found.arrow, nullable=found.optional or pa.types.is_null(found.arrow), metadata=metadata)


def _lengths(values: Values) -> pa.Array:
    return pa.array([None if value is None else len(value) for value in values], pa.int32())


def _primitive(kind: str, written: Mapping[str, Any]) -> AvroType:
    if kind not in _PRIMITIVES:
        raise _Unreadable(f"an unknown type {kind!r}")
    stored = _PRIMITIVES[kind]
    logical = written.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return AvroType(arrow=_decimal(written), schema="bytes", build=_decimals(_decimal(written)))
    if kind == "string" and logical == "uuid":
        return AvroType(arrow=pa.binary(_UUID_BYTES), schema="string", build=_uuids)
    found = _LOGICAL.get((kind, str(logical)))
    meant = stored if found is None else found(written)
    return AvroType(arrow=meant, schema=kind, build=lambda values: _plain(values, stored, meant))


def _fixed(size: int, written: Mapping[str, Any], name: str) -> AvroType:
    schema = {"type": "fixed", "name": name, "size": size}
    if written.get("logicalType") == "decimal":
        return AvroType(arrow=_decimal(written), schema=schema, build=_decimals(_decimal(written)))
    arrow = pa.binary(size)
    return AvroType(arrow=arrow, schema=schema, build=lambda values: pa.array(values, arrow))


def _plain(values: Values, stored: pa.DataType, meant: pa.DataType) -> pa.Array:
    array = pa.array(values, stored)
    return array if stored == meant else array.view(meant)


def _decimal(written: Mapping[str, Any]) -> pa.DataType:
    precision, scale = int(written["precision"]), int(written.get("scale", 0))
    if not 0 < precision <= _MOST_DIGITS:
        raise _Unreadable(f"a decimal of {precision} digits")
    return pa.decimal128(precision, scale)


def _decimals(arrow: pa.DataType) -> Callable[[Values], pa.Array]:
    """Return a function from big-endian unscaled values to decimals."""

    def build(values: Values) -> pa.Array:
        unscaled = b"".join(
            bytes(_DECIMAL_BYTES)
            if value is None
            else int.from_bytes(value, "big", signed=True).to_bytes(_DECIMAL_BYTES, "little", signed=True)
            for value in values
        )
        valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1] if None in values else None
        array = pa.Array.from_buffers(arrow, len(values), [valid, pa.py_buffer(unscaled)])
        array.validate(full=True)
        return array

    return build


def _uuids(values: Values) -> pa.Array:
    return pa.array([None if value is None else uuid.UUID(value).bytes for value in values], pa.binary(_UUID_BYTES))


def _timestamp(unit: str) -> Callable[[Mapping[str, Any]], pa.DataType]:
    return lambda written: pa.timestamp(unit, "UTC" if written.get("adjust-to-utc") else None)


_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], Callable[[Mapping[str, Any]], pa.DataType]]] = {
    ("int", "date"): lambda _: pa.date32(),
    ("int", "time-millis"): lambda _: pa.time32("ms"),
    ("long", "time-micros"): lambda _: pa.time64("us"),
    ("long", "timestamp-millis"): _timestamp("ms"),
    ("long", "timestamp-micros"): _timestamp("us"),
    ("long", "timestamp-nanos"): _timestamp("ns"),
    ("long", "local-timestamp-millis"): lambda _: pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): lambda _: pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): lambda _: pa.timestamp("ns"),
}
