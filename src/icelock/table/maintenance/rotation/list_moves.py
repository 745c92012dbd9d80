"""The commit of a rotation that gives snapshots other manifest lists: sealed, compared and swapped in the table's turn.

In its turn no writer that takes the catalog's lock comes between the look and the commit; Java's, which do not everywhere, make it a
conflict, and it is done again on what is there then. Lists of snapshots that were removed or rotated meanwhile are left out. Each attempt
seals the lists' keys under the KEK that new snapshots use then.

Not here: writing lists (``table.maintenance.rotation.rotate_lists``), what may change (``table.guard.rules``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import update as ice

from icelock import properties as names
from icelock.errors import IcelockError
from icelock.format.key_metadata import KeyMetadata
from icelock.keys.rewrap import keks_under
from icelock.metadata.updates import AddEncryptionKeyUpdate, MoveManifestListUpdate, RemoveEncryptionKeyUpdate, apply_updates
from icelock.table.commit.protocol import DoubtfulConflictError, Stage, given_up, retries_of, retrying
from icelock.table.guard.key_rotation import KeyRotation, MovedList
from icelock.table.maintenance.removal.retention import dead_keys
from icelock.table.state import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenList:
    """A manifest list that was written again: ``before`` are its place and key id in the metadata, ``key_metadata`` opens the new one."""

    snapshot_id: int
    before: tuple[str, str]
    location: str
    key_metadata: KeyMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one commit did: ids of the snapshots that have their new lists, and of the key entries that are gone."""

    snapshots: frozenset[int] = frozenset()
    keys: tuple[str, ...] = ()


class ListMoves:
    """One commit of lists that were written again, with its retries; afterwards the table is at the version that it made.

    ``keep_keks``: KEKs that nothing needs stay. The master key has just become another one, and by them others tell that it is the same
    table.
    ``still`` is asked, with the ids of the snapshots that there are, whether all that the lists lead to is still there: an expiry deletes
    what only snapshots have that it removes.
    ``certain`` says after an error whether the catalog has certainly none of these lists.
    """

    def __init__(
        self, table: OpenTable, written: Sequence[WrittenList], *, keep_keks: bool, still: Callable[[frozenset[int]], bool]
    ) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._written = written
        self._keep_keks = keep_keks
        self._still = still
        self.certain = True

    def commit(self) -> Moved:
        """Commit.

        Raises:
            CommitFailedException: the catalog refused each time; nothing was changed.
            CommitStateUnknownException: the outcome is unknown.
            PolicyError, IntegrityError, KeyUnavailableError: a list is not as the guard wants it; nothing was changed.
        """
        properties = self._table.metadata.properties
        retries = retries_of(properties, getattr(self._table.catalog, "commit_retries", retries_of({})))
        try:
            return retrying(properties, retries)(self._attempt)
        except CommitFailedException as e:
            raise given_up(e, doubtful=not self.certain) from e.__cause__

    def _attempt(self) -> Moved:
        table = self._table
        with table.catalog.turn(table.name()) as turn:
            turn.stage = Stage.PREPARING
            if turn.location is None:
                raise NoSuchTableError(f"table {self._name} was dropped or renamed meanwhile: nothing is committed")
            table.follow(turn.load())
            lists = [one for one in self._written if self._is_there(one)]
            if not lists or not self._still(frozenset(one.snapshot_id for one in table.metadata.snapshots)):
                return Moved()
            updates, rotation, dead = self._changes(lists)
            try:
                table._do_commit(updates, (ice.AssertTableUUID(uuid=table.metadata.table_uuid), rotation))  # noqa: SLF001
            except Exception as e:
                refused = isinstance(e, CommitFailedException) and not isinstance(e, DoubtfulConflictError)
                self.certain &= turn.stage is Stage.PREPARING or refused
                if isinstance(e, (CommitFailedException, IcelockError)) or not self._landed(rotation):
                    raise
        return Moved(snapshots=frozenset(one.snapshot_id for one in lists), keys=dead)

    def _is_there(self, one: WrittenList) -> bool:
        found: Any = self._table.metadata.snapshot_by_id(one.snapshot_id)
        return found is not None and (found.manifest_list, found.key_id) == one.before

    def _changes(self, lists: Sequence[WrittenList]) -> tuple[tuple[Any, ...], KeyRotation, tuple[str, ...]]:
        """Return the updates, the requirement that lets them pass, and the ids of key entries that nothing needs afterwards."""
        metadata, encryption = self._table.metadata, self._table.encryption
        master = names.encryption_key_id(metadata.properties) or ""
        manager_of = partial(encryption.manager, metadata, table=self._name)
        manager = manager_of(unused_keks=manager_of().prepare_kek())
        sealed = [manager.seal_manifest_list_key(one.key_metadata) for one in lists]
        entries = dict.fromkeys(entry for one in sealed for entry in one.new_entries)
        moves = tuple(
            MovedList(snapshot_id=one.snapshot_id, before=one.before, after=(one.location, key.key_id))
            for one, key in zip(lists, sealed, strict=True)
        )
        keks = keks_under(metadata.encryption_keys, master)
        rotation = KeyRotation(table=self._name, from_key=master, to_key=master, before=keks, after=keks, lists=moves)
        updates: list[Any] = [AddEncryptionKeyUpdate(**{"encryption-key": entry}) for entry in entries]
        updates += [
            MoveManifestListUpdate(**{"snapshot-id": one.snapshot_id, "manifest-list": one.after[0], "key-id": one.after[1]})
            for one in moves
        ]
        after: Any = apply_updates(metadata, updates, now_ms=encryption.clock)
        keks_kept = {kek.key_id for kek in keks} if self._keep_keks else set()
        dead = tuple(key_id for key_id in dead_keys(after, (), now_ms=encryption.clock()) if key_id not in keks_kept)
        updates += [RemoveEncryptionKeyUpdate(**{"key-id": key_id}) for key_id in dead]
        return tuple(updates), rotation, dead

    def _landed(self, rotation: KeyRotation) -> bool:
        """Whether a commit that ended in an error was made after all."""
        try:
            metadata = self._table.refresh().metadata
        except Exception:  # noqa: BLE001 - the first error is raised
            return False
        there = {snapshot.snapshot_id: (snapshot.manifest_list, snapshot.key_id) for snapshot in metadata.snapshots}
        return all(there.get(moved.snapshot_id) == moved.after for moved in rotation.lists)
