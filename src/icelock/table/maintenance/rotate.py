"""``table.maintenance.rotate()``: new keys for a table, by level; no row and no file is changed.

``kek``: a new KEK under the table's master key. Snapshots from then on are sealed under it, those that are there keep theirs. Its id
and its place before the others make Java use it too (``keys.rewrap``).

``wrap``: the KEKs are wrapped anew, by the newest version of their master key, by another master key, or by another KMS. Then nothing
needs the old one. Order: 1 each KEK is unwrapped, and opens the keys of all its manifest lists, so that it is certainly the right one; 2
all are wrapped, and then unwrapped as a trial; 3 one commit replaces the entries and names the master key. A writer's commit in between
makes step 1 start again; writers that hold an older version ask the KMS whether the KEKs are the same (``catalog.trust.pins``), and go on.

Source: the key hierarchy of Iceberg's encryption page; iceberg issue 15314. Not here: which changes of keys are allowed (``table.guard``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import update as ice

from icelock import properties as names
from icelock.errors import IcelockError, KeyUnavailableError, PolicyError
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.kek import created_ms, is_live, mint_kek
from icelock.keys.key_entries import KeyEntries
from icelock.keys.rewrap import keks_under, mint_first_key_id, rewrap
from icelock.kms.client import KmsClient
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate
from icelock.table.commit.key_rotation import KeyRotation
from icelock.table.commit.protocol import given_up, retries_of, retrying
from icelock.table.maintenance.shown import Shown
from icelock.table.state import OpenTable

Level = Literal["kek", "wrap"]
LEVELS: Final[tuple[Level, ...]] = ("kek", "wrap")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KekUse(Shown):
    """What hangs on a KEK: numbers of snapshots, and the branches and tags that name one of them.

    ``master_key`` wraps it. ``for_new_snapshots``: the next snapshot is sealed under it.
    """

    kek: str
    master_key: str
    created: datetime
    snapshots: int
    refs: tuple[str, ...] = ()
    for_new_snapshots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rotated(Shown):
    """What a rotation did: ``wrapped`` KEKs were wrapped anew, ``made`` ones are new; ``keks`` are all of them, as they are afterwards.

    ``from_key`` and ``to_key`` are the table's master keys before and after. After a dry run ``keks`` are as they were, and ``wrapped``
    those that would be wrapped.
    """

    level: Level
    from_key: str
    to_key: str
    wrapped: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    keks: tuple[KekUse, ...] = ()


def rotate(table: OpenTable, level: Level, *, to_key: str | None, kms: KmsClient | None, dry_run: bool) -> Rotated:
    """Rotate a table's keys; see ``MaintenanceTable.rotate``."""
    if level not in LEVELS:
        raise PolicyError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")
    if level == "kek" and (to_key is not None or kms is not None):
        raise PolicyError(
            "another master key or KMS wraps the KEKs that are there: use level 'wrap'; 'kek' makes one under the present key"
        )
    if to_key is not None:
        names.encryption_key_id({names.ENCRYPTION_KEY_ID: to_key})
    table.io_for(table.metadata)
    rotation = _Rotation(table, level, to_key, kms)
    if dry_run:
        return rotation.plan()
    properties = table.metadata.properties
    try:
        return retrying(properties, retries_of(properties))(rotation.attempt)
    except CommitFailedException as e:
        raise given_up(e) from e.__cause__


class _Rotation:
    """One call of ``rotate``; each attempt is made on the table as it is then."""

    def __init__(self, table: OpenTable, level: Level, to_key: str | None, kms: KmsClient | None) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._level = level
        self._to_key = to_key
        self._kms = kms

    def plan(self) -> Rotated:
        """Return what would be wrapped, and what hangs on each KEK; the KMS is not asked."""
        self._table.refresh()
        before = self._keks()
        wrapped = tuple(kek.key_id for kek in before) if self._level == "wrap" else ()
        return self._result(self._master(), self._to_key or self._master(), wrapped=wrapped)

    def attempt(self) -> Rotated:
        """Commit once.

        Raises:
            Exception: see ``MaintenanceTable.rotate``.
        """
        self._table.refresh()
        metadata, master, before = self._table.metadata, self._master(), self._keks()
        to_key = self._to_key or master
        after = self._made_one(before) if self._level == "kek" else self._wrapped(before, to_key)
        updates: list[Any] = [RemoveEncryptionKeyUpdate(key_id=kek.key_id) for kek in before]
        updates += [AddEncryptionKeyUpdate(**{"encryption-key": kek}) for kek in after]
        if to_key != master:
            updates.append(ice.SetPropertiesUpdate(updates={names.ENCRYPTION_KEY_ID: to_key}))
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
        return self._result(master, to_key, wrapped=wrapped, made=made)

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
        under = {kek.key_id: encryption.open_kek(kek) for kek in before}
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

    def _result(self, master: str, to_key: str, *, wrapped: tuple[str, ...] = (), made: tuple[str, ...] = ()) -> Rotated:
        uses = kek_uses(self._table.metadata, now_ms=self._table.encryption.clock())
        return Rotated(level=self._level, from_key=master, to_key=to_key, wrapped=wrapped, made=made, keks=uses)


def kek_uses(metadata: TableMetadataV3, *, now_ms: int) -> tuple[KekUse, ...]:
    """Return what hangs on each KEK of a table's master key, in the order of the metadata."""
    entries = KeyEntries(metadata.encryption_keys)
    keks = keks_under(entries, names.encryption_key_id(metadata.properties))
    sealed_by = {
        snapshot.snapshot_id: entries.get(snapshot.key_id).encrypted_by_id
        for snapshot in metadata.snapshots
        if snapshot.key_id is not None and snapshot.key_id in entries
    }
    count = Counter(sealed_by.values())
    live = [kek for kek in keks if is_live(kek, now_ms)]
    newest = max(live, key=created_ms).key_id if live else None
    return tuple(
        KekUse(
            kek=kek.key_id,
            master_key=kek.encrypted_by_id,
            created=datetime.fromtimestamp(created_ms(kek) / 1_000, tz=UTC),
            snapshots=count[kek.key_id],
            refs=tuple(sorted(name for name, ref in metadata.refs.items() if sealed_by.get(ref.snapshot_id) == kek.key_id)),
            for_new_snapshots=kek.key_id == newest,
        )
        for kek in keks
    )
