"""The one writer of v3 metadata.json, byte for byte as Java writes it, and ``metadata_hash``.

Java keeps base64(SHA-256(its own compact serialisation)) beside the table (Hive's ``metadata_hash``); since our file has the
same order, spacing and escapes, the hash of our bytes is that hash (format.md "Canonical JSON and metadata_hash"). Unknown
fields are written after the known ones and left out of the hash, because Java hashes what it parsed and writes again.

Threads share schemas and partition specs, and PyIceberg's keep the indexes that they make when they are first asked in the dictionary
that pydantic walks through to serialize them ("dictionary changed size during iteration"). So both are written from their attributes.

Versions of a table share what did not change (``metadata.updates``), so the text of a snapshot, key entry, schema or log entry is made once
and kept while its object is: a commit to a table of 1,000 snapshots writes the text of one.

Not here: where hashes are kept (``catalog``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from pyiceberg.conversions import to_json
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, IcebergType, ListType, MapType, NestedField, StructType

from icelock.format.encrypted_key import EncryptedKey
from icelock.kept import KeptByIdentity

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

    def model_dump(self, *, mode: str, exclude: set[str]) -> dict[str, Any]:
        """Return the known fields as JSON values."""


def canonical_json(metadata: MetadataV3) -> str:
    """Return the text of the metadata file: Java's order and escapes, no spaces, unknown fields last."""
    return _text(metadata, _of_object(metadata), unknown=True)


def metadata_hash(metadata: MetadataV3) -> str:
    """Return Java's ``metadata_hash``: base64 of the SHA-256 of the canonical text without unknown fields."""
    return _hash_of(_text(metadata, _of_object(metadata), unknown=False))


def canonical_form(metadata: MetadataV3) -> tuple[str, str]:
    """Return ``canonical_json`` and ``metadata_hash``, computed together."""
    known = _of_object(metadata)
    text = _text(metadata, known, unknown=True)
    if metadata.__pydantic_extra__ or any(snapshot.unknown_fields() for snapshot in metadata.snapshots):
        return text, _hash_of(_text(metadata, known, unknown=False))
    return text, _hash_of(text)


def _text(metadata: MetadataV3, known: Mapping[str, str], *, unknown: bool) -> str:
    """Return the whole text; ``known`` are the texts of fields that have no lists of a version's parts."""
    which = 1 if unknown else 0
    lists = {name: f"[{','.join([texts(part)[which] for part in getattr(metadata, attribute)])}]" for name, attribute, texts in _PARTS}
    if lists["encryption-keys"] == "[]":
        del lists["encryption-keys"]
    more = {dumps(name): dumps(value) for name, value in (metadata.__pydantic_extra__ or {}).items()} if unknown else {}
    fields = {**{f'"{name}"': text for name, text in _ordered({**known, **lists}, _TOP).items()}, **more}
    return f"{{{','.join([f'{name}:{text}' for name, text in fields.items()])}}}"


def _of_object(metadata: MetadataV3) -> dict[str, str]:
    """Return the texts of the known fields that are not in ``_PARTS``."""
    dump = metadata.model_dump(mode="json", exclude={attribute for _, attribute, _ in _PARTS})
    dump["sort-orders"] = [
        {"order-id": order["order-id"], "fields": [_ordered(field, _SORT_FIELD) for field in order["fields"]]}
        for order in dump["sort-orders"]
    ]
    dump["current-snapshot-id"] = metadata.current_snapshot_id
    dump["refs"] = {name: _ordered(ref, _REF) for name, ref in dump["refs"].items()}
    dump["statistics"] = [_statistics(entry) for entry in dump["statistics"]]
    dump["partition-statistics"] = [_ordered(entry, _STATISTICS) for entry in dump["partition-statistics"]]
    return {name: dumps(value) for name, value in _ordered(dump, _TOP).items()}


def _hash_of(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def schema_object(schema: Schema) -> dict[str, Any]:
    """Return a PyIceberg schema as plain JSON values in canonical order."""
    head: dict[str, Any] = {"type": "struct", "schema-id": schema.schema_id}
    if schema.identifier_field_ids:
        head["identifier-field-ids"] = list(schema.identifier_field_ids)
    return {**head, "fields": [_field(field) for field in schema.fields]}


def schema_json(schema: Schema) -> str:
    """Return a PyIceberg schema as text, for ``metadata.column_types.schema_from_json``; made once for each: manifests have it too."""
    return _SCHEMA_TEXTS(schema)[0]


def spec_object(spec: PartitionSpec) -> dict[str, Any]:
    """Return a PyIceberg partition spec as plain JSON values in canonical order."""
    return {"spec-id": spec.spec_id, "fields": [spec_field_object(field) for field in spec.fields]}


def spec_field_object(field: PartitionField) -> dict[str, Any]:
    """Return a field of a partition spec as plain JSON values in canonical order."""
    return {"name": field.name, "transform": str(field.transform), "source-id": field.source_id, "field-id": field.field_id}


def spec_json(spec: PartitionSpec) -> str:
    """Return a PyIceberg partition spec as text, for its ``model_validate_json``."""
    return dumps(spec_object(spec))


def _ordered(value: Mapping[str, Any], order: Iterable[str]) -> dict[str, Any]:
    return {name: value[name] for name in order if name in value}


def _field(field: NestedField) -> dict[str, Any]:
    written: dict[str, Any] = {
        "id": field.field_id,
        "name": field.name,
        "required": field.required,
        "type": _type(field.field_type),
    }
    if field.doc is not None:
        written["doc"] = field.doc
    for name, value in (("initial-default", field.initial_default), ("write-default", field.write_default)):
        if value is not None:
            shown = to_json(field.field_type, value)  # type: ignore[arg-type]  # only primitive types have defaults here
            written[name] = shown.upper() if isinstance(field.field_type, (BinaryType, FixedType)) else shown
    return written


def _type(kind: IcebergType) -> Any:
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_field(field) for field in kind.fields]}
    if isinstance(kind, ListType):
        return {
            "type": "list",
            "element-id": kind.element_id,
            "element": _type(kind.element_type),
            "element-required": kind.element_required,
        }
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "key-id": kind.key_id,
            "key": _type(kind.key_type),
            "value-id": kind.value_id,
            "value": _type(kind.value_type),
            "value-required": kind.value_required,
        }
    return str(kind)


def _snapshot(snapshot: Any) -> dict[str, Any]:
    written = _ordered(snapshot.model_dump(mode="json"), _SNAPSHOT)
    if not written.get("sequence-number"):
        written.pop("sequence-number", None)
    if "summary" in written:
        summary = written["summary"]
        written["summary"] = {"operation": summary["operation"], **{k: v for k, v in summary.items() if k != "operation"}}
    return written


def _snapshot_log_entry(entry: Any) -> dict[str, Any]:
    return {"timestamp-ms": entry.timestamp_ms, "snapshot-id": entry.snapshot_id}


def _metadata_log_entry(entry: Any) -> dict[str, Any]:
    return {"timestamp-ms": entry.timestamp_ms, "metadata-file": entry.metadata_file}


def _statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    return _ordered({**entry, "blob-metadata": [_ordered(blob, _BLOB) for blob in entry["blob-metadata"]]}, _STATISTICS)


def dumps(value: Any) -> str:
    """Return compact JSON text with Java's escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPES.sub(_upper_escape, text)


def _upper_escape(match: re.Match[str]) -> str:
    found = match.group(1)
    return f"\\u00{found[3:].upper()}" if len(found) > 1 else match.group(0)


def _kept(written: Callable[[Any], dict[str, Any]]) -> Callable[[Any], tuple[str, str]]:
    """Return what gives a part's text, without and with its unknown fields, made once for each object."""

    def texts(part: Any) -> tuple[str, str]:
        known = written(part)
        text = dumps(known)
        unknown = part.unknown_fields() if hasattr(part, "unknown_fields") else None
        return text, dumps({**known, **unknown}) if unknown else text

    return KeptByIdentity(texts).of


_SCHEMA_TEXTS: Final = _kept(schema_object)
_PARTS: Final = (
    ("schemas", "schemas", _SCHEMA_TEXTS),
    ("partition-specs", "partition_specs", _kept(spec_object)),
    ("encryption-keys", "encryption_keys", _kept(EncryptedKey.to_json)),
    ("snapshots", "snapshots", _kept(_snapshot)),
    ("snapshot-log", "snapshot_log", _kept(_snapshot_log_entry)),
    ("metadata-log", "metadata_log", _kept(_metadata_log_entry)),
)
"""What versions of a table share: the field, its attribute, and the text of each item."""
