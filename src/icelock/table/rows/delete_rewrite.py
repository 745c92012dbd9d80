"""Deletes in another form: the deleted rows of a branch as one deletion vector for each data file, and no delete file that none needs.

Each attempt of a commit plans the branch as it is then. A data file in the state of the attempt before keeps its vector; one with other
delete files is read again. A delete file is removed if afterwards no data file needs it: by the same rules as a scan decides which delete
files apply (``plan.delete_index``), so what is removed deletes no row of any file that is there.

Position deletes apply to files by the bounds of the names that they hold, and a file that is written later may have a name between
these. Who wrote such files says so (``written_later``): what was committed before a file cannot name it.

A file whose rows are all deleted is removed with its deletes. A file that equality deletes may hit, and hit no row of, gets no vector.
Held are entries of data files with deletes, and their vectors until the commit.

Not here: reading deletes (``arrow.read.deletes``), the snapshot (``table.commit.rewrite``), compaction
(``table.maintenance.compaction.compact``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.utils.concurrent import ExecutorFactory
from pyroaring import BitMap64

from icelock.arrow.write.row_rewrite import REMOVED, UNCHANGED, Rewrite, deleted_rows
from icelock.plan.delete_index import DeleteFileId, delete_file_id, is_vector
from icelock.table.commit.row_delta import Change
from icelock.table.commit.staged import Staged
from icelock.table.read.scan import DataScan
from icelock.table.rows.file_rewrite import FileChange, FileResult, FileState

Progress = Callable[[int, int], None]
"""Told after each data file: bytes of files that were read so far, and of all."""
_AT_ONCE = 64


class FindDeleted(Protocol):
    """Finds the deleted rows of data files: ``find_here``, or an engine's tasks."""

    def __call__(self, scan: DataScan, files: Sequence[FileScanTask]) -> Iterator[BitMap64]:
        """Yield the positions of the deleted rows of each file of a scan, in order; errors are those of ``deleted_rows``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDeletes:
    """What is to do on one version of a branch.

    Args:
        files: data files whose deletes become a vector.
        obsolete: delete files that no data file needs once they have; ``dangling`` are those of them that none needs now.
    """

    files: Sequence[FileScanTask]
    obsolete: frozenset[DeleteFileId]
    dangling: frozenset[DeleteFileId]


class DeletesChange(FileChange):
    """A ``RowChange``: deletes of a branch become vectors, and delete files that apply to no data file are removed.

    Args:
        staged: the transaction's.
        branch: whose deletes.
        vectors: whether vectors are made; else delete files that no data file needs are removed, and that is all.
        find: who reads the deletes.
        progress: see ``Progress``.
        written_later: data files that the caller has written and committed: position deletes of before do not apply to them.
    """

    def __init__(
        self,
        staged: Staged,
        branch: str,
        *,
        vectors: bool,
        find: FindDeleted,
        progress: Progress | None = None,
        written_later: Collection[str] = (),
    ) -> None:
        super().__init__(staged)
        self._written_later = written_later
        self._branch = branch
        self._makes_vectors = vectors
        self._find = find
        self._progress = progress or (lambda _done, _all: None)
        self._results: dict[str, FileResult] = {}
        self.planned = PlannedDeletes(files=(), obsolete=frozenset(), dangling=frozenset())

    def touches(self, data_file: str) -> bool:
        """Whether a data file gets a vector, or is removed."""
        return bool(self._results.get(data_file))

    def resolve(self) -> Change:
        """Read what was not read for an earlier attempt, and return the change; see ``RowChange``."""
        scan = self._scan()
        self.planned = self.plan() if scan is not None else self.planned
        before, self._results = self._results, {}
        to_do = []
        for file in self.planned.files:
            known = before.get(file.file.file_path)
            if known is not None and known.state == FileState.of(file):
                self._results[file.file.file_path] = known
            else:
                to_do.append(file)
        for result in self._read(scan, to_do) if scan is not None else ():
            self._results[result.file.file_path] = result
        change = self._change_of(self._results.values())
        return replace(change, replaced=self.planned.obsolete)

    def plan(self) -> PlannedDeletes:
        """Return what is to do on the transaction's present metadata."""
        there = frozenset(self._delete_files())
        scan = self._scan()
        if not there or scan is None:
            return PlannedDeletes(files=(), obsolete=frozenset(), dangling=frozenset())
        files, needed, used = [], set(), set()
        for task in self._files_with_deletes(scan):
            ids = {delete_file_id(delete) for delete in task.delete_files}
            used |= ids
            if self._makes_vectors and not _is_done(task):
                files.append(task)
            else:
                needed |= ids
        return PlannedDeletes(files=files, obsolete=there - needed, dangling=there - used)

    def _files_with_deletes(self, scan: DataScan) -> Iterator[FileScanTask]:
        """Yield data files to which delete files apply; the others are not held."""
        snapshot = scan.snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(self._staged.io)
        planner = scan._manifest_planner  # noqa: SLF001 - of the same layer
        deletes = planner.delete_index(manifests)
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        for entry in chain.from_iterable(planner.plan_manifest_entries(data)):
            found = {delete for delete in deletes.for_data_file(entry) if not self._is_older_than(entry, delete)}
            if found:
                yield FileScanTask(entry.data_file, delete_files=found)

    def _is_older_than(self, entry: Any, delete: Any) -> bool:
        """Whether a delete file names positions, and was committed before the data file of the entry, which the caller has written."""
        if entry.data_file.file_path not in self._written_later or delete.content != DataFileContent.POSITION_DELETES:
            return False
        older: bool = delete.file_sequence_number < entry.file_sequence_number
        return older

    def _scan(self) -> DataScan | None:
        return self._staged.branch_scan(AlwaysTrue(), case_sensitive=True, branch=self._branch)

    def _delete_files(self) -> Iterator[DeleteFileId]:
        head = self._staged.metadata.snapshot_by_name(self._branch)
        for manifest in [] if head is None else head.manifests(self._staged.io):
            if manifest.content == ManifestContent.DELETES:
                for entry in manifest.fetch_manifest_entry(self._staged.io, discard_deleted=True):
                    yield delete_file_id(entry.data_file)

    def _read(self, scan: DataScan, files: Sequence[FileScanTask]) -> Iterator[FileResult]:
        whole, done = sum(file.file.file_size_in_bytes for file in files), 0
        for file, deleted in zip(files, self._find(scan, files), strict=True):
            done += file.file.file_size_in_bytes
            self._progress(done, whole)
            if len(deleted) == file.file.record_count:
                yield FileResult.of(file, REMOVED)
            else:
                yield FileResult.of(file, Rewrite(deleted=deleted) if deleted else UNCHANGED)


def find_here(scan: DataScan, files: Sequence[FileScanTask]) -> Iterator[BitMap64]:
    """Find deleted rows by threads of this process; see ``FindDeleted``."""
    read, task_of = scan.read_context(Schema()), scan._task_builder.build  # noqa: SLF001 - of the same layer
    for start in range(0, len(files), _AT_ONCE):
        yield from ExecutorFactory.get_or_create().map(lambda file: deleted_rows(read, task_of(file)), files[start : start + _AT_ONCE])


def _is_done(task: FileScanTask) -> bool:
    """Whether the deletes of a data file are one vector, and no other."""
    return len(task.delete_files) == 1 and all(map(is_vector, task.delete_files))
