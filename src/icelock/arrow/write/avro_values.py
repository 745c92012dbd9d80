"""Arrow columns as values for Avro's encoder: what the file stores, without logical types.

Days, microseconds and nanoseconds are whole numbers (so dates past 9999 and time-zone changes need no care), decimals are big-endian
two's complement of fixed length, UUIDs 16 bytes. Batches are in the stored schema (``arrow.write.conform``), where every type has one
Arrow form; so the conversions are chosen once for each file.

Not here: the Avro schema (``arrow.write.avro_schema``), the encoder (``io.avro.write``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pat
from pyiceberg.schema import make_compatible_name
from pyiceberg.types import DecimalType, IcebergType, ListType, MapType, NestedField, StringType, StructType

from icelock.arrow.types import plain_array
from icelock.arrow.write.avro_schema import decimal_length

Values = Sequence[Any]
_Read = Callable[[pa.Array], Values]
_DECIMAL_BYTES: Final = 16


class AvroRows:
    """Turns batches of a stored schema into rows for Avro's encoder."""

    def __init__(self, fields: Sequence[NestedField]) -> None:
        self._names = [make_compatible_name(field.name) for field in fields]
        self._columns = [_reader(field.field_type) for field in fields]

    def of(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Return the rows of a batch."""
        columns = [read(array) for read, array in zip(self._columns, batch.columns, strict=True)]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]


def _reader(kind: IcebergType) -> _Read:
    if isinstance(kind, StructType):
        return _structs(kind)
    if isinstance(kind, ListType):
        return _lists(_reader(kind.element_type))
    if isinstance(kind, MapType):
        return _maps(_reader(kind.key_type), _reader(kind.value_type), as_map=isinstance(kind.key_type, StringType))
    if isinstance(kind, DecimalType):
        size = decimal_length(kind.precision)
        return lambda array: _decimals(array, size)
    return _primitives


def _primitives(array: pa.Array) -> Values:
    stored = plain_array(array)
    if pat.is_temporal(stored.type):
        stored = stored.view(pa.int32() if stored.type.bit_width == pa.int32().bit_width else pa.int64())
    return stored.to_pylist()  # type: ignore[no-any-return]


def _decimals(array: pa.Array, size: int) -> Values:
    """Return unscaled values; Arrow stores them as 16 little-endian bytes."""
    data = array.buffers()[1]
    raw = b"" if data is None else memoryview(data)[array.offset * _DECIMAL_BYTES : (array.offset + len(array)) * _DECIMAL_BYTES].tobytes()
    values = [raw[start : start + size][::-1] for start in range(0, len(raw), _DECIMAL_BYTES)]
    return _with_nulls(array, values)


def _structs(kind: StructType) -> _Read:
    names = [make_compatible_name(field.name) for field in kind.fields]
    readers = [_reader(field.field_type) for field in kind.fields]

    def read(array: pa.Array) -> Values:
        columns = [reader(array.field(index)) for index, reader in enumerate(readers)]
        return _with_nulls(array, [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])

    return read


def _lists(element: _Read) -> _Read:
    def read(array: pa.Array) -> Values:
        offsets = array.offsets.to_pylist()
        values = element(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
        return _with_nulls(array, [values[start:stop] for start, stop in _ranges(offsets)])

    return read


def _maps(key: _Read, value: _Read, *, as_map: bool) -> _Read:
    def read(array: pa.Array) -> Values:
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


def _with_nulls(array: pa.Array, values: list[Any]) -> Values:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
