"""Lists and manifests that would keep a reader busy, or fill its memory, are damaged; the forms are those of the Avro specification."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

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


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_sound_blocks_are_read(codec: str) -> None:
    blocks = [(2, ROW + ROW), (1, ROW), (0, b"")]
    packed = [(count, data if codec == "null" else deflated(data)) for count, data in blocks]
    assert [(row.path, row.length) for row in manifest_rows(container(LIST, codec, *packed))] == [("a", 5)] * 3


def with_field(kind: Any) -> dict[str, Any]:
    return {**LIST, "fields": [*LIST["fields"], {"name": "x", "type": kind}]}


@pytest.mark.parametrize(
    "hostile",
    [
        container(LIST, "null", (-5, ROW)),
        container(LIST, "null", (2**62, ROW)),
        container(LIST, "deflate", (1, deflated(bytes(65 << 20)))),
        container(with_field(["null", "manifest_file"]), "null", (1, ROW + b"\x02" * 100_000 + b"\0")),
        container(with_field({"type": "array", "items": "null"}), "null", (1, ROW + number(10**10) + b"\0")),
        container(with_field({"type": "array", "items": {"type": "record", "name": "q", "fields": []}}), "null", (1, ROW + number(10**8))),
        io.BytesIO(container(LIST, "null", (1, ROW)).getvalue()[:-1]),
        io.BytesIO(container(LIST, "null").getvalue() + b"\xff" * 11),
        io.BytesIO(container(LIST, "null").getvalue() + b"\x02"),
    ],
    ids=["negative", "many", "bomb", "recursive", "empty items", "empty records", "cut", "endless number", "half a block"],
)
def test_hostile_ones_are_damaged(hostile: io.BytesIO) -> None:
    for read in (manifest_rows, file_rows):
        hostile.seek(0)
        with pytest.raises(Fault, match="not what Iceberg keeps"):
            list(read(hostile))
