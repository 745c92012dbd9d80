"""Every module of an encrypted Parquet file, opened one after another: no byte of the file is left unauthenticated.

    "PARE" | module | module | ... | FileCryptoMetaData (plain Thrift) | footer module | LE uint32 length of both | "PARE"
    module = LE uint32 length | nonce(12) | ciphertext | tag(16)
    AAD    = AAD prefix | aad_file_unique | type | LE int16 row group | LE int16 column | LE int16 page (data pages only)

Parquet readers skip page indexes and bloom filters when they do not need them, so reading all rows would not see a change there.
Written from the Parquet encryption specification (AES_GCM_V1, one key for footer and columns); shares no code with ``src/icelock``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from itertools import chain, product

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FOOTER, _COLUMN, PAGE, DICTIONARY, PAGE_HEADER, DICTIONARY_HEADER = range(6)
AFTER_PAGES = (6, 7, 8, 9)  # column index, offset index, bloom filter header, bloom filter bits
NAMES = (
    "footer",
    "column",
    "page",
    "dictionary",
    "page header",
    "dictionary header",
    "column index",
    "offset index",
    "bloom",
    "bloom bits",
)
Place = tuple[int, ...]  # type, row group, column[, page]


def aad_file_unique(crypto: bytes) -> tuple[bytes, int]:
    """Return aad_file_unique and the length of a FileCryptoMetaData with AES_GCM_V1 and no stored AAD prefix; ValueError for any other."""
    if crypto[:3] != b"\x1c\x1c\x28":
        message = "the algorithm is not AES_GCM_V1 with a supplied AAD prefix"
        raise ValueError(message)
    end = 4 + crypto[3]
    if crypto[end : end + 4] != b"\x11\x00\x00\x00":
        message = "supply_aad_prefix is not true, or there is footer key metadata"
        raise ValueError(message)
    return crypto[4:end], end + 4


def successors(last: Place, row_groups: int, columns: int) -> Iterator[Place]:
    """Return where the module behind ``last`` may belong, the likeliest first."""
    kind, group, column, *page = last
    if kind == PAGE_HEADER:
        return iter([(PAGE, group, column, *page)])
    if kind == DICTIONARY_HEADER:
        return iter([(DICTIONARY, group, column)])
    following = (group, column + 1) if column + 1 < columns else (group + 1, 0)
    near: list[Place] = [(PAGE_HEADER, group, column, page[0] + 1 if page else 0)]
    near += [(DICTIONARY_HEADER, *following), (PAGE_HEADER, *following, 0)]
    beside: list[Place] = [(kind, *following), (kind + 1, group, column), (kind + 1, 0, 0)] if kind in AFTER_PAGES else []
    anywhere = product(AFTER_PAGES, range(row_groups), range(columns))
    return chain(beside, anywhere, near) if kind in AFTER_PAGES else chain(near, anywhere)


def encode(place: Place) -> bytes:
    return struct.pack("<B", place[0]) + b"".join(struct.pack("<h", ordinal) for ordinal in place[1:])


def open_modules(data: bytes, dek: bytes, aad_prefix: bytes, row_groups: int, columns: int) -> dict[str, int]:
    """Open every module and return how many there are of each type; ValueError says at which offset one does not open."""
    cipher = AESGCM(dek)
    footer_start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    unique, crypto_length = aad_file_unique(data[footer_start:])
    base = aad_prefix + unique
    found: Counter[str] = Counter()

    def end_of(position: int) -> int:
        return position + 4 + int(struct.unpack("<I", data[position : position + 4])[0])

    def opens(position: int, end: int, place: Place) -> bool:
        try:
            cipher.decrypt(data[position + 4 : position + 16], data[position + 16 : end], base + encode(place))
        except InvalidTag:
            return False
        return True

    position = 4
    place: Place = (PAGE, 0, -1)
    while position < footer_start:
        end = end_of(position)
        candidates = successors(place, row_groups, columns)
        match = next((candidate for candidate in candidates if end <= footer_start and opens(position, end, candidate)), None)
        if match is None:
            message = f"the module at byte {position} does not authenticate"
            raise ValueError(message)
        found[NAMES[match[0]]] += 1
        position, place = end, match
    if end_of(footer_start + crypto_length) != len(data) - 8 or not opens(footer_start + crypto_length, len(data) - 8, (FOOTER,)):
        message = "the footer does not authenticate"
        raise ValueError(message)
    return dict(found)
