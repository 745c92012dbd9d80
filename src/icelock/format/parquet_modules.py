"""The modules of an encrypted Parquet file, in the order of the file: where column chunks begin, and what may follow what.

    "PARE" | module | module | ... | FileCryptoMetaData | footer module | uint32 length of both | "PARE"
    module = uint32 length (little-endian) | nonce (12) | ciphertext | tag (16)

Where a column chunk begins, the footer says; inside it a page follows its header. What follows the last page (indexes, Bloom filters) says
of itself only by its AAD what it is.

Source: parquet-format's Encryption.md. Not here: the tail's bytes (``format.parquet_crypto``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import product
from typing import Any, Final, NamedTuple

from icelock.format import parquet_crypto as crypto

LENGTH: Final = struct.Struct("<I")
LONGEST_FOOTER: Final = 256 << 20
"""Bytes: a longer one is not read."""
BEFORE_ALL: Final = (-1, 0, -1)
"""The place before the first module."""
_AFTER_PAGES: Final = (crypto.COLUMN_INDEX, crypto.OFFSET_INDEX, crypto.BLOOM_HEADER, crypto.BLOOM_BITS)

ModulePlace = tuple[int, ...]
"""Type, row group, column, and page if it has one: what the AAD of a module ends with."""


class Layout(NamedTuple):
    """What a footer says: rows, row groups, columns, and where column chunks begin (position: row group, column, has a dictionary)."""

    rows: int
    groups: int
    columns: int
    chunks: dict[int, tuple[int, int, bool]]


def as_plain_file(file_metadata: bytes) -> bytes:
    """Return a plain Parquet file that has a FileMetaData and nothing else, for a library to read it."""
    return b"".join((crypto.PLAIN_MAGIC, file_metadata, LENGTH.pack(len(file_metadata)), crypto.PLAIN_MAGIC))


def layout_of(metadata: Any) -> Layout:
    """Return the layout of a file by Arrow's FileMetaData."""
    chunks: dict[int, tuple[int, int, bool]] = {}
    for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk = metadata.row_group(group).column(column)
        if not chunk.total_compressed_size:
            continue
        has_dictionary = bool(chunk.has_dictionary_page and chunk.dictionary_page_offset)
        chunks[chunk.dictionary_page_offset if has_dictionary else chunk.data_page_offset] = (group, column, has_dictionary)
    return Layout(metadata.num_rows, metadata.num_row_groups, metadata.num_columns, chunks)


def likeliest(last: ModulePlace, position: int, layout: Layout) -> ModulePlace:
    """Return what the module at a position most likely is that follows another one; see ``following`` for what else it may be."""
    kind = last[0]
    if kind == crypto.PAGE_HEADER:
        return crypto.PAGE, *last[1:]
    if kind == crypto.DICTIONARY_HEADER:
        return crypto.DICTIONARY, last[1], last[2]
    if position in layout.chunks:
        group, column, has_dictionary = layout.chunks[position]
        return (crypto.DICTIONARY_HEADER, group, column) if has_dictionary else (crypto.PAGE_HEADER, group, column, 0)
    if kind in (crypto.PAGE, crypto.DICTIONARY):
        return crypto.PAGE_HEADER, last[1], last[2], last[3] + 1 if kind == crypto.PAGE else 0
    if kind in _AFTER_PAGES:
        return (kind, last[1], last[2] + 1) if last[2] + 1 < layout.columns else (kind, last[1] + 1, 0)
    return _AFTER_PAGES[0], 0, 0


def following(last: ModulePlace, position: int, layout: Layout) -> Iterator[ModulePlace]:
    """Yield what the module at a position may be that follows another one, the likeliest first."""
    yield likeliest(last, position, layout)
    if last[0] in (crypto.PAGE_HEADER, crypto.DICTIONARY_HEADER) or position in layout.chunks:
        return
    if last[0] == crypto.BLOOM_HEADER:
        yield crypto.BLOOM_BITS, last[1], last[2]
    yield from ((after_pages, *where) for after_pages, *where in product(_AFTER_PAGES, range(layout.groups), range(layout.columns)))
