"""Rows in Z-order of some columns: near rows in all of them, not in the first only.

Each value becomes 64 bits that order as the values do (text and binary: their first 8 bytes; nulls first), and the bits of the columns are
interleaved, from the highest on. As Java's ``ZOrderByteUtils`` with its defaults, so files that both engines wrote can be pruned alike.

Not here: files (``arrow.write.combine``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.transforms import physical
from icelock.arrow.write.combine import Arrange
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.schema import write_schema
from icelock.errors import PolicyError
from icelock.metadata.schema_paths import find_column

_BYTES: Final = 8
_SIGN: Final = np.uint64(1 << 63)
_CHUNK: Final = 1 << 16


def z_ordered(write: WriteContext, columns: Sequence[str]) -> Arrange:
    """Return what puts rows of a context in Z-order.

    Raises:
        PolicyError: no column, one that the table lacks or that is given twice, or one without one value a row.
    """
    target, leaves = write_schema(write.schema), []
    for name in columns:
        leaf = target.leaf(find_column(write.schema, name, case_sensitive=True).field_id)
        if leaf is None:
            raise PolicyError(f"column {name!r} cannot be in a Z-order: it does not have one value a row")
        leaves.append(leaf)
    if not leaves or len({*columns}) != len(leaves):
        raise PolicyError(f"a Z-order needs columns, each once: {', '.join(columns) or 'none are given'}")

    def arrange(table: pa.Table) -> pa.Table:
        keys = [np.concatenate([ordered_bits(chunk) for chunk in leaf.column_of(table).chunks]) for leaf in leaves]
        return table.take(pc.sort_indices(pa.table([interleaved(keys)], names=["z"]), sort_keys=[("z", "ascending")]))

    return arrange


def ordered_bits(array: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return for each value of an array of the stored schema 64 bits that order as the values do; null is 0."""
    values = physical(array)
    kind = values.type
    if pat.is_boolean(kind) or pat.is_integer(kind):
        bits = _of_whole(values.cast(pa.int64()))
    elif pat.is_floating(kind) or pat.is_decimal(kind):
        bits = _of_floats(values.cast(pa.float64()))
    else:
        bits = _of_bytes(values)
    bits[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return bits


def interleaved(keys: Sequence[np.ndarray[Any, np.dtype[np.uint64]]]) -> pa.Array:
    """Return the bits of numbers, one array a column, in turns from the highest on, as bytes that order as whole numbers."""
    width = len(keys) * _BYTES
    parts = []
    for start in range(0, len(keys[0]), _CHUNK):
        rows = [np.ascontiguousarray(key[start : start + _CHUNK].astype(">u8")).view(np.uint8).reshape(-1, _BYTES) for key in keys]
        bits = np.stack([np.unpackbits(row, axis=1) for row in rows], axis=2)
        parts.append(np.packbits(bits.reshape(len(bits), -1), axis=1))
    packed = np.concatenate(parts) if parts else np.empty((0, width), np.uint8)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(packed), [None, pa.py_buffer(np.ascontiguousarray(packed))])


def _of_whole(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
    numbers: np.ndarray[Any, np.dtype[np.uint64]] = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return numbers ^ _SIGN


def _of_floats(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Bits of a double, turned so that they order as numbers: -0.0 before 0.0, NaN last."""
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    bits = np.where(np.isnan(numbers), np.float64("nan"), numbers).view(np.uint64)
    negative = (bits & _SIGN) != 0
    return np.where(negative, ~bits, bits | _SIGN)


def _of_bytes(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
    texts = values.cast(pa.large_binary()) if not pat.is_fixed_size_binary(values.type) else values.cast(pa.binary())
    begins = pc.binary_slice(texts.cast(pa.binary()), 0, _BYTES).fill_null(b"").to_pylist()
    return np.frombuffer(b"".join(begin.ljust(_BYTES, b"\0") for begin in begins), dtype=">u8").astype(np.uint64)
