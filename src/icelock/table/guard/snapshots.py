"""The guard of keys and snapshots: key entries belong to a KEK of the table, snapshots to their key and a manifest list on storage.

Rules 2 to 4 of ``table.guard.rules``, and what a catalog must keep of a commit.

Not here: properties and updates (``table.guard.rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import CommitError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.format import ags1
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.io.stored import check_stored
from icelock.keys.manager import EncryptionManager
from icelock.keys.rewrap import keks_under
from icelock.metadata.table_metadata import TableMetadataV3, as_encrypted, is_encrypted
from icelock.metadata.updates import AddEncryptionKeyUpdate
from icelock.table.guard.key_rotation import KeyRotation

PARTITION_SUMMARY: Final = ("partitions.", "partition-summaries-included")
_SNAPSHOT_KEEPS: Final = ("manifest_list", "key_id", "sequence_number", "timestamp_ms", "first_row_id")


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


def check_kept(
    sent: TableMetadata,
    kept: TableMetadata,
    *,
    table: str,
    catalog: str,
    same_keks: Callable[[TableMetadata, TableMetadata], bool] | None = None,
) -> None:
    """Check that the catalog kept what was committed: format version, keys, snapshot key ids (docs/how-to/catalogs.md).

    ``same_keks`` asks the KMS whether KEKs that come back in other entries were only wrapped anew, by a rotation that came in between.

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
    back = ((key, have.get(key.key_id, key)) for key in sent.encryption_keys)
    changed = [key.key_id for key, kept_key in back if kept_key is not key and kept_key != key]
    if changed and not _only_wrapped(changed, sent, kept, same_keks):
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


def _only_wrapped(
    changed: Iterable[str], sent: TableMetadata, kept: TableMetadata, same_keks: Callable[[TableMetadata, TableMetadata], bool] | None
) -> bool:
    """Whether entries that changed are those of KEKs which are the same, wrapped anew."""
    keks = {kek.key_id for kek in keks_under(_entries(sent).values(), names.encryption_key_id(sent.properties))}
    try:
        return same_keks is not None and keks.issuperset(changed) and same_keks(sent, kept)
    except KeyUnavailableError:
        return False


def check_entries(
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


def check_snapshots(
    base: TableMetadata | None,
    staged: TableMetadata,
    added_keys: dict[str, EncryptedKey],
    *,
    table: str,
    rotation: KeyRotation | None = None,
) -> None:
    """Check the snapshots against the previous ones; ``added_keys`` are the new entries of manifest lists.

    Raises:
        PolicyError: a new one without an entry of its own, an entry without a snapshot, or a snapshot that was changed, but for a manifest
            list by a rotation, whose key is an entry of its own, too.
    """
    before = {} if base is None else {snapshot.snapshot_id: snapshot for snapshot in base.snapshots}
    unused = set(added_keys)
    for snapshot in staged.snapshots:
        old = before.get(snapshot.snapshot_id)
        moved = old is not None and old is not snapshot and _is_moved(old, snapshot, rotation)
        if old is None or moved:
            check_snapshot(snapshot, table=table)
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


def _is_moved(old: Any, new: Any, rotation: KeyRotation | None) -> bool:
    """Whether a rotation gave a snapshot another manifest list and its key, and nothing else."""
    before, after = (old.manifest_list, old.key_id), (new.manifest_list, new.key_id)
    same = old.model_copy(update={"manifest_list": new.manifest_list, "key_id": new.key_id}) == new
    return rotation is not None and before != after and same and rotation.moves(old.snapshot_id, before, after)


def check_snapshot(snapshot: Any, *, table: str) -> None:
    """Refuse a snapshot of an encrypted table without a key, or with partition values in its summary."""
    if getattr(snapshot, "key_id", None) is None:
        raise PolicyError(
            f"table {table} is encrypted, but snapshot {snapshot.snapshot_id} has no key-id: its manifest list would be plain"
        )
    check_summary(snapshot.summary.additional_properties if snapshot.summary else {}, table=table)


def check_summary(properties: Iterable[str], *, table: str) -> None:
    """Refuse entries of a snapshot's summary that hold partition values."""
    for name in properties:
        if name.startswith(PARTITION_SUMMARY):
            raise PolicyError(
                f"table {table} is encrypted: snapshot summary {name!r} would put partition values into metadata.json; remove it"
            )


def _entries(metadata: TableMetadata) -> dict[str, EncryptedKey]:
    return {key.key_id: key for key in getattr(metadata, "encryption_keys", ())}


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
