"""The bytes that ``verify_table.py`` reads: AES-GCM messages, key metadata, AGS1 streams, encrypted Parquet.

Written from the format alone; shares no code with ``src/icelock``. Whatever is wrong raises ``Fault`` with one sentence.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyarrow.parquet.encryption import create_decryption_properties

from tests.verify.modules import open_modules

BLOCK = 1024 * 1024
NONCE, TAG = 12, 16
KEY_METADATA_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "key_metadata",
        "fields": [
            {"name": "encryption_key", "type": "bytes"},
            {"name": "aad_prefix", "type": ["null", "bytes"]},
            {"name": "file_length", "type": ["null", "long"]},
        ],
    }
)


class Fault(Exception):  # noqa: N818  a finding, not a programming error
    """What is wrong with the table, in one sentence."""


def fault(message: str) -> NoReturn:
    raise Fault(message)


def expect(got: object, expected: object, what: str) -> None:
    if got != expected:
        fault(f"{what}: expected {expected}, got {got}")


@dataclass(frozen=True)
class KeyMetadata:
    dek: bytes = field(repr=False)
    aad_prefix: bytes
    length: int


def gcm_open(key: bytes, message: bytes, aad: bytes | None, what: str) -> bytes:
    if len(message) < NONCE + TAG:
        fault(f"{what}: {len(message)} bytes are too few for nonce and tag")
    try:
        return AESGCM(key).decrypt(message[:NONCE], message[NONCE:], aad)
    except InvalidTag:
        fault(f"{what}: authentication failed (bytes were changed, or another key)")


def decode_key_metadata(blob: bytes | None, what: str) -> KeyMetadata:
    if not blob:
        fault(f"{what}: no key metadata, so the file is plaintext")
    if blob[0] != 1:
        fault(f"{what}: key metadata version {blob[0]}, expected 1")
    stream = io.BytesIO(blob[1:])
    record: Any = fastavro.schemaless_reader(stream, KEY_METADATA_SCHEMA, None)
    if stream.read(1):
        fault(f"{what}: bytes are left over behind the key metadata")
    dek, prefix, length = record["encryption_key"], record["aad_prefix"], record["file_length"]
    if len(dek) not in (16, 24, 32):
        fault(f"{what}: a DEK of {len(dek)} bytes")
    if prefix is None or length is None:
        fault(f"{what}: key metadata without {'AAD prefix' if prefix is None else 'file length'}")
    return KeyMetadata(dek, prefix, length)


def ags1_open(data: bytes, key: KeyMetadata, what: str) -> bytes:
    expect(len(data), key.length, f"{what}: size against the key metadata's file_length")
    expect(data[:4], b"AGS1", f"{what}: magic")
    expect(struct.unpack("<I", data[4:8])[0], BLOCK, f"{what}: block size")
    plain, position, index = [], 8, 0
    while position < len(data) or index == 0:
        block = data[position : position + NONCE + BLOCK + TAG]
        plain.append(gcm_open(key.dek, block, key.aad_prefix + struct.pack("<i", index), f"{what}: block {index}"))
        position, index = position + len(block), index + 1
    return b"".join(plain)


def parquet_table(data: bytes, key: KeyMetadata, what: str) -> pa.Table:
    """Open every module, read every column, and return the rows."""
    expect(data[-4:], b"PARE", f"{what}: magic at the end")
    try:
        properties = create_decryption_properties(footer_key=key.dek, aad_prefix=key.aad_prefix)
        parquet = pq.ParquetFile(pa.BufferReader(data), decryption_properties=properties)
        open_modules(data, key.dek, key.aad_prefix, parquet.num_row_groups, parquet.metadata.num_columns)
        groups = [parquet.read_row_group(group) for group in range(parquet.num_row_groups)]
    except (OSError, pa.ArrowException, ValueError, IndexError, struct.error) as e:
        message = f"{what}: Parquet does not decrypt: {e}"
        raise Fault(message) from e
    expect(sum(group.num_rows for group in groups), parquet.metadata.num_rows, f"{what}: rows read against the footer")
    return pa.concat_tables(groups) if groups else parquet.schema_arrow.empty_table()


def parquet_rows(data: bytes, key: KeyMetadata, what: str) -> int:
    """Open every module, read every column, and return the number of rows."""
    return int(parquet_table(data, key, what).num_rows)


class Storage:
    """Locations to local bytes; remembers what was read."""

    def __init__(self, relocate: dict[str, str]) -> None:
        self.relocate = relocate
        self.read: set[Path] = set()

    def path(self, location: str) -> Path:
        for source, target in self.relocate.items():
            if location == source or location.startswith(source.rstrip("/") + "/"):
                return Path(target + location[len(source.rstrip("/")) :])
        text = location.removeprefix("file:")
        return Path("/" + text.lstrip("/") if location.startswith("file:") else text)

    def bytes(self, location: str) -> bytes:
        path = self.path(location)
        if not path.is_file():
            fault(f"{location}: the file is missing")
        self.read.add(path)
        return path.read_bytes()
