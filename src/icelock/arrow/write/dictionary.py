"""Which columns of a new Parquet file get a dictionary: those that it makes smaller, as in Java.

Java (parquet-mr, ``FallbackValuesWriter``) compares after the first page, and continues without a dictionary if indices and dictionary
take more than the values themselves. Arrow continues until the dictionary is full, so a column of distinct values is hashed in vain and
its first megabytes are stored twice as large (measured: 0.39 s of CPU and 44.2 MB against 0.24 s and 41.1 MB). So the comparison is made
here, on the rows of a first page, before the file is opened.

Columns below lists and maps keep their dictionaries. Not here: the file (``arrow.write.parquet_file``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.write.schema import WriteSchema

FIRST_PAGE_ROWS: Final = 20_000
_LENGTH_BYTES: Final = 4


def dictionary_paths(target: WriteSchema, first: pa.Table) -> list[str]:
    """Return the Parquet paths of the columns that get a dictionary; ``first`` holds the first rows of the file, in the stored schema."""
    page = first.slice(0, FIRST_PAGE_ROWS)
    paths = [path for field in target.arrow for path in _paths(field.type, field.name)]
    return [path for leaf, path in zip(target.leaves, paths, strict=True) if leaf.repeated or is_smaller(leaf.column_of(page))]


def is_smaller(values: pa.ChunkedArray) -> bool:
    """Whether a dictionary and indices take fewer bytes than the values; true without values."""
    found = values.drop_null()
    if isinstance(found.type, pa.BaseExtensionType):
        found = found.cast(found.type.storage_type)
    if not len(found):
        return True
    if pat.is_boolean(found.type):
        return False  # Parquet has no dictionaries for them
    distinct = pc.unique(found)
    indices = len(found) * max(1, (len(distinct) - 1).bit_length()) // 8
    return indices + _bytes(distinct) < _bytes(found)


def _bytes(values: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes of values in a plain page."""
    kind = values.type
    if pat.is_fixed_size_binary(kind) or pat.is_decimal(kind):
        return len(values) * int(kind.byte_width)
    if pat.is_primitive(kind):
        return len(values) * int(kind.bit_width) // 8
    return len(values) * _LENGTH_BYTES + int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _paths(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths of a column's leaves in the order of the file."""
    if pat.is_struct(kind):
        for child in kind:
            yield from _paths(child.type, f"{path}.{child.name}")
    elif pat.is_map(kind):
        yield from _paths(kind.key_type, f"{path}.key_value.key")
        yield from _paths(kind.item_type, f"{path}.key_value.value")
    elif pat.is_list(kind):
        yield from _paths(kind.value_type, f"{path}.list.element")
    else:
        yield path
