"""Data files in the place of others that hold the same rows, in one snapshot whose operation is ``replace`` (Java RewriteFiles).

Files come in groups: the live rows of a group's removed files are in its added files, and no others. Other writers may commit while the
files are written. By what they did since the snapshot that the work was planned on, a group is committed or left out:

    data files of the group are gone                        left out: its rows are elsewhere now, or deleted
    positions of them were deleted                          left out: the added files have those rows; so they may if deletes were only
                                                            rewritten, as equality deletes that came in may be among these positions
    equality deletes came in                                committed: the added files keep the sequence number of that snapshot, so
                                                            that later equality deletes apply to their rows; left out if the added files
                                                            have another partition spec, in which these do not apply
    files were added                                        committed

Groups that are left out have to be done again, on the present rows (``dropped``).

Not here: which files belong in a group, and who writes them (``table.maintenance.compaction.compact``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import UpdatesAndRequirements
from pyiceberg.transforms import VoidTransform

from icelock.metadata.manifest import DataFile as EncryptedDataFile
from icelock.plan.delete_index import referenced_data_file
from icelock.plan.partition_set import PartitionSet
from icelock.table.commit.conflicts import Window
from icelock.table.commit.row_delta import Change, EncryptedOverwrite
from icelock.table.commit.staged import Staged

_MOVES_NOTHING: Final = (Operation.APPEND,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Data files to remove, and those that have their live rows."""

    removed: Sequence[DataFile]
    added: Sequence[EncryptedDataFile]


class GroupsChange:
    """A ``RowChange``: the groups that other writers' commits leave as they were planned on the snapshot ``base``.

    ``kept`` are these groups, as far as attempts were made, and ``dropped`` the others.
    """

    def __init__(self, staged: Staged, groups: Sequence[FileGroup], base: Snapshot, branch: str) -> None:
        self._staged = staged
        self.kept = list(groups)
        self._base = base
        self._branch = branch
        self.dropped: list[FileGroup] = []

    def resolve(self) -> Change:
        """Return the change that the remaining groups make.

        Raises:
            ValidationException: the branch does not come from ``base`` any more.
        """
        touched = self._touched()
        kept: list[FileGroup] = []
        for group in self.kept:
            (kept if touched.isdisjoint(file.file_path for file in group.removed) else self.dropped).append(group)
        self.kept = kept
        return Change(
            removed=[file for group in kept for file in group.removed],
            added=[file for group in kept for file in group.added],
        )

    def obsolete(self) -> list[str]:
        """Return nothing: files of groups that were left out are deleted by who wrote them."""
        return []

    def touches(self, data_file: str) -> bool:
        """Whether a data file is in one of the groups."""
        return any(file.file_path == data_file for group in self.kept for file in group.removed)

    def _touched(self) -> set[str]:
        """Return which data files of the groups others removed, or deleted positions of, since ``base``."""
        metadata = self._staged.committed.metadata
        head = metadata.snapshot_by_name(self._branch)
        if head is None or metadata.snapshot_by_id(self._base.snapshot_id) is None:
            raise ValidationException(
                f"branch {self._branch!r} of table {self._staged.name} does not come from snapshot {self._base.snapshot_id} any more, "
                "whose files were rewritten; reload the table and plan it again"
            )
        places = PartitionSet()
        for group in self.kept:
            for file in group.removed:
                places.add(file)
        found: set[str] = set()
        for snapshot in Window(base=self._base, head=head).snapshots(metadata):
            found.update(self._touched_by(snapshot, places))
        return found

    def _touched_by(self, snapshot: Snapshot, places: PartitionSet) -> Iterator[str]:
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation in _MOVES_NOTHING:
            return
        for manifest in snapshot.manifests(self._staged.committed.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            deletes = manifest.content == ManifestContent.DELETES
            wanted = ManifestEntryStatus.ADDED if deletes else ManifestEntryStatus.DELETED
            for entry in manifest.fetch_manifest_entry(self._staged.committed.io, discard_deleted=False):
                if entry.status == wanted and entry.snapshot_id == snapshot.snapshot_id:
                    yield from self._paths(entry.data_file, places, deletes=deletes)

    def _paths(self, file: DataFile, places: PartitionSet, *, deletes: bool) -> Iterable[str]:
        if not deletes:
            return (file.file_path,)
        if file.equality_ids:
            return self._moved_out(file)
        about = referenced_data_file(file)
        if about is not None:
            return (about,)
        if file not in places:
            return ()
        inside = PartitionSet()
        inside.add(file)
        return (planned.file_path for group in self.kept for planned in group.removed if planned in inside)

    def _moved_out(self, deletes: DataFile) -> Iterator[str]:
        """Yield data files of the partition of equality deletes whose rows are no longer in it."""
        if all(isinstance(field.transform, VoidTransform) for field in self._staged.metadata.specs()[deletes.spec_id].fields):
            return  # they apply everywhere
        inside = PartitionSet()
        inside.add(deletes)
        for group in self.kept:
            if any(file.spec_id != deletes.spec_id for file in group.added):
                yield from (planned.file_path for planned in group.removed if planned in inside)


class EncryptedRewrite(EncryptedOverwrite):
    """The producer: operation ``replace``; added files have the data sequence number of the snapshot that their rows come from.

    A copy has the number of its file.
    """

    reads_data = False  # another attempt reads manifests only

    def rewrite(self, change: GroupsChange, *, sequence_number: int) -> None:
        """Let the snapshot make a change of groups; no snapshot is made if none is left.

        Args:
            change: the groups.
            sequence_number: of the snapshot that they were planned on.
        """
        self.data_sequence_number = sequence_number
        self.apply(change, may_be_empty=True)

    def named_columns(self, schema: Schema) -> Iterable[int]:
        """Return no column: rows are not found by name."""
        del schema
        return ()

    def _sequence_number_of(self, file: DataFile) -> int | None:
        """Return that of the file itself, if it is a copy, whose rows inherit it."""
        own: int | None = getattr(file, "sequence_number", None)
        return self.data_sequence_number if own is None else own

    def _commit(self) -> UpdatesAndRequirements:
        return self._unless_expired(super()._commit)

    def _what_it_does(self) -> Operation:
        return Operation.REPLACE

    def _validate_concurrency(self) -> None:
        """Nothing: the change leaves out what others touched."""

    def _conflicts(self, table: Any, commits: Any) -> Any:
        """Not used."""
        raise NotImplementedError
