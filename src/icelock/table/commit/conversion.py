"""The encrypted version that a plain table becomes, as metadata: of format version 3, with a key id, and with one snapshot.

Kept are name, uuid, location, schemas, partition specs and sort orders with their ids, properties, the sequence number, the row ids of a
table of version 3, the metadata log, and the settings of the main branch. Gone are all snapshots, their log, branches, tags and statistics
files: a plain file is reached by none of what is left. ``icelock.converted-from`` names the metadata file of the plain table, whose files
stay on storage.

With its history (``table.commit.converted_history``) a table has one such snapshot on each branch.

The new snapshot is there also if the table has no row: it moves the main branch, so that a writer which began on the plain table, and
asserts the branch as it was, is refused.

Row ids: those of a table of version 3 are stored with its rows. A table of version 1 or 2 has none; its rows get theirs from 0 on, in the
order of the new manifests, as after an upgrade.

Not here: writing files (``table.maintenance.conversion.convert``), which changes are allowed (``table.guard.conversion``), the commit
(``catalog.base``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icelock import properties as names
from icelock.arrow.write.options import FORMAT, PARQUET
from icelock.errors import PolicyError
from icelock.keys.rewrap import keks_under
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.manifest import DataFile
from icelock.metadata.table_metadata import TableMetadataV3, parse_metadata
from icelock.table.commit.producer import EncryptedFastAppend
from icelock.table.guard.plain_origin import PlainOrigin

_KEPT: Final = (
    *("location", "table-uuid", "last-sequence-number", "last-updated-ms", "last-column-id", "schemas", "current-schema-id"),
    *("partition-specs", "default-spec-id", "last-partition-id", "sort-orders", "default-sort-order-id", "metadata-log", "next-row-id"),
)
_FILES_A_MANIFEST: Final = 10_000  # about 1 MiB, as manifests are merged to (``table.commit.producer``)
_RETENTION: Final = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")
_ORC: Final = "orc"


def encrypted_properties(plain: TableMetadata, *, key_id: str, data_key_length: int | None, origin: PlainOrigin) -> dict[str, str]:
    """Return the properties of the encrypted table: those of the plain one, its key, and where it comes from."""
    kept = {name: value for name, value in plain.properties.items() if name not in {names.FORMAT_VERSION, names.REMOVING_PLAIN}}
    return {**with_key(kept, key_id=key_id, data_key_length=data_key_length), origin.name: origin.value}


def with_key(properties: Mapping[str, str], *, key_id: str, data_key_length: int | None) -> dict[str, str]:
    """Return a plain table's properties with a key.

    ``write.format.default=orc`` becomes ``parquet``, since Iceberg cannot encrypt ORC files.
    """
    format_ = {FORMAT: PARQUET} if properties.get(FORMAT, "").lower() == _ORC else {}
    length = {} if data_key_length is None else {names.DATA_KEY_LENGTH: str(data_key_length)}
    return {**properties, **format_, names.ENCRYPTION_KEY_ID: key_id, **length}


def without_snapshots(plain: TableMetadata, properties: dict[str, str], *, location: str) -> TableMetadataV3:
    """Return the encrypted table before its first snapshot; nothing of the plain table is in it but its form, and a mixed one's KEKs.

    These stay so that writers who began on the mixed table can go on: what they sealed under a KEK still belongs to the table.

    Raises:
        FormatError: it would be no valid metadata of version 3, for example because of a spec that does not fit the schema.
    """
    made = parse_metadata(
        json.dumps({**_form(plain), "format-version": names.ENCRYPTED_VERSION, "properties": properties}), location=location
    )
    assert isinstance(made, TableMetadataV3)  # noqa: S101 - it says version 3
    return made


def _form(plain: TableMetadata) -> dict[str, Any]:
    if isinstance(plain, TableMetadataV3):
        text = canonical_json(plain)
    else:
        text = (plain.to_v2() if isinstance(plain, TableMetadataV1) else plain).model_dump_json()
    found = json.loads(text)
    master = names.encryption_key_id(plain.properties)
    keks = [key.to_json() for key in keks_under(getattr(plain, "encryption_keys", ()), master)] if master else []
    kept = {name: found[name] for name in _KEPT if name in found}
    return {"next-row-id": 0, **kept, **({"encryption-keys": keks} if keks else {})}


class _InParts(EncryptedFastAppend):
    """Adds files in several manifests: they may be all files of a large table."""

    def _added_manifests(self, files: Iterable[IcebergDataFile], content: ManifestContent) -> list[ManifestFile]:
        rest, made = iter(files), list[ManifestFile]()
        while part := tuple(islice(rest, _FILES_A_MANIFEST)):
            made += super()._added_manifests(part, content)
        return made


def stage_converted(transaction: Any, files: Iterable[DataFile], plain: TableMetadata, branch: str = MAIN_BRANCH) -> None:
    """Stage the snapshot of a branch: all its rows, in encrypted files, by operation ``replace``, since no row is changed.

    Args:
        transaction: of a table that is ``without_snapshots``, or of one with its history (``table.commit.converted_history``).
        files: written for it; none of one with its history.
        plain: the table as it was; the branch keeps its settings.
        branch: its name.

    Raises:
        PolicyError: a file is not encrypted, or is another table's.
    """
    update = transaction.update_snapshot({names.SWITCH: "switch"}, branch=branch)
    with _InParts(operation=Operation.REPLACE, **update._arguments()) as producer:
        for file in files:
            producer.append_data_file(file)
    ref, staged = plain.refs.get(branch), transaction.staged
    if ref is not None:
        staged.updates = tuple(_as_before(one, plain, branch, ref, producer.snapshot_id) for one in staged.updates)


def _as_before(update: Any, plain: TableMetadata, branch: str, ref: Any, snapshot_id: int) -> Any:
    """Return an update of a branch's new snapshot with the branch's settings, and with the schema of the snapshot that it had."""
    if isinstance(update, ice.SetSnapshotRefUpdate) and update.ref_name == branch:
        return update.model_copy(update={name: getattr(ref, name) for name in _RETENTION})
    if branch != MAIN_BRANCH and isinstance(update, ice.AddSnapshotUpdate) and update.snapshot.snapshot_id == snapshot_id:
        head: Any = plain.snapshot_by_id(ref.snapshot_id)
        return update.model_copy(update={"snapshot": update.snapshot.model_copy(update={"schema_id": head.schema_id})})
    return update


def check_refs(plain: TableMetadata, *, table: str, drop_refs: bool) -> tuple[str, ...]:
    """Return the branches and tags that go with the history.

    Raises:
        PolicyError: there are some, and they may not go.
    """
    others = tuple(sorted(name for name in plain.refs if name != MAIN_BRANCH))
    if others and not drop_refs:
        raise PolicyError(
            f"table {table} has branches or tags beside {MAIN_BRANCH}: {', '.join(others)}. A conversion keeps the current state of "
            f"{MAIN_BRANCH} only: keep them (history='refs', --history refs), remove them first, or say that they may go (drop_refs, "
            "--drop-refs)"
        )
    return others
