"""How much a file may hold: limits that are checked while it is unpacked, so that a short file cannot use up all memory.

Encrypted files were written by someone with the key; plain tables, metadata.json and added files by anyone who can write to storage. The
limits hold for all of them, on executors too: they are among the properties of the storage's FileIO, which come from the client's
configuration, not from a table or a server.

Not here: Parquet, whose pages Arrow unpacks one at a time (docs/threat-model.md says what that leaves open).
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from icelock import properties as names
from icelock.errors import FormatError

_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one catalog; see docs/reference/properties.md."""

    metadata_bytes: int = names.LIMITS[names.LIMIT_METADATA_BYTES]
    manifest_bytes: int = names.LIMITS[names.LIMIT_MANIFEST_BYTES]
    manifest_entries: int = names.LIMITS[names.LIMIT_MANIFEST_ENTRIES]
    avro_block_bytes: int = names.LIMITS[names.LIMIT_AVRO_BLOCK_BYTES]
    avro_block_rows: int = names.LIMITS[names.LIMIT_AVRO_BLOCK_ROWS]
    delete_bytes: int = names.LIMITS[names.LIMIT_DELETE_BYTES]

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Limits:
        """Return the limits in the properties, and the defaults of the others.

        Raises:
            PolicyError: a limit that is not a number above 0.
        """
        return cls(**{name.removeprefix(names.LIMITS_PREFIX).replace("-", "_"): names.limit(properties, name) for name in names.LIMITS})


DEFAULT_LIMITS: Final = Limits()


def refuse(location: str, what: str, limit: int, name: str) -> NoReturn:
    """Raise the error for a file that holds too much.

    Raises:
        FormatError: always; names the file and the property.
    """
    raise FormatError(
        f"{location} holds more than {limit} {what}, so it was not unpacked: it is damaged, or was made to use up all memory; if it is "
        f"sound, set the catalog property {name} higher"
    )


def read_all(stream: Any, location: str, *, limit: int, name: str) -> bytes:
    """Return all bytes of an open file.

    Raises:
        FormatError: it has more than the limit.
    """
    if stream.seek(0, io.SEEK_END) > limit:
        refuse(location, "bytes", limit, name)
    stream.seek(0)
    return bytes(stream.read())


def read_pieces(stream: Any, limit: int) -> bytes | None:
    """Return all bytes of an unpacking stream, or None if they are more than the limit."""
    pieces: list[bytes] = []
    left = limit + 1
    while left > 0:
        piece = stream.read(min(left, _PIECE))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    return None


def inflate(data: bytes, limit: int) -> tuple[bytes, bytes] | None:
    """Return the plain bytes of a raw deflate stream and the bytes after it, or None if the plain bytes exceed the limit.

    Raises:
        ValueError: the stream is incomplete.
        zlib.error: it is not a deflate stream.
    """
    decoder = zlib.decompressobj(-15)
    plain = decoder.decompress(data, limit + 1)
    if len(plain) > limit:
        return None
    if not decoder.eof:
        raise ValueError("the deflate stream is incomplete")
    return plain, decoder.unused_data


def gunzip(data: bytes, limit: int) -> bytes | None:
    """Return the plain bytes of a gzip file, or None if they exceed the limit.

    Raises:
        OSError, EOFError, zlib.error: it is not a gzip file, or cut.
    """
    with gzip.open(io.BytesIO(data)) as stream:
        return read_pieces(stream, limit)
