"""Encrypted Parquet files: the footer, and every module before it in the order of the file.

    "PARE" | module | module | ... | FileCryptoMetaData | footer module | uint32 length of both | "PARE"
    module = uint32 length (little-endian) | nonce (12) | ciphertext | tag (16)

Readers skip page indexes and Bloom filters that they do not need; here no byte is left out. Where a column chunk begins, the footer says;
inside it a page follows its header. What follows the last page (indexes, Bloom filters) says of itself only by its AAD what it is.

Source: parquet-format's Encryption.md. Not here: the tail's bytes (``format.parquet_crypto``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from icelock.audit.fault import Fault
from icelock.audit.storage import StoredBytes, described
from icelock.audit.streams import promised_length
from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm
from icelock.format import parquet_crypto as crypto
from icelock.format.key_metadata import KeyMetadata

_UNAUTHENTICATED: Final = "algorithm-without-authentication"
_LONGEST_FOOTER: Final = 256 << 20
_TAIL: Final = 1 << 16
_MAGIC: Final = 4
_LENGTH: Final = struct.Struct("<I")
_AFTER_PAGES: Final = (crypto.COLUMN_INDEX, crypto.OFFSET_INDEX, crypto.BLOOM_HEADER, crypto.BLOOM_BITS)
_Place = tuple[int, ...]  # type, row group, column[, page]


class Footer(NamedTuple):
    """What an authenticated footer says: rows, AAD, and where column chunks begin (position: row group, column, has a dictionary)."""

    rows: int
    aad: bytes
    start: int
    groups: int
    columns: int
    chunks: dict[int, tuple[int, int, bool]]


def open_footer(stored: StoredBytes, key: KeyMetadata) -> Footer:
    """Authenticate a file's footer.

    Raises:
        Fault: another length than promised, no encrypted Parquet file, another algorithm, or a tag that does not match.
    """
    size = promised_length(stored, key)
    head, tail = stored.read(0, _MAGIC), stored.read(max(0, size - _TAIL), min(size, _TAIL))
    if tail[-_MAGIC:] == crypto.PLAIN_MAGIC == head:
        raise _plain(stored, tail, size)
    if head != crypto.ENCRYPTED_MAGIC or tail[-_MAGIC:] != crypto.ENCRYPTED_MAGIC:
        raise Fault("file-not-encrypted", f"it is no encrypted Parquet file: it is {described(head)}, or does not end as one")
    try:
        length = crypto.footer_length(tail[-crypto.END_LENGTH :], size, stored.location)
        start = size - crypto.END_LENGTH - length
        footer = _before_end(stored, tail, length)
        opened = crypto.open_footer(footer, key.dek.reveal(), key.aad_prefix or b"", stored.location)
    except (IntegrityError, FormatError) as e:
        raise _unlike(e, stored.location) from e
    return _read(opened, start)


def _before_end(stored: StoredBytes, tail: bytes, length: int) -> bytes:
    whole = length + crypto.END_LENGTH
    if whole <= len(tail):
        return tail[-whole : -crypto.END_LENGTH]
    if length > _LONGEST_FOOTER:
        raise Fault(
            "footer-does-not-authenticate", f"it says that its footer has {length} bytes, and more than {_LONGEST_FOOTER} are not read"
        )
    return stored.read(stored.size - whole, length)


def _plain(stored: StoredBytes, tail: bytes, size: int) -> Fault:
    """Return the finding for a file whose footer is plain; its pages may be encrypted all the same."""
    try:
        length = crypto.footer_length(tail[-crypto.END_LENGTH :], size, stored.location)
        footer = _before_end(stored, tail, length)
        names_algorithm = crypto.check_signed_footer(footer, stored.location)
    except IntegrityError as e:
        found = _unlike(e, stored.location)
        if found.code == _UNAUTHENTICATED:
            return found
        names_algorithm = False
    if names_algorithm:
        return Fault("footer-in-the-clear", "its footer, with names and bounds of columns, is in the clear; its pages were not looked at")
    return Fault("file-not-encrypted", "it is a plain Parquet file, though its entry has a key")


def _unlike(error: Exception, location: str) -> Fault:
    code = _UNAUTHENTICATED if "AES_GCM_CTR_V1 as its algorithm" in str(error) else "footer-does-not-authenticate"
    text = str(error).removeprefix(location).removeprefix(" failed authentication at its end: ")
    return Fault(code, f"its footer is not what was written: {text.partition('. ')[0]}")


def _read(opened: crypto.OpenFooter, start: int) -> Footer:
    """Let Arrow read the plain FileMetaData, as that of a file that has nothing else."""
    data = opened.file_metadata
    file = b"".join((crypto.PLAIN_MAGIC, data, _LENGTH.pack(len(data)), crypto.PLAIN_MAGIC))
    try:
        metadata = pq.read_metadata(pa.BufferReader(file))
        chunks: dict[int, tuple[int, int, bool]] = {}
        for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
            chunk = metadata.row_group(group).column(column)
            if not chunk.total_compressed_size:
                continue
            has_dictionary = bool(chunk.has_dictionary_page and chunk.dictionary_page_offset)
            chunks[chunk.dictionary_page_offset if has_dictionary else chunk.data_page_offset] = (group, column, has_dictionary)
    except (OSError, pa.ArrowException, ValueError) as e:
        raise Fault("footer-does-not-authenticate", f"its footer authenticates, but is no Parquet metadata ({type(e).__name__})") from e
    return Footer(metadata.num_rows, opened.aad, start, metadata.num_row_groups, metadata.num_columns, chunks)


def check_modules(stored: StoredBytes, key: KeyMetadata, footer: Footer) -> int:
    """Authenticate every module before the footer, and return their number.

    Raises:
        Fault: one does not authenticate, or a column chunk does not begin where the footer says.
    """
    place: _Place = (-1, 0, -1)
    position, count = _MAGIC, 0
    missing = set(footer.chunks)
    verifier = aes_gcm.Verifier(key.dek.reveal())
    while position < footer.start:
        prefix = stored.view(position, _LENGTH.size)
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
        if not aes_gcm.OVERHEAD <= length <= footer.start - position - _LENGTH.size:
            raise _unread(position)
        message = stored.view(position + _LENGTH.size, length)
        candidates = _candidates(place, position, footer)
        found = next((one for one in candidates if verifier.authenticates(message, crypto.module_aad(footer.aad, *one))), None)
        if found is None:
            raise _unread(position)
        missing.discard(position)
        place, position, count = found, position + _LENGTH.size + length, count + 1
    if missing:
        group, column, _ = footer.chunks[min(missing)]
        raise Fault("page-does-not-authenticate", f"column {column} of row group {group} does not begin at byte {min(missing)}")
    return count


def _candidates(last: _Place, position: int, footer: Footer) -> Iterator[_Place]:
    """Yield what a module may be that follows another one, the likeliest first."""
    kind, group, column, *page = last
    if kind == crypto.PAGE_HEADER:
        yield crypto.PAGE, group, column, *page
        return
    if kind == crypto.DICTIONARY_HEADER:
        yield crypto.DICTIONARY, group, column
        return
    if position in footer.chunks:
        new_group, new_column, has_dictionary = footer.chunks[position]
        yield (crypto.DICTIONARY_HEADER, new_group, new_column) if has_dictionary else (crypto.PAGE_HEADER, new_group, new_column, 0)
        return
    if kind in (crypto.PAGE, crypto.DICTIONARY):
        yield crypto.PAGE_HEADER, group, column, page[0] + 1 if page else 0
    if kind in _AFTER_PAGES:
        following = (group, column + 1) if column + 1 < footer.columns else (group + 1, 0)
        yield kind, *following
        if kind == crypto.BLOOM_HEADER:
            yield crypto.BLOOM_BITS, group, column
    yield from ((after, *where) for after, *where in product(_AFTER_PAGES, range(footer.groups), range(footer.columns)))


def _unread(position: int) -> Fault:
    return Fault("page-does-not-authenticate", f"the module at byte {position} does not authenticate: bytes were changed")
