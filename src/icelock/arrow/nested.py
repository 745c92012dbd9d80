"""Lists, maps and structs built again around other values, and how many bytes their rows use.

``lengths`` are those of lists or maps, null where the list or map is null. Arrow lets a null list have values, and a slice sees those of
the whole array: both are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

Converter = Callable[[pa.Array], pa.Array]
_ZERO: Final = pa.array([0], pa.int32())


def converted_list(array: pa.Array, kind: pa.DataType, convert: Converter) -> pa.ListArray:
    """Return any list array as one of type ``kind``, whose values are the converted ones."""
    offsets, values = _taken_apart(array)
    return pa.ListArray.from_arrays(offsets, convert(values), type=kind, mask=null_mask(array))


def converted_map(array: pa.MapArray, kind: pa.DataType, keys: Converter, items: Converter) -> pa.MapArray:
    """Return a map array as one of type ``kind``, whose keys and items are the converted ones."""
    pairs = array.values
    # As lists, for Arrow's list functions do not take maps; no cast, which refuses nulls whose own fields are required.
    entries = pa.Array.from_buffers(pa.list_(pairs.type), len(array), array.buffers()[:2], array.null_count, array.offset, children=[pairs])
    offsets, pairs = _taken_apart(entries)
    stored_keys, stored_items = pairs.flatten()
    return pa.MapArray.from_arrays(offsets, keys(stored_keys), items(stored_items), type=kind, mask=null_mask(array))


def list_array(lengths: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.ListArray:
    """Return lists of ``lengths`` with ``values`` one after another."""
    return pa.ListArray.from_arrays(_offsets(lengths), values, type=kind, mask=null_mask(lengths))


def map_array(lengths: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.MapArray:
    """Return maps of ``lengths`` with ``keys`` and ``items`` one after another."""
    return pa.MapArray.from_arrays(_offsets(lengths), keys, items, type=kind, mask=null_mask(lengths))


def struct_array(parent: pa.Array, children: list[pa.Array], kind: pa.DataType) -> pa.StructArray:
    """Return structs of ``children``, null where ``parent`` is."""
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=null_mask(parent))


def null_mask(array: pa.Array) -> pa.Array | None:
    """Return which values are null; None if no value is."""
    return array.is_null() if array.null_count else None


def all_valid(array: pa.Array) -> pa.Array:
    """Return an array of a fixed-width or binary type without nulls: what was null is any value."""
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _taken_apart(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the offsets of lists, from 0 on, and their values."""
    lengths = pc.list_value_length(array)
    if pat.is_list(array.type) and len(array):
        start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
        if not array.null_count or pc.sum(lengths, min_count=0).as_py() == stop - start:  # no values below a null
            return pc.subtract(array.offsets, pa.scalar(start, pa.int32())), array.values.slice(start, stop - start)
    return _offsets(lengths), array.flatten()


def _offsets(lengths: pa.Array) -> pa.Array:
    offsets = pc.cumulative_sum_checked(pc.fill_null(lengths, 0)).cast(pa.int32())
    return all_valid(pa.concat_arrays([_ZERO, offsets]))  # an empty bitmap that is left here and there counts as nulls


def used_bytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Return the bytes that the rows of a batch use: ``nbytes``, in which of shared buffers only its own rows count, but for any batch.

    pyarrow's ``nbytes`` (26.0) ends the process for a list or map without rows and without offsets, which the format allows and Spark's
    Arrow writer produces inside other lists: it reads the first offset unchecked. Here a column without rows is not read.
    """
    if isinstance(batch, pa.Table):
        return sum(used_bytes(piece) for piece in batch.to_batches())
    if not any(pat.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) for kind in batch.schema.types):
        return int(batch.nbytes)
    return sum(_used(column) for column in batch.columns)


def _used(array: pa.Array) -> int:
    count, kind = len(array), array.type
    if not count:
        return 0
    if isinstance(array, pa.ExtensionArray):
        return _used(array.storage)
    validity = (count + 7) // 8 if array.null_count else 0
    if pat.is_struct(kind):
        return validity + sum(_used(array.field(i)) for i in range(kind.num_fields))
    if pat.is_map(kind) or pat.is_list(kind) or pat.is_large_list(kind):
        start, stop = array.offsets[0].as_py(), array.offsets[count].as_py()
        children = (array.keys, array.items) if pat.is_map(kind) else (array.values,)
        return validity + int(array.offsets.nbytes) + sum(_used(child.slice(start, stop - start)) for child in children)
    return int(array.nbytes)
