"""Servers of the REST protocol that cannot hold encrypted tables, as they behave (observed with the named versions)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.servers.rest_stub import RefusalError, RestStub


class NessieStub(RestStub):
    """Nessie 0.99.0: asked for format version 3 it makes version 2 without a word; add-encryption-key is an internal error."""

    def create(self, space: str, body: dict[str, Any]) -> dict[str, Any]:
        properties = {**body.get("properties", {}), "format-version": "2"}
        return super().create(space, {**body, "properties": properties})

    def apply(self, metadata: dict[str, Any], update: dict[str, Any]) -> None:
        if update["action"] == "add-encryption-key":
            raise RefusalError(
                500, "InternalServerError", "Could not resolve type id 'add-encryption-key' as a subtype of IcebergMetadataUpdate"
            )
        super().apply(metadata, update)


class SeaweedStub(RestStub):
    """SeaweedFS's REST catalog: keeps encryption-keys, drops the snapshot's key-id, and writes the manifests it names anew."""

    def apply(self, metadata: dict[str, Any], update: dict[str, Any]) -> None:
        super().apply(metadata, update)
        if update["action"] == "add-snapshot":
            snapshot = dict(update["snapshot"])
            snapshot.pop("key-id", None)
            metadata["snapshots"][-1] = snapshot
            written = Path(snapshot["manifest-list"].removeprefix("file://"))
            written.write_bytes(b"Obj\x01" + written.read_bytes()[4:])


class KeylessStub(RestStub):
    """A server that does not know the field: key updates are taken and forgotten."""

    def apply(self, metadata: dict[str, Any], update: dict[str, Any]) -> None:
        if update["action"] not in {"add-encryption-key", "remove-encryption-key"}:
            super().apply(metadata, update)


class LowerVersionStub(RestStub):
    """A server whose commits bring format version 2, as one does that writes with an old library."""

    def commit(self, space: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        super().commit(space, name, body)
        metadata = dict(self.tables[space, name]["metadata"])
        metadata["format-version"] = 2
        for field in ("encryption-keys", "next-row-id"):
            metadata.pop(field, None)
        metadata["properties"] = {k: v for k, v in metadata["properties"].items() if not k.startswith("encryption.")}
        gone = {"key-id", "first-row-id", "added-rows"}
        metadata["snapshots"] = [{k: v for k, v in snapshot.items() if k not in gone} for snapshot in metadata["snapshots"]]
        return self.keep(space, name, metadata)
