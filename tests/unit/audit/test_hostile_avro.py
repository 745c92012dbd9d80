"""Lists and manifests that would keep a reader busy, or fill its memory, are damaged; the forms are those of the Avro specification."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from typing import Any

import pyarrow as pa
import pytest

from icelock.audit.fault import Fault
from icelock.audit.manifests import file_rows, manifest_rows

LIST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [{"name": "manifest_path", "type": "string"}, {"name": "manifest_length", "type": "long"}],
}
ROW = b"\x02a\x0a"  # manifest_path "a", manifest_length 5
SYNC = b"S" * 16


def number(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def container(schema: Any, codec: str, *blocks: tuple[int, bytes]) -> io.BytesIO:
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    entries = b"".join(number(len(name)) + name.encode() + number(len(value)) + value for name, value in header.items())
    data = b"Obj\x01" + number(len(header)) + entries + number(0) + SYNC
    return io.BytesIO(data + b"".join(number(count) + number(len(block)) + block + SYNC for count, block in blocks))


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def packed_by(codec: str, data: bytes) -> bytes:
    """A block as the Avro specification has it; Snappy's ends with a checksum."""
    if codec == "snappy":
        return bytes(pa.compress(data, codec="snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")
    if codec == "zstandard":
        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return data if codec == "null" else deflated(data)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_sound_blocks_are_read(codec: str) -> None:
    blocks = [(2, ROW + ROW), (1, ROW), (0, b"")]
    packed = [(count, packed_by(codec, data)) for count, data in blocks]
    assert [(row.path, row.length) for row in manifest_rows(container(LIST, codec, *packed))] == [("a", 5)] * 3


def with_field(kind: Any) -> dict[str, Any]:
    return {**LIST, "fields": [*LIST["fields"], {"name": "x", "type": kind}]}


@pytest.mark.parametrize(
    "hostile",
    [
        container(LIST, "null", (-5, ROW)),
        container(LIST, "null", (2**62, ROW)),
        container(LIST, "deflate", (1, deflated(bytes(65 << 20)))),
        container(LIST, "snappy", (1, packed_by("snappy", bytes(65 << 20)))),
        container(LIST, "snappy", (1, b"\xff\xff\xff\xff\x0f" + ROW * 20)),
        container(LIST, "zstandard", (1, packed_by("zstandard", bytes(65 << 20)))),
        container(LIST, "zstandard", (1, ROW)),
        container(with_field(["null", "manifest_file"]), "null", (1, ROW + b"\x02" * 100_000 + b"\0")),
        container(with_field({"type": "array", "items": "null"}), "null", (1, ROW + number(10**10) + b"\0")),
        container(with_field({"type": "array", "items": {"type": "record", "name": "q", "fields": []}}), "null", (1, ROW + number(10**8))),
        io.BytesIO(container(LIST, "null", (1, ROW)).getvalue()[:-1]),
        io.BytesIO(container(LIST, "null").getvalue() + b"\xff" * 11),
        io.BytesIO(container(LIST, "null").getvalue() + b"\x02"),
    ],
    ids=[
        "negative",
        "many",
        "bomb",
        "snappy bomb",
        "snappy claim",
        "zstandard bomb",
        "no zstandard",
        "recursive",
        "empty items",
        "empty records",
        "cut",
        "endless number",
        "half a block",
    ],
)
def test_hostile_ones_are_damaged(hostile: io.BytesIO) -> None:
    for read in (manifest_rows, file_rows):
        hostile.seek(0)
        with pytest.raises(Fault, match="not what Iceberg keeps"):
            list(read(hostile))


@pytest.mark.parametrize("codec", ["bzip2", "xz"])
def test_codecs_that_iceberg_does_not_have_are_not_unpacked(codec: str) -> None:
    """806 bytes of bzip2 were 600 MiB in memory, and fastavro knows no limit."""
    pack = {"bzip2": bz2.compress, "xz": lzma.compress}[codec]
    with pytest.raises(OSError, match=f"compressed by '{codec}'"):
        list(manifest_rows(container(LIST, codec, (1, pack(ROW)))))
