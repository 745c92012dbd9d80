"""The guard of the one commit that makes an encrypted table of a plain one, under its own name and uuid, and of the one that undoes it.

All other commits leave a plain table plain (``table.guard.rules``). This one is made by ``table.maintenance.conversion.convert`` alone,
and what it makes is compared with the plain table: nothing but snapshots, properties of encryption and the format version may differ, and
no snapshot of the plain table, no statistics file and no entry without a key may be left. A
mixed table (encrypted, with plain files) keeps its keys.

Not here: what it makes (``table.commit.conversion``).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.keys.rewrap import keks_under
from icelock.metadata.table_metadata import is_encrypted
from icelock.table.guard.plain_origin import PlainOrigin
from icelock.table.guard.rules import check_change
from icelock.table.guard.snapshots import check_summary

_SAME: Final = (
    *("location", "last_column_id", "schemas", "current_schema_id", "partition_specs", "default_spec_id", "last_partition_id"),
    *("sort_orders", "default_sort_order_id"),
)
_OF_SNAPSHOTS: Final = ("parent_snapshot_id", "sequence_number", "timestamp_ms", "schema_id")
_CHANGED: Final = frozenset({*names.FIXED, *names.PLAIN_ORIGIN, names.FORMAT_VERSION, "write.format.default"})


def check_conversion(plain: TableMetadata, staged: TableMetadata, *, table: str) -> None:
    """Compare the encrypted table to commit with the plain one, or with one that is encrypted and has plain files.

    Raises:
        PolicyError: what is to be committed is not the plain table, encrypted, with new snapshots only; or keys of an encrypted one would
            change.
        KeyUnavailableError: see ``table.guard.snapshots.check_keys``.
    """
    if not is_encrypted(staged) or names.ENCRYPTION_KEY_ID not in staged.properties:
        raise PolicyError(f"table {table} would not be encrypted: a conversion names its key")
    check_change(None, staged, table=table)  # all snapshots and keys are new, and belong together
    if is_encrypted(plain):
        _check_same_keys(plain, staged, table=table)
    if plain.table_uuid != staged.table_uuid:
        raise PolicyError(f"table {table}: its uuid would change from {plain.table_uuid} to {staged.table_uuid}")
    for name in _SAME:
        if getattr(plain, name) != getattr(staged, name):
            raise PolicyError(f"table {table}: a conversion would change its {name}, which it keeps")
    changed = {name for name, value in {*plain.properties.items(), *staged.properties.items()} if _differs(plain, staged, name, value)}
    if changed - _CHANGED:
        raise PolicyError(f"table {table}: a conversion would change {', '.join(sorted(changed - _CHANGED))}, which it keeps")
    before = {snapshot.snapshot_id: snapshot for snapshot in plain.snapshots}
    for snapshot in staged.snapshots:
        _check_kept(before.get(snapshot.snapshot_id), snapshot, {one.manifest_list for one in plain.snapshots}, table=table)


def _check_same_keys(mixed: TableMetadata, staged: TableMetadata, *, table: str) -> None:
    """Check that a table which is encrypted already keeps its master key, key length and KEKs."""
    for name in names.FIXED:
        if mixed.properties.get(name) != staged.properties.get(name):
            raise PolicyError(f"table {table}: a conversion would change its {name}, which only icelock rotate does")
    keks = keks_under(getattr(mixed, "encryption_keys", ()), names.encryption_key_id(mixed.properties))
    if not all(kek in getattr(staged, "encryption_keys", ()) for kek in keks):
        raise PolicyError(f"table {table}: a conversion would drop a KEK that writers may be at work with")


def _check_kept(before: Any, snapshot: Any, plain_lists: AbstractSet[str], *, table: str) -> None:
    """Check a snapshot of the encrypted table: it has a list of its own, and is otherwise the plain one of its id, if there was one."""
    if snapshot.manifest_list in plain_lists or getattr(snapshot, "key_id", None) is None:
        raise PolicyError(f"table {table}: a plain snapshot would be left")
    check_summary(snapshot.summary.additional_properties if snapshot.summary else {}, table=table)
    if before is None:
        return
    for name in _OF_SNAPSHOTS:
        if (getattr(before, name) or 0) != (getattr(snapshot, name) or 0):
            raise PolicyError(f"table {table}: a conversion would change the {name} of snapshot {snapshot.snapshot_id}, which it keeps")


def check_undo(encrypted: TableMetadata, plain: TableMetadata, *, table: str) -> None:
    """Compare the plain table to go back to with the encrypted one that was made of it.

    Raises:
        PolicyError: the encrypted table was not converted, or the removal of its plain files has begun; or the plain one is encrypted, or
            another table.
    """
    origin = PlainOrigin.of(encrypted.properties)
    if not is_encrypted(encrypted) or origin is None or origin.removing:
        raise PolicyError(f"table {table} was not converted, or its plain files were removed: there is no way back")
    if is_encrypted(plain):
        raise PolicyError(f"table {table} was encrypted before its conversion, with plain files beside: there is no way back")
    if plain.table_uuid != encrypted.table_uuid or plain.location != encrypted.location:
        raise PolicyError(f"table {table}: what it would go back to is not this table as it was before its conversion")


def _differs(plain: TableMetadata, staged: TableMetadata, name: str, value: str) -> bool:
    return not plain.properties.get(name) == staged.properties.get(name) == value
