"""A table that is cut open and sewn up again: faults that a key holder or a careless writer could leave, down to a manifest's rows.

Every change is carried up with the keys that are there: manifest, list, key entry, metadata file.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

from icelock.format import aes_gcm, ags1
from icelock.format.key_metadata import KeyMetadata

MASTER = b"0123456789012345"


def seal_stream(plain: bytes, key: KeyMetadata) -> tuple[bytes, KeyMetadata]:
    """Return an AGS1 stream, and the key metadata with its length."""
    pieces = [ags1.header()]
    for index, start in enumerate(range(0, max(1, len(plain)), ags1.BLOCK_SIZE)):
        block = plain[start : start + ags1.BLOCK_SIZE]
        pieces.append(aes_gcm.encrypt(key.dek.reveal(), os.urandom(12), block, ags1.block_aad(key.aad_prefix or b"", index)))
    data = b"".join(pieces)
    return data, KeyMetadata(dek=key.dek, aad_prefix=key.aad_prefix, encrypted_length=len(data))


def open_stream(data: bytes, key: KeyMetadata) -> bytes:
    """Return the plain bytes of a stream of one block."""
    return aes_gcm.decrypt(key.dek.reveal(), data[ags1.HEADER_LENGTH :], ags1.block_aad(key.aad_prefix or b"", 0))


class Avro:
    """An Avro file's schema, header and rows."""

    def __init__(self, data: bytes) -> None:
        reader: Any = fastavro.reader(io.BytesIO(data))
        self.rows: list[Any] = list(reader)
        self.schema = json.loads(reader.metadata["avro.schema"])
        self.header = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}

    def encode(self) -> bytes:
        out = io.BytesIO()
        fastavro.writer(out, self.schema, self.rows, metadata=self.header)
        return out.getvalue()


class Patient:
    """The files of one table with one snapshot; ``metadata`` is its metadata file as JSON."""

    def __init__(self, metadata_file: Path) -> None:
        self.file = metadata_file
        self.metadata: dict[str, Any] = json.loads(metadata_file.read_text(encoding="utf-8"))

    @property
    def snapshot(self) -> dict[str, Any]:
        (one,) = self.metadata["snapshots"]
        return dict(one)

    def entry(self, key_id: str) -> dict[str, Any]:
        return next(one for one in self.metadata["encryption-keys"] if one["key-id"] == key_id)

    @property
    def list_entry(self) -> dict[str, Any]:
        return self.entry(self.snapshot["key-id"])

    @property
    def kek_entry(self) -> dict[str, Any]:
        return self.entry(self.list_entry["encrypted-by-id"])

    def kek(self) -> tuple[bytes, bytes]:
        """Return a KEK and the AAD of what it opens."""
        entry = self.kek_entry
        blob = base64.b64decode(entry["encrypted-key-metadata"])
        return aes_gcm.decrypt(MASTER, blob), entry["properties"]["KEY_TIMESTAMP"].encode()

    def list_key(self) -> KeyMetadata:
        kek, aad = self.kek()
        return KeyMetadata.decode(aes_gcm.decrypt(kek, base64.b64decode(self.list_entry["encrypted-key-metadata"]), aad))

    def set_list_key(self, key: KeyMetadata) -> None:
        kek, aad = self.kek()
        sealed = aes_gcm.encrypt(kek, os.urandom(12), key.encode(), aad)
        self.list_entry["encrypted-key-metadata"] = base64.b64encode(sealed).decode()

    @property
    def list_path(self) -> Path:
        return path_of(self.snapshot["manifest-list"])

    def change_list(self, change: Callable[[list[Any]], None]) -> None:
        key = self.list_key()
        avro = Avro(open_stream(self.list_path.read_bytes(), key))
        change(avro.rows)
        data, sealed = seal_stream(avro.encode(), key)
        self.list_path.write_bytes(data)
        self.set_list_key(sealed)

    def list_rows(self) -> list[Any]:
        return Avro(open_stream(self.list_path.read_bytes(), self.list_key())).rows

    def change_manifest(self, change: Callable[[list[Any]], None], *, content: int = 0) -> None:
        """Change the rows of the manifest of data (0) or deletes (1)."""

        def carry(rows: list[Any]) -> None:
            row = next(one for one in rows if one["content"] == content)
            key, path = KeyMetadata.decode(row["key_metadata"]), path_of(row["manifest_path"])
            avro = Avro(open_stream(path.read_bytes(), key))
            change(avro.rows)
            data, sealed = seal_stream(avro.encode(), key)
            path.write_bytes(data)
            row["manifest_length"], row["key_metadata"] = len(data), sealed.encode()

        self.change_list(carry)

    def change_file(self, change: Callable[[dict[str, Any]], None], *, content: int = 0) -> None:
        """Change the first data or delete file's entry."""
        self.change_manifest(lambda rows: change(rows[0]["data_file"]), content=content)

    def files(self, content: int = 0) -> list[dict[str, Any]]:
        row = next(one for one in self.list_rows() if one["content"] == content)
        avro = Avro(open_stream(path_of(row["manifest_path"]).read_bytes(), KeyMetadata.decode(row["key_metadata"])))
        return [copy.deepcopy(one["data_file"]) for one in avro.rows]

    def save(self) -> None:
        self.file.write_text(json.dumps(self.metadata, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))
