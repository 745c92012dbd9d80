"""``table.maintenance.expire_snapshots()``: removes snapshots, their keys and their files.

1. what may expire is worked out on the table's metadata (``table.maintenance.removal.retention``); the manifest lists of expiring
   snapshots are read, so that a missing key or file stops the expiry before anything is changed;
2. one commit removes snapshots, refs that are too old, and every key entry that nothing needs any more. It is valid only if all of it may
   still expire by the catalog's metadata at that moment: another writer's snapshot, tag or rollback makes step 1 start again. A REST
   server is told of the refs that are there, but not that there is no other one: if a ref was made in the very moment, and the server
   dropped it with its snapshot, that is an error, and no file is deleted;
3. files that nothing reaches are deleted: data and delete files, manifests and lists that no snapshot of the committed metadata has. Each
   list and each manifest is read once at most.

A crash after 2 leaves files that ``icelock.maintenance.leftovers`` lists.

Source: PyIceberg's ``ExpireSnapshots`` (names), Java RemoveSnapshots and ReachableFileCleanup (rules). Not here: other leftovers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import update as ice
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ExpireSnapshots as IcebergExpireSnapshots
from pyiceberg.utils.properties import property_as_bool

from icelock.errors import CommitError, IcelockError, PolicyError
from icelock.io.listing import delete_files
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.metadata.updates import RemoveEncryptionKeyUpdate
from icelock.shown import Shown
from icelock.table.arguments import checked_id
from icelock.table.commit.protocol import given_up, retries_of, retrying
from icelock.table.maintenance.removal.deletable import Home, files_of, read_lists, read_paths, statistics_paths
from icelock.table.maintenance.removal.retention import Expirable, dead_keys, expirable
from icelock.table.maintenance.removal.storage_clock import check_clock
from icelock.table.moments import to_limit
from icelock.table.state import OpenTable

GC_ENABLED: Final = "gc.enabled"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Expired(Shown):
    """What an expiry removed: ids of snapshots, names of refs, ids of key entries, and the deleted files, with their number.

    ``left`` are files that nothing reaches any more but that could not be deleted; ``icelock.maintenance.leftovers`` lists them too, and
    those that only ``unreadable`` manifest lists and manifests named: these could not be read, so they were not told.
    """

    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    deleted: int = 0
    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class ExpireSnapshots(IcebergExpireSnapshots):
    """Expires snapshots by id, by age, or, without either, by the retention settings of the table and its refs.

    The snapshot of a branch or tag never expires. ``older_than`` overrides the table's ``history.expire.max-snapshot-age-ms``,
    ``retain_last`` its ``min-snapshots-to-keep``; the refs' own settings still apply, as in Java.
    """

    def __init__(self, table: OpenTable) -> None:
        super().__init__(table.transaction())
        self._shared = table
        self._table = table.at_one_version()
        self._older_than_ms: int | None = None
        self._retain_last: int | None = None
        self._clean = True
        self._refused = False
        self._offered: tuple[TableMetadataV3, Expirable, _ExpiredFiles | None] | None = None
        self._sent = False
        self._taken_as_made = False
        self._unreadable: set[str] | None = None
        self._now_ms = table.encryption.clock()
        self._checked = self._table.metadata

    def __enter__(self) -> Self:
        return self

    def by_id(self, snapshot_id: int) -> Self:
        """Expire a snapshot, whatever its age.

        Raises:
            PolicyError: the table has no snapshot of this id, or a branch or tag names it.
        """
        metadata, name = self._table.metadata, ".".join(self._table.name())
        if metadata.snapshot_by_id(checked_id(snapshot_id, name="snapshot_id")) is None:
            raise PolicyError(f"table {name} has no snapshot {snapshot_id!r}; table.inspect.snapshots() lists those it has")
        if named := ", ".join(repr(ref) for ref, there in sorted(metadata.refs.items()) if there.snapshot_id == snapshot_id):
            raise PolicyError(f"snapshot {snapshot_id} of table {name} cannot expire: {named} names it; drop that first")
        self._snapshot_ids_to_expire.add(snapshot_id)
        return self

    def by_ids(self, snapshot_ids: list[int]) -> Self:
        """Expire snapshots, as ``by_id``."""
        for snapshot_id in snapshot_ids:
            self.by_id(snapshot_id)
        return self

    def older_than(self, dt: datetime) -> Self:
        """Expire snapshots older than a time.

        Raises:
            PolicyError: a time without a zone, or a number that cannot be ms since 1970.
        """
        self._older_than_ms = to_limit(dt, name="older_than")
        return self

    def retain_last(self, number: int) -> Self:
        """Keep this many snapshots of each branch without a number of its own, in the place of the table's ``min-snapshots-to-keep``.

        Raises:
            PolicyError: a number below 1, or no whole number.
        """
        if not isinstance(number, int) or isinstance(number, bool):
            raise PolicyError(f"retain_last is {number!r}; it must be a whole number of at least 1")
        if number < 1:
            raise PolicyError(f"retain_last is {number}; it must be at least 1, since a branch keeps its snapshot")
        self._retain_last = number
        return self

    def clean_expired_files(self, clean: bool) -> Self:
        """With False, change only the metadata: no file is read or deleted, and ``remove_leftovers`` can delete them later."""
        self._clean = clean
        return self

    def drop_unreadable(self) -> Self:
        """Expire snapshots too whose manifest list or manifests cannot be read: their keys are lost, or files are missing or damaged.

        What expires is decided by the same rules. Files that could not be told are left to ``icelock.maintenance.leftovers``. If a list or
        manifest of a snapshot that stays cannot be read, files that it may name are left, too.
        """
        self._unreadable = set()
        return self

    def plan(self) -> Expired:
        """Return the snapshots, refs and keys that ``commit`` would remove by the table as it is now; files are not read, and not told."""
        self._table.refresh()
        plan = self._plan(self._table.metadata)
        return Expired(snapshots=tuple(sorted(plan.snapshots)), refs=tuple(sorted(plan.refs)), keys=plan.keys)

    def commit(self) -> Expired:  # type: ignore[override]  # PyIceberg returns nothing
        """Expire, and return what was removed.

        Raises:
            KeyUnavailableError, IntegrityError, FormatError, OSError: an expiring manifest list cannot be read; nothing was changed. With
                ``clean_expired_files(False)`` it is not read, and its files are left; so they are with ``drop_unreadable()``.
            CommitFailedException: the catalog refused each time; nothing was changed.
            CommitStateUnknownException: the outcome is unknown; nothing was deleted.
            PolicyError: this machine's clock is ahead of the storage's, and something would expire for its age; nothing was changed.
            CommitError: a REST server dropped a branch or tag that another client made meanwhile; no file was deleted.
        """
        properties = self._table.metadata.properties
        try:
            before, plan, expired = retrying(properties, retries_of(properties))(self._attempt)
        except CommitFailedException as e:
            raise given_up(e) from e.__cause__
        self._shared.advance(self._table)
        if not plan:
            return Expired()
        left: list[str] = []
        files: list[str] = []
        if expired is not None:
            self._check_refs()
            try:
                files = list(expired.unreached_in(self._table.metadata, self._table.io, before))
            except FileNotFoundError:
                if not self._taken_as_made:
                    raise
                return Expired()  # the refusal was true: another expiry removed the same, and deletes the files
            except Exception as e:
                e.add_note("The snapshots are expired, but no file was deleted: icelock.maintenance.leftovers lists the unused ones.")
                raise
            left = delete_files(self._table.storage, files)
        unremoved = set(left)
        return Expired(
            snapshots=tuple(sorted(plan.snapshots)),
            refs=tuple(sorted(plan.refs)),
            keys=plan.keys,
            deleted=len(files) - len(left),
            files=tuple(file for file in files if file not in unremoved),
            left=tuple(left),
            unreadable=tuple(sorted(self._unreadable or ())),
        )

    def _check_refs(self) -> None:
        """Refuse, as a CommitError, to delete files of snapshots that a ref had just been given to, which the catalog dropped.

        The metadata log tells whether the commit was made on the metadata that it was checked with.
        """
        base, made = self._checked, self._table.metadata
        was, now = ([entry.metadata_file for entry in one.metadata_log] for one in (base, made))
        if now[-2:-1] == was[-1:]:
            return
        between: Any = self._shared.catalog.read_metadata_file(now[-1])
        lost = sorted(between.refs.keys() - base.refs.keys() - made.refs.keys())
        if lost:
            raise CommitError(
                f"table {'.'.join(self._table.name())}: snapshots are expired, and with them the catalog dropped {', '.join(lost)}, which "
                f"another client made at that moment. No file was deleted: register {now[-1]} under another name, and copy the rows from "
                "there; icelock.maintenance.leftovers lists the files when they are not needed"
            )

    def _commit(self) -> Any:
        """Not used: an expiry deletes files, so it cannot be part of a larger transaction."""
        raise NotImplementedError

    def _attempt(self) -> tuple[TableMetadataV3, Expirable, _ExpiredFiles | None]:
        """Commit once; return the metadata before, what was removed from it, and the files of that.

        A gateway may answer a commit that was made with a refusal (it sent the request twice): if all that the refused commit was to
        remove is gone, it counts as made.
        """
        if self._refused:
            self._table.refresh()
        if self._offered is not None and _is_gone(self._offered[1], self._table.metadata):
            self._taken_as_made = True
            return self._offered
        before = self._table.metadata
        plan = self._plan(before)
        if not plan:
            return before, plan, None
        if (plan.snapshots - self._snapshot_ids_to_expire or plan.refs) and not self._refused:
            check_clock(self._table)
        expired = self._files_of(plan) if self._clean else None
        still = _StillExpirable(lambda metadata: self._may_expire(plan, metadata), table=".".join(self._table.name()))
        requirements = (ice.AssertTableUUID(uuid=before.table_uuid), still)
        try:
            self._table._do_commit(updates=_updates(plan, before), requirements=requirements)  # noqa: SLF001
        except CommitFailedException:
            self._refused = True
            self._offered = (before, plan, expired) if self._sent else None
            raise
        except IcelockError:
            raise
        except Exception:
            if not self._landed(plan):
                raise
        return before, plan, expired

    def _may_expire(self, plan: Expirable, metadata: TableMetadataV3) -> bool:
        """Whether all of a plan may expire by the metadata that the commit is checked with."""
        self._checked = metadata
        self._sent = plan.is_part_of(self._plan(metadata))
        return self._sent

    def _files_of(self, plan: Expirable) -> _ExpiredFiles:
        try:
            return _ExpiredFiles.of(self._table, plan, self._unreadable)
        except (IcelockError, OSError) as e:
            raise _with_way_out(e) from e.__cause__

    def _plan(self, metadata: TableMetadataV3) -> Expirable:
        """Return what to remove from one version of the metadata."""
        named = {ref.snapshot_id for ref in metadata.refs.values()}
        there = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        by_rule = Expirable()
        if not self._snapshot_ids_to_expire or self._older_than_ms is not None or self._retain_last is not None:
            by_rule = expirable(metadata, now_ms=self._now_ms, older_than_ms=self._older_than_ms, retain_last=self._retain_last)
        snapshots = by_rule.snapshots | (self._snapshot_ids_to_expire & there - named)
        return replace(by_rule, snapshots=snapshots, keys=dead_keys(metadata, snapshots, now_ms=self._now_ms))

    def _landed(self, plan: Expirable) -> bool:
        """Whether a commit that ended in an error was made after all: then all is removed. The table is refreshed."""
        try:
            metadata = self._table.refresh().metadata
        except Exception as e:  # noqa: BLE001 - the first error is raised
            logger.debug("the table cannot be loaded: %s", e)
            return False
        return _is_gone(plan, metadata)


def _is_gone(plan: Expirable, metadata: TableMetadataV3) -> bool:
    """Whether nothing of what a plan removes is left."""
    there = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    keys = {key.key_id for key in metadata.encryption_keys}
    return not plan.snapshots & there and not plan.refs & metadata.refs.keys() and not keys & set(plan.keys)


class _StillExpirable:
    """Requirement: by the metadata that the commit changes, files may be deleted, and all of it may still expire."""

    def __init__(self, holds: Callable[[Any], bool], *, table: str) -> None:
        self._holds = holds
        self._table = table

    def validate(self, base_metadata: TableMetadata | None) -> None:
        if base_metadata is not None:
            check_gc(base_metadata, table=self._table)
        if base_metadata is None or not self._holds(base_metadata):
            raise CommitFailedException("another writer's commit uses what was to expire; nothing was changed")


def _updates(plan: Expirable, metadata: TableMetadataV3) -> tuple[Any, ...]:
    numbers = sorted(plan.snapshots)
    partition_statistics = {file.snapshot_id for file in metadata.partition_statistics} & plan.snapshots
    return (
        *(ice.RemoveSnapshotRefUpdate(ref_name=name) for name in sorted(plan.refs)),
        *(ice.RemovePartitionStatisticsUpdate(snapshot_id=number) for number in sorted(partition_statistics)),
        *((ice.RemoveSnapshotsUpdate(snapshot_ids=numbers),) if numbers else ()),
        *(RemoveEncryptionKeyUpdate(key_id=key_id) for key_id in plan.keys),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpiredFiles:
    """Files of expiring snapshots. ``io`` has the keys of their metadata; ``claimed`` manifests are named by plain lists."""

    lists: frozenset[str]
    plain_lists: frozenset[str]
    manifests: dict[str, ManifestFile]
    claimed: dict[str, ManifestFile]
    io: FileIO
    home: Home
    unreadable: set[str] | None

    @classmethod
    def of(cls, table: OpenTable, plan: Expirable, unreadable: set[str] | None) -> _ExpiredFiles:
        going = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in plan.snapshots]
        keyed, plain = [one for one in going if one.key_id is not None], [one for one in going if one.key_id is None]
        return cls(
            lists=frozenset(snapshot.manifest_list for snapshot in keyed),
            plain_lists=frozenset(snapshot.manifest_list for snapshot in plain),
            manifests=read_lists(keyed, table.io, unreadable=unreadable),
            claimed=read_lists(plain, table.io, unreadable=unreadable),
            io=table.io,
            home=Home.of(table),
            unreadable=unreadable,
        )

    def unreached_in(self, after: TableMetadataV3, io: FileIO, before: TableMetadataV3) -> Iterable[str]:
        """Return the files that the committed metadata ``after`` does not reach: data files, then manifests, then lists."""
        staying: set[str] | None = None if self.unreadable is None else set()
        kept = read_lists(after.snapshots, io, unreadable=staying)
        files: set[str] = set()
        manifests: dict[str, ManifestFile] = {}
        claimed: dict[str, ManifestFile] = {}
        if not staying:  # else it is not known which manifests stay
            manifests = {path: manifest for path, manifest in self.manifests.items() if path not in kept}
            claimed = {path: manifest for path, manifest in self.claimed.items() if path not in kept}
            files = self._files(manifests.values(), claimed.values())
        if files:
            files.difference_update(read_paths(kept.values(), io, live_only=True, unreadable=staying))
        if self.unreadable is not None and staying:
            self.unreadable.update(staying)
            files = set()
        lists = {snapshot.manifest_list for snapshot in after.snapshots}
        own = self.home.owned({*(statistics_paths(before) - statistics_paths(after)), *claimed, *(self.plain_lists - lists)})
        going = self.lists - lists - (self.unreadable or set())
        unread = self.home.owned((self.lists - lists) & (self.unreadable or set()))
        return (*sorted(files), *sorted(own), *sorted(manifests), *sorted(going), *sorted(unread))

    def _files(self, manifests: Iterable[ManifestFile], claimed: Iterable[ManifestFile]) -> set[str]:
        """Return the live files of manifests of authenticated lists, and of those that plain ones claim."""
        files = files_of(manifests, self.io, self.home, live_only=True, unreadable=self.unreadable)
        return files | self.home.owned(set(read_paths(claimed, self.io, live_only=True, unreadable=self.unreadable)) - files)


def _with_way_out(error: IcelockError | OSError) -> IcelockError | OSError:
    """Add to an error what to do if a file or key is lost for good."""
    way = (
        "if it is lost for good, expire_snapshots().drop_unreadable() (--drop-unreadable of icelock expire) goes on without it, and leaves "
        "files that only it names to leftovers"
    )
    if isinstance(error, IcelockError) and error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}; nothing was expired: {way}", *error.args[1:])
    else:
        error.add_note(f"Nothing was expired: {way}.")
    return error


def may_delete(metadata: TableMetadata) -> bool:
    """Whether a table's files are its own to delete (``gc.enabled``)."""
    return property_as_bool(metadata.properties, GC_ENABLED, default=True)


def check_gc(metadata: TableMetadata, *, table: str) -> None:
    """Refuse to delete files of a table with ``gc.enabled=false``: others may use them."""
    if not may_delete(metadata):
        raise PolicyError(f"table {table}: {GC_ENABLED} is false, so other tables may use its files: set it to true to delete any")
