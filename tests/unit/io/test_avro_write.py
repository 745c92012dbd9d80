"""Avro containers as written: read by fastavro, and block by block from the specification."""

from __future__ import annotations

import datetime as dt
import io
import zlib

import fastavro
import pyarrow as pa
import pytest

from icelock.format.key_metadata import encode_long
from icelock.io.avro.write import BLOCK_BYTES, AvroCodec, AvroWriter, without_logical_types

SYNC = bytes(range(16))
SCHEMA = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "id", "type": "long", "field-id": 1},
        {"name": "s", "type": ["null", "string"], "default": None, "field-id": 2},
        {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None, "field-id": 3},
    ],
}


def rows(count: int) -> list[dict[str, object]]:
    return [{"id": i, "s": None if i % 3 == 0 else f"text {i}", "d": i} for i in range(count)]


def written(*chunks, codec: AvroCodec, header=None) -> bytes:
    stream = io.BytesIO()
    writer = AvroWriter(stream, location="a", schema=SCHEMA, codec=codec, header=header or {}, sync=SYNC)
    for chunk in chunks:
        writer.write(chunk)
    writer.finish()
    assert writer.rows == sum(map(len, chunks))
    return stream.getvalue()


def blocks(data: bytes) -> list[tuple[int, bytes]]:
    """Rows and stored bytes of each block, by hand: after the first sync marker, to the last byte."""
    stream = io.BytesIO(data)
    stream.seek(data.index(SYNC) + 16)

    def long() -> int:
        value = shift = 0
        while True:
            byte = stream.read(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)

    found = []
    while stream.tell() < len(data):
        count, size = long(), long()
        found.append((count, stream.read(size)))
        assert stream.read(16) == SYNC
    return found


@pytest.mark.parametrize("name", ["null", "deflate"])
def test_fastavro_reads_it(name):
    data = written(rows(1000), rows(7), codec=AvroCodec(name=name), header={"iceberg.schema": "{é}"})
    reader = fastavro.reader(io.BytesIO(data))
    assert [{**row, "d": (row["d"] - dt.date(1970, 1, 1)).days} for row in reader] == rows(1000) + rows(7)
    assert reader.metadata["iceberg.schema"] == "{é}"
    assert reader.codec == name


def test_snappy_and_zstandard_blocks_by_hand():
    """Snappy: raw, then a big-endian CRC-32 of the plain bytes; Zstandard: one frame."""
    plain = b"".join(stored for _, stored in blocks(written(rows(50), codec=AvroCodec(name="null"))))
    ((count, packed),) = blocks(written(rows(50), codec=AvroCodec(name="snappy")))
    assert count == 50
    assert int.from_bytes(packed[-4:], "big") == zlib.crc32(plain)
    assert pa.decompress(packed[:-4], decompressed_size=len(plain), codec="snappy", asbytes=True) == plain
    ((_, frame),) = blocks(written(rows(50), codec=AvroCodec(name="zstandard", level=3)))
    assert frame[:4] == bytes.fromhex("28b52ffd")
    assert pa.input_stream(pa.BufferReader(frame), compression="zstd").read() == plain


def test_deflate_is_raw_and_takes_its_level():
    ((_, none),) = blocks(written(rows(500), codec=AvroCodec(name="deflate", level=0)))
    ((_, best),) = blocks(written(rows(500), codec=AvroCodec(name="deflate", level=9)))
    assert len(best) < len(none)
    assert zlib.decompress(best, -15) == zlib.decompress(none, -15)


def test_blocks_end_near_64_kilobytes():
    data = written(*(rows(100) for _ in range(200)), codec=AvroCodec(name="null"))
    sizes = [len(stored) for _, stored in blocks(data)]
    assert len(sizes) > 3
    assert all(BLOCK_BYTES <= size < BLOCK_BYTES + 2000 for size in sizes[:-1])


def test_no_rows_make_no_block():
    data = written([], [], codec=AvroCodec(name="null"))
    assert blocks(data) == []
    assert list(fastavro.reader(io.BytesIO(data))) == []


@pytest.mark.parametrize(("value", "stored"), [(0, "00"), (1, "02"), (63, "7e"), (64, "8001"), (8191, "fe7f"), (1 << 40, "808080808040")])
def test_zig_zag_numbers_of_the_specification(value, stored):
    assert encode_long(value).hex() == stored


def test_logical_types_are_taken_off_at_every_level():
    assert without_logical_types({"type": "array", "items": [{"type": "int", "logicalType": "date", "x": 1}]}) == {
        "type": "array",
        "items": [{"type": "int", "x": 1}],
    }
