"""One encrypted Avro data file while it is written: AGS1 around an Avro container (format.md "Avro data files").

The same interface as ``arrow.write.parquet_file.EncryptedParquetFile``: rows come as sorted tables of the stored schema. They become Avro
rows a few at a time, so memory is bounded by the given table and one Avro block. An Avro file has no metrics and no split offsets, as in
Java.

Its schema is as Java's ``TypeToSchema`` makes it (spec, Appendix A, "Avro"):

    record table; a struct is record r<its field id>; every field, element, key and value has its id
    optional         ["null", T], default null
    decimal(P, S)    fixed decimal_P_S of the fewest bytes that hold P digits
    timestamptz      long timestamp-micros, adjust-to-utc true
    map              Avro's own where keys are strings, else an array of records k<key id>_v<value id>

A named type (fixed, record) is written out once and referred to by name after that. Names that Avro forbids are escaped;
``iceberg-field-name`` has the real one.

Values are what the file stores, without logical types: days, microseconds and nanoseconds are whole numbers (so dates past 9999 and
time-zone changes need no care), decimals are big-endian two's complement of fixed length, UUIDs 16 bytes. In the stored schema
(``arrow.write.conform``) every type has one Arrow form; so the conversions are chosen once for each file.

Invariant: after `close` the file's bytes are on storage, their number is what AGS1 makes of the plain bytes, and they begin with
``AGS1``. After an error or `abort` the stream is closed and nothing more is written; the caller deletes the file
(``arrow.write.data_file``).

Not here: the encoder (``io.avro.write``), when files begin and end (``arrow.write.fanout``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pat
from pyiceberg import types as ice
from pyiceberg.io import FileIO
from pyiceberg.schema import make_compatible_name

from icelock.arrow.nested import used_bytes
from icelock.arrow.types import plain_array
from icelock.arrow.write.options import WriteOptions
from icelock.arrow.write.schema import WriteSchema
from icelock.errors import PolicyError
from icelock.format import ags1
from icelock.format.ags1 import PlaintextLength
from icelock.format.key_metadata import FileKey
from icelock.io.avro.write import BLOCK_BYTES, SYNC_LENGTH, AvroWriter
from icelock.io.files import EncryptedOutputFile
from icelock.io.stored import ClosedFile, check_stored
from icelock.keys.entropy import Entropy
from icelock.metadata.canonical_json import schema_json

_Values = Sequence[Any]
_Read = Callable[[pa.Array], _Values]
_MOST_ROWS: Final = 1024
_DECIMAL_BYTES: Final = 16
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


class _AvroRows:
    """Turns batches of a stored schema into rows for Avro's encoder."""

    def __init__(self, fields: Sequence[ice.NestedField]) -> None:
        self._names = [make_compatible_name(field.name) for field in fields]
        self._columns = [_reader(field.field_type) for field in fields]

    def of(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Return the rows of a batch."""
        columns = [read(array) for read, array in zip(self._columns, batch.columns, strict=True)]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]


def _reader(kind: ice.IcebergType) -> _Read:
    if isinstance(kind, ice.StructType):
        return _structs(kind)
    if isinstance(kind, ice.ListType):
        return _lists(_reader(kind.element_type))
    if isinstance(kind, ice.MapType):
        return _maps(_reader(kind.key_type), _reader(kind.value_type), as_map=isinstance(kind.key_type, ice.StringType))
    if isinstance(kind, ice.DecimalType):
        size = decimal_length(kind.precision)
        return lambda array: _decimals(array, size)
    return _primitives


def _primitives(array: pa.Array) -> _Values:
    stored = plain_array(array)
    if pat.is_temporal(stored.type):
        stored = stored.view(pa.int32() if stored.type.bit_width == pa.int32().bit_width else pa.int64())
    return stored.to_pylist()  # type: ignore[no-any-return]


def _decimals(array: pa.Array, size: int) -> _Values:
    """Return unscaled values; Arrow stores them as 16 little-endian bytes."""
    data = array.buffers()[1]
    raw = b"" if data is None else memoryview(data)[array.offset * _DECIMAL_BYTES : (array.offset + len(array)) * _DECIMAL_BYTES].tobytes()
    values = [raw[start : start + size][::-1] for start in range(0, len(raw), _DECIMAL_BYTES)]
    return _with_nulls(array, values)


def _structs(kind: ice.StructType) -> _Read:
    names = [make_compatible_name(field.name) for field in kind.fields]
    readers = [_reader(field.field_type) for field in kind.fields]

    def read(array: pa.Array) -> _Values:
        columns = [reader(array.field(index)) for index, reader in enumerate(readers)]
        return _with_nulls(array, [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])

    return read


def _lists(element: _Read) -> _Read:
    def read(array: pa.Array) -> _Values:
        offsets = array.offsets.to_pylist()
        values = element(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
        return _with_nulls(array, [values[start:stop] for start, stop in _ranges(offsets)])

    return read


def _maps(key: _Read, value: _Read, *, as_map: bool) -> _Read:
    def read(array: pa.Array) -> _Values:
        offsets = array.offsets.to_pylist()
        length = offsets[-1] - offsets[0]
        entries = list(zip(key(array.keys.slice(offsets[0], length)), value(array.items.slice(offsets[0], length)), strict=True))
        if as_map:
            return _with_nulls(array, [dict(entries[start:stop]) for start, stop in _ranges(offsets)])
        pairs = [{"key": one, "value": other} for one, other in entries]
        return _with_nulls(array, [pairs[start:stop] for start, stop in _ranges(offsets)])

    return read


def _ranges(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of each list in what its values begin with."""
    first = offsets[0]
    for start, stop in itertools.pairwise(offsets):
        yield start - first, stop - first


def _with_nulls(array: pa.Array, values: list[Any]) -> _Values:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]


class EncryptedAvroFile:
    """Writes rows to a new file under a new file key."""

    parts: Final = 0
    """Avro has no row groups to number."""

    def __init__(  # noqa: PLR0913 - a file's six ingredients
        self, io: FileIO, location: str, target: WriteSchema, options: WriteOptions, file_key: FileKey, entropy: Entropy
    ) -> None:
        """Create the file.

        Raises:
            PolicyError: a type that Avro files do not have.
            FileExistsError: the location has a file.
        """
        schema = avro_data_schema(target.fields)
        self.location = location
        self._io = io
        self._rows = _AvroRows(target.fields)
        self._output = EncryptedOutputFile(io.new_output(location), file_key, entropy)
        self._stream = self._output.create()
        try:
            self._writer = AvroWriter(
                self._stream,
                location=location,
                schema=schema,
                codec=options.avro_codec,
                header={"iceberg.schema": schema_json(target.schema)},
                sync=entropy.random_bytes(SYNC_LENGTH),
            )
        except BaseException:
            self.abort()
            raise

    @property
    def stored_bytes(self) -> int:
        """Bytes given to storage so far, without an open block."""
        return ags1.encrypted_length(PlaintextLength(self._stream.tell()))

    def write(self, table: pa.Table) -> None:
        """Write a table of the stored schema."""
        rows = max(1, min(_MOST_ROWS, BLOCK_BYTES * table.num_rows // max(1, used_bytes(table))))
        for batch in table.to_batches(max_chunksize=rows):
            self._writer.write(self._rows.of(batch))

    def close(self) -> ClosedFile:
        """Finish the file and check what is stored.

        Raises:
            IntegrityError: storage does not have the bytes that were written, or they are not encrypted.
        """
        self._writer.finish()
        self._stream.close()
        key_metadata = self._output.key_metadata
        size = len(self._output)
        check_stored(self._io, self.location, size=size, magic=ags1.MAGIC)
        return ClosedFile(size=size, rows=self._writer.rows, footer=None, key_metadata=key_metadata)

    def abort(self) -> None:
        """Stop writing; the file is to be deleted."""
        self._output.abort()
