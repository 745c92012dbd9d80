"""Rows as texts that are equal if the rows are: for rows that are to be compared in all columns, nested ones too.

A value's text is its length, a colon and its characters as Arrow writes them; a null's is ``~``; a struct's, list's or map's is that of its
parts, one after another, as a value of its own. So no two rows have one text unless all their values are equal. Floats by their bits,
with one NaN: -0.0 is not 0.0, and NaN is NaN, as in Java's comparison of rows. A map's entries count in their order.

``digests`` shortens texts to 16 bytes (BLAKE2b), to keep those of many rows; ``matches`` finds equal ones on two sides.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from icelock.arrow.nested import converted_list
from icelock.arrow.types import plain_array

_TEXT: Final = pa.large_binary()
_NULL: Final = pa.scalar(b"~", _TEXT)
_NOTHING: Final = pa.scalar(b"", _TEXT)
_COLON: Final = pa.scalar(b":", _TEXT)
_BITS: Final = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_DIGEST: Final = 16
DIGEST_TYPE: Final = np.dtype([("high", np.uint64), ("low", np.uint64)])


def row_texts(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the text of each row, as large_binary without nulls."""
    return _joined([_texts(column) for column in columns], rows)


def digests(texts: pa.Array) -> np.ndarray[Any, Any]:
    """Return the digests of texts, of ``DIGEST_TYPE``."""
    digest = hashlib.blake2b
    found = b"".join([digest(text, digest_size=_DIGEST).digest() for text in texts.to_pylist()])
    return np.frombuffer(found, DIGEST_TYPE)


def matches(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the positions of equal digests on both sides, in pairs: the first of one side with the first of the other, and so on."""
    both = np.concatenate([left, right])
    order = np.lexsort((both["low"], both["high"]))  # stable: within equal ones those of the left side are first
    ordered = both[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(both) else np.zeros(0, np.intp)
    counts = np.diff(np.append(starts, len(both)))
    of_left = np.add.reduceat(order < len(left), starts) if len(both) else counts
    pairs = np.minimum(of_left, counts - of_left)
    ranks = np.arange(len(both)) - np.repeat(starts, counts)
    of_left, pairs = np.repeat(of_left, counts), np.repeat(pairs, counts)
    return order[ranks < pairs], order[(ranks >= of_left) & (ranks < of_left + pairs)] - len(left)


def _texts(array: pa.Array) -> pa.Array:
    array = plain_array(array)
    kind = array.type
    if pat.is_struct(kind):
        text = _joined([_texts(child) for child in array.flatten()], len(array))
    elif pat.is_map(kind):
        pairs = pa.Array.from_buffers(
            pa.list_(array.values.type), len(array), array.buffers()[:2], array.null_count, array.offset, [array.values]
        )
        text = pc.binary_join(_listed(pairs), _NOTHING)
    elif pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        text = pc.binary_join(_listed(array), _NOTHING)
    else:
        text = _plain(array)
    length = pc.binary_length(text).cast(pa.large_string()).cast(_TEXT)
    whole = pc.binary_join_element_wise(length, _COLON, text, _NOTHING)
    return pc.if_else(array.is_valid(), whole, _NULL)


def _listed(array: pa.Array) -> pa.Array:
    return converted_list(array, pa.list_(_TEXT), _texts)


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if kind in _BITS:
        array = pc.if_else(pc.is_nan(array), pa.scalar(math.nan, kind), array).view(_BITS[kind])
    elif pat.is_null(kind):
        return pa.nulls(len(array), _TEXT)
    elif pat.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004 - bits of dates and some times
    if pat.is_fixed_size_binary(array.type):
        return array.cast(pa.binary()).cast(_TEXT)
    if pat.is_binary(array.type) or pat.is_large_binary(array.type):
        return array.cast(_TEXT)
    return array.cast(pa.large_string()).cast(_TEXT)


def _joined(parts: Sequence[pa.Array], rows: int) -> pa.Array:
    if not parts:
        return pa.repeat(_NOTHING, rows)
    return pc.binary_join_element_wise(*parts, _NOTHING)
