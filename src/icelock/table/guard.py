"""The one guard: what may become of an encrypted table, checked on every create, load and commit.

Rules (seeds, "catalog security requirements"; cases C-06, C-12, C-14, C-15, C-43):

1. ``encryption.*`` properties need format version 3, are spelt as listed, and never change after creation.
2. Every ``key-id`` of a snapshot and every ``encrypted-by-id`` of a manifest-list key names an entry; a KEK's names the master key.
3. A new snapshot of an encrypted table has a ``key-id``.
4. No partition values, statistics files or raw keys go into metadata.json.

Each function raises before anything is written.

Not here: whether a KMS is there (``catalog``), plain files (``io.file_io``, ``metadata.manifest_writer``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    UpgradeFormatVersionUpdate,
)

from icelock import properties as names
from icelock.errors import CommitError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format.encrypted_key import KEY_TIMESTAMP
from icelock.metadata.table_metadata import TableMetadataV3

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.table.metadata import TableMetadata

VERSION: Final = 3
_FIXED: Final = (names.ENCRYPTION_KEY_ID, names.DATA_KEY_LENGTH)
_PARTITION_SUMMARY: Final = ("partitions.", "partition-summaries-included")


def is_encrypted(metadata: TableMetadata) -> bool:
    """Whether the table has a master key, or keys of one (a key id that went missing is still an encrypted table)."""
    return names.ENCRYPTION_KEY_ID in metadata.properties or bool(getattr(metadata, "encryption_keys", ()))


def check_new_table(properties: Mapping[str, str], format_version: int, *, table: str) -> None:
    """Check the properties of a table that is to be created.

    Raises:
        PolicyError: misspelt or bad ``encryption.*`` settings, or encryption below format version 3.
    """
    names.check_table_properties(properties)
    if any(name in properties for name in _FIXED) and format_version != VERSION:
        msg = f"table {table}: encryption needs format version 3, not {format_version}: leave format-version out or set it to 3"
        raise PolicyError(msg)
    if names.DATA_KEY_LENGTH in properties and names.ENCRYPTION_KEY_ID not in properties:
        msg = f"table {table}: {names.DATA_KEY_LENGTH} without {names.ENCRYPTION_KEY_ID}: nothing would be encrypted; set the key id too"
        raise PolicyError(msg)


def check_metadata(metadata: TableMetadata, *, location: str) -> None:
    """Check metadata that was read from ``location``.

    Raises:
        PolicyError: encryption below format version 3, or misspelt settings.
        IntegrityError: the table has encryption keys but its key id is gone (case C-15).
    """
    if not isinstance(metadata, TableMetadataV3):
        if any(name in metadata.properties for name in _FIXED):
            msg = f"{location} has encryption properties but format version {metadata.format_version}: encryption needs version 3"
            raise PolicyError(msg)
        return
    names.check_table_properties({k: v for k, v in metadata.properties.items() if k in _FIXED})
    if metadata.encryption_keys and names.ENCRYPTION_KEY_ID not in metadata.properties:
        msg = f"{location} has encryption keys but no {names.ENCRYPTION_KEY_ID}: the property was removed; restore the metadata file"
        raise IntegrityError(msg)


def check_updates(metadata: TableMetadata, updates: Iterable[Any], *, table: str) -> None:
    """Check the updates of a commit against the table as it is.

    Raises:
        PolicyError: the first update that breaks a rule.
    """
    encrypted = is_encrypted(metadata)
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            _check_set(metadata, update.updates, table=table)
        elif isinstance(update, RemovePropertiesUpdate):
            _check_removed(metadata, update.removals, table=table)
        elif not encrypted:
            continue
        elif isinstance(update, (SetStatisticsUpdate, SetPartitionStatisticsUpdate)):
            msg = f"table {table} is encrypted: statistics files would be plain; there is no encrypted form of them yet"
            raise PolicyError(msg)
        elif isinstance(update, AddSnapshotUpdate):
            _check_snapshot(update.snapshot, table=table)
        elif isinstance(update, UpgradeFormatVersionUpdate) and update.format_version != VERSION:
            msg = f"table {table} is encrypted: format version {update.format_version} cannot hold its keys"
            raise PolicyError(msg)
        elif isinstance(update, SetLocationUpdate) and update.location != metadata.location:
            msg = f"table {table} is encrypted: moving it to {update.location} is not supported"
            raise PolicyError(msg)


def check_keys(metadata: TableMetadata, *, table: str) -> None:
    """Check that every key id in the metadata resolves; called on what is about to be committed.

    Raises:
        KeyUnavailableError: names the snapshot or entry and the id that is missing.
    """
    if not isinstance(metadata, TableMetadataV3) or not is_encrypted(metadata):
        return
    entries = {key.key_id: key for key in metadata.encryption_keys}
    master = metadata.properties.get(names.ENCRYPTION_KEY_ID)
    for snapshot in metadata.snapshots:
        if snapshot.key_id is not None and snapshot.key_id not in entries:
            msg = f"table {table}: snapshot {snapshot.snapshot_id} needs key {snapshot.key_id}, which is not in encryption-keys"
            raise KeyUnavailableError(msg)
    for key in entries.values():
        if key.encrypted_by_id in entries or key.encrypted_by_id == master or KEY_TIMESTAMP in key.properties:
            continue
        msg = f"table {table}: key {key.key_id} is encrypted by {key.encrypted_by_id}, which is not in encryption-keys"
        raise KeyUnavailableError(msg)


def check_kept(sent: TableMetadata, kept: TableMetadata, *, table: str, catalog: str) -> None:
    """Check that the catalog kept what was committed: format version, keys, snapshot key ids (catalogs.md).

    Raises:
        CommitError: says what was lost; the files of the commit are kept.
    """
    if not isinstance(sent, TableMetadataV3):
        return
    remedy = f"catalog {catalog} cannot hold encrypted tables; nothing was deleted: load {table} through a catalog that keeps keys"
    if kept.format_version != sent.format_version or not isinstance(kept, TableMetadataV3):
        msg = f"table {table}: format version {sent.format_version} was committed, {kept.format_version} came back; {remedy}"
        raise CommitError(msg)
    have = {key.key_id: key for key in kept.encryption_keys}
    lost = [key.key_id for key in sent.encryption_keys if have.get(key.key_id) != key]
    if lost:
        msg = f"table {table}: encryption keys {', '.join(lost)} did not come back after the commit; {remedy}"
        raise CommitError(msg)
    key_ids = {snapshot.snapshot_id: snapshot.key_id for snapshot in kept.snapshots}
    for snapshot in sent.snapshots:
        if snapshot.snapshot_id in key_ids and key_ids[snapshot.snapshot_id] != snapshot.key_id:
            msg = f"table {table}: snapshot {snapshot.snapshot_id} came back without its key-id; {remedy}"
            raise CommitError(msg)


def _check_set(metadata: TableMetadata, updates: Mapping[str, str], *, table: str) -> None:
    names.check_table_properties(updates if names.ENCRYPTION_KEY_ID in updates else {**metadata.properties, **updates})
    for name in _FIXED:
        if name in updates and updates[name] != metadata.properties.get(name):
            was = metadata.properties.get(name)
            what = (
                f"is {was!r} and cannot be changed to {updates[name]!r}"
                if was
                else f"cannot be set to {updates[name]!r} on a table that exists"
            )
            msg = f"table {table}: {name} {what}; create a new table with it and copy the data"
            raise PolicyError(msg)


def _check_removed(metadata: TableMetadata, removals: Iterable[str], *, table: str) -> None:
    for name in removals:
        if name in _FIXED and name in metadata.properties:
            msg = f"table {table}: {name} cannot be removed: the table's files are encrypted with that key"
            raise PolicyError(msg)


def _check_snapshot(snapshot: Any, *, table: str) -> None:
    if getattr(snapshot, "key_id", None) is None:
        msg = f"table {table} is encrypted, but snapshot {snapshot.snapshot_id} has no key-id: its manifest list would be plain"
        raise PolicyError(msg)
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    for name in summary:
        if name.startswith(_PARTITION_SUMMARY):
            msg = f"table {table} is encrypted: snapshot summary {name!r} would put partition values into metadata.json; remove it"
            raise PolicyError(msg)
