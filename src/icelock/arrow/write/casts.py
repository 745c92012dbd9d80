"""Which Arrow forms of one primitive value can be written into an Iceberg column, and the cast that does it.

A cast preserves every value or fails; integers of another signedness are checked value by value. The one exception is explicit:
``downcast_ns`` rounds nanoseconds down to microseconds, as Java's ``DateTimeUtil.nanosToMicros`` does.

Not here: nested types and nulls (``arrow.write.conform``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg import types as ice

from icelock.arrow.nested import Converter
from icelock.arrow.types import UUID_STORAGE

_MICROSECOND: Final = (ice.TimestampType, ice.TimestamptzType, ice.TimeType)


def identity(array: pa.Array) -> pa.Array:
    """Return the array unchanged."""
    return array


def primitive_converter(source: pa.DataType, target: ice.PrimitiveType, stored: pa.DataType, *, downcast_ns: bool) -> Converter | None:
    """Return a function from arrays of ``source`` to ``stored``, the form of ``target``; None if values could change."""
    if isinstance(target, ice.StringType) and _is_text(source):
        return lambda array: _checked_text(array.cast(stored))
    if source == stored:
        return identity
    if isinstance(target, ice.UUIDType):
        return _to_uuid(source)
    if isinstance(target, _MICROSECOND) and getattr(source, "unit", None) == "ns":
        return _rounded_down(stored) if downcast_ns and _TAKES[type(target)](source) else None
    if isinstance(target, ice.DecimalType):
        taken = pat.is_decimal(source) and source.scale == target.scale and source.precision <= target.precision
    elif isinstance(target, ice.FixedType):
        taken = _is_binary(source)  # the cast checks the length
    else:
        rule = _TAKES.get(type(target))
        taken = rule is not None and rule(source)
    return (lambda array: array.cast(stored)) if taken else None


def _checked_text(array: pa.Array) -> pa.Array:
    """Check that text is UTF-8, and return it: Arrow accepts and writes any bytes."""
    if len(array):
        wide = pat.is_large_string(array.type)
        _, offsets, data = array.buffers()
        if data is not None:
            ends = pa.Array.from_buffers(pa.int64() if wide else pa.int32(), len(array) + 1, [None, offsets], offset=array.offset)
            start, end = ends[0].as_py(), ends[len(array)].as_py()
            if not data.slice(start, end - start).to_pybytes().isascii():  # ASCII is UTF-8, and far faster to check
                array.validate(full=True)
    return array


def _rounded_down(stored: pa.DataType) -> Converter:
    if pat.is_time(stored):
        return lambda array: array.cast(stored, safe=False)
    return lambda array: pc.floor_temporal(array, unit="microsecond").cast(stored)


def _to_uuid(source: pa.DataType) -> Converter | None:
    if source == UUID_STORAGE:
        return lambda array: pa.ExtensionArray.from_storage(pa.uuid(), array)
    if _is_text(source):
        return lambda array: pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([None if text is None else uuid.UUID(text).bytes for text in array.to_pylist()], UUID_STORAGE)
        )
    return None


def _is_text(source: pa.DataType) -> bool:
    return bool(pat.is_string(source) or pat.is_large_string(source) or pat.is_string_view(source))


def _is_binary(source: pa.DataType) -> bool:
    return bool(pat.is_binary(source) or pat.is_large_binary(source) or pat.is_binary_view(source) or pat.is_fixed_size_binary(source))


def _up_to(bits: int) -> Callable[[pa.DataType], bool]:
    return lambda source: bool(pat.is_integer(source) and source.bit_width <= bits)


def _floating_up_to(bits: int) -> Callable[[pa.DataType], bool]:
    return lambda source: bool(pat.is_floating(source) and source.bit_width <= bits)


def _timestamp(*, zoned: bool) -> Callable[[pa.DataType], bool]:
    return lambda source: bool(pat.is_timestamp(source) and (source.tz is not None) == zoned)


_TAKES: Final[dict[type[ice.PrimitiveType], Callable[[pa.DataType], bool]]] = {
    ice.BooleanType: pat.is_boolean,
    ice.IntegerType: _up_to(32),
    ice.LongType: _up_to(64),
    ice.FloatType: _floating_up_to(32),
    ice.DoubleType: _floating_up_to(64),
    ice.DateType: pat.is_date,
    ice.TimeType: pat.is_time,
    ice.TimestampType: _timestamp(zoned=False),
    ice.TimestampNanoType: _timestamp(zoned=False),
    ice.TimestamptzType: _timestamp(zoned=True),
    ice.TimestamptzNanoType: _timestamp(zoned=True),
    ice.StringType: _is_text,
    ice.BinaryType: _is_binary,
}
