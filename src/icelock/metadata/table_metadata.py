"""Format-version 3 table metadata: PyIceberg's model plus ``encryption-keys``, with unknown fields kept.

Invariants: ``next_row_id`` is a number, never None; every key id occurs once. v1, v2 and plain v3 tables keep PyIceberg's
rules; version 4 and above is refused (it will move the key into the snapshot, case C-47).

Not here: the JSON text (``metadata.canonical_json``), whether a change is allowed (``table.guard.rules``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, field_serializer
from pyiceberg.io import FileIO, InputFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1
from pyiceberg.table.metadata import TableMetadataV3 as IcebergTableMetadataV3
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.types import NestedField, StructType

from icelock.errors import FormatError, IntegrityError
from icelock.format.encrypted_key import EncryptedKey
from icelock.io.limits import gunzip, read_all, refuse
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.coherence import check_document
from icelock.metadata.column_types import with_types
from icelock.metadata.json_values import check_values, parse_json
from icelock.metadata.manifest import ManifestFile
from icelock.metadata.manifest_list import read_manifest_list
from icelock.properties import ENCRYPTED_VERSION, ENCRYPTION_KEY_ID, LIMIT_METADATA_BYTES, LIMITS

SUPPORTED_VERSIONS = (1, 2, ENCRYPTED_VERSION)
_HISTORY = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics", "encryption_keys")


def _parse_keys(value: Any) -> list[EncryptedKey]:
    if not isinstance(value, (list, tuple)):
        raise FormatError(f"encryption-keys must be a list, not {type(value).__name__}")
    return [entry if isinstance(entry, EncryptedKey) else EncryptedKey.from_json(entry) for entry in value]


if TYPE_CHECKING:
    EncryptionKeys = list[EncryptedKey]
else:  # pydantic must not look into the dataclass
    EncryptionKeys = Annotated[list[Any], PlainValidator(_parse_keys), PlainSerializer(lambda keys: [key.to_json() for key in keys])]


class Snapshot(IcebergSnapshot):
    """A snapshot of a v3 table.

    ``key_id`` names the entry of the table's ``encryption-keys`` that holds the key metadata of the manifest list; None
    means that the list is plain (source: Iceberg spec, snapshots; format.md "v3 metadata"). PyIceberg's planners, producers, inspection
    and validation all reach a manifest list through ``manifests``.
    """

    model_config = ConfigDict(extra="allow")

    key_id: str | None = Field(alias="key-id", default=None)

    def manifests(self, io: FileIO) -> list[ManifestFile]:  # type: ignore[override]
        """Read the manifest list, decrypting it when the snapshot has a key id.

        Raises:
            KeyUnavailableError: the list is encrypted, and ``io`` has no key manager or the key is unavailable.
            IntegrityError: the list's bytes are not those that were written.
        """
        return read_manifest_list(io, location=self.manifest_list, key_id=self.key_id, snapshot_id=self.snapshot_id)

    def unknown_fields(self) -> dict[str, Any]:
        """Return fields of the JSON object that this version does not know."""
        return dict(self.__pydantic_extra__ or {})


class TableMetadataV3(IcebergTableMetadataV3):
    """Table metadata of format version 3 (source: Iceberg spec, table metadata fields; Java TableMetadata)."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    snapshots: list[Snapshot] = Field(default_factory=list)  # type: ignore[assignment]
    next_row_id: int = Field(alias="next-row-id", default=0)
    encryption_keys: EncryptionKeys = Field(alias="encryption-keys", default_factory=list)

    @field_serializer("snapshots")
    def serialize_snapshots(self, snapshots: list[Snapshot]) -> list[Snapshot]:  # type: ignore[override]
        """Replace PyIceberg's serializer, which would drop ``key-id``."""
        return snapshots

    def encryption_key(self, key_id: str) -> EncryptedKey | None:
        """Return the key entry with this id, or None."""
        return next((key for key in self.encryption_keys if key.key_id == key_id), None)

    def snapshot_by_id(self, snapshot_id: int) -> IcebergSnapshot | None:
        """Return the snapshot with this id, or None. Most that are asked for are among the last of thousands."""
        return next((snapshot for snapshot in reversed(self.snapshots) if snapshot.snapshot_id == snapshot_id), None)

    def specs_struct(self, spec_ids: Iterable[int] | None = None) -> StructType:
        """Return a struct of the values of all specs, or of some, also of those whose source column was dropped."""
        wanted = self.specs().keys() if spec_ids is None else set(spec_ids)
        specs = [spec for spec_id, spec in self.specs().items() if spec_id in wanted]
        sources = with_sources(self.schema(), specs, self.schemas)
        fields = {field.field_id: field for spec in specs for field in spec.partition_type(sources).fields}
        return StructType(*(fields[field_id].model_copy(update={"required": False}) for field_id in sorted(fields)))

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:
        """Return the canonical JSON text: v3 metadata has one writer (``metadata.canonical_json``)."""
        del args, kwargs
        return canonical_json(self)


def is_encrypted(metadata: TableMetadata) -> bool:
    """Whether the table has a master key, or keys of one (a key id that went missing is still an encrypted table)."""
    return ENCRYPTION_KEY_ID in metadata.properties or bool(getattr(metadata, "encryption_keys", ()))


def as_encrypted(metadata: TableMetadata) -> TableMetadataV3 | None:
    """Return the metadata of an encrypted table, typed so that its keys can be read; None for a table that is not encrypted."""
    return metadata if isinstance(metadata, TableMetadataV3) and is_encrypted(metadata) else None


def without_history(metadata: TableMetadata) -> TableMetadata:
    """Return metadata as tasks get it: as it is now, without snapshots, refs, logs, statistics and keys."""
    empty: dict[str, Any] = {name: [] for name in _HISTORY if name in type(metadata).model_fields}
    return metadata.model_copy(update={**empty, "refs": {}, "current_snapshot_id": None})


def unshared(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata with schemas and partition specs of its own, for PyIceberg to serialize (``canonical_json`` says why)."""
    own: dict[str, Any] = {
        "schemas": [schema.model_copy() for schema in metadata.schemas],
        "partition_specs": [spec.model_copy() for spec in metadata.partition_specs],
    }
    if isinstance(metadata, TableMetadataV1):
        own["schema_"] = metadata.schema_.model_copy()
    return metadata.model_copy(update=own)


def with_sources(schema: Schema, specs: Iterable[PartitionSpec], schemas: Iterable[Schema]) -> Schema:
    """Return a schema that has the source columns of all specs; dropped ones are added at its end, with the type that they had last.

    Java forbids dropping a source column of the default spec only, so older specs may lack theirs. Without a type no manifest of such a
    spec can be rewritten, as deletes, overwrites and merges do.

    Args:
        schema: the table's current one; returned unchanged if it has all of them.
        specs: partition specs of the table.
        schemas: all schemas of the table.
    """
    missing = {field.source_id for spec in specs for field in spec.fields} - set(schema.field_ids)
    if not missing:
        return schema
    ordered = sorted(schemas, key=lambda known: known.schema_id)
    dropped = {field_id: known.find_type(field_id) for known in ordered for field_id in missing.intersection(known.field_ids)}
    added = (NestedField(field_id, f"dropped column {field_id}", dropped[field_id], required=False) for field_id in sorted(dropped))
    return Schema(*schema.fields, *added, schema_id=schema.schema_id)


def parse_metadata(text: str | bytes, *, location: str) -> TableMetadata:
    """Parse a metadata.json.

    Returns ``TableMetadataV3`` for version 3, PyIceberg's own classes for versions 1 and 2.

    Raises:
        FormatError: not JSON, not table metadata, or a format version above 3; names the file.
    """
    try:
        data = parse_json(text)
    except FormatError as e:
        raise FormatError(f"{location} is not table metadata: {e}") from e
    return parse_metadata_object(data, location=location)


def parse_metadata_object(data: Mapping[str, Any], *, location: str) -> TableMetadata:
    """Parse the object form of a metadata.json; see ``parse_metadata``.

    Raises:
        IntegrityError: it says format version 1 or 2 and has encryption keys, which only version 3 has: it was edited.
    """
    version = data.get("format-version") if isinstance(data, dict) else None
    if type(version) is not int or version not in SUPPORTED_VERSIONS:
        raise FormatError(f"{location}: format version {version!r} is not supported (expected 1, 2 or 3); a newer icelock may read it")
    if version != ENCRYPTED_VERSION and _has_traces_of_encryption(data):
        raise IntegrityError(f"{location} has encryption keys but format version {version}: it was changed; restore the metadata file")
    try:
        check_values(data)
        check_document(data, location=location)
        return _model(data, version)
    except Exception as e:  # PyIceberg's validators raise errors of all kinds for what they do not expect
        raise FormatError(f"{location} is not valid table metadata: {e}") from e


def _has_traces_of_encryption(data: Mapping[str, Any]) -> bool:
    snapshots = data.get("snapshots")
    found = snapshots if isinstance(snapshots, list) else []
    return bool(data.get("encryption-keys")) or any(isinstance(snapshot, dict) and snapshot.get("key-id") for snapshot in found)


def _model(data: Mapping[str, Any], version: int) -> TableMetadata:
    typed = dict(data)
    if "schemas" in data:
        typed["schemas"] = [with_types(schema) for schema in data["schemas"]]
    if "schema" in data:
        typed["schema"] = with_types(data["schema"])
    metadata = TableMetadataV3.model_validate(typed) if version == ENCRYPTED_VERSION else TableMetadataUtil.parse_obj(typed)
    for schema in metadata.schemas:
        _ = schema.highest_field_id  # PyIceberg indexes names and ids, and has its own rules for them
        schema.find_column_name(0)
    return metadata


def read_metadata(file: InputFile, limit: int = LIMITS[LIMIT_METADATA_BYTES]) -> TableMetadata:
    """Read and parse a metadata file, plain or gzip (``.gz.metadata.json``).

    Raises:
        FormatError: see ``parse_metadata``.
        FileNotFoundError: no such file.
    """
    with file.open() as stream:
        data = read_all(stream, file.location, limit=limit, name=LIMIT_METADATA_BYTES)
    return decode_metadata(data, location=file.location, limit=limit)


def decode_metadata(data: bytes, *, location: str, limit: int = LIMITS[LIMIT_METADATA_BYTES]) -> TableMetadata:
    """Parse the bytes of a metadata file; see ``read_metadata``. ``limit`` is the most bytes that a gzip file may unpack to."""
    if location.endswith(".gz.metadata.json"):
        try:
            unpacked = gunzip(data, limit)
        except (OSError, EOFError, zlib.error) as e:
            raise FormatError(f"{location} cannot be read as table metadata: {e}") from e
        if unpacked is None:
            refuse(location, "bytes", limit, LIMIT_METADATA_BYTES)
        data = unpacked
    return parse_metadata(data, location=location)


def name_mapping_of(metadata: TableMetadata) -> NameMapping | None:
    """Return the mapping of names to ids, for files without ids; None if there is none.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        return metadata.name_mapping()
    except (ValueError, RecursionError) as e:
        name = TableProperties.DEFAULT_NAME_MAPPING
        raise FormatError(
            f"table property {name} of the table at {metadata.location} is not a name mapping: set it again or remove it ({e})"
        ) from e
