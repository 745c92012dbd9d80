"""What one snapshot changed, by data file: added, removed, or kept with other deletes.

All of it is in the snapshot's own manifests (spec, "Manifests": a removed file stays listed as deleted by the snapshot that removed it), so
the snapshot before it may be expired:

    files after     live entries
    files before    live entries that the snapshot did not add, and those that it marked as deleted

and so for delete files. A file that is kept has other deletes if a delete file of the snapshot, added or removed, applies to it: by
the path that it names, or for equality deletes by sequence number and partition.

Not here: which snapshots (``table.changes.bounds``), the rows (``table.changes``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final

from cachetools import LRUCache
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import FileScanTask

from icelock.metadata.manifest import ManifestFile
from icelock.plan.columnar import columns_pay, entries_at
from icelock.plan.delete_index import DeleteIndex, delete_file_id, referenced_data_file
from icelock.plan.planner import Planner, side_by_side
from icelock.plan.task import DeleteFile, ScanTask, TaskBuilder

_KEPT_MANIFESTS: Final = 64


class FileChangeKind(Enum):
    """What became of a data file."""

    ADDED = "added"
    REMOVED = "removed"
    KEPT = "kept, with other deletes"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A data file that a snapshot changed.

    ``task`` has the deletes that applied before the snapshot, or those after it if the file was added; ``later``, of a kept file, those
    after it. ``loses_deletes``: a delete file applied before the snapshot, and no longer.
    """

    kind: FileChangeKind
    task: ScanTask
    later: ScanTask | None = None
    loses_deletes: bool = False


class ChangePlanner(Planner):
    """A planner of what snapshots changed; the filter prunes files as that of a scan does."""

    def file_changes(
        self, snapshot_id: int, sequence_number: int, manifests: Iterable[ManifestFile], paths_of: Callable[[DeleteFile], Iterable[str]]
    ) -> list[FileChange]:
        """Return the data files that a snapshot changed; ``paths_of`` reads the data files of a position delete file that names none.

        Raises:
            IntegrityError, PolicyError, FormatError: see ``ManifestFile.fetch_manifest_entry``, ``DeleteIndex``.
        """
        listed = list(manifests)
        data = [manifest for manifest in listed if manifest.content == ManifestContent.DATA]
        own = [entry for manifest in self._of(snapshot_id, data) for entry in self._own_entries(manifest, snapshot_id)]
        files = [entry for entry in own if self._may_match(entry)]
        deletes = [manifest for manifest in listed if manifest.content == ManifestContent.DELETES]
        moved = [entry for manifest in self._of(snapshot_id, deletes) for entry in self._own_entries(manifest, snapshot_id)]
        if not moved and all(_is_new(entry, sequence_number) for entry in files):
            return [self._change(entry, set(), None) for entry in files]
        before, after = self._indexes(snapshot_id, deletes)
        found = []
        for entry in files:
            added = entry.status == ManifestEntryStatus.ADDED
            found.append(self._change(entry, (after if added else before).for_data_file(entry), None))
        for entry in self._kept(snapshot_id, data, moved, paths_of):
            was, now = before.for_data_file(entry), after.for_data_file(entry)
            if _ids(was) != _ids(now):
                found.append(self._change(entry, was, now))
        return found

    @staticmethod
    def _of(snapshot_id: int, manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
        return [manifest for manifest in manifests if manifest.added_snapshot_id == snapshot_id]

    def _own_entries(self, manifest: ManifestFile, snapshot_id: int) -> Iterator[ManifestEntry]:
        """Yield the entries that the snapshot added or marked as deleted."""
        for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=False):
            if entry.snapshot_id == snapshot_id and entry.status != ManifestEntryStatus.EXISTING:
                yield entry

    def _may_match(self, entry: ManifestEntry) -> bool:
        file = entry.data_file
        entry_filter = self._entry_filter(file.spec_id)
        return (entry_filter.partition is None or entry_filter.partition(file)) and entry_filter.file(file)

    def _indexes(self, snapshot_id: int, manifests: Sequence[ManifestFile]) -> tuple[DeleteIndex, DeleteIndex]:
        """Return the delete files before the snapshot, and those after it."""
        before, after = (DeleteIndex(self.table_metadata.specs(), self._types.get) for _ in range(2))
        for entries in side_by_side(self._all_deletes, manifests):
            for entry in entries:
                own = entry.snapshot_id == snapshot_id
                if entry.status != ManifestEntryStatus.DELETED:
                    after.add(entry)
                    if not (own and entry.status == ManifestEntryStatus.ADDED):
                        before.add(entry)
                elif own:
                    before.add(entry)
        return before, after

    def _all_deletes(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """Return the entries of a manifest of delete files; snapshots that follow each other share most of them."""
        known = self._delete_manifests.get(manifest.manifest_path)
        if known is None:
            known = self._delete_manifests[manifest.manifest_path] = list(manifest.fetch_manifest_entry(self.io, discard_deleted=False))
        return known

    @cached_property
    def _delete_manifests(self) -> LRUCache[str, list[ManifestEntry]]:
        return LRUCache(_KEPT_MANIFESTS)

    def _kept(
        self,
        snapshot_id: int,
        manifests: Sequence[ManifestFile],
        moved: Sequence[ManifestEntry],
        paths_of: Callable[[DeleteFile], Iterable[str]],
    ) -> Iterator[ManifestEntry]:
        """Yield the data files, neither added nor removed, to which a moved delete file may apply."""
        everywhere = False
        paths: set[str] = set()
        for entry in moved:
            file = entry.data_file
            named = referenced_data_file(file)
            if file.content == DataFileContent.EQUALITY_DELETES:
                everywhere = True
            else:
                paths.update([named] if named is not None else paths_of(self._builder.deletes([file])[0]))
        if not everywhere and not paths:
            return
        as_columns = columns_pay(manifests)

        def entries(manifest: ManifestFile) -> list[ManifestEntry]:
            if everywhere:
                return list(manifest.fetch_manifest_entry(self.io))
            return entries_at(self.io, manifest, paths, as_columns=as_columns)

        for found in side_by_side(entries, manifests):
            for entry in found:
                new = entry.snapshot_id == snapshot_id and entry.status == ManifestEntryStatus.ADDED
                if not new and self._may_match(entry):
                    yield entry

    def _change(self, entry: ManifestEntry, deletes: set[DataFile], later: set[DataFile] | None) -> FileChange:
        file = entry.data_file
        task = self._builder.build(FileScanTask(file, deletes))
        if later is None:
            kind = FileChangeKind.ADDED if entry.status == ManifestEntryStatus.ADDED else FileChangeKind.REMOVED
            return FileChange(kind=kind, task=task)
        after = self._builder.build(FileScanTask(file, later))
        return FileChange(kind=FileChangeKind.KEPT, task=task, later=after, loses_deletes=bool(_ids(deletes) - _ids(later)))

    @cached_property
    def _builder(self) -> TaskBuilder:
        return TaskBuilder(self.schemas)


def _is_new(entry: ManifestEntry, sequence_number: int) -> bool:
    """Whether a file was added under the snapshot's own sequence number: no older delete file applies to it."""
    return entry.status == ManifestEntryStatus.ADDED and (entry.sequence_number or 0) >= sequence_number


def _ids(files: Iterable[Any]) -> set[Any]:
    return {delete_file_id(file) for file in files}
