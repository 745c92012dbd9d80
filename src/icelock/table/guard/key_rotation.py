"""``KeyRotation``: the requirement of the one kind of commit that may change what is there of a table's keys, and manifest lists.

It names the master key, how KEKs are wrapped, and where the manifest lists of snapshots lie, before and after. It is checked on the
metadata that the commit is made on, and tells the guard what may change. A REST server does not see it, so no manifest
list is replaced there; another rotation, or a writer that makes a new KEK, may come between the look and the commit there only if it moves
no branch or tag.

Not here: wrapping (``keys.rewrap``), the work (``table.maintenance.rotation.rotate``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata

from icelock import properties as names
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.rewrap import keks_under


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedList:
    """A snapshot's manifest list and the id of its key, before and after it was written again."""

    snapshot_id: int
    before: tuple[str, str]
    after: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class KeyRotation:
    """What a commit replaces.

    ``before`` are the entries of all KEKs of master key ``from_key``, ``after`` those of the same KEKs under ``to_key``. ``lists`` are the
    manifest lists that were written again.
    """

    table: str
    from_key: str
    to_key: str
    before: tuple[EncryptedKey, ...]
    after: tuple[EncryptedKey, ...]
    lists: tuple[MovedList, ...] = ()

    def validate(self, base_metadata: TableMetadata | None) -> None:
        """Check that the KEKs and manifest lists are still those that are replaced.

        Raises:
            CommitFailedException: they are not.
        """
        keys = getattr(base_metadata, "encryption_keys", ())
        key_id = None if base_metadata is None else base_metadata.properties.get(names.ENCRYPTION_KEY_ID)
        if key_id != self.from_key or keks_under(keys, self.from_key) != self.before:
            raise CommitFailedException(f"table {self.table}: another writer changed its KEKs; nothing was changed")
        there = {} if base_metadata is None else {one.snapshot_id: _place(one) for one in base_metadata.snapshots}
        if any(there.get(moved.snapshot_id) != moved.before for moved in self.lists):
            raise CommitFailedException(f"table {self.table}: another process removed or rotated a snapshot; nothing was changed")

    def replaces(self, old: EncryptedKey, new: EncryptedKey) -> bool:
        """Whether an entry may take the place of another one."""
        return (old, new) in zip(self.before, self.after, strict=True)

    def moves(self, snapshot_id: int, before: tuple[str, str] | None, after: tuple[str, str]) -> bool:
        """Whether a snapshot may get another manifest list, with its key id; ``before`` None: whatever it had."""
        moved = self._by_snapshot.get(snapshot_id)
        return moved is not None and moved.after == after and before in (None, moved.before)

    @cached_property
    def _by_snapshot(self) -> dict[int, MovedList]:
        return {moved.snapshot_id: moved for moved in self.lists}


def _place(snapshot: Any) -> tuple[str, str | None]:
    return snapshot.manifest_list, getattr(snapshot, "key_id", None)
