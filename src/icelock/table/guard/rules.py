"""The guard: how an encrypted table may change, checked on every create, load and commit.

Rules (Iceberg spec and docs, catalog security requirements; cases C-06, C-09, C-12, C-14, C-15, C-43):

1. ``encryption.*`` properties need format version 3, are spelt as listed, and never change after creation, but for the key id by a
   rotation (``table.guard.key_rotation``), which wraps the same KEKs by another master key.
2. Every ``key-id`` of a snapshot and every ``encrypted-by-id`` of a manifest-list key names an entry; a KEK's names the master key.
3. A new snapshot has its own ``key-id``: an entry that the same commit adds, sealed under a KEK of the table, for a manifest list
   that is on storage, encrypted, in full length.
4. Location, table id, key entries and snapshots never change; a rotation replaces the entries of KEKs, and, pair by pair, manifest lists
   and their keys: all else of a snapshot stays, and the new list is as rule 3 says.
5. No partition values, statistics files or raw keys are written into metadata.json.
6. An update that this version does not know is refused.

``check_updates`` names the update at fault; ``check_change`` compares the metadata before and after, so no update gets around it. Each
function raises before anything is written.

Not here: key entries and snapshots (``table.guard.snapshots``: rules 2 to 4), whether there is a KMS (``catalog``), plain files
(``io.file_io``, ``metadata.manifest_writer``, ``metadata.manifest_list``), whether a commit was made (``catalog.commit.outcome``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import IntegrityError, PolicyError
from icelock.io.locations import check_path_properties
from icelock.metadata.json_values import whole_number
from icelock.metadata.table_metadata import TableMetadataV3, is_encrypted
from icelock.metadata.updates import AddEncryptionKeyUpdate, MoveManifestListUpdate, RemoveEncryptionKeyUpdate
from icelock.table.guard.key_rotation import KeyRotation
from icelock.table.guard.plain_origin import check_origin_set
from icelock.table.guard.snapshots import check_entries, check_keys, check_snapshot, check_snapshots
from icelock.table.maintenance.optimize_policy import OptimizePolicy

# Updates that cannot add plain files, or that are checked here. Any other one is a newer PyIceberg's.
_KNOWN_UPDATES: Final = (
    AddEncryptionKeyUpdate,
    ice.AddPartitionSpecUpdate,
    ice.AddSchemaUpdate,
    ice.AddSnapshotUpdate,
    ice.AddSortOrderUpdate,
    ice.AssignUUIDUpdate,
    RemoveEncryptionKeyUpdate,
    ice.RemovePartitionSpecsUpdate,
    ice.RemovePartitionStatisticsUpdate,
    ice.RemovePropertiesUpdate,
    ice.RemoveSchemasUpdate,
    ice.RemoveSnapshotRefUpdate,
    ice.RemoveSnapshotsUpdate,
    ice.RemoveStatisticsUpdate,
    ice.SetCurrentSchemaUpdate,
    ice.SetDefaultSortOrderUpdate,
    ice.SetDefaultSpecUpdate,
    ice.SetLocationUpdate,
    ice.SetPropertiesUpdate,
    ice.SetSnapshotRefUpdate,
    ice.UpgradeFormatVersionUpdate,
)
# As in Java (``PropertyUtil.validateCommitProperties``): every later commit reads them.
_COMMITS: Final = tuple(f"commit.retry.{name}" for name in ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms"))


def check_new_table(properties: Mapping[str, str], format_version: int, *, table: str) -> None:
    """Check the properties of a new table.

    Raises:
        PolicyError: misspelt or invalid ``encryption.*`` settings, encryption below format version 3, a reserved name, an invalid
            location for files, a setting of commits that is not a number, or an invalid policy of ``optimize``.
    """
    names.check_table_properties(properties)
    names.check_misplaced(properties)
    names.check_reserved(properties, making=True)
    check_path_properties(properties, table=table)
    OptimizePolicy.of(properties)
    for name in _COMMITS:
        whole_number(properties, name, None)
    if any(name in properties for name in names.FIXED) and format_version != names.ENCRYPTED_VERSION:
        raise PolicyError(
            f"table {table}: encryption needs format version 3, not {format_version}: leave format-version out or set it to 3"
        )
    if names.DATA_KEY_LENGTH in properties and names.ENCRYPTION_KEY_ID not in properties:
        raise PolicyError(
            f"table {table}: {names.DATA_KEY_LENGTH} without {names.ENCRYPTION_KEY_ID}: nothing would be encrypted; set the key id too"
        )


def check_metadata(metadata: TableMetadata, *, location: str) -> None:
    """Check metadata that was read from ``location``.

    Raises:
        PolicyError: encryption below format version 3, or misspelt settings.
        IntegrityError: the table has encryption keys, or snapshots with one, but no key id (case C-15).
    """
    if not isinstance(metadata, TableMetadataV3):
        if any(name in metadata.properties for name in names.FIXED):
            raise PolicyError(
                f"{location} has encryption properties but format version {metadata.format_version}: encryption needs version 3"
            )
        return
    names.check_table_properties({k: v for k, v in metadata.properties.items() if k in names.FIXED})
    if names.ENCRYPTION_KEY_ID in metadata.properties:
        return
    if metadata.encryption_keys or any(getattr(snapshot, "key_id", None) is not None for snapshot in metadata.snapshots):
        raise IntegrityError(
            f"{location} has encryption keys but no {names.ENCRYPTION_KEY_ID}: the property was removed; restore the metadata file"
        )


def check_updates(metadata: TableMetadata, updates: Iterable[Any], *, table: str, rotation: KeyRotation | None = None) -> None:
    """Check the updates of a commit, which may be a rotation of keys, against the present table.

    Raises:
        PolicyError: names the first update that breaks a rule.
    """
    encrypted = is_encrypted(metadata)
    for update in updates:
        if isinstance(update, ice.SetPropertiesUpdate):
            _check_set(metadata, update.updates, table=table, rotation=rotation)
        elif isinstance(update, ice.RemovePropertiesUpdate):
            _check_removed(metadata, update.removals, table=table)
        elif encrypted:
            _check_update(metadata, update, table=table, rotation=rotation)


def check_change(base: TableMetadata | None, staged: TableMetadata, *, table: str, rotation: KeyRotation | None = None) -> None:
    """Compare the metadata to commit with the present metadata; ``base`` is None for a new table, ``rotation`` may change KEKs.

    Raises:
        PolicyError: the change would break a rule.
        KeyUnavailableError: see ``check_keys``.
    """
    if base is None:
        check_new_table(staged.properties, staged.format_version, table=table)
    elif is_encrypted(base) or is_encrypted(staged):
        _check_same(base, staged, table=table, rotation=rotation)
    if not is_encrypted(staged):
        return
    check_keys(staged, table=table)
    added_keys = check_entries(base, staged, table=table, rotation=rotation)
    check_snapshots(base, staged, added_keys, table=table, rotation=rotation)
    for name in ("statistics", "partition_statistics"):
        if any(entry not in getattr(base, name, ()) for entry in getattr(staged, name)):
            refuse_statistics(table)


def _check_set(metadata: TableMetadata, updates: Mapping[str, str], *, table: str, rotation: KeyRotation | None) -> None:
    names.check_reserved(updates)
    names.check_misplaced(updates)
    check_origin_set(metadata.properties, updates, table=table)
    OptimizePolicy.of(updates)
    check_path_properties({name: value for name, value in updates.items() if value != metadata.properties.get(name)}, table=table)
    names.check_table_properties(updates if names.ENCRYPTION_KEY_ID in updates else {**metadata.properties, **updates})
    for name in names.FIXED:
        if name in updates and updates[name] != metadata.properties.get(name) and not _is_rotated(name, updates[name], rotation):
            was = metadata.properties.get(name)
            what = (
                f"is {was!r} and cannot be changed to {updates[name]!r}"
                if was
                else f"cannot be set to {updates[name]!r} on a table that exists"
            )
            raise PolicyError(f"table {table}: {name} {what}; {_other_way(metadata, name, table=table)}")


def _other_way(metadata: TableMetadata, name: str, *, table: str) -> str:
    """Return what to do in place of setting a fixed property on a table that exists."""
    if names.ENCRYPTION_KEY_ID not in metadata.properties:
        return f"icelock convert {table} --key-id KEY makes an encrypted table of a plain one, or an encrypted copy (--copy-to)"
    if name == names.ENCRYPTION_KEY_ID:
        return "icelock rotate changes it"
    return "create a new table with it and copy the data"


def _check_removed(metadata: TableMetadata, removals: Iterable[str], *, table: str) -> None:
    # A reserved one that an earlier version stored may be removed: that repairs the table.
    names.check_reserved(name for name in removals if name not in metadata.properties)
    for name in removals:
        if name in names.FIXED and name in metadata.properties:
            raise PolicyError(f"table {table}: {name} cannot be removed: the table's files are encrypted with that key")


def _check_update(metadata: TableMetadata, update: Any, *, table: str, rotation: KeyRotation | None) -> None:
    """Check an update of an encrypted table that is not about properties."""
    if isinstance(update, (ice.SetStatisticsUpdate, ice.SetPartitionStatisticsUpdate)):
        refuse_statistics(table)
    elif isinstance(update, ice.AddSnapshotUpdate):
        check_snapshot(update.snapshot, table=table)
    elif isinstance(update, MoveManifestListUpdate):
        _check_moved(update, table=table, rotation=rotation)
    elif isinstance(update, ice.UpgradeFormatVersionUpdate) and update.format_version != names.ENCRYPTED_VERSION:
        raise PolicyError(f"table {table} is encrypted: format version {update.format_version} cannot hold its keys")
    elif isinstance(update, ice.SetLocationUpdate) and update.location != metadata.location:
        raise PolicyError(f"table {table} is encrypted: moving it to {update.location} is not supported")
    elif not isinstance(update, _KNOWN_UPDATES):
        raise PolicyError(
            f"table {table} is encrypted: {type(update).__name__} is unknown to this version of icelock, and so is what it would write"
        )


def _check_moved(update: MoveManifestListUpdate, *, table: str, rotation: KeyRotation | None) -> None:
    if rotation is None or not rotation.moves(update.snapshot_id, None, (update.manifest_list, update.key_id)):
        raise PolicyError(
            f"table {table}: snapshot {update.snapshot_id} would get manifest list {update.manifest_list}; only icelock rotate replaces one"
        )


def _is_rotated(name: str, value: str | None, rotation: KeyRotation | None) -> bool:
    return rotation is not None and name == names.ENCRYPTION_KEY_ID and value == rotation.to_key


def _check_same(base: TableMetadata, staged: TableMetadata, *, table: str, rotation: KeyRotation | None) -> None:
    """Refuse a commit that changes the table's identity or its encryption settings."""
    for name in names.FIXED:
        value = staged.properties.get(name)
        if value != base.properties.get(name) and not _is_rotated(name, value, rotation):
            raise PolicyError(
                f"table {table}: {name} would change from {base.properties.get(name)!r} to {staged.properties.get(name)!r}; it is fixed"
            )
    for name in ("format_version", "table_uuid", "location"):
        if getattr(staged, name) != getattr(base, name):
            raise PolicyError(f"table {table} is encrypted: its {name} cannot change from {getattr(base, name)} to {getattr(staged, name)}")


def refuse_statistics(table: str) -> NoReturn:
    """Refuse to add statistics files."""
    raise PolicyError(f"table {table}: statistics files would be plain; there is no encrypted form of them yet")


def refuse_plain(table: str) -> NoReturn:
    """Refuse what icelock does with encrypted tables only, as a PolicyError that says what does it with plain ones."""
    raise PolicyError(
        f"table {table} is plain (no encryption.key-id), and icelock does this with encrypted tables only: icelock convert makes it one; "
        "Iceberg's own Spark runtime does it with plain ones"
    )
