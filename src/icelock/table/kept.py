"""What a catalog must keep of a table: its keys until a commit, and what was committed after it.

Source: Iceberg docs, catalog security requirements.

Not here: what may be committed (``table.guard``), whether it was (``catalog.commit.outcome``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import CommitError, IntegrityError
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata.table_metadata import TableMetadataV3, is_encrypted
from icelock.metadata.updates import AddEncryptionKeyUpdate

_FIXED: Final = (names.ENCRYPTION_KEY_ID, names.DATA_KEY_LENGTH)


def check_sealing(held: TableMetadata, current: TableMetadata, updates: Iterable[Any], *, table: str) -> None:
    """Check that the new key entries of ``updates`` are sealed under keys that the table still has, not an older copy of this client.

    Raises:
        IntegrityError: a KEK's entry, the master key or the key length has changed since ``held``; nothing was committed.
    """
    if not is_encrypted(held):
        return
    new = [update.encryption_key for update in updates if isinstance(update, AddEncryptionKeyUpdate)]
    needed = {key.encrypted_by_id for key in new} - {key.key_id for key in new}
    mine, theirs = _entries(held), _entries(current)
    changed = [f"key entry {key_id}" for key_id in sorted(needed) if key_id in mine and mine[key_id] != theirs.get(key_id)]
    changed += [name for name in _FIXED if held.properties.get(name) != current.properties.get(name)]
    if changed:
        raise IntegrityError(
            f"table {table}: {' and '.join(changed)} changed in the catalog since the table was loaded. Others could not read what is "
            "sealed under the old values, so nothing was committed: find out who changed them, and restore the metadata"
        )


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
