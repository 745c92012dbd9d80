"""The guard: how an encrypted table may change, checked on every create, load and commit, and what a catalog must keep of it.

Rules (Iceberg spec and docs, catalog security requirements; cases C-06, C-09, C-12, C-14, C-15, C-43):

1. ``encryption.*`` properties need format version 3, are spelt as listed, and never change after creation, but for the key id by a
   rotation (``table.commit.key_rotation``), which wraps the same KEKs by another master key.
2. Every ``key-id`` of a snapshot and every ``encrypted-by-id`` of a manifest-list key names an entry; a KEK's names the master key.
3. A new snapshot has its own ``key-id``: an entry that the same commit adds, sealed under a KEK of the table, for a manifest list
   that is on storage, encrypted, in full length.
4. Location, table id, key entries and snapshots never change; a rotation replaces the entries of KEKs.
5. No partition values, statistics files or raw keys are written into metadata.json.
6. An update that this version does not know is refused.

``check_updates`` names the update at fault; ``check_change`` compares the metadata before and after, so no update gets around it. Each
function raises before anything is written, but for ``check_kept``: it compares what was committed with what the catalog has.

Not here: whether there is a KMS (``catalog``), plain files (``io.file_io``, ``metadata.manifest_writer``, ``metadata.manifest_list``),
whether a commit was made (``catalog.commit.outcome``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import CommitError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format import ags1
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.io.locations import check_path_properties
from icelock.io.stored import check_stored
from icelock.keys.manager import EncryptionManager
from icelock.metadata.json_values import whole_number
from icelock.metadata.table_metadata import TableMetadataV3, as_encrypted, is_encrypted
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.table.commit.key_rotation import KeyRotation
from icelock.table.maintenance.optimize_policy import OptimizePolicy
from icelock.table.plain_origin import check_origin_set

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
_PARTITION_SUMMARY: Final = ("partitions.", "partition-summaries-included")
_SNAPSHOT_KEEPS: Final = ("manifest_list", "key_id", "sequence_number", "timestamp_ms", "first_row_id")


def check_new_table(properties: Mapping[str, str], format_version: int, *, table: str) -> None:
    """Check the properties of a new table.

    Raises:
        PolicyError: misspelt or invalid ``encryption.*`` settings, encryption below format version 3, a reserved name, an invalid
            location for files, a setting of commits that is no number, or a policy of ``optimize`` that is none.
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
        elif not encrypted:
            continue
        elif isinstance(update, (ice.SetStatisticsUpdate, ice.SetPartitionStatisticsUpdate)):
            refuse_statistics(table)
        elif isinstance(update, ice.AddSnapshotUpdate):
            _check_snapshot(update.snapshot, table=table)
        elif isinstance(update, ice.UpgradeFormatVersionUpdate) and update.format_version != names.ENCRYPTED_VERSION:
            raise PolicyError(f"table {table} is encrypted: format version {update.format_version} cannot hold its keys")
        elif isinstance(update, ice.SetLocationUpdate) and update.location != metadata.location:
            raise PolicyError(f"table {table} is encrypted: moving it to {update.location} is not supported")
        elif not isinstance(update, _KNOWN_UPDATES):
            raise PolicyError(
                f"table {table} is encrypted: {type(update).__name__} is unknown to this version of icelock, and so is what it would write"
            )


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
    added_keys = _check_entries(base, staged, table=table, rotation=rotation)
    _check_snapshots(base, staged, added_keys, table=table)
    for name in ("statistics", "partition_statistics"):
        if any(entry not in getattr(base, name, ()) for entry in getattr(staged, name)):
            refuse_statistics(table)


def check_manifest_lists(snapshots: Iterable[Any], *, manager: EncryptionManager, io: FileIO) -> None:
    """Check the manifest lists of new snapshots: their sealed keys open, and the files are encrypted and have the keys' length.

    ``manager`` has the key entries that the commit adds; ``io`` is the storage, without keys.

    Raises:
        KeyUnavailableError, FormatError: a key is missing or not sealed.
        IntegrityError: a list is not on storage as it was written, or is plain; nothing was committed.
    """
    for snapshot in snapshots:
        key_metadata = manager.open_manifest_list_key(snapshot.key_id)
        size = ags1.authenticated_length(key_metadata, snapshot.manifest_list)
        check_stored(io, snapshot.manifest_list, size=size, magic=ags1.MAGIC)


def check_keys(metadata: TableMetadata, *, table: str) -> None:
    """Check that every key id in metadata to commit resolves.

    Raises:
        KeyUnavailableError: names the snapshot or entry and the id that is missing.
    """
    encrypted = as_encrypted(metadata)
    if encrypted is None:
        return
    entries = {key.key_id: key for key in encrypted.encryption_keys}
    master = encrypted.properties.get(names.ENCRYPTION_KEY_ID)
    for snapshot in encrypted.snapshots:
        key_id = getattr(snapshot, "key_id", None)  # PyIceberg's own class has none
        if key_id is not None and key_id not in entries:
            raise KeyUnavailableError(f"table {table}: snapshot {snapshot.snapshot_id} needs key {key_id}, which is not in encryption-keys")
    for key in entries.values():
        if key.encrypted_by_id in entries or key.encrypted_by_id == master or KEY_TIMESTAMP in key.properties:
            continue
        raise KeyUnavailableError(f"table {table}: key {key.key_id} is encrypted by {key.encrypted_by_id}, which is not in encryption-keys")


def check_sealing(
    held: TableMetadata,
    current: TableMetadata,
    updates: Iterable[Any],
    *,
    table: str,
    same_keks: Callable[[TableMetadata, TableMetadata], bool],
) -> None:
    """Check that the new key entries of ``updates`` are sealed under keys that the table still has, not an older copy of this client.

    ``same_keks`` asks the KMS whether entries that differ are the same KEKs, wrapped anew: then the commit is made again. If the KMS does
    not say, they are not.

    Raises:
        IntegrityError: a KEK's entry, the master key or the key length has changed since ``held``; nothing was committed.
        CommitFailedException: the KEKs were wrapped anew by a rotation; nothing was committed.
    """
    if not is_encrypted(held):
        return
    new = [update.encryption_key for update in updates if isinstance(update, AddEncryptionKeyUpdate)]
    needed = {key.encrypted_by_id for key in new} - {key.key_id for key in new}
    mine, theirs = _entries(held), _entries(current)
    changed = [f"key entry {key_id}" for key_id in sorted(needed) if key_id in mine and mine[key_id] != theirs.get(key_id)]
    changed += [name for name in names.FIXED if held.properties.get(name) != current.properties.get(name)]
    if not changed:
        return
    cause: KeyUnavailableError | None = None
    try:
        same = names.DATA_KEY_LENGTH not in changed and same_keks(held, current)
    except KeyUnavailableError as e:
        same, cause = False, e
    if same and new:
        raise CommitFailedException(f"table {table}: its keys were wrapped anew since it was loaded; nothing was changed: reload and retry")
    if not same:
        raise IntegrityError(
            f"table {table}: {' and '.join(changed)} changed in the catalog since the table was loaded. Others could not read what is "
            "sealed under the old values, so nothing was committed: find out who changed them, and restore the metadata"
        ) from cause


def check_kept(sent: TableMetadata, kept: TableMetadata, *, table: str, catalog: str) -> None:
    """Check that the catalog kept what was committed: format version, keys, snapshot key ids (docs/how-to/catalogs.md).

    Raises:
        CommitError: says what was lost; the files of the commit are kept.
        IntegrityError: a key entry came back changed; likewise.
    """
    if not isinstance(sent, TableMetadataV3):
        return
    remedy = f"catalog {catalog} cannot hold encrypted tables; nothing was deleted: load {table} through a catalog that keeps keys"
    if kept.format_version != sent.format_version or not isinstance(kept, TableMetadataV3):
        raise CommitError(f"table {table}: format version {sent.format_version} was committed, {kept.format_version} came back; {remedy}")
    have = _entries(kept)
    changed = [key.key_id for key in sent.encryption_keys if have.get(key.key_id, key) != key]
    if changed:
        raise IntegrityError(
            f"table {table}: the commit was made, but catalog {catalog} has other key entries {', '.join(changed)} than the commit is "
            "sealed under: others cannot read it. Nothing was deleted: put the entries back as they were, or commit the rows again"
        )
    lost = [key.key_id for key in sent.encryption_keys if key.key_id not in have]
    if lost:
        raise CommitError(f"table {table}: encryption keys {', '.join(lost)} did not come back after the commit; {remedy}")
    key_ids = {snapshot.snapshot_id: snapshot.key_id for snapshot in kept.snapshots}
    for snapshot in sent.snapshots:
        if snapshot.snapshot_id in key_ids and key_ids[snapshot.snapshot_id] != snapshot.key_id:
            raise CommitError(f"table {table}: snapshot {snapshot.snapshot_id} came back without its key-id; {remedy}")


def _entries(metadata: TableMetadata) -> dict[str, EncryptedKey]:
    return {key.key_id: key for key in getattr(metadata, "encryption_keys", ())}


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
            how = "icelock rotate changes it" if was and name == names.ENCRYPTION_KEY_ID else "create a new table with it and copy the data"
            raise PolicyError(f"table {table}: {name} {what}; {how}")


def _check_removed(metadata: TableMetadata, removals: Iterable[str], *, table: str) -> None:
    # A reserved one that an earlier version stored may be removed: that repairs the table.
    names.check_reserved(name for name in removals if name not in metadata.properties)
    for name in removals:
        if name in names.FIXED and name in metadata.properties:
            raise PolicyError(f"table {table}: {name} cannot be removed: the table's files are encrypted with that key")


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


def _check_entries(
    base: TableMetadata | None, staged: TableMetadata, *, table: str, rotation: KeyRotation | None
) -> dict[str, EncryptedKey]:
    """Check the key entries against the previous ones, and return the new ones of manifest lists."""
    before = {key.key_id: key for key in getattr(base, "encryption_keys", ())}
    entries: dict[str, EncryptedKey] = {}
    for key in staged.encryption_keys:  # type: ignore[union-attr]  # encrypted, so version 3
        if key.key_id in entries:
            raise PolicyError(f"table {table}: key id {key.key_id} would occur twice")
        entries[key.key_id] = key
        old = before.get(key.key_id, key)
        if old is not key and old != key and not (rotation is not None and rotation.replaces(old, key)):
            raise PolicyError(f"table {table}: key entry {key.key_id} would be replaced; entries never change")
    master = staged.properties.get(names.ENCRYPTION_KEY_ID)
    added = {key_id: key for key_id, key in entries.items() if key_id not in before}
    for key in added.values():
        _check_added_entry(key, entries.get(key.encrypted_by_id), master, table=table)
    return {key_id: key for key_id, key in added.items() if key.encrypted_by_id != master}


def _check_added_entry(key: EncryptedKey, kek: EncryptedKey | None, master: str | None, *, table: str) -> None:
    stamp = key.properties.get(KEY_TIMESTAMP, "")
    if key.encrypted_by_id == master:
        if set(key.properties) == {KEY_TIMESTAMP} and names.is_number(stamp):
            return
        what = f"a KEK has {KEY_TIMESTAMP} in decimal milliseconds and no other property"
    elif kek is not None and kek.encrypted_by_id == master and not key.properties:
        return
    else:
        what = f"an entry is a KEK under master key {master!r}, or the key of a manifest list under such a KEK and without properties"
    raise PolicyError(f"table {table}: refused to add key entry {key.key_id}, encrypted by {key.encrypted_by_id}: {what}")


def _check_snapshots(base: TableMetadata | None, staged: TableMetadata, added_keys: dict[str, EncryptedKey], *, table: str) -> None:
    before = {} if base is None else {snapshot.snapshot_id: snapshot for snapshot in base.snapshots}
    unused = set(added_keys)
    for snapshot in staged.snapshots:
        old = before.get(snapshot.snapshot_id)
        if old is None:
            _check_snapshot(snapshot, table=table)
            key_id: str = getattr(snapshot, "key_id")  # noqa: B009 - encrypted, so version 3
            if key_id not in unused:
                raise PolicyError(
                    f"table {table}: snapshot {snapshot.snapshot_id} has key-id {key_id}, which is not the id of a manifest list's key "
                    "that this commit adds for it alone"
                )
            unused.remove(key_id)
        elif old is not snapshot and any(getattr(old, name) != getattr(snapshot, name) for name in _SNAPSHOT_KEEPS):
            raise PolicyError(f"table {table}: snapshot {snapshot.snapshot_id} would be replaced; snapshots never change")
    if unused:
        raise PolicyError(
            f"table {table}: key entries {', '.join(sorted(unused))} belong to no snapshot, and would stay in the metadata for good"
        )


def refuse_statistics(table: str) -> NoReturn:
    """Refuse to add statistics files."""
    raise PolicyError(f"table {table}: statistics files would be plain; there is no encrypted form of them yet")


def _check_snapshot(snapshot: Any, *, table: str) -> None:
    if getattr(snapshot, "key_id", None) is None:
        raise PolicyError(
            f"table {table} is encrypted, but snapshot {snapshot.snapshot_id} has no key-id: its manifest list would be plain"
        )
    check_summary(snapshot.summary.additional_properties if snapshot.summary else {}, table=table)


def check_summary(properties: Iterable[str], *, table: str) -> None:
    """Refuse entries of a snapshot's summary that hold partition values."""
    for name in properties:
        if name.startswith(_PARTITION_SUMMARY):
            raise PolicyError(
                f"table {table} is encrypted: snapshot summary {name!r} would put partition values into metadata.json; remove it"
            )
