"""Partition transforms over whole Arrow arrays, with Java's values (spec, "Partition Transforms" and Appendix B).

Results are physical: dates are days (int32), times and timestamps ticks (int64), uuids 16 bytes; decimals and text are unchanged.
Time and number transforms are arithmetic on arrays; where Arrow has no function (hashes of text, decimals), PyIceberg's Python
transform runs once for each distinct value. PyIceberg's own ``pyarrow_transform`` is not used: it needs the package
pyiceberg-core, which supports fewer Arrow forms.

Not here: partition tuples and paths (``arrow.write.partition``, ``arrow.write.partition``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg import transforms as tr
from pyiceberg import types as ice

from icelock.arrow.types import output_type, plain_array
from icelock.errors import PolicyError

ArrayTransform = Callable[[pa.Array], pa.Array]

_EPOCH_YEAR: Final = 1970
_MONTHS: Final = 12
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
_HOUR: Final = {"us": 3_600_000_000, "ns": 3_600_000_000_000}
_WHOLE: Final = (ice.IntegerType, ice.LongType, ice.DateType, ice.TimeType, ice.TimestampType, ice.TimestamptzType)
_NANOSECOND: Final = (ice.TimestampNanoType, ice.TimestamptzNanoType)


def physical(array: pa.Array) -> pa.Array:
    """Return an array of the stored schema in physical form, without a copy."""
    kind = array.type
    if pat.is_date32(kind):
        return array.cast(pa.int32())
    if pat.is_timestamp(kind) or pat.is_time64(kind):
        return array.cast(pa.int64())
    return plain_array(array)


def array_transform(transform: tr.Transform[Any, Any], source: ice.PrimitiveType) -> ArrayTransform:
    """Return the function from arrays of a column to arrays of physical partition values; nulls stay nulls.

    Raises:
        PolicyError: an unknown transform, or one that the column's type does not have.
    """
    if not transform.can_transform(source):
        raise PolicyError(
            f"the transform {transform} is not supported for columns of type {source}: write with another engine, or change the spec"
        )
    if isinstance(transform, tr.VoidTransform):
        result = physical(pa.nulls(0, output_type(source))).type
        return lambda array: pa.nulls(len(array), result)
    if isinstance(transform, tr.IdentityTransform):
        return physical
    if isinstance(transform, tr.BucketTransform) and isinstance(source, (*_WHOLE, *_NANOSECOND)):
        return _bucket(transform.num_buckets, thousands=isinstance(source, _NANOSECOND))
    found = _TIME.get(type(transform)) or _truncate(transform, source)
    return found or _each_distinct(transform, source)


def _year(array: pa.Array) -> pa.Array:
    cycles, date = _calendar(array)
    return pc.add(pc.subtract(pc.year(date).cast(pa.int32()), pa.scalar(_EPOCH_YEAR, pa.int32())), _times(cycles, _CYCLE_YEARS))


def _month(array: pa.Array) -> pa.Array:
    cycles, date = _calendar(array)
    year, month = (part(date).cast(pa.int32()) for part in (pc.year, pc.month))
    within = pc.subtract(pc.add(_times(year, _MONTHS), month), pa.scalar(_EPOCH_YEAR * _MONTHS + 1, pa.int32()))
    return pc.add(within, _times(cycles, _CYCLE_YEARS * _MONTHS))


def _calendar(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return cycles of 400 years since 1970, after which the calendar repeats, and the dates of 1970 to 2369 that they leave.

    Arrow's calendar has years of 16 bits: it takes the year 32768 for -32768.
    """
    days = _day(array)
    return floor_divide(days, _CYCLE_DAYS), floor_modulo(days, _CYCLE_DAYS).cast(pa.date32())


def _times(array: pa.Array, number: int) -> pa.Array:
    return pc.multiply(array, pa.scalar(number, pa.int32()))


def _day(array: pa.Array) -> pa.Array:
    return array.cast(pa.date32(), safe=False).cast(pa.int32())  # the cast rounds down, also before 1970


def _hour(array: pa.Array) -> pa.Array:
    hours = floor_divide(physical(array), _HOUR[array.type.unit])
    try:
        return hours.cast(pa.int32())
    except pa.ArrowInvalid as e:
        raise PolicyError(
            "a timestamp of more than 2147483647 hours before or after 1970 (year 246953) has no partition by hours, which is a 32-bit "
            "integer: partition by days, or leave the row out"
        ) from e


_TIME: Final[dict[type[tr.Transform[Any, Any]], ArrayTransform]] = {
    tr.YearTransform: _year,
    tr.MonthTransform: _month,
    tr.DayTransform: _day,
    tr.HourTransform: _hour,
}


def floor_modulo(array: pa.Array, divisor: int) -> pa.Array:
    """Return the non-negative remainders of whole numbers by a positive divisor."""
    by = pa.scalar(divisor, array.type)
    rest = pc.subtract(array, pc.multiply(pc.divide(array, by), by))
    return pc.if_else(pc.less(rest, pa.scalar(0, array.type)), pc.add(rest, by), rest)


def floor_divide(array: pa.Array, divisor: int) -> pa.Array:
    """Return whole numbers divided by a positive divisor, rounded down."""
    by = pa.scalar(divisor, array.type)
    quotient = pc.divide(array, by)
    down = pc.less(pc.subtract(array, pc.multiply(quotient, by)), pa.scalar(0, array.type))
    return pc.subtract(quotient, down.cast(array.type))


def _truncate(transform: tr.Transform[Any, Any], source: ice.PrimitiveType) -> ArrayTransform | None:
    if not isinstance(transform, tr.TruncateTransform):
        return None
    width = transform.width
    if isinstance(source, (ice.IntegerType, ice.LongType)):
        return lambda array: pc.subtract(array, floor_modulo(array.cast(pa.int64()), width).cast(array.type))
    if isinstance(source, ice.StringType):
        return lambda array: pc.utf8_slice_codeunits(array, 0, width)
    if isinstance(source, ice.BinaryType):
        return lambda array: pc.binary_slice(array, 0, width)
    return None


def _each_distinct(transform: tr.Transform[Any, Any], source: ice.PrimitiveType) -> ArrayTransform:
    function, result = transform.transform(source), physical(pa.nulls(0, output_type(transform.result_type(source)))).type

    def run(array: pa.Array) -> pa.Array:
        encoded = physical(array).dictionary_encode()
        try:
            values = pa.array([function(value) for value in encoded.dictionary.to_pylist()], result)
        except pa.ArrowInvalid as e:  # of decimals alone: truncation goes down, and -99 becomes -100
            raise PolicyError(
                f"a value has no partition by {transform}: rounded down it has more digits than {source}. Leave the row out, or partition "
                "by another transform or a column of more digits"
            ) from e
        return pc.take(values, encoded.indices)

    return run


def _bucket(buckets: int, *, thousands: bool) -> ArrayTransform:
    """Bucket whole numbers by murmur3 of their 8 little-endian bytes; nanoseconds hash as microseconds."""

    def run(array: pa.Array) -> pa.Array:
        values = physical(array).cast(pa.int64())
        if thousands:
            values = floor_divide(values, 1000)
        positive = pc.bit_wise_and(murmur3_long(values), _word(0x7FFFFFFF)).cast(pa.int64())
        return floor_modulo(positive, buckets).cast(pa.int32())

    return run


def murmur3_long(values: pa.Array) -> pa.Array:
    """Return murmur3_x86_32 (seed 0) of int64 values as uint32; the arithmetic wraps as in C."""
    low = pc.bit_wise_and(values, pa.scalar(0xFFFFFFFF, pa.int64())).cast(pa.uint32())
    high = pc.bit_wise_and(pc.shift_right(values, pa.scalar(32, pa.int64())), pa.scalar(0xFFFFFFFF, pa.int64())).cast(pa.uint32())
    state: pa.Array | None = None
    for block in (low, high):
        mixed = pc.multiply(_rotate(pc.multiply(block, _word(0xCC9E2D51)), 15), _word(0x1B873593))
        state = mixed if state is None else pc.bit_wise_xor(state, mixed)
        state = pc.add(pc.multiply(_rotate(state, 13), _word(5)), _word(0xE6546B64))
    state = pc.bit_wise_xor(state, _word(8))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = pc.multiply(pc.bit_wise_xor(state, pc.shift_right(state, _word(shift))), _word(factor))
    return pc.bit_wise_xor(state, pc.shift_right(state, _word(16)))


def _rotate(values: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(values, _word(bits)), pc.shift_right(values, _word(32 - bits)))


def _word(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())
