"""Avro containers: blocks by hand and by fastavro, one fault in each negative case, and no bytes that lead to another error."""

from __future__ import annotations

import io
import json
import zlib
from contextlib import suppress
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icelock.errors import FormatError
from icelock.io.avro.read import AvroFile, RowDecoder
from icelock.io.plain_input import PlainBytes
from tests.unit.arrow.deleting import avro_bytes

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "table",
    "fields": [{"name": "id", "type": "long", "field-id": 1}, {"name": "s", "type": ["null", "string"], "field-id": 2}],
}
ROWS = [{"id": i, "s": None if i % 3 == 0 else f"s{i}"} for i in range(500)]
SYNC = bytes(range(16))


def long(value: int) -> bytes:
    """Zigzag varint, worked out here."""
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def container(*blocks: bytes, codec: bytes | None = b"null", schema: bytes = json.dumps(SCHEMA).encode()) -> bytes:
    entries = {b"avro.schema": schema} | ({} if codec is None else {b"avro.codec": codec})
    header = b"".join(long(len(k)) + k + long(len(v)) + v for k, v in entries.items())
    return b"Obj\x01" + long(len(entries)) + header + long(0) + SYNC + b"".join(blocks)


def block(rows: int, data: bytes, *, sync: bytes = SYNC, size: int | None = None) -> bytes:
    return long(rows) + long(len(data) if size is None else size) + data + sync


ONE = long(7) + long(1) + long(2) + b"ab"


def read(data: bytes) -> list[dict[str, Any]]:
    file = AvroFile(PlainBytes(location="f.avro", data=data))
    decoder = RowDecoder(file.schema, file.schema, location="f.avro")
    return [row for one in file.blocks() for row in decoder.rows(one)]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_every_block_of_a_foreign_writer_is_read(codec: str):
    data = avro_bytes(SCHEMA, ROWS, codec=codec, interval=300)
    assert len(list(AvroFile(PlainBytes(location="f.avro", data=data)).blocks())) > 5
    assert read(data) == ROWS


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (None, ONE),
        (b"deflate", zlib.compress(ONE)[2:-4]),
        (b"snappy", pa.compress(ONE, codec="snappy", asbytes=True) + zlib.crc32(ONE).to_bytes(4, "big")),
        (b"zstandard", pa.compress(ONE, codec="zstd", asbytes=True)),
    ],
)
def test_each_codec_of_iceberg_is_known(codec: bytes | None, packed: bytes):
    assert read(container(block(1, packed), block(1, packed), codec=codec)) == [{"id": 7, "s": "ab"}] * 2


def test_a_file_without_rows_and_blocks_without_rows_are_sound():
    assert read(container()) == []
    assert read(container(block(0, b""), block(1, ONE))) == [{"id": 7, "s": "ab"}]
    assert read(avro_bytes(SCHEMA, [])) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "expected 4 bytes at 0, but the file has 0"),
        (b"PAR1" + bytes(20), "is not an Avro file"),
        (container(codec=b"bzip2"), "codec 'bzip2'"),
        (container(schema=b"{"), "no schema in JSON"),
        (container()[:-1], "but the file has"),
        (container(block(1, ONE))[:-1], "but the file has"),
        (container(block(1, ONE)) + b"\0", "but the file has"),
        (container(block(1, ONE, sync=bytes(16))), "does not end with the file's sync marker"),
        (container(block(1, ONE, size=1 << 20)), "but the file has"),
        (container(block(1, ONE, size=1 << 40)), "holds more than"),
        (container(block(-1, ONE)), "a block|block of -1 rows"),
        (container(block(1, ONE + b"\0")), "1 rows have 5 bytes, it has 6"),
        (container(block(2, ONE)), "does not hold rows"),
        (container(block(0, ONE)), "0 rows have 0 bytes, it has 5"),
        (container(block(1, ONE), codec=b"deflate"), "does not decompress"),
        (container(block(1, zlib.compress(ONE)[2:-6]), codec=b"deflate"), "does not decompress"),
        (container(block(1, pa.compress(ONE, codec="snappy", asbytes=True) + bytes(4)), codec=b"snappy"), "CRC-32"),
        (container(block(1, b"\x80\x80\x80\x08" + bytes(9)), codec=b"snappy"), "cannot hold"),
        (container(block(1, pa.compress(ONE, codec="zstd", asbytes=True)[:-2]), codec=b"zstandard"), "does not decompress"),
        (b"Obj\x01" + b"\xff" * 20, "more than 64 bits"),
        (b"Obj\x01" + long(1) + long(-5), "an Avro length of -5"),
    ],
)
def test_each_fault_is_a_format_error_that_names_the_file(data: bytes, says: str):
    with pytest.raises(FormatError, match=rf"f\.avro.*({says})"):
        read(data)


def test_a_header_in_blocks_with_sizes_is_read():
    """A negative count is followed by the bytes of the block."""
    entry = long(11) + b"avro.schema" + long(len(json.dumps(SCHEMA))) + json.dumps(SCHEMA).encode()
    data = b"Obj\x01" + long(-1) + long(len(entry)) + entry + long(0) + SYNC + block(1, ONE)
    assert fastavro.is_avro(io.BytesIO(data))
    assert read(data) == [{"id": 7, "s": "ab"}]


def test_only_wanted_columns_are_decoded():
    file = AvroFile(PlainBytes(location="f.avro", data=avro_bytes(SCHEMA, ROWS)))
    decoder = RowDecoder(SCHEMA, {**SCHEMA, "fields": SCHEMA["fields"][1:]}, location="f.avro")
    assert [row for one in file.blocks() for row in decoder.rows(one)] == [{"s": row["s"]} for row in ROWS]


SOUND = avro_bytes(SCHEMA, ROWS[:40], codec="null", interval=100)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_changed_bytes_are_a_format_error_or_rows(data: st.DataObject):
    """House rule 12. Without encryption nothing else tells."""
    out = bytearray(SOUND)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(out)))
        out[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with suppress(FormatError):
        file = AvroFile(PlainBytes(location="f.avro", data=bytes(out)))
        decoder = RowDecoder(SCHEMA, SCHEMA, location="f.avro")
        assert all(isinstance(row, dict) for one in file.blocks() for row in decoder.rows(one))
