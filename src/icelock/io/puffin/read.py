"""Deletion vectors in Puffin files (spec, "Deletion Vectors"; Puffin spec, "deletion-vector-v1 blob type").

    Puffin   PFA1 | blobs | PFA1 | footer ...         blobs are found by offset and size in the manifest entry
    blob     BE uint32 n | D1 D3 39 64 | roaring64 | BE CRC-32        n and CRC cover magic and bitmap

roaring64 is the portable form: LE int64 count, then for each high word an LE uint32 and a 32-bit Roaring bitmap. The footer
is not read: its sizes only repeat the entry's, which the manifest authenticates.

Not here: decryption (``io.plain_input``), which rows are deleted (``arrow.read.deletes``).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from pyroaring import BitMap64

from icelock.errors import FormatError, IntegrityError
from icelock.io.plain_input import RESTORE, PlainBytes, PlainInput

MAGIC: Final = b"PFA1"
VECTOR_MAGIC: Final = bytes.fromhex("d1d33964")
_COUNT: Final = struct.Struct("<q")
_UINT32: Final = struct.Struct(">I")
_FRAME: Final = 12
_LEAST: Final = _FRAME + _COUNT.size
_LARGEST_POSITION: Final = (1 << 63) - 1


def read_blob(source: PlainInput | PlainBytes, offset: int, size: int) -> bytes:
    """Return a blob of a Puffin file.

    Raises:
        FormatError: not a Puffin file, or a blob that does not lie within it.
        IntegrityError: bytes of an encrypted file were changed.
    """
    if source.length < len(MAGIC) or source.read_at(0, len(MAGIC)) != MAGIC:
        raise FormatError(f"{source.location} is not a Puffin file: it does not begin with {MAGIC!r}; {RESTORE}")
    if offset < len(MAGIC):
        raise FormatError(f"{source.location}: a blob at {offset} would overlap the magic; the manifest entry belongs to another file")
    return source.read_at(offset, size)


def decode_deletion_vector(blob: bytes, *, cardinality: int, name: str) -> BitMap64:
    """Return the positions in a deletion vector; ``cardinality`` comes from the manifest entry, ``name`` is for messages.

    Raises:
        FormatError: the blob is not a deletion vector.
        IntegrityError: its checksum is wrong, or its number of positions differs from the entry's.
    """
    if len(blob) < _LEAST:
        raise FormatError(f"{name}: a deletion vector has at least {_LEAST} bytes, got {len(blob)}; {RESTORE}")
    (length,) = _UINT32.unpack_from(blob)
    if length != len(blob) - 8:
        raise FormatError(f"{name}: the deletion vector says {length} bytes, its manifest entry {len(blob) - 8}; {RESTORE}")
    body = memoryview(blob)[4:-4]
    if body[:4] != VECTOR_MAGIC:
        raise FormatError(f"{name}: not a deletion vector: expected magic {VECTOR_MAGIC.hex()}, got {bytes(body[:4]).hex()}; {RESTORE}")
    (expected,) = _UINT32.unpack_from(blob, len(blob) - 4)
    if zlib.crc32(body) != expected:
        raise IntegrityError(f"{name}: the deletion vector's CRC-32 is {zlib.crc32(body):08x}, expected {expected:08x}; {RESTORE}")
    positions = _roaring64(bytes(body[4:]), name)
    if len(positions) != cardinality:
        raise IntegrityError(
            f"{name}: the deletion vector has {len(positions)} positions, its manifest entry says {cardinality}; {RESTORE}"
        )
    return positions


def _roaring64(data: bytes, name: str) -> BitMap64:
    try:
        positions = BitMap64.deserialize(data)
    except (ValueError, IndexError) as e:
        raise FormatError(f"{name}: the deletion vector is not a Roaring bitmap in portable form: {e}; {RESTORE}") from e
    if len(positions.serialize()) != len(data):
        raise FormatError(f"{name}: bytes are left over after the deletion vector's bitmap; {RESTORE}")
    if positions and positions.max() > _LARGEST_POSITION:
        raise FormatError(f"{name}: the deletion vector has position {positions.max()}, which no file has; {RESTORE}")
    return positions
