"""Deleting rows by a filter: which files are worked on, on each attempt of a commit.

The work on a data file (``table.cut_files``) is kept with the state that it was done on. On another attempt a file whose state is the
same keeps its result; one with other delete files or other row ids is done again, so no delete is lost. When a file is gone, a change
that replaces rows is in conflict; a delete alone looks for its rows where another writer moved them. Files of an append are not
looked at then: the delete was planned before them.

All deletion vectors of a commit are in one Puffin file, with an entry for each data file (format.md "Delete files").

Not here: the snapshot (``table.row_delta``), isolation levels (``table.conflicts``), the bytes (``io.puffin_write``).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.snapshots import Operation

from icelock.io.puffin_write import DeletionVector, Place, write_vectors
from icelock.metadata.manifest import DataFile
from icelock.table.cut_files import DeleteMode, FileResult, FileState, FileWork
from icelock.table.row_delta import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

    from icelock.io.files import EncryptedOutputFile
    from icelock.table.transaction import EncryptedTransaction


class DeleteByFilter:
    """A ``RowChange``: deletes the rows of a branch that match a filter."""

    def __init__(
        self,
        transaction: EncryptedTransaction,
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool,
        branch: str | None,
        follow_rows: bool,
    ) -> None:
        """Prepare the change; nothing is read.

        Args:
            transaction: whose staged metadata says what is there, on each attempt.
            row_filter: which rows go.
            case_sensitive: whether its column names are.
            branch: where they are; None is the main branch.
            follow_rows: look for rows that other writers moved to other files, instead of failing.

        Raises:
            PolicyError: a ``write.delete.mode`` that is none.
        """
        self._transaction = transaction
        self._filter = row_filter
        self._case_sensitive = case_sensitive
        self._branch = branch
        self._follow = follow_rows
        self._mode = DeleteMode.of(transaction.table_metadata.properties)
        self._results: dict[str, FileResult] = {}
        self._done_on: TableMetadata | None = None
        self._vectors: tuple[DataFile, ...] = ()
        self._vectors_of: list[DeletionVector] = []
        self._obsolete: list[str] = []

    def resolve(self) -> Change:
        """Do the work that is not done yet, and return the change; see ``RowChange``."""
        self._work()
        results = self._results.values()
        return Change(
            removed=[result.file for result in results if result.goes],
            added=[file for result in results for file in result.kept],
            deletes=self._vectors,
            replaced=frozenset().union(*(result.replaced for result in results)),
        )

    def obsolete(self) -> list[str]:
        """Return files of earlier attempts that are no longer needed."""
        found, self._obsolete = self._obsolete, []
        return found

    def _work(self) -> None:
        metadata = self._transaction.table_metadata
        if self._done_on is metadata:
            return
        scan = self._transaction.branch_scan(self._filter, case_sensitive=self._case_sensitive, branch=self._branch)
        tasks = {} if scan is None else {task.file.file_path: task for task in scan.plan_files()}
        first = self._done_on is None
        self._check_gone(tasks)
        before, self._results = self._results, {}
        undone: list[FileScanTask] = []
        for path, task in tasks.items():
            known = before.get(path)
            if known is not None and (not known or known.state == FileState.of(task)):
                self._results[path] = before.pop(path)
            elif known is not None or first or self._may_hold_moved_rows(task, metadata):
                undone.append(task)
        self._obsolete.extend(file.file_path for result in before.values() for file in result.kept)
        if scan is not None:
            work = FileWork(self._transaction, scan, self._mode)
            self._results.update({result.file.file_path: result for result in work.on_all(undone)})
        self._write_vectors()
        self._done_on = metadata

    def _check_gone(self, tasks: Mapping[str, FileScanTask]) -> None:
        gone = sorted(path for path, result in self._results.items() if result and path not in tasks)
        if gone and not self._follow:
            msg = f"another writer removed data files whose rows this change replaces: {', '.join(gone)}; look and do it again"
            raise ValidationException(msg)

    def _may_hold_moved_rows(self, task: FileScanTask, metadata: TableMetadata) -> bool:
        """Whether a file that came after planning may hold rows of before: any but an append's."""
        if not self._follow:
            return False
        number = getattr(task.file, "file_sequence_number", None)
        snapshot = next((snapshot for snapshot in metadata.snapshots if snapshot.sequence_number == number), None)
        return snapshot is None or snapshot.summary is None or snapshot.summary.operation != Operation.APPEND

    def _write_vectors(self) -> None:
        """Write the deletion vectors of all files into one Puffin file, unless they are those of the attempt before."""
        files = [(result.file, result.vector) for result in self._results.values() if result.vector is not None]
        vectors = [vector for _, vector in files]
        if len(vectors) == len(self._vectors_of) and all(one is other for one, other in zip(vectors, self._vectors_of, strict=True)):
            return
        self._obsolete.extend({file.file_path for file in self._vectors})
        self._vectors_of, self._vectors = vectors, ()
        if not vectors:
            return
        location = self._transaction.new_data_location(f"00000-0-{uuid.uuid4()}-00001-deletes.puffin")
        self._transaction.track(location)
        output = self._transaction.current_io().new_encrypted_output(location)
        places = write_vectors(output, vectors)
        self._vectors = tuple(_vector_entry(file, vector, place, output) for (file, vector), place in zip(files, places, strict=True))


def _vector_entry(file: DataFile, vector: DeletionVector, place: Place, output: EncryptedOutputFile) -> DataFile:
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
