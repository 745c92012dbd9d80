"""Iceberg types as Arrow types: what comes out of a scan, and which stored types may be read as which.

Out: PyIceberg's ``schema_to_pyarrow`` with 32-bit offsets everywhere (string, binary, list), as Spark's Arrow reader requires
(case C-51): timestamps in microseconds (``_ns``: nanoseconds), zone ``UTC`` or none, decimal128, ``arrow.uuid``.
In: the type promotions of the Iceberg spec ("Schema Evolution"), and narrower or differently laid out Arrow forms of the same
values, such as int16 for int or dictionaries for strings.

Not here: nested values (``arrow.read.project``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pat
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from icelock.errors import PolicyError
from icelock.metadata.column_types import unread
from icelock.metadata.schema_checks import LAST_COLUMN_ID
from icelock.metadata.schema_paths import shortened

UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "Z", "+00:00"})
UUID_STORAGE: Final = pa.binary(16)


def output_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a scan's batches: names and docs of ``schema``, no field ids, 32-bit offsets.

    Raises:
        PolicyError: the type of a column, or of a part of it, is not read.
    """
    check_read(schema)
    wide = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([field.with_type(small(field.type)) for field in wide])


def check_read(schema: Schema) -> None:
    """Refuse columns whose types are not read.

    Raises:
        PolicyError: names them, and the readable ones.
    """
    found = dict(unread(schema))
    if found:
        named = ", ".join(f"{name!r} ({kind})" for name, kind in found.items())
        others = [repr(field.name) for field in schema.fields if field.field_id <= LAST_COLUMN_ID and not any(unread(Schema(field)))]
        hint = f" ({shortened(', '.join(others))})" if others else ""
        raise PolicyError(
            f"icelock neither reads nor writes values of these columns' types: {named}. Select others{hint}, delete rows with "
            "write.delete.mode=merge-on-read, and use another engine for what needs these columns"
        )


def output_type(iceberg_type: ice.IcebergType) -> pa.DataType:
    """Return the Arrow type in which a scan gives values of an Iceberg type."""
    return small(schema_to_pyarrow(iceberg_type, include_field_ids=False))


def small(arrow_type: pa.DataType) -> pa.DataType:
    """Return the same type with 32-bit offsets at every level, keeping names, nullability and metadata."""
    if pat.is_large_string(arrow_type):
        return pa.string()
    if pat.is_large_binary(arrow_type):
        return pa.binary()
    if pat.is_struct(arrow_type):
        return pa.struct([field.with_type(small(field.type)) for field in arrow_type])
    if pat.is_list(arrow_type) or pat.is_large_list(arrow_type):
        return pa.list_(arrow_type.value_field.with_type(small(arrow_type.value_type)))
    if pat.is_map(arrow_type):
        key, item = arrow_type.key_field, arrow_type.item_field
        return pa.map_(key.with_type(small(key.type)), item.with_type(small(item.type)))
    return arrow_type


def storage(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type below an extension type or a dictionary."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        return storage(arrow_type.storage_type)
    if pat.is_dictionary(arrow_type):
        return storage(arrow_type.value_type)
    return arrow_type


def is_list_like(arrow_type: pa.DataType) -> bool:
    """Whether values of a type are lists, in any of Arrow's forms."""
    return any(is_type(arrow_type) for is_type in _LISTS)


def plain_array(array: pa.Array) -> pa.Array:
    """Return an extension array's storage, and any other array as it is."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def repeated(value: Any, arrow_type: pa.DataType, length: int) -> pa.Array:
    """Return an array of ``length`` equal values, given in PyIceberg's internal form (days, microseconds, ``Decimal``, UUID or its bytes).

    A struct's value is a mapping by field name.
    """
    if value is None:
        return pa.nulls(length, arrow_type)
    if pat.is_struct(arrow_type) and isinstance(value, Mapping):
        children = [repeated(value[field.name], field.type, length) for field in arrow_type]
        return pa.StructArray.from_arrays(children, fields=list(arrow_type))
    if arrow_type == pa.uuid():
        stored = pa.repeat(pa.scalar(getattr(value, "bytes", value), UUID_STORAGE), length)
        return pa.ExtensionArray.from_storage(arrow_type, stored)
    return pa.repeat(pa.scalar(value, arrow_type), length)


def can_read(stored: pa.DataType, wanted: ice.PrimitiveType) -> bool:
    """Whether the spec allows reading a column stored as ``stored`` as ``wanted``."""
    found = storage(stored)
    if pat.is_null(found) or isinstance(wanted, ice.UnknownType):
        return True
    if isinstance(wanted, ice.DecimalType):
        return bool(pat.is_decimal(found) and found.scale == wanted.scale and found.precision <= wanted.precision)
    if isinstance(wanted, ice.FixedType):
        return bool(pat.is_fixed_size_binary(found) and found.byte_width == len(wanted))
    if isinstance(wanted, (ice.GeometryType, ice.GeographyType)):
        return _text(found)
    rule = _READABLE.get(type(wanted))
    return rule is not None and bool(rule(found))


def _integer(bits: int) -> Callable[[pa.DataType], bool]:
    """Signed integers up to ``bits``, unsigned ones that fit (for long: any, checked value by value)."""
    unsigned = bits if bits == pa.int64().bit_width else bits - 1
    return lambda found: bool(pat.is_integer(found) and found.bit_width <= (bits if pat.is_signed_integer(found) else unsigned))


def floating(bits: int) -> Callable[[pa.DataType], bool]:
    """Return the test for floating-point numbers of up to ``bits``."""
    return lambda found: bool(pat.is_floating(found) and found.bit_width <= bits)


_LISTS: Final = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list, pat.is_list_view, pat.is_large_list_view)
_TEXTS: Final = (pat.is_string, pat.is_large_string, pat.is_string_view, pat.is_binary, pat.is_large_binary, pat.is_binary_view)


def _text(found: pa.DataType) -> bool:
    """Strings and binary: PyIceberg reads one as the other."""
    return any(is_type(found) for is_type in _TEXTS)


def _naive(found: pa.DataType) -> bool:
    """Timestamps without zone; UTC ones have the same wall time (Spark writes such files), and dates mean midnight."""
    return bool(pat.is_date32(found) or (pat.is_timestamp(found) and (found.tz is None or found.tz in UTC_NAMES)))


_READABLE: Final[dict[type[ice.PrimitiveType], Callable[[pa.DataType], bool]]] = {
    ice.BooleanType: pat.is_boolean,
    ice.IntegerType: _integer(32),
    ice.LongType: _integer(64),
    ice.FloatType: floating(32),
    ice.DoubleType: floating(64),
    ice.DateType: pat.is_date,
    ice.TimeType: pat.is_time,
    ice.TimestampType: _naive,
    ice.TimestampNanoType: _naive,
    ice.TimestamptzType: pat.is_timestamp,  # without zone (INT96) it is UTC, and a zone is only a label
    ice.TimestamptzNanoType: pat.is_timestamp,
    ice.StringType: _text,
    ice.BinaryType: _text,
    ice.UUIDType: UUID_STORAGE.equals,
}
