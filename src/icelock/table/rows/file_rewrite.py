"""Row changes that rewrite data files: the result of each file, and the deletion vectors of a commit.

A result holds for the state of the file that it was worked out on: row ids, sequence number and delete files. All vectors of an attempt
are in one Puffin file (format.md "Delete files"), which is written again only if one of them is another than in the attempt before.

``EngineChange`` is what an engine worked out on one snapshot: the files that it read, and what it wrote for them. It holds for the files as
they were planned. If the branch has moved on, each file must still be there with the same delete files, or the change would undo what
another writer did.

Not here: which files (``table.rows.delete``, ``table.rows.upsert``), the work on a file (``arrow.write.row_rewrite``), the bytes of vectors
(``io.puffin.write``), isolation levels (``table.commit.conflicts``), the snapshot (``table.commit.row_delta``).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.utils.concurrent import ExecutorFactory
from pyroaring import BitMap64

from icelock.arrow.write.row_rewrite import DeleteMode, Rewrite, RewriteContext, mark_deleted, rewrite_file, with_lineage
from icelock.io.files import EncryptedOutputFile
from icelock.io.puffin.write import DeletionVector, Place, write_vectors
from icelock.metadata.manifest import DataFile
from icelock.plan.delete_index import DeleteFileId, delete_file_id, referenced_data_file
from icelock.plan.task import ScanTask
from icelock.table.commit.row_delta import Change
from icelock.table.commit.staged import Staged
from icelock.table.read.scan import DataScan


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What the result of a data file depends on, beside the filter."""

    first_row_id: int | None
    sequence_number: int | None
    deletes: frozenset[DeleteFileId]

    @classmethod
    def of(cls, planned: FileScanTask) -> FileState:
        """Return the state that a plan found a file in."""
        return cls(
            first_row_id=getattr(planned.file, "first_row_id", None),
            sequence_number=getattr(planned.file, "sequence_number", None),
            deletes=frozenset(delete_file_id(delete) for delete in planned.delete_files),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What becomes of one data file: it is removed, and ``added`` hold the rows that it keeps; or it gets a ``vector``; or nothing.

    ``replaced`` are delete files in whose place the vector comes.
    """

    file: DataFile
    state: FileState
    removed: bool
    added: tuple[DataFile, ...]
    vector: DeletionVector | None
    replaced: frozenset[DeleteFileId]

    @classmethod
    def of(cls, planned: FileScanTask, rewrite: Rewrite, **more: Any) -> Self:
        """Return the result of a planned file; ``more`` are fields of a subclass."""
        path = planned.file.file_path
        vector = None if rewrite.deleted is None else DeletionVector.of(path, rewrite.deleted)
        own = [] if vector is None else [delete for delete in planned.delete_files if referenced_data_file(delete) == path]
        return cls(
            file=planned.file,  # type: ignore[arg-type]  # our DataFile
            state=FileState.of(planned),
            removed=rewrite.removed,
            added=rewrite.files,
            vector=vector,
            replaced=frozenset(delete_file_id(delete) for delete in own),
            **more,
        )

    def __bool__(self) -> bool:
        """Whether the file has to be there when the change is committed."""
        return self.removed or self.vector is not None


class FileRewriter:
    """Rewrites data files of one scan; new files are deleted with the transaction's if it fails."""

    def __init__(self, staged: Staged, scan: DataScan, mode: DeleteMode) -> None:
        self._staged = staged
        self.read = scan.read_context(Schema())
        self._context = RewriteContext(
            read=self.read,
            write=lambda: with_lineage(staged.write_context()),
            mode=mode,
            entropy=staged.entropy,
        )
        self._numbers = itertools.count()
        self.task_of: Callable[[FileScanTask], ScanTask] = scan._task_builder.build  # noqa: SLF001 - of the same layer

    def rewrite(self, task: ScanTask, positions: BitMap64 | None = None) -> Rewrite:
        """Delete rows of a data file: those at ``positions``, or those that match the scan's filter."""
        rewrite = rewrite_file(self._context, task, positions, task_id=next(self._numbers))
        self._staged.track(*(file.file_path for file in rewrite.files))
        return rewrite

    def each(self, work: Callable[[FileScanTask], FileResult], planned: Sequence[FileScanTask]) -> Iterable[FileResult]:
        """Do the work on each file: side by side, unless files are written, each of which takes the memory of a row group."""
        return map(work, planned) if self._context.mode is DeleteMode.COPY_ON_WRITE else ExecutorFactory.get_or_create().map(work, planned)


class FileChange:
    """The part that ``RowChange``s of results have in common."""

    def __init__(self, staged: Staged) -> None:
        self._staged = staged
        self._obsolete: list[str] = []
        self._vectors: list[DeletionVector] = []
        self._vector_entries: tuple[DataFile, ...] = ()

    def obsolete(self) -> list[str]:
        """Return files of earlier attempts that are no longer needed."""
        found, self._obsolete = self._obsolete, []
        return found

    def _change_of(self, results: Iterable[FileResult]) -> Change:
        """Return the change that results make; their vectors are written."""
        results = list(results)
        self._write_vectors([(result.file, result.vector) for result in results if result.vector is not None])
        return Change(
            removed=[result.file for result in results if result.removed],
            added=[file for result in results for file in result.added],
            deletes=self._vector_entries,
            replaced=frozenset().union(*(result.replaced for result in results)),
        )

    def _write_vectors(self, files: Sequence[tuple[DataFile, DeletionVector]]) -> None:
        vectors = [vector for _, vector in files]
        if [id(vector) for vector in vectors] == [id(vector) for vector in self._vectors]:
            return
        self._obsolete.extend({entry.file_path for entry in self._vector_entries})
        self._vectors, self._vector_entries = vectors, ()
        if vectors:
            location = self._staged.locations.new_data_location(f"00000-0-{uuid.uuid4()}-00001-deletes.puffin")
            self._staged.track(location)
            output = self._staged.io.new_encrypted_output(location)
            places = write_vectors(output, vectors)
            self._vector_entries = tuple(
                vector_entry(file, vector, place, output) for (file, vector), place in zip(files, places, strict=True)
            )


def vector_entry(file: DataFile, vector: DeletionVector, place: Place, output: EncryptedOutputFile) -> DataFile:
    """Return the manifest entry of the vector of a data file, which was written to an output."""
    entry = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=output.location,
        file_format=FileFormat.PUFFIN,
        partition=file.partition,
        record_count=vector.cardinality,
        file_size_in_bytes=len(output),
        key_metadata=output.key_metadata.encode(),
        referenced_data_file=file.file_path,
        content_offset=place.offset,
        content_size_in_bytes=place.length,
    )
    entry.spec_id = file.spec_id
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWork:
    """What an engine's tasks did.

    Args:
        removed: data files of the plan whose remaining rows were written to new files.
        added: new data files. Rows that were only copied carry both columns of row lineage (``arrow.write.row_rewrite``),
            changed rows their ``_row_id`` and null, new rows null and null.
        deleted: data files of the plan, each with positions of rows to delete; their deletion vectors are made here.
    """

    removed: Sequence[FileScanTask] = ()
    added: Sequence[DataFile] = ()
    deleted: Sequence[tuple[FileScanTask, BitMap64]] = ()


class EngineChange(FileChange):
    """A ``RowChange`` of an engine's work."""

    def __init__(
        self,
        staged: Staged,
        work: EngineWork,
        row_filter: BooleanExpression,
        base_snapshot_id: int | None,
        *,
        case_sensitive: bool,
        branch: str | None,
    ) -> None:
        super().__init__(staged)
        self._work = work
        self._filter = row_filter
        self._base_snapshot_id = base_snapshot_id
        self._case_sensitive = case_sensitive
        self._branch = branch
        self._results: list[FileResult] | None = None

    def resolve(self) -> Change:
        """Check that the files are as they were planned, and return the change; see ``RowChange``."""
        scan = self._staged.branch_scan(self._filter, case_sensitive=self._case_sensitive, branch=self._branch)
        head = None if scan is None else scan.snapshot()
        if (None if head is None else head.snapshot_id) != self._base_snapshot_id:
            self._check_files(scan)
        if self._results is None and scan is not None:
            read, task_of = scan.read_context(Schema()), scan._task_builder.build  # noqa: SLF001 - of the same layer
            marked = ((file, mark_deleted(read, task_of(file), positions)) for file, positions in self._work.deleted)
            self._results = [FileResult.of(file, rewrite) for file, rewrite in marked]
        change = self._change_of(self._results or [])
        return replace(change, removed=[*(file.file for file in self._work.removed), *change.removed], added=self._work.added)

    def touches(self, data_file: str) -> bool:
        """Whether the change rests on a data file: it may, since files that the engine read and left unchanged are not known."""
        del data_file
        return True

    def _check_files(self, scan: DataScan | None) -> None:
        now = {} if scan is None else {file.file.file_path: FileState.of(file) for file in scan.plan_files()}
        planned = [*self._work.removed, *(file for file, _ in self._work.deleted)]
        changed = sorted(file.file.file_path for file in planned if now.get(file.file.file_path) != FileState.of(file))
        if changed:
            raise ValidationException(
                f"another writer changed data files that this change was worked out on: {', '.join(changed)}; reload the table and retry"
            )
