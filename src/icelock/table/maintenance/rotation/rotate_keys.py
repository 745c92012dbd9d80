"""The keys of a rotation: a new KEK, or KEKs wrapped anew, in one commit that touches no file.

``kek``: a new KEK under the table's master key. Snapshots from then on are sealed under it, those that are there keep theirs. Its id
and its place before the others make Java use it too (``keys.rewrap``).

``wrap``: the KEKs are wrapped anew, by the newest version of their master key, by another master key, or by another KMS. Then nothing
needs the old one. Order: 1 each KEK is unwrapped, and opens the keys of all its manifest lists, so that it is certainly the right one; 2
all are wrapped, and then unwrapped as a trial; 3 one commit replaces the entries and names the master key. A writer's commit in between
makes step 1 start again; writers that hold an older version ask the KMS whether the KEKs are the same (``catalog.trust.pins``), and go on.

``data``, ``lists``: as ``kek``, and the table's property ``icelock.rotation-kek`` names the KEK until all files are under it. A call that
finds it there takes that KEK, and makes none, unless there is a newer one: who writes the metadata could name one that leaked long ago.
What a level has done is seen by which snapshots are sealed under that KEK, and levels differ in what that says of files, so a level that
finds the mark of another one refuses to begin.

Source: the key hierarchy of Iceberg's encryption page; iceberg issue 15314. Not here: files (``table.maintenance.rotation.rotate_data``,
``table.maintenance.rotation.rotate_lists``), which changes of keys are allowed (``table.guard.rules``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import update as ice

from icelock import properties as names
from icelock.errors import IcelockError, KeyUnavailableError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.kek import CLOCKS_DIFFER_MS, created_ms, is_live, mint_kek
from icelock.keys.key_entries import KeyEntries
from icelock.keys.rewrap import at_once, keks_under, mint_first_key_id, rewrap
from icelock.kms.client import KmsClient
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.shown import Shown
from icelock.table.commit.protocol import given_up, retries_of, retrying
from icelock.table.guard.key_rotation import KeyRotation
from icelock.table.maintenance.rotation.key_uses import KekUse, kek_uses, with_files
from icelock.table.maintenance.rotation.rotate_levels import OF_FILES, Level
from icelock.table.state import OpenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What ``icelock.rotation-kek`` says: ``KEK`` at level data, else ``LEVEL:NUMBER:KEK``; ``since`` is the sequence number then."""

    level: str
    kek: str
    since: int = 0

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Return the mark of a property; what is none names a KEK that no table has."""
        level, _, rest = text.partition(":")
        since, _, kek = rest.partition(":")
        return cls(level=level, kek=kek, since=int(since)) if names.is_number(since) else cls(level="data", kek=text)

    def __str__(self) -> str:
        return self.kek if self.level == "data" else f"{self.level}:{self.since}:{self.kek}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rotated(Shown):
    """What a rotation did: ``wrapped`` KEKs were wrapped anew, ``made`` ones are new; ``keks`` are all of them, as they are afterwards.

    ``from_key`` and ``to_key`` are the table's master keys before and after. After a dry run ``keks`` are as they were, ``wrapped``
    those that would be wrapped, and ``new_keks`` says how many would be made. The rest is of levels ``lists`` and ``data``.

    Args:
        kek: the KEK under which files were written again; None in a dry run that would make one.
        resumed: whether an earlier call made it, and this one goes on with it.
        rewritten_files: data files that were written again, without deleted rows; of several branches each counts.
        rewritten_bytes: their size on storage.
        added_files: data files in their place; of a dry run an estimate.
        removed_delete_files: delete files and vectors that the branches have no more; a dry run does not count them.
        left_files: data and delete files of the branches' snapshots that still hang on older KEKs, because other writers touched them each
            time, or they could not be read: another call goes on.
        snapshots: ids of the snapshots that were committed.
        rotated_snapshots: snapshots whose manifest lists were written again, or would be. Level ``all`` makes snapshots on its way that
            have manifests of before, and does these too; a dry run does not know them, and tells the least.
        rewritten_manifests: manifests that were written again, each once, however many snapshots list it; likewise.
        removed_keys: ids of key entries that the metadata has no more.
    """

    level: Level
    from_key: str
    to_key: str
    wrapped: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    new_keks: int = 0
    kek: str | None = None
    resumed: bool = False
    rewritten_files: int = 0
    rewritten_bytes: int = 0
    added_files: int = 0
    removed_delete_files: int = 0
    left_files: int = 0
    snapshots: tuple[int, ...] = ()
    rotated_snapshots: int = 0
    rewritten_manifests: int = 0
    removed_keys: tuple[str, ...] = ()
    keks: tuple[KekUse, ...] = ()


class RotatedKeys:
    """The keys' part of a rotation; each attempt is made on the table as it is then."""

    def __init__(self, table: OpenTable, level: Level, to_key: str | None, kms: KmsClient | None) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._level = level
        self._to_key = to_key
        self._kms = kms

    def plan(self) -> Rotated:
        """Return what would be wrapped, and what hangs on each KEK; all manifests are read."""
        self._table.refresh()
        before, master, kek = self._keks(), self._master(), self._unfinished()
        self._check_clock()
        to_key = self._to_key or master
        wraps = self._level == "wrap" or (self._level in OF_FILES and to_key != master)
        wrapped = tuple(one.key_id for one in before) if wraps else ()
        new = int(self._level != "wrap" and kek is None)
        result = self._result(master, to_key, wrapped=wrapped, new_keks=new, kek=kek, resumed=kek is not None)
        return replace(result, keks=with_files(result.keks, self._table))

    def run(self) -> Rotated:
        """Commit; see ``MaintenanceTable.rotate``."""
        properties = self._table.metadata.properties
        try:
            return retrying(properties, retries_of(properties))(self._attempt)
        except CommitFailedException as e:
            raise given_up(e) from e.__cause__

    def _unfinished(self) -> str | None:
        """Return the KEK of a rotation of this level that was not finished, if it is still the one that new snapshots use.

        Raises:
            PolicyError: one of another level was not finished.
        """
        text = self._table.metadata.properties.get(names.ROTATION_KEK) if self._level in OF_FILES else None
        mark = None if text is None else Mark.parse(text)
        if mark is None or not any(use.kek == mark.kek and use.for_new_snapshots for use in self._uses()):
            return None
        if mark.level != self._level:
            raise PolicyError(
                f"table {self._name}: a rotation of level {mark.level!r} was not finished, or is at work. What it has done could not be "
                f"told from what level {self._level!r} does, so nothing was changed: let it end, or finish it by icelock rotate --level "
                f"{mark.level}"
            )
        return mark.kek

    def check_unfinished(self) -> None:
        """Refuse, as a PolicyError, to begin while a rotation of another level is not finished, or beside a KEK of a later time."""
        self._unfinished()
        self._check_clock()

    def mark(self, kek: str | None) -> Mark:
        """Return the mark of a rotation of this level under a KEK: the one that the table has, or the one that it would get."""
        text = self._table.metadata.properties.get(names.ROTATION_KEK)
        found = None if text is None else Mark.parse(text)
        if found is not None and (found.level, found.kek) == (self._level, kek):
            return found
        return Mark(level=self._level, kek=kek or "", since=self._table.metadata.last_sequence_number)

    def _uses(self) -> tuple[KekUse, ...]:
        encryption = self._table.encryption
        return kek_uses(self._table.metadata, kms=encryption.kms(), now_ms=encryption.clock())

    def _attempt(self) -> Rotated:
        self._table.refresh()
        metadata, master, before = self._table.metadata, self._master(), self._keks()
        self._check_clock()
        if (kek := self._unfinished()) is not None:
            return self._result(master, master, kek=kek, resumed=True)
        to_key = self._to_key or master
        after = self._wrapped(before, to_key) if self._level == "wrap" else self._made_one(before)
        updates: list[Any] = [RemoveEncryptionKeyUpdate(key_id=kek.key_id) for kek in before]
        updates += [AddEncryptionKeyUpdate(**{"encryption-key": kek}) for kek in after]
        if to_key != master:
            updates.append(ice.SetPropertiesUpdate(updates={names.ENCRYPTION_KEY_ID: to_key}))
        if self._level in OF_FILES:
            updates.append(ice.SetPropertiesUpdate(updates={names.ROTATION_KEK: str(self.mark(after[0].key_id))}))
        same = after[len(after) - len(before) :]
        rotation = KeyRotation(table=self._name, from_key=master, to_key=to_key, before=before, after=same)
        try:
            self._table._do_commit(tuple(updates), (ice.AssertTableUUID(uuid=metadata.table_uuid), rotation))  # noqa: SLF001
        except (CommitFailedException, IcelockError):
            raise
        except Exception:
            if not self._landed(after):
                raise
        made = tuple(kek.key_id for kek in after[: len(after) - len(before)])
        wrapped = tuple(kek.key_id for kek in same) if self._level == "wrap" else ()
        kek = made[0] if self._level in OF_FILES else None
        return self._result(master, to_key, wrapped=wrapped, made=made, new_keks=len(made), kek=kek)

    def _master(self) -> str:
        return names.encryption_key_id(self._table.metadata.properties) or ""

    def _keks(self) -> tuple[EncryptedKey, ...]:
        """Return the KEKs of the table's master key.

        Raises:
            KeyUnavailableError: there is one of another master key.
        """
        entries = KeyEntries(self._table.metadata.encryption_keys)
        master = self._master()
        others = [key for key in entries if entries.is_kek(key) and key.encrypted_by_id != master]
        if others:
            raise KeyUnavailableError(
                f"table {self._name}: KEK {others[0].key_id!r} is wrapped by {others[0].encrypted_by_id!r}, and the table's master key is "
                f"{master!r}: nobody can open what it seals, so nothing was changed; restore the metadata file, or expire its snapshots"
            )
        return keks_under(entries, master)

    def _check_clock(self) -> None:
        """Refuse, as a PolicyError, to make a KEK beside one of a later time: by their times the newer one is told."""
        now = self._table.encryption.clock()
        ahead = {kek.key_id: created_ms(kek) - now for kek in self._keks() if created_ms(kek) - now > CLOCKS_DIFFER_MS}
        if ahead and self._level != "wrap":
            minutes = -(-max(ahead.values()) // 60_000)
            raise PolicyError(
                f"table {self._name}: KEK {', '.join(ahead)} was made by a clock that is {minutes} minutes ahead of this one. A new KEK "
                "would seem the older one, and what is under it could not be told, so nothing was changed: set the clocks, and rotate "
                f"again in {minutes} minutes, or use level 'wrap', which makes none"
            )

    def _made_one(self, before: tuple[EncryptedKey, ...]) -> tuple[EncryptedKey, ...]:
        """Return a new KEK, and those that are there."""
        encryption, metadata = self._table.encryption, self._table.metadata
        now = encryption.clock()
        latest = max((created_ms(kek) for kek in before if is_live(kek, now)), default=0)
        kek, raw = mint_kek(
            encryption.entropy,
            names.data_key_length(metadata.properties),
            kms=encryption.kms(),
            master_key_id=self._master(),
            now_ms=max(now, latest + 1),
        )
        encryption.know_kek(kek, raw)
        return replace(kek, key_id=mint_first_key_id(encryption.entropy)), *before

    def _wrapped(self, before: tuple[EncryptedKey, ...], to_key: str) -> tuple[EncryptedKey, ...]:
        """Return KEKs wrapped anew, after each has opened all that it seals."""
        if not before:
            raise PolicyError(
                f"table {self._name} has no KEK yet, so there is nothing to wrap, and nothing by which others could tell that it is the "
                "same table under another master key: drop it and create it with that key, or write rows first"
            )
        encryption = self._table.encryption
        manager = encryption.manager(self._table.metadata, table=self._name)
        under = dict(zip((kek.key_id for kek in before), at_once(encryption.open_kek, before), strict=True))
        for key in self._table.metadata.encryption_keys:
            if key.encrypted_by_id in under:
                manager.open_manifest_list_key(key.key_id)
        keks = [(kek, under[kek.key_id]) for kek in before]
        after = rewrap(keks, kms=self._kms or encryption.kms(), master_key_id=to_key, entropy=encryption.entropy)
        for kek in after:
            encryption.know_kek(kek, under[kek.key_id])
        return after

    def _landed(self, after: Sequence[EncryptedKey]) -> bool:
        """Whether a commit that ended in an error was made after all."""
        try:
            keys = self._table.refresh().metadata.encryption_keys
        except Exception:  # noqa: BLE001 - the first error is raised
            return False
        return all(kek in keys for kek in after)

    def _result(self, master: str, to_key: str, **more: Any) -> Rotated:
        return Rotated(level=self._level, from_key=master, to_key=to_key, keks=self._uses(), **more)
