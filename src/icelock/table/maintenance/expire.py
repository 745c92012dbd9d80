"""``table.maintenance.expire_snapshots()``: snapshots, their keys and their files go.

1. what may go is worked out on the table's metadata (``table.maintenance.retention``); the manifest lists of what goes are read, so that a
   key or
   a file that cannot be had stops it before anything is changed;
2. one commit removes snapshots, refs that are too old, and every key entry that nothing needs any more. It holds only if the catalog's
   metadata of that moment lets all of it go too: another writer's snapshot, tag or rollback makes step 1 be done again;
3. files that nothing reaches are deleted: manifest lists, then manifests and data and delete files that no snapshot of the committed
   metadata lists. Each list and each manifest is read once at most.

A crash after 2 leaves files that ``icelock.maintenance.leftovers`` lists.

Source: PyIceberg's ``ExpireSnapshots`` (names), Java RemoveSnapshots and ReachableFileCleanup (rules). Not here: other leftovers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots as IcebergExpireSnapshots
from pyiceberg.utils.properties import property_as_bool

from icelock.errors import IcelockError, PolicyError
from icelock.io.listing import delete_files
from icelock.metadata.updates import RemoveEncryptionKeyUpdate
from icelock.table.commit.protocol import given_up, retries_of, retrying
from icelock.table.maintenance.deletable import Home, files_of
from icelock.table.maintenance.reachable_files import read_lists, read_paths, statistics_paths
from icelock.table.maintenance.retention import Expirable, dead_keys, expirable
from icelock.table.moments import to_millis

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata

    from icelock.metadata.table_metadata import TableMetadataV3
    from icelock.table.state import OpenTable

GC_ENABLED: Final = "gc.enabled"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What an expiry did: ids of snapshots, names of refs and ids of key entries that are gone, the number of deleted files.

    ``left`` are files that nothing reaches any more and that could not be deleted; ``icelock.maintenance.leftovers`` lists them too.
    """

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    deleted: int = 0
    left: tuple[str, ...] = ()


class MaintenanceTable:
    """``table.maintenance``, with PyIceberg's names."""

    def __init__(self, table: OpenTable) -> None:
        self.tbl = table

    def expire_snapshots(self) -> ExpireSnapshots:
        """Return a builder of an expiry; nothing happens before its ``commit``.

        Raises:
            PolicyError: the table is plain, or says ``gc.enabled=false``.
        """
        self.tbl.io_for(self.tbl.metadata)
        check_gc(self.tbl.metadata, table=".".join(self.tbl.name()))
        return ExpireSnapshots(self.tbl)


class ExpireSnapshots(IcebergExpireSnapshots):
    """Expires snapshots by id, by age, or, when neither is asked for, by the retention that the table and its refs are set to.

    What a branch or tag names never goes. ``older_than`` takes the place of the table's ``history.expire.max-snapshot-age-ms``;
    ``min-snapshots-to-keep`` and the refs' own settings count all the same, as in Java.
    """

    def __init__(self, table: OpenTable) -> None:
        super().__init__(table.transaction())
        self._shared = table
        self._table = table.at_one_version()
        self._older_than_ms: int | None = None
        self._clean = True
        self._refused = False
        self._now_ms = table.encryption.clock()

    def older_than(self, dt: datetime) -> Self:
        """Expire snapshots older than a time.

        Raises:
            PolicyError: a time without a zone.
        """
        self._older_than_ms = to_millis(dt, name="older_than")
        return self

    def clean_expired_files(self, clean: bool) -> Self:
        """With False, only metadata changes: nothing is read or deleted, and ``remove_leftovers`` does the rest another time."""
        self._clean = clean
        return self

    def commit(self) -> Expired:  # type: ignore[override]  # PyIceberg returns nothing
        """Expire, and return what was done; nothing when there is nothing to do.

        Raises:
            KeyUnavailableError, IntegrityError, OSError: a manifest list that would go cannot be read; nothing was changed. Files that
                are beyond help are left behind with ``clean_expired_files(False)``.
            CommitFailedException: other writers won each time; nothing was changed.
            CommitStateUnknownException: the catalog did not answer; nothing was deleted.
        """
        before, plan, doomed = self._commit_metadata()
        self._shared.advance(self._table)
        if not plan:
            return Expired()
        left: list[str] = []
        files: list[str] = []
        if doomed is not None:
            try:
                files = list(doomed.unreached_in(self._table.metadata, self._table.io, before))
            except Exception as e:
                e.add_note("The snapshots are expired, but no file was deleted: icelock.maintenance.leftovers lists those that may go.")
                raise
            left = delete_files(self._table.storage, files)
        if left:
            logger.debug("files of expired snapshots are left: %s", ", ".join(left))
        return Expired(
            snapshots=tuple(sorted(plan.gone.snapshots)),
            refs=tuple(sorted(plan.gone.refs)),
            keys=plan.keys,
            deleted=len(files) - len(left),
            left=tuple(left),
        )

    def _commit(self) -> Any:
        """Not used: an expiry is no part of a larger transaction, since files go with it."""
        raise NotImplementedError

    def _commit_metadata(self) -> tuple[TableMetadataV3, _Plan, _Doomed | None]:
        """Commit, and retry after conflicts; return the metadata before, what is removed from it, and its files."""
        properties = self._table.metadata.properties
        try:
            return retrying(properties, retries_of(properties))(self._attempt)
        except CommitFailedException as e:
            raise given_up(e) from e.__cause__

    def _attempt(self) -> tuple[TableMetadataV3, _Plan, _Doomed | None]:
        if self._refused:
            self._table.refresh()
        before = self._table.metadata
        plan = _Plan.of(before, self._gone(before), now_ms=self._now_ms)
        if not plan:
            return before, plan, None
        doomed = _Doomed.of(self._table, plan) if self._clean else None
        try:
            self._table._do_commit(updates=plan.updates(before), requirements=self._requirements_of(plan, before))  # noqa: SLF001
        except CommitFailedException:
            self._refused = True
            raise
        except IcelockError:
            raise
        except Exception:
            if not self._landed(plan):
                raise
        return before, plan, doomed

    def _gone(self, metadata: TableMetadata) -> Expirable:
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        there = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        by_id = Expirable(snapshots=frozenset(self._snapshot_ids_to_expire & there - named))
        if self._snapshot_ids_to_expire and self._older_than_ms is None:
            return by_id
        by_age = expirable(metadata, now_ms=self._now_ms, older_than_ms=self._older_than_ms)
        return Expirable(snapshots=by_id.snapshots | by_age.snapshots, refs=by_age.refs)

    def _requirements_of(self, plan: _Plan, before: TableMetadataV3) -> tuple[Any, ...]:
        def holds(metadata: Any) -> bool:
            fresh = _Plan.of(metadata, self._gone(metadata), now_ms=self._now_ms)
            return plan.gone.snapshots <= fresh.gone.snapshots and plan.gone.refs <= fresh.gone.refs and set(plan.keys) <= set(fresh.keys)

        return AssertTableUUID(uuid=before.table_uuid), _StillExpirable(holds)

    def _landed(self, plan: _Plan) -> bool:
        """Whether a commit that ended in an error was made: then none of it is there. The table is the fresh one afterwards."""
        try:
            metadata = self._table.refresh().metadata
        except Exception as e:  # noqa: BLE001 - the first error matters more
            logger.debug("the table cannot be looked at: %s", e)
            return False
        there = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        keys = {key.key_id for key in metadata.encryption_keys}
        return not plan.gone.snapshots & there and not plan.gone.refs & metadata.refs.keys() and not keys & set(plan.keys)


class _StillExpirable:
    """Requirement: the metadata that the commit changes lets all of it go too."""

    def __init__(self, holds: Callable[[Any], bool]) -> None:
        self._holds = holds

    def validate(self, base_metadata: TableMetadata | None) -> None:
        if base_metadata is None or not self._holds(base_metadata):
            raise CommitFailedException("what was to be expired is in use by another writer's commit; nothing was changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What goes from one version of the metadata."""

    gone: Expirable
    keys: tuple[str, ...]

    @classmethod
    def of(cls, metadata: TableMetadataV3, gone: Expirable, *, now_ms: int) -> _Plan:
        return cls(gone=gone, keys=dead_keys(metadata, gone.snapshots, now_ms=now_ms))

    def __bool__(self) -> bool:
        return bool(self.gone.snapshots or self.gone.refs or self.keys)

    def updates(self, metadata: TableMetadataV3) -> tuple[Any, ...]:
        numbers = sorted(self.gone.snapshots)
        partition_statistics = {file.snapshot_id for file in metadata.partition_statistics} & self.gone.snapshots
        return (
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in sorted(self.gone.refs)),
            *(RemovePartitionStatisticsUpdate(snapshot_id=number) for number in sorted(partition_statistics)),
            *((RemoveSnapshotsUpdate(snapshot_ids=numbers),) if numbers else ()),
            *(RemoveEncryptionKeyUpdate(key_id=key_id) for key_id in self.keys),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doomed:
    """Files of the snapshots that go. ``io`` has the keys of the metadata they were in; ``claimed`` manifests are of plain lists."""

    lists: frozenset[str]
    plain_lists: frozenset[str]
    manifests: dict[str, ManifestFile]
    claimed: dict[str, ManifestFile]
    io: FileIO
    home: Home

    @classmethod
    def of(cls, table: OpenTable, plan: _Plan) -> _Doomed:
        gone = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in plan.gone.snapshots]
        keyed, plain = [one for one in gone if one.key_id is not None], [one for one in gone if one.key_id is None]
        return cls(
            lists=frozenset(snapshot.manifest_list for snapshot in keyed),
            plain_lists=frozenset(snapshot.manifest_list for snapshot in plain),
            manifests=read_lists(keyed, table.io),
            claimed=read_lists(plain, table.io),
            io=table.io,
            home=Home.of(table),
        )

    def unreached_in(self, after: TableMetadataV3, io: FileIO, before: TableMetadataV3) -> Iterable[str]:
        """Return the files that nothing in the committed metadata ``after`` reaches: data files, then manifests, then lists."""
        kept = read_lists(after.snapshots, io)
        manifests = {path: manifest for path, manifest in self.manifests.items() if path not in kept}
        claimed = {path: manifest for path, manifest in self.claimed.items() if path not in kept}
        files = files_of(manifests.values(), self.io, self.home, live_only=True)
        files |= self.home.owned(set(read_paths(claimed.values(), self.io, live_only=True)) - files)
        if files:
            files.difference_update(read_paths(kept.values(), io, live_only=True))
        lists = {snapshot.manifest_list for snapshot in after.snapshots}
        own = self.home.owned({*(statistics_paths(before) - statistics_paths(after)), *claimed, *(self.plain_lists - lists)})
        return (*sorted(files), *sorted(own), *sorted(manifests), *sorted(self.lists - lists))


def check_gc(metadata: TableMetadata, *, table: str) -> None:
    """Refuse to delete files of a table that says that others use them too.

    Raises:
        PolicyError: ``gc.enabled`` is false.
    """
    if not property_as_bool(metadata.properties, GC_ENABLED, default=True):
        raise PolicyError(
            f"table {table}: {GC_ENABLED} is false, so its files may belong to other tables too: set it to true to delete any"
        )
