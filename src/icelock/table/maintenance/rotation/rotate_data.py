"""Data and delete files written again under the KEK of a rotation, so that after an expiry nothing needs an older one.

The work is that of ``compact``, branch by branch, on the files of a branch's snapshot that an older KEK leads to: rows keep their ids,
deleted rows stay out, other writers go on, and each of several commits stands by itself. Deletes that apply to no file any more go too.
Level ``all`` copies files that lost no row instead, for its history needs such copies (``table.maintenance.rotation.copied_files``).

A file is done if the snapshot that added it (by its sequence number) is sealed under the rotation's KEK, or a later one, and so are the
delete files that apply to it: only manifests below that KEK, with keys of their own, have its key. If that snapshot has expired, nobody
can tell, and the file is written again. So a call that was killed is gone on with by the next one.

A branch whose snapshot has no live file has none to write again, but its manifest list is under an older KEK all the same, and may lead to
entries of files that were deleted, with their keys: it gets a snapshot without manifests, sealed under the rotation's KEK.

Tags, and older snapshots of branches, are left: they need the older KEKs until they expire.

Not here: the KEK (``table.maintenance.rotation.rotate_keys``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation

from icelock import properties as names
from icelock.format.encrypted_key import KEY_TIMESTAMP
from icelock.keys.kek import created_ms
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.commit.producer import EncryptedFastAppend
from icelock.table.maintenance.compaction.compact import Compacted, Compaction, CompactRequest, Progress
from icelock.table.maintenance.compaction.compact_options import CompactOptions
from icelock.table.maintenance.rotation.copied_files import CombineByCopy, may_be_copied
from icelock.table.maintenance.rotation.key_uses import kek_uses, sealing_keks
from icelock.table.maintenance.rotation.rotate_keys import Mark, Rotated
from icelock.table.maintenance.workers import Workers
from icelock.table.state import OpenTable

_PASSES: Final = 2  # the second one is for files that a writer added under an older KEK meanwhile
_COMMITS: Final = 10
_TARGETS_A_GROUP: Final = 8


class RotatedData:
    """The files' part of a rotation, after the keys' part or its plan; ``of_all`` is the mark of a rotation that goes on after it."""

    def __init__(
        self, table: OpenTable, keys: Rotated, workers: Workers, progress: Progress | None = None, *, of_all: Mark | None = None
    ) -> None:
        self._table = table
        self._keys = keys
        self._workers = workers
        self._progress = progress
        self._of_all = of_all
        self.copied: set[str] = set()

    def plan(self) -> Rotated:
        """Return what would be written again; afterwards ``copied`` are the data files that level ``all`` would copy."""
        plans = [self._compaction(branch).plan(self._see) for branch in branches_of(self._table.metadata)]
        return _with(self._keys, plans)

    def _see(self, task: FileScanTask) -> None:
        if may_be_copied(task):
            self.copied.add(task.file.file_path)

    def run(self) -> Rotated:
        """Write files again; errors are those of ``MaintenanceTable.rotate``."""
        done: list[Compacted] = []
        sealed: list[int] = []
        left = 0
        for _ in range(_PASSES):
            done += [self._compaction(branch).run() for branch in branches_of(self._table.metadata) if self._left(branch)]
            branches = branches_of(self._table.refresh().metadata)
            sealed += [self._seal(branch) for branch in branches if not self._is_sealed(branch) and not self._left(branch)]
            branches = branches_of(self._table.refresh().metadata)
            left = sum(map(self._left, branches))
            if not left and all(map(self._is_sealed, branches)):
                if self._of_all is None:
                    take_mark_away(self._table, self._keys.kek or "")
                break
        encryption = self._table.encryption
        uses = kek_uses(self._table.metadata, kms=encryption.kms(), now_ms=encryption.clock())
        whole = _with(self._keys, done)
        return replace(whole, snapshots=(*whole.snapshots, *sealed), left_files=left, keks=uses)

    def _compaction(self, branch: str) -> Compaction:
        options = CompactOptions.parse({}, self._table.metadata.properties)
        options = replace(
            options,
            every=True,
            max_group=_TARGETS_A_GROUP * options.target,
            max_commits=_COMMITS,
            max_failed_commits=_COMMITS,
            remove_dangling=True,
        )
        request = CompactRequest(where=AlwaysTrue(), branch=branch, options=options, only=self._needs_older)
        combine = self._workers.combine
        if self._of_all is not None:
            combine = CombineByCopy(self._table.io, self._keys.kek, combine, self._workers.copy)
        return Compaction(self._table, request, combine, self._progress)

    def _needs_older(self, metadata: TableMetadataV3) -> Callable[[FileScanTask], bool]:
        done = self._done(metadata)
        return lambda task: any(_is_older(file, done) for file in (task.file, *task.delete_files))

    def _done(self, metadata: TableMetadataV3) -> frozenset[int]:
        """Return the sequence numbers of snapshots whose files are under the rotation's KEK, or a later one.

        Level ``all`` also seals older snapshots under it, whose numbers are not above that of its mark.
        """
        since = -1 if self._of_all is None else self._of_all.since
        return frozenset(number for number in numbers_under(metadata, self._keys.kek) if number > since)

    def _left(self, branch: str) -> int:
        """Return how many live files of a branch hang on older KEKs."""
        metadata, io = self._table.metadata, self._table.io
        head = metadata.snapshot_by_name(branch)
        done = self._done(metadata)
        manifests = () if head is None else head.manifests(io)
        older = [one for one in manifests if one.sequence_number not in done or one.existing_files_count != 0]
        entries = (entry for one in older for entry in one.fetch_manifest_entry(io, discard_deleted=True))
        return sum(_is_older(entry.data_file, done) for entry in entries)

    def _is_sealed(self, branch: str) -> bool:
        """Whether a branch's snapshot is sealed under the rotation's KEK, or a later one."""
        metadata = self._table.metadata
        head = metadata.snapshot_by_name(branch)
        return head is None or head.sequence_number in self._done(metadata)

    def _seal(self, branch: str) -> int:
        """Commit a snapshot that changes nothing; return its id. Files that other writers add meanwhile stay."""
        transaction: Any = self._table.transaction()
        transaction.staged.prepare_kek()
        with EncryptedFastAppend(operation=Operation.REPLACE, transaction=transaction, io=self._table.io, branch=branch) as producer:
            made: int = producer.snapshot_id
        transaction.commit_transaction()
        return made


def take_mark_away(table: OpenTable, mark: str) -> None:
    """Take the mark of the unfinished rotation away; another process may have, or have begun another one."""
    if table.metadata.properties.get(names.ROTATION_KEK) == mark:
        transaction: Any = table.transaction()
        transaction.remove_properties(names.ROTATION_KEK)
        transaction.commit_transaction()


def numbers_under(metadata: TableMetadataV3, kek_id: str | None) -> frozenset[int]:
    """Return the sequence numbers of the snapshots that are sealed under a KEK, or one that was made after it; none for None."""
    return numbers_since(metadata, made_at(metadata, kek_id))


def made_at(metadata: TableMetadataV3, kek_id: str | None) -> int | None:
    """Return when a KEK was made, in ms since 1970; None if the table does not have it."""
    return next((created_ms(key) for key in metadata.encryption_keys if key.key_id == kek_id and KEY_TIMESTAMP in key.properties), None)


def numbers_since(metadata: TableMetadataV3, made_ms: int | None) -> frozenset[int]:
    """Return the sequence numbers of the snapshots that are sealed under a KEK that was made then, or later; none for None."""
    if made_ms is None:
        return frozenset()
    sealed_by = sealing_keks(metadata)
    later = {key.key_id for key in metadata.encryption_keys if KEY_TIMESTAMP in key.properties and created_ms(key) >= made_ms}
    numbers = {snapshot.sequence_number or 0: sealed_by.get(snapshot.snapshot_id) in later for snapshot in metadata.snapshots}
    return frozenset(number for number, is_later in numbers.items() if is_later)


def _is_older(file: DataFile, done: Collection[int]) -> bool:
    return getattr(file, "file_sequence_number", None) not in done


def branches_of(metadata: TableMetadataV3) -> list[str]:
    """Return the names of the branches, main first."""
    found = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]
    return sorted(found, key=lambda name: (name != MAIN_BRANCH, name))


def _with(keys: Rotated, done: list[Compacted]) -> Rotated:
    return replace(
        keys,
        rewritten_files=sum(one.rewritten_files for one in done),
        rewritten_bytes=sum(one.rewritten_bytes for one in done),
        added_files=sum(one.added_files for one in done),
        removed_delete_files=sum(one.removed_delete_files for one in done),
        snapshots=tuple(snapshot for one in done for snapshot in one.snapshots),
    )
