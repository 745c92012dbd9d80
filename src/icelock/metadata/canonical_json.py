"""The one writer of v3 metadata.json, byte for byte as Java writes it, and ``metadata_hash``.

Java keeps base64(SHA-256(its own compact serialisation)) beside the table (Hive's ``metadata_hash``); since our file has the
same order, spacing and escapes, the hash of our bytes is that hash (format.md "Canonical JSON and metadata_hash"). Unknown
fields are written after the known ones and left out of the hash, because Java hashes what it parsed and writes again.

Not here: where hashes are kept (``catalog``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

_TOP: Final = (
    "format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id",
    "current-schema-id", "schemas", "default-spec-id", "partition-specs", "last-partition-id", "default-sort-order-id",
    "sort-orders", "properties", "current-snapshot-id", "next-row-id", "encryption-keys", "refs", "snapshots", "statistics",
    "partition-statistics", "snapshot-log", "metadata-log",
)  # fmt: skip
_SNAPSHOT: Final = (
    "sequence-number", "snapshot-id", "parent-snapshot-id", "timestamp-ms", "summary", "manifest-list", "schema-id",
    "first-row-id", "added-rows", "key-id",
)  # fmt: skip
_FIELD: Final = ("id", "name", "required", "type", "doc", "initial-default", "write-default")
_LIST: Final = ("type", "element-id", "element", "element-required")
_MAP: Final = ("type", "key-id", "key", "value-id", "value", "value-required")
_SPEC_FIELD: Final = ("name", "transform", "source-id", "field-id")
_SORT_FIELD: Final = ("transform", "source-id", "direction", "null-order")
_REF: Final = ("snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
_STATISTICS: Final = (
    "snapshot-id", "statistics-path", "file-size-in-bytes", "file-footer-size-in-bytes", "key-metadata", "blob-metadata",
)  # fmt: skip
_BLOB: Final = ("type", "snapshot-id", "sequence-number", "fields", "properties")
_ESCAPES: Final = re.compile(r"\\(u00[0-9a-f]{2}|.)")


class MetadataV3(Protocol):
    """The part of version 3 metadata (``metadata.table_metadata``) that its text needs."""

    @property
    def __pydantic_extra__(self) -> Mapping[str, Any] | None:
        """Unknown fields."""

    @property
    def current_snapshot_id(self) -> int | None:
        """The id of the current snapshot."""

    @property
    def snapshots(self) -> Sequence[Any]:
        """All snapshots."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return the known fields as JSON values."""


def canonical_json(metadata: MetadataV3) -> str:
    """Return the text of the metadata file: Java's order and escapes, no spaces, unknown fields last."""
    known = canonical_object(metadata)
    unknown = dict(metadata.__pydantic_extra__ or {})
    snapshots = [{**written, **snapshot.unknown_fields()} for written, snapshot in zip(known["snapshots"], metadata.snapshots, strict=True)]
    return dumps({**known, "snapshots": snapshots, **unknown})


def metadata_hash(metadata: MetadataV3) -> str:
    """Return Java's ``metadata_hash``: base64 of the SHA-256 of the canonical text without unknown fields."""
    return _hash_of(dumps(canonical_object(metadata)))


def canonical_form(metadata: MetadataV3) -> tuple[str, str]:
    """Return ``canonical_json`` and ``metadata_hash``, computed together."""
    text = canonical_json(metadata)
    if metadata.__pydantic_extra__ or any(snapshot.unknown_fields() for snapshot in metadata.snapshots):
        return text, metadata_hash(metadata)
    return text, _hash_of(text)


def canonical_object(metadata: MetadataV3) -> dict[str, Any]:
    """Return the metadata as plain JSON values in canonical order, known fields only."""
    dump = metadata.model_dump(mode="json")
    dump["schemas"] = [_schema(schema) for schema in dump["schemas"]]
    dump["partition-specs"] = [
        {"spec-id": spec["spec-id"], "fields": [_ordered(field, _SPEC_FIELD) for field in spec["fields"]]}
        for spec in dump["partition-specs"]
    ]
    dump["sort-orders"] = [
        {"order-id": order["order-id"], "fields": [_ordered(field, _SORT_FIELD) for field in order["fields"]]}
        for order in dump["sort-orders"]
    ]
    dump["current-snapshot-id"] = metadata.current_snapshot_id
    if not dump["encryption-keys"]:
        del dump["encryption-keys"]
    dump["refs"] = {name: _ordered(ref, _REF) for name, ref in dump["refs"].items()}
    dump["snapshots"] = [_snapshot(snapshot) for snapshot in dump["snapshots"]]
    dump["statistics"] = [_statistics(entry) for entry in dump["statistics"]]
    dump["partition-statistics"] = [_ordered(entry, _STATISTICS) for entry in dump["partition-statistics"]]
    dump["snapshot-log"] = [_ordered(entry, ("timestamp-ms", "snapshot-id")) for entry in dump["snapshot-log"]]
    dump["metadata-log"] = [_ordered(entry, ("timestamp-ms", "metadata-file")) for entry in dump["metadata-log"]]
    return _ordered(dump, _TOP)


def _hash_of(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def schema_object(schema: Any) -> dict[str, Any]:
    """Return a PyIceberg schema as plain JSON values in canonical order."""
    return _schema(schema.model_dump(mode="json"))


def _ordered(value: Mapping[str, Any], order: Iterable[str]) -> dict[str, Any]:
    return {name: value[name] for name in order if name in value}


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    head: dict[str, Any] = {"type": "struct", "schema-id": schema["schema-id"]}
    if schema.get("identifier-field-ids"):
        head["identifier-field-ids"] = schema["identifier-field-ids"]
    return {**head, "fields": [_field(field) for field in schema["fields"]]}


def _field(field: Mapping[str, Any]) -> dict[str, Any]:
    written = _ordered({**field, "type": _type(field["type"])}, _FIELD)
    if field["type"] == "binary" or (isinstance(field["type"], str) and field["type"].startswith("fixed")):
        for name in ("initial-default", "write-default"):
            if name in written:
                written[name] = str(written[name]).upper()
    return written


def _type(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value["type"] == "struct":
        return {"type": "struct", "fields": [_field(field) for field in value["fields"]]}
    if value["type"] == "list":
        return _ordered({**value, "element": _type(value["element"])}, _LIST)
    return _ordered({**value, "key": _type(value["key"]), "value": _type(value["value"])}, _MAP)


def _snapshot(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    written = _ordered(snapshot, _SNAPSHOT)
    if not written.get("sequence-number"):
        written.pop("sequence-number", None)
    if "summary" in written:
        summary = written["summary"]
        written["summary"] = {"operation": summary["operation"], **{k: v for k, v in summary.items() if k != "operation"}}
    return written


def _statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    return _ordered({**entry, "blob-metadata": [_ordered(blob, _BLOB) for blob in entry["blob-metadata"]]}, _STATISTICS)


def dumps(value: Any) -> str:
    """Return compact JSON text with Java's escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPES.sub(_upper_escape, text)


def _upper_escape(match: re.Match[str]) -> str:
    found = match.group(1)
    return f"\\u00{found[3:].upper()}" if len(found) > 1 else match.group(0)
