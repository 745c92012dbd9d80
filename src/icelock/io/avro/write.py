"""Avro object container files, block by block (Avro 1.12 specification, "Object Container Files").

    "Obj" 01 | map<bytes> of avro.schema, avro.codec, ... | sync(16) | blocks
    block    long rows | long bytes | rows, compressed | sync(16)

A block is written when it has about 64 KB of rows, as in Java, so memory is bounded by one block. fastavro encodes rows as an Avro
array, many in one call; the array's count and end are stripped. Codecs are zlib's and Arrow's, so no further library is needed.

Not here: encryption (``io.streams``), schemas and values (``arrow.write.avro_file``, ``arrow.write.avro_file``).
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa

from icelock.format.key_metadata import encode_long
from icelock.io.avro.read import encode_header
from icelock.io.raw import Sink, write_all

BLOCK_BYTES: Final = 64_000
SYNC_LENGTH: Final = 16
_DEFLATE_WINDOW: Final = -15  # no zlib header
_DEFLATE_MEMORY: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroCodec:
    """A codec by its name in Avro: null, deflate, snappy or zstandard; ``level`` where the codec has levels."""

    name: str
    level: int | None = None

    def compress(self, data: bytes) -> bytes:
        """Return the stored form of a block's rows."""
        if self.name == "deflate":
            level = zlib.Z_DEFAULT_COMPRESSION if self.level is None else self.level
            packer = zlib.compressobj(level, zlib.DEFLATED, _DEFLATE_WINDOW, _DEFLATE_MEMORY)
            return packer.compress(data) + packer.flush()
        if self.name == "snappy":
            packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
            return packed + zlib.crc32(data).to_bytes(4, "big")
        if self.name == "zstandard":
            return pa.Codec("zstd", compression_level=self.level).compress(data, asbytes=True)  # type: ignore[no-any-return]
        return data


class AvroWriter:
    """Writes rows to a stream, which stays open; ``schema`` goes into the header; fastavro gets it without logical types."""

    def __init__(  # noqa: PLR0913 - what the header is made of
        self, stream: Sink, *, location: str, schema: Mapping[str, Any], codec: AvroCodec, header: Mapping[str, str], sync: bytes
    ) -> None:
        self.rows = 0
        self._stream = stream
        self._location = location
        self._codec = codec
        self._sync = sync
        self._encoder = fastavro.parse_schema({"type": "array", "items": without_logical_types(schema)})
        self._block = bytearray()
        self._block_rows = 0
        entries = {"avro.schema": json.dumps(schema, separators=(",", ":"), ensure_ascii=False), "avro.codec": codec.name, **header}
        self._put(encode_header({name: value.encode() for name, value in entries.items()}, sync))

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, whose values are those of the stored types: numbers, text, bytes, lists, mappings."""
        if not rows:
            return
        encoded = io.BytesIO()
        fastavro.schemaless_writer(encoded, self._encoder, rows)
        self._block += encoded.getbuffer()[len(encode_long(len(rows))) : -1]
        self._block_rows += len(rows)
        self.rows += len(rows)
        if len(self._block) >= BLOCK_BYTES:
            self._end_block()

    def finish(self) -> None:
        """Write the last block."""
        self._end_block()

    def _end_block(self) -> None:
        if not self._block_rows:
            return
        stored = self._codec.compress(bytes(self._block))
        self._put(encode_long(self._block_rows) + encode_long(len(stored)) + stored + self._sync)
        self._block, self._block_rows = bytearray(), 0

    def _put(self, data: bytes) -> None:
        write_all(self._stream, memoryview(data), self._location)


def without_logical_types(schema: Any) -> Any:
    """Return a schema with which values are written unconverted."""
    if isinstance(schema, Mapping):
        return {name: without_logical_types(value) for name, value in schema.items() if name != "logicalType"}
    if isinstance(schema, list):
        return [without_logical_types(value) for value in schema]
    return schema
