"""Batches of a scan in exactly Spark's Arrow form: the one place where they are converted (case C-51).

Differences: ``arrow.uuid`` (Spark: string), fixed-size binary (Spark: binary), names and nullability of nested fields. Other columns are
passed on unchanged.

Invariant: converted lists and maps keep no values below a null, so sliced and filtered arrays convert correctly.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.nested import Converter, converted_list, converted_map, struct_array
from icelock.arrow.types import storage
from icelock.errors import FormatError

_UUID_BYTES: Final = 16
_UUID_TEXT: Final = 36
_HYPHENS: Final = (8, 13, 18, 23)
_DIGITS: Final = np.array([i for i in range(_UUID_TEXT) if i not in _HYPHENS])


def spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch whose schema is ``schema``; columns are matched by position.

    One that cannot be converted, or has nulls although Spark takes it for required, is a FormatError.
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
        return converted_map(array, target, _converter(target.key_field, f"{path}.key"), _converter(target.item_field, f"{path}.value"))
    if pat.is_list(target):
        return converted_list(array, target, _converter(target.value_field, f"{path}.element"))
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
    return struct_array(array, children, target)


def _converter(field: pa.Field, path: str) -> Converter:
    """Return what converts the values of lists or maps."""

    def run(array: pa.Array) -> pa.Array:
        values = _convert(array, field.type, path)
        _check_nulls(values, field, path)
        return values

    return run


def _check_nulls(array: pa.Array, field: pa.Field, path: str, parents: int = 0) -> None:
    """Refuse nulls in a required column: Spark would read them as zeros."""
    if not field.nullable and array.null_count > parents:
        raise FormatError(f"column {path!r} has nulls, but it is required: the data file does not fit the table")


def _uuid_text(array: pa.Array) -> pa.Array:
    """Return 16-byte values as lower-case text with hyphens, without Python objects."""
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
