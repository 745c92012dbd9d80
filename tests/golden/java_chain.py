"""The data files of a golden table's snapshot, by plain fastavro and cryptography: no code of ``src/icelock`` is used.

Master key → KEK → manifest-list key → manifest list → manifests → data files, as format.md says; delete manifests are left out.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import struct
from typing import Any

import fastavro
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.golden.relocate import RelocatingFileIO, metadata_path, table_info

BLOCK = (1 << 20) + 28


@dataclasses.dataclass
class JavaFile:
    """A live data file: ``entry`` is the data_file record, lineage is inherited as the spec says."""

    entry: dict[str, Any]
    spec_id: int
    sequence_number: int
    first_row_id: int | None


def table_metadata(table: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(metadata_path(table).read_text(encoding="utf-8"))
    return loaded


def data_files(table: str, snapshot_id: int | None = None) -> list[JavaFile]:
    """Return the live data files of a snapshot (None: the current one), in manifest order."""
    metadata = table_metadata(table)
    wanted = snapshot_id if snapshot_id is not None else metadata["current-snapshot-id"]
    snapshot = next((s for s in metadata.get("snapshots", []) if s["snapshot-id"] == wanted), None)
    if snapshot is None:
        return []
    files: list[JavaFile] = []
    key = _manifest_list_key(table, metadata, snapshot["key-id"]) if "key-id" in snapshot else None
    for manifest in _records(snapshot["manifest-list"], key):
        if manifest["content"] == 0:
            files.extend(_live(manifest))
    return files


def _live(manifest: dict[str, Any]) -> list[JavaFile]:
    found = []
    next_row_id = manifest["first_row_id"]
    for entry in _records(manifest["manifest_path"], manifest["key_metadata"]):
        data = entry["data_file"]
        first = data["first_row_id"]
        if first is None and entry["status"] != 2:
            first, next_row_id = next_row_id, next_row_id + data["record_count"]
        if entry["status"] != 2:
            inherited = manifest["sequence_number"] if entry["sequence_number"] is None else entry["sequence_number"]
            found.append(JavaFile(data, manifest["partition_spec_id"], inherited, first))
    return found


def _manifest_list_key(table: str, metadata: dict[str, Any], key_id: str) -> bytes:
    keys = {key["key-id"]: key for key in metadata["encryption-keys"]}
    entry = keys[key_id]
    kek = keys[entry["encrypted-by-id"]]
    master = table_info(table)["kms_keys_utf8"][kek["encrypted-by-id"]].encode()
    raw_kek = _open(master, base64.b64decode(kek["encrypted-key-metadata"]), None)
    return _open(raw_kek, base64.b64decode(entry["encrypted-key-metadata"]), kek["properties"]["KEY_TIMESTAMP"].encode())


def _open(key: bytes, message: bytes, aad: bytes | None) -> bytes:
    return AESGCM(key).decrypt(message[:12], message[12:], aad)


def _records(location: str, key_metadata: bytes | None) -> list[Any]:
    stored = RelocatingFileIO().local_path(location).read_bytes()
    plain = stored if key_metadata is None else _ags1(stored, key_metadata)
    return list(fastavro.reader(io.BytesIO(plain)))


def _ags1(stored: bytes, key_metadata: bytes) -> bytes:
    schema = {
        "type": "record",
        "name": "key_metadata",
        "fields": [
            {"name": "key", "type": "bytes"},
            {"name": "aad", "type": ["null", "bytes"]},
            {"name": "length", "type": ["null", "long"]},
        ],
    }
    key: Any = fastavro.schemaless_reader(io.BytesIO(key_metadata[1:]), schema, None)
    assert (stored[:8], len(stored)) == (b"AGS1" + struct.pack("<i", 1 << 20), key["length"])
    blocks = [stored[start : start + BLOCK] for start in range(8, len(stored), BLOCK)]
    return b"".join(_open(key["key"], block, key["aad"] + struct.pack("<i", i)) for i, block in enumerate(blocks))
