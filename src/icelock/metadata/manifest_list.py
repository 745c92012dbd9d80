"""v3 manifest lists: read with the snapshot's key, written under a new key.

Order of writing: the list is written and closed, so that its encrypted length is known, then the caller seals its key; so the
stored key metadata has the length (docs/reference/format.md, "Key metadata"; case C-01).

Row ids: each data manifest without ``first_row_id`` gets the next row id, which grows by its added and existing rows
(Java ManifestListWriter.V3Writer).

Not here: manifests (``metadata.manifest``), the snapshot's key entry (``keys.manager``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, UNASSIGNED_SEQ, ManifestContent

from icelock.errors import PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.file_io import EncryptingFileIO, manager_of, open_input, storage_of
from icelock.io.files import EncryptedInputFile
from icelock.io.limits import Limits
from icelock.io.plain_input import plain_refused
from icelock.metadata.avro_file import AvroFileWriter, avro_schema
from icelock.metadata.manifest import ManifestFile, read_manifest_rows
from icelock.properties import ENCRYPTED_VERSION


def read_manifest_list(io: FileIO, *, location: str, key_id: str | None, snapshot_id: int) -> list[ManifestFile]:
    """Read a snapshot's manifest list.

    Raises:
        KeyUnavailableError: the list's key is unavailable, or the snapshot names no key for an encrypted list.
        IntegrityError: the list's bytes are not those that were written.
        PolicyError: the list is plain in an encrypted table, and the policy does not allow it.
    """
    if key_id is None:
        if isinstance(io, EncryptingFileIO) and not io.allow_plaintext:
            raise plain_refused(f"snapshot {snapshot_id} has no key-id", f"the plain manifest list {location}")
        return read_manifest_rows(open_input(io, location, None), Limits.of(io.properties))
    manager = manager_of(io, what=f"manifest list {location} of snapshot {snapshot_id}")
    key_metadata = manager.open_manifest_list_key(key_id)
    return read_manifest_rows(EncryptedInputFile(storage_of(io).new_input(location), key_metadata), Limits.of(io.properties))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrittenManifestList:
    """A closed manifest list: its key metadata (with length) and the row id that the next snapshot starts from."""

    location: str
    key_metadata: KeyMetadata
    next_row_id: int


def write_manifest_list(  # noqa: PLR0913 - the header's six values
    io: EncryptingFileIO,
    *,
    location: str,
    manifests: Sequence[ManifestFile],
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    first_row_id: int | None,
    again: bool = False,
) -> WrittenManifestList:
    """Write a manifest list as an AGS1 file under a new key.

    Manifests of this snapshot get ``sequence_number``; data manifests without a row id get the next one. ``again``: the rows were in a list
    of the snapshot before, and stay as they are; ``first_row_id`` is None for a snapshot from before row ids.

    Raises:
        PolicyError: a manifest has no key metadata, so it is plain (older ones pass if the policy allows plain files), or a new
            one has key metadata with another length.
    """
    output = io.new_encrypted_output(location)
    schema = MANIFEST_LIST_FILE_SCHEMAS[ENCRYPTED_VERSION]
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(sequence_number),
        "first-row-id": "null" if first_row_id is None else str(first_row_id),
        "format-version": str(ENCRYPTED_VERSION),
    }
    next_row_id = first_row_id or 0
    with AvroFileWriter(output, avro_schema(schema, "manifest_file"), schema, header) as writer:
        for manifest in manifests:
            _check_encrypted(manifest, io, snapshot_id=snapshot_id)
            row = _row(manifest, sequence_number=sequence_number)
            if not again and row["content"] == ManifestContent.DATA.value and row["first_row_id"] is None:
                row["first_row_id"] = next_row_id
                next_row_id += (manifest.existing_rows_count or 0) + (manifest.added_rows_count or 0)
            writer.write(row)
    return WrittenManifestList(location=location, key_metadata=output.key_metadata, next_row_id=next_row_id)


def row_with(row: ManifestFile, **fields: Any) -> ManifestFile:
    """Return the same row with other values of some fields."""
    names = (field.name for field in MANIFEST_LIST_FILE_SCHEMAS[ENCRYPTED_VERSION].fields)
    return ManifestFile.from_args(**{**dict(zip(names, row._data, strict=True)), **fields})  # noqa: SLF001 - PyIceberg's Record


def _check_encrypted(manifest: ManifestFile, io: EncryptingFileIO, *, snapshot_id: int) -> None:
    new = manifest.added_snapshot_id == snapshot_id
    if manifest.key_metadata is None:
        if io.allow_plaintext and not new:
            return
        raise PolicyError(f"refused to list {manifest.manifest_path}: the manifest was written without encryption")
    if new and KeyMetadata.decode(manifest.key_metadata).encrypted_length != manifest.manifest_length:
        raise PolicyError(f"refused to list {manifest.manifest_path}: its key metadata and its row give different lengths; write it again")


def _row(manifest: ManifestFile, *, sequence_number: int) -> dict[str, Any]:
    fields = MANIFEST_LIST_FILE_SCHEMAS[ENCRYPTED_VERSION].fields
    row = {field.name: value for field, value in zip(fields, manifest._data, strict=True)}  # noqa: SLF001 - PyIceberg's Record
    row["content"] = ManifestContent(manifest.content).value
    row["partitions"] = [
        {"contains_null": p.contains_null, "contains_nan": p.contains_nan, "lower_bound": p.lower_bound, "upper_bound": p.upper_bound}
        for p in manifest.partitions or []
    ]
    if manifest.sequence_number == UNASSIGNED_SEQ:
        row["sequence_number"] = sequence_number
    if manifest.min_sequence_number == UNASSIGNED_SEQ:
        row["min_sequence_number"] = sequence_number
    return row
