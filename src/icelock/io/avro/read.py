"""Avro object container files, block by block and to the last byte (Avro 1.12 specification, "Object Container Files").

    "Obj" 01 | map<bytes> of avro.schema, avro.codec, ... | sync(16) | blocks
    block    long rows | long bytes | rows, compressed | sync(16)

Java takes a cut in the file for its end and returns the rows before it (case J-01). Here a file must end after a block's sync marker,
and a block has exactly its rows (``io.avro.check``): fastavro decodes it as an array of them, in one call.

Not here: decryption (``io.plain_input``), what the schema means (``arrow.read.avro_types``).
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa

from icelock import properties as names
from icelock.errors import FormatError
from icelock.format.key_metadata import encode_bytes, encode_long
from icelock.io.avro.check import AvroBlock, RowCheck
from icelock.io.limits import DEFAULT_LIMITS, Limits, inflate, read_pieces, refuse
from icelock.io.plain_input import RESTORE, PlainBytes, PlainInput

MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_WINDOW: Final = 1 << 16
_LONGEST_VARINT: Final = 10
_MOST_ENTRIES: Final = 1 << 16
_SNAPPY_RATIO: Final = 64
_ZLIB_CHECKSUM: Final = 4


class AvroFile:
    """The blocks of an open Avro file; ``schema`` is the writer's, as JSON values, ``schema_text`` and the others are as stored.

    Raises:
        FormatError: the file is not an Avro file, or has a codec that Iceberg does not use.
        IntegrityError: bytes of an encrypted file were changed.
    """

    def __init__(self, source: PlainInput | PlainBytes, limits: Limits = DEFAULT_LIMITS) -> None:
        self.location = source.location
        self._limits = limits
        self._cursor = _Cursor(source)
        if self._cursor.take(len(MAGIC)) != MAGIC:
            raise FormatError(f"{self.location} is not an Avro file: it does not begin with {MAGIC!r}; {RESTORE}")
        header = self.header = self._header()
        self.sync = self._cursor.take(_SYNC)
        codec = header.get("avro.codec", b"null").decode("utf-8", "replace")
        if codec not in _CODECS:
            raise FormatError(f"{self.location} has Avro codec {codec!r}; known: {', '.join(_CODECS)}; rewrite it")
        self._decompress = _CODECS[codec]
        self.schema_text = header.get("avro.schema", b"")
        try:
            self.schema: Any = json.loads(self.schema_text)
        except (ValueError, RecursionError) as e:
            raise FormatError(f"{self.location}: the Avro header has no schema in JSON; {RESTORE}") from e

    def blocks(self) -> Iterator[AvroBlock]:
        """Yield the blocks in file order.

        Raises:
            FormatError: a block that is incomplete, has a different sync marker, does not decompress, or exceeds the limits.
            IntegrityError: bytes of an encrypted file were changed.
        """
        while not self._cursor.at_end():
            rows, size = self._cursor.varint(), self._cursor.varint()
            if rows < 0 or size < 0:
                raise FormatError(f"{self.location}: an Avro block of {rows} rows and {size} bytes; {RESTORE}")
            most = self._limits.avro_block_bytes
            if size > most:
                refuse(self.location, "bytes in an Avro block", most, names.LIMIT_AVRO_BLOCK_BYTES)
            if rows > self._limits.avro_block_rows:
                refuse(self.location, "rows in an Avro block", self._limits.avro_block_rows, names.LIMIT_AVRO_BLOCK_ROWS)
            stored = self._cursor.take(size)
            if self._cursor.take(_SYNC) != self.sync:
                raise FormatError(f"{self.location}: an Avro block does not end with the file's sync marker; {RESTORE}")
            try:
                data = self._decompress(stored, most)
            except (zlib.error, pa.ArrowException, OSError, ValueError) as e:
                raise FormatError(f"{self.location}: an Avro block does not decompress: {e}; {RESTORE}") from e
            if data is None:
                refuse(self.location, "bytes in an Avro block", most, names.LIMIT_AVRO_BLOCK_BYTES)
            yield AvroBlock(rows=rows, data=data)

    def all_blocks(self) -> Iterator[AvroBlock]:
        """Yield the blocks of a file that is kept in memory, a manifest or a manifest list.

        Raises:
            FormatError, IntegrityError: as ``blocks``; or all blocks together exceed the limits of manifests.
        """
        rows = size = 0
        for block in self.blocks():
            rows += block.rows
            size += len(block.data)
            if rows > self._limits.manifest_entries:
                refuse(self.location, "entries", self._limits.manifest_entries, names.LIMIT_MANIFEST_ENTRIES)
            if size > self._limits.manifest_bytes:
                refuse(self.location, "bytes", self._limits.manifest_bytes, names.LIMIT_MANIFEST_BYTES)
            yield block

    def _header(self) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        count = self._cursor.varint()
        while count:
            if count < 0:
                self._cursor.varint()
            for _ in range(abs(count)):
                name = self._cursor.take(self._cursor.varint()).decode("utf-8", "replace")
                if name in found:
                    raise FormatError(f"{self.location}: the Avro header has {name!r} twice; {RESTORE}")
                found[name] = self._cursor.take(self._cursor.varint())
                if len(found) > _MOST_ENTRIES:
                    raise FormatError(f"{self.location}: the Avro header has no end; {RESTORE}")
            count = self._cursor.varint()
        return found


class RowDecoder:
    """Decodes blocks with fastavro; ``schema`` is the writer's record without logical types, ``wanted`` the part to return.

    The values are those of the stored types: numbers, text, bytes, lists, and dicts for records and maps.

    Raises:
        FormatError: a schema that is not valid Avro.
    """

    def __init__(self, schema: Mapping[str, Any], wanted: Mapping[str, Any], *, location: str) -> None:
        self._location = location
        try:
            self._check = RowCheck(json.dumps(schema), location=location)
        except RecursionError as e:
            raise FormatError(f"{location}: the file's Avro schema is invalid: it is nested too deep; {RESTORE}") from e
        self._stored = fastavro.parse_schema({"type": "array", "items": schema})
        self._wanted = None if wanted == schema else fastavro.parse_schema({"type": "array", "items": wanted})

    def rows(self, block: AvroBlock) -> list[dict[str, Any]]:
        """Return the rows of a block.

        Raises:
            FormatError: the bytes are not these rows.
        """
        self._check.check(block)
        if not block.rows:
            return []
        stream = io.BytesIO(b"".join((encode_long(block.rows), block.data, b"\0")))
        try:
            decoded: Any = fastavro.schemaless_reader(stream, self._stored, self._wanted)
        except Exception as e:  # fastavro raises whatever the bytes lead to
            raise FormatError(
                f"{self._location}: an Avro block does not hold rows of the file's schema ({type(e).__name__}: {e}); {RESTORE}"
            ) from e
        return decoded  # type: ignore[no-any-return]


class _Cursor:
    """Reads a file from front to back; every read is exact."""

    def __init__(self, source: PlainInput | PlainBytes) -> None:
        self._source = source
        self._window = b""
        self._used = 0
        self._next = 0

    def at_end(self) -> bool:
        return self._used == len(self._window) and self._next == self._source.length

    def take(self, size: int) -> bytes:
        if size < 0:
            raise FormatError(f"{self._source.location}: an Avro length of {size}; {RESTORE}")
        kept = self._window[self._used : self._used + size]
        self._used += len(kept)
        missing = size - len(kept)
        if not missing:
            return kept
        if missing >= _WINDOW:
            self._next += missing
            return kept + self._source.read_at(self._next - missing, missing)
        length = max(missing, min(_WINDOW, self._source.length - self._next))
        self._window = self._source.read_at(self._next, length)
        self._next += length
        self._used = missing
        return kept + self._window[:missing]

    def varint(self) -> int:
        value = 0
        for index in range(_LONGEST_VARINT):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if not byte & 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1)
        raise FormatError(f"{self._source.location}: a number of more than 64 bits where Avro has a long; {RESTORE}")


def encode_header(entries: Mapping[str, bytes], sync: bytes) -> bytes:
    """Return the header of an Avro file, up to the first block."""
    pairs = b"".join(encode_bytes(name.encode()) + encode_bytes(value) for name, value in entries.items())
    return b"".join((MAGIC, encode_long(len(entries)), pairs, b"\0", sync))


def _deflate(data: bytes, limit: int) -> bytes | None:
    found = inflate(data, limit)
    # Python writers leave a part of zlib's checksum after the stream.
    if found is not None and len(found[1]) > _ZLIB_CHECKSUM:
        raise ValueError("bytes are left over after the deflate stream")
    return None if found is None else found[0]


def _snappy(data: bytes, limit: int) -> bytes | None:
    """Raw Snappy, which begins with the plain length as a varint, then a big-endian CRC-32 of the plain bytes."""
    body, checksum = data[:-4], data[-4:]
    length = shift = 0
    for byte in body[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if length > limit:
        return None
    if length > _SNAPPY_RATIO * len(body):
        raise ValueError(f"a Snappy block of {len(body)} bytes cannot hold {length}")
    plain: bytes = pa.decompress(body, decompressed_size=length, codec="snappy", asbytes=True)
    if zlib.crc32(plain).to_bytes(4, "big") != checksum:
        raise ValueError("the CRC-32 of a Snappy block is wrong")
    return plain


def _zstandard(data: bytes, limit: int) -> bytes | None:
    return read_pieces(pa.input_stream(pa.BufferReader(data), compression="zstd"), limit)


_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes | None]]] = {
    "null": lambda data, _: data,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": _zstandard,
}
