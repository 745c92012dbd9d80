"""Batches of a scan in exactly Spark's Arrow form: the one place where they are converted (case C-51).

Differences that occur: ``arrow.uuid`` (Spark: string), fixed-size binary (Spark: binary), names and nullability of nested fields.
Columns without such a difference are handed on as they are.

Invariant: lists and maps keep no values below a null, so sliced and filtered arrays convert rightly.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.types import storage
from icelock.errors import FormatError

_UUID_BYTES: Final = 16
_UUID_TEXT: Final = 36
_HYPHENS: Final = (8, 13, 18, 23)
_DIGITS: Final = np.array([i for i in range(_UUID_TEXT) if i not in _HYPHENS])
_ZERO: Final = pa.array([0], pa.int32())


def spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch whose schema is ``schema``; columns are matched by position.

    Raises:
        FormatError: a column cannot be brought into Spark's form, or has nulls where Spark was told of none.
    """
    arrays = [_convert(array, field.type, field.name) for array, field in zip(batch.columns, schema, strict=True)]
    for array, field in zip(arrays, schema, strict=True):
        _check_nulls(array, field, field.name)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pat.is_struct(target):
        return _convert_struct(array, target, path)
    if pat.is_map(target):
        return _convert_map(array, target, path)
    if pat.is_list(target):
        values = _convert(array.flatten(), target.value_type, f"{path}.element")
        _check_nulls(values, target.value_field, f"{path}.element")
        return pa.ListArray.from_arrays(_offsets(array), values, type=target, mask=_mask(array))
    if pat.is_string(target) and storage(array.type) == pa.binary(_UUID_BYTES):
        return _uuid_text(array)
    try:
        return array.cast(target)
    except pa.ArrowException as e:
        raise FormatError(f"column {path!r} is {array.type} and cannot be given to Spark as {target}") from e


def _convert_struct(array: pa.StructArray, target: pa.StructType, path: str) -> pa.Array:
    children = []
    for child, field in zip(array.flatten(), target, strict=True):
        converted = _convert(child, field.type, f"{path}.{field.name}")
        _check_nulls(converted, field, f"{path}.{field.name}", array.null_count)
        children.append(converted)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _convert_map(array: pa.MapArray, target: pa.MapType, path: str) -> pa.Array:
    source = array.type
    entries = array.cast(pa.list_(pa.struct([source.key_field.with_name("key"), source.item_field.with_name("value")])))
    keys, values = entries.flatten().flatten()
    keys = _convert(keys, target.key_type, f"{path}.key")
    values = _convert(values, target.item_type, f"{path}.value")
    _check_nulls(values, target.item_field, f"{path}.value")
    return pa.MapArray.from_arrays(_offsets(entries), keys, values, type=target, mask=_mask(array))


def _offsets(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    return pa.concat_arrays([_ZERO, pc.cumulative_sum(lengths).cast(pa.int32())])


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _check_nulls(array: pa.Array, field: pa.Field, path: str, parents: int = 0) -> None:
    """Refuse nulls in a column that Spark was told has none: Spark would read them as zeros."""
    if not field.nullable and array.null_count > parents:
        raise FormatError(f"column {path!r} has nulls, but it is required: the data file does not fit the table")


def _uuid_text(array: pa.Array) -> pa.Array:
    """Return 16-byte values as lower-case text with hyphens, without a Python object for each."""
    rows = len(array)
    if rows == 0:
        return pa.array([], pa.string())
    valid = array.is_valid() if array.null_count else None
    start = array.offset * _UUID_BYTES
    digits = memoryview(array.buffers()[1])[start : start + rows * _UUID_BYTES].hex().encode()
    text = np.full((rows, _UUID_TEXT), ord("-"), dtype=np.uint8)
    text[:, _DIGITS] = np.frombuffer(digits, dtype=np.uint8).reshape(rows, 2 * _UUID_BYTES)
    offsets = pa.py_buffer(np.arange(0, (rows + 1) * _UUID_TEXT, _UUID_TEXT, dtype=np.int32))
    made = pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(text))
    return made if valid is None else pc.if_else(valid, made, pa.scalar(None, pa.string()))
