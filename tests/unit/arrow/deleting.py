"""Delete files as other writers make them: Roaring bitmaps, Puffin files and AGS1 streams by hand, Parquet by pyarrow, Avro by fastavro."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.schema import Schema

from icelock.format.key_metadata import KeyMetadata
from icelock.plan.task import DeleteFile
from icelock.secret import SecretBytes
from tests.unit.arrow.support import AAD, DEK, metadata, write
from tests.vectors.ags1 import reference

ID_META = b"PARQUET:field_id"
POSITION_FIELDS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={ID_META: b"2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={ID_META: b"2147483545"}),
    ]
)


def roaring32(values: Iterable[int]) -> bytes:
    """The portable form without run containers: cookie 12346, keys and cardinalities, offsets, containers."""
    containers: dict[int, list[int]] = {}
    for value in sorted(set(values)):
        containers.setdefault(value >> 16, []).append(value & 0xFFFF)
    head = struct.pack("<II", 12346, len(containers))
    head += b"".join(struct.pack("<HH", key, len(low) - 1) for key, low in containers.items())
    offset = len(head) + 4 * len(containers)
    offsets, bodies = b"", b""
    for low in containers.values():
        if len(low) > 4096:
            bits = bytearray(8192)
            for value in low:
                bits[value >> 3] |= 1 << (value & 7)
            body = bytes(bits)
        else:
            body = struct.pack(f"<{len(low)}H", *low)
        offsets += struct.pack("<I", offset + len(bodies))
        bodies += body
    return head + offsets + bodies


def roaring64(values: Iterable[int]) -> bytes:
    high: dict[int, list[int]] = {}
    for value in sorted(set(values)):
        high.setdefault(value >> 32, []).append(value & 0xFFFFFFFF)
    return struct.pack("<q", len(high)) + b"".join(struct.pack("<I", key) + roaring32(low) for key, low in high.items())


def blob(values: Iterable[int]) -> bytes:
    """A deletion vector as format.md draws it."""
    body = bytes.fromhex("d1d33964") + roaring64(values)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin(blobs: Sequence[bytes], *, gap: int = 0) -> tuple[bytes, list[int]]:
    """A Puffin stream, and where its blobs are; ``gap`` bytes of something else go before each."""
    data, offsets = b"PFA1", []
    for one in blobs:
        data += bytes(gap)
        offsets.append(len(data))
        data += one
    footer = b'{"blobs":[],"properties":{}}'
    return data + b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1", offsets


def ags1(path: Path, plain: bytes, *, dek: bytes = DEK, aad: bytes = AAD) -> KeyMetadata:
    """Write an AGS1 stream with the reference encoder and return its key metadata."""
    path.write_bytes(reference.stream(dek, aad, plain))
    return metadata(path, dek=dek, aad=aad)


def delete_file(path: Path, *, key: KeyMetadata | None, **fields: Any) -> DeleteFile:
    values: dict[str, Any] = {
        "path": str(path),
        "file_format": "PARQUET",
        "content": 1,
        "key_metadata": None if key is None else SecretBytes(key.encode()),
        "file_size": path.stat().st_size,
        "record_count": 0,
        "equality_ids": None,
        "referenced_data_file": None,
        "content_offset": None,
        "content_size": None,
    }
    return DeleteFile(**{**values, **fields})


def vector(path: Path, data_file: Path, values: Sequence[int], **fields: Any) -> DeleteFile:
    """An encrypted Puffin file with one deletion vector."""
    one = blob(values)
    plain, (offset,) = puffin([one])
    key = ags1(path, plain)
    found: dict[str, Any] = {
        "file_format": "PUFFIN",
        "record_count": len(set(values)),
        "referenced_data_file": str(data_file),
        "content_offset": offset,
        "content_size": len(one),
    }
    return delete_file(path, key=key, **{**found, **fields})


def positions(path: Path, pairs: Sequence[tuple[str | Path, int]], **fields: Any) -> DeleteFile:
    """An encrypted position delete file in Parquet."""
    columns = [pa.array([str(name) for name, _ in pairs], pa.string()), pa.array([pos for _, pos in pairs], pa.int64())]
    write(path, pa.table(columns, schema=POSITION_FIELDS))
    return delete_file(path, key=metadata(path), **{"record_count": len(pairs), **fields})


def equality(path: Path, table: pa.Table, columns: Schema, **fields: Any) -> DeleteFile:
    """An encrypted equality delete file in Parquet; ``columns`` has one column, or path to one, for each id in ``equality_ids``."""
    write(path, table)
    ids = fields.pop("equality_ids", tuple(field.field_id for field in columns.fields))
    found: dict[str, Any] = {
        "content": 2,
        "record_count": table.num_rows,
        "equality_ids": ids,
        "equality_columns": tuple(field.model_dump_json() for field in columns.fields),
    }
    return delete_file(path, key=metadata(path), **{**found, **fields})


def avro_bytes(schema: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], *, codec: str = "deflate", interval: int = 16_000) -> bytes:
    """An Avro file by fastavro; logical types take fastavro's values."""
    out = io.BytesIO()
    fastavro.writer(out, dict(schema), rows, codec=codec, sync_interval=interval)
    return out.getvalue()
