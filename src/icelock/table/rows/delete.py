"""Deleting rows by a filter: which files are worked on, on each attempt of a commit.

The work on a data file (``table.rows.file_work``) is kept with the state that it was done on. On another attempt a file whose state is the
same keeps its result; one with other delete files or other row ids is done again, so no delete is lost. When a file is gone, a change
that replaces rows is in conflict; a delete alone looks for its rows where another writer moved them. Files that hold rows of later only
are left as they are: the delete was planned before them.

Not here: the snapshot (``table.commit.row_delta``), isolation levels (``table.commit.conflicts``), the vectors' file
(``table.rows.vector_file``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationException
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation

from icelock.arrow.read.task import read_task
from icelock.metadata.metadata_columns import ROW_ID
from icelock.table.commit.row_delta import Change
from icelock.table.rows.file_work import DELETE_MODE, DeleteMode, FileResult, FileState, FilterWork
from icelock.table.rows.vector_file import VectorFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

    from icelock.table.commit.staging import Staging
    from icelock.table.rows.file_work import FileWork
    from icelock.table.scan import DataScan


class DeleteByFilter:
    """A ``RowChange``: deletes the rows of a branch that match a filter."""

    mode_property = DELETE_MODE

    def __init__(
        self,
        transaction: Staging,
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
        self._mode = DeleteMode.of(transaction.table_metadata.properties, self.mode_property)
        self._results: dict[str, FileResult] = {}
        self._done_on: TableMetadata | None = None
        self._new_rows_from = 0
        self._vectors = VectorFile(transaction)
        self._obsolete: list[str] = []

    def resolve(self) -> Change:
        """Do the work that is not done yet, and return the change; see ``RowChange``."""
        self._work()
        results = self._results.values()
        return Change(
            removed=[result.file for result in results if result.goes],
            added=[file for result in results for file in result.kept],
            deletes=self._vectors.entries,
            replaced=frozenset().union(*(result.replaced for result in results)),
        )

    def obsolete(self) -> list[str]:
        """Return files of earlier attempts that are no longer needed."""
        found, self._obsolete = self._obsolete, []
        return found

    def touches(self, data_file: str) -> bool:
        """Whether a data file has rows that matched when it was looked at."""
        return bool(self._results.get(data_file))

    def _work(self) -> None:
        metadata = self._transaction.table_metadata
        if self._done_on is metadata:
            return
        scan = self._transaction.branch_scan(self._filter, case_sensitive=self._case_sensitive, branch=self._branch)
        tasks = {} if scan is None else {task.file.file_path: task for task in scan.plan_files()}
        first = self._done_on is None
        if first:
            self._new_rows_from = self._transaction.encrypted_metadata().next_row_id
        self._check_gone(tasks)
        before, self._results = self._results, {}
        undone: list[FileScanTask] = []
        for path, task in tasks.items():
            known = before.get(path)
            if known is not None and (not known or known.state == FileState.of(task)):
                self._results[path] = before.pop(path)
            elif known is not None or first or (self._may_hold_moved_rows(task, metadata) and self._holds_rows_of_before(scan, task)):
                undone.append(task)
        self._obsolete.extend(file.file_path for result in before.values() for file in result.kept)
        if scan is not None:
            work = self._work_of(scan)
            self._results.update({result.file.file_path: result for result in work.on_all(undone)})
        vectors = [(result.file, result.vector) for result in self._results.values() if result.vector is not None]
        self._obsolete.extend(self._vectors.write(vectors))
        self._done_on = metadata

    def _work_of(self, scan: DataScan) -> FileWork:
        """Return what does the work on the files of a scan."""
        return FilterWork(self._transaction, scan, self._mode)

    def _check_gone(self, tasks: Mapping[str, FileScanTask]) -> None:
        gone = sorted(path for path, result in self._results.items() if result and path not in tasks)
        if gone and not self._follow:
            raise ValidationException(
                f"another writer removed data files whose rows this change replaces: {', '.join(gone)}; look and do it again"
            )

    def _may_hold_moved_rows(self, task: FileScanTask, metadata: TableMetadata) -> bool:
        """Whether a file that came after planning may hold rows of before: any but an append's."""
        if not self._follow:
            return False
        number = getattr(task.file, "file_sequence_number", None)
        snapshot = next((snapshot for snapshot in metadata.snapshots if snapshot.sequence_number == number), None)
        return snapshot is None or snapshot.summary is None or snapshot.summary.operation != Operation.APPEND

    def _holds_rows_of_before(self, scan: DataScan | None, task: FileScanTask) -> bool:
        """Whether a file has matching rows whose ids were given before the delete was planned; read from the file."""
        if scan is None:
            return False
        context = scan.read_context(Schema(ROW_ID))
        task_of = scan._task_builder.build  # noqa: SLF001 - of the same layer
        ids = (batch.column(0) for batch in read_task(context, task_of(task)))
        return any(pc.any(pc.less(column, self._new_rows_from)).as_py() for column in ids)
