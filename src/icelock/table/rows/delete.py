"""Deleting rows by a filter: which files are rewritten, on each attempt of a commit.

Results (``table.rows.file_rewrite``) are kept from attempt to attempt. A file in the same state keeps its result; one with other delete
files or row ids is worked on again, so no delete is lost. If another writer removed a file, a change that replaces rows is in conflict,
unless it was a compaction, which changes no row: then all is planned again on the files that are there now. A delete alone looks for its
rows in the files that they were moved to. Files whose rows are all newer than the delete are left alone.

Not here: the work on a file (``arrow.write.row_rewrite``), the snapshot (``table.commit.row_delta``), isolation levels
(``table.commit.conflicts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icelock.arrow.read.task import read_task
from icelock.arrow.write.row_rewrite import DELETE_MODE, REMOVED, DeleteMode
from icelock.metadata.metadata_columns import ROW_ID
from icelock.plan.whole_files import split_by_coverage
from icelock.table.commit.conflicts import Conflicts, Window
from icelock.table.commit.row_delta import Change
from icelock.table.commit.staged import Staged
from icelock.table.read.scan import DataScan
from icelock.table.rows.file_rewrite import FileChange, FileResult, FileRewriter, FileState


class DeleteByFilter(FileChange):
    """A ``RowChange``: deletes the rows of a branch that match a filter."""

    mode_property = DELETE_MODE
    plans_again = True
    """Rows that compactions move are looked for in the files where they are now."""

    def __init__(
        self,
        staged: Staged,
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool,
        branch: str | None,
        follow_rows: bool,
    ) -> None:
        """Prepare the change; nothing is read. ``follow_rows``: look for rows that other writers moved to other files, instead of failing.

        Raises:
            PolicyError: an invalid ``write.delete.mode``.
        """
        super().__init__(staged)
        self._filter = row_filter
        self._case_sensitive = case_sensitive
        self._branch = branch
        self._follow = follow_rows
        self._mode = DeleteMode.of(staged.metadata.properties, self.mode_property)
        self._results: dict[str, FileResult] = {}
        self._done_on: TableMetadata | None = None
        self._new_rows_from = 0

    def resolve(self) -> Change:
        """Do the work that is left, and return the change; see ``RowChange``."""
        self._work()
        return self._change_of(self._results.values())

    def touches(self, data_file: str) -> bool:
        """Whether a data file had matching rows when it was looked at."""
        return bool(self._results.get(data_file))

    def _work(self) -> None:
        metadata = self._staged.metadata
        if self._done_on is metadata:
            return
        scan = self._staged.branch_scan(self._filter, case_sensitive=self._case_sensitive, branch=self._branch)
        planned = {} if scan is None else {file.file.file_path: file for file in scan.plan_files()}
        first = self._done_on is None
        if first:
            self._new_rows_from = self._staged.metadata.next_row_id
        removed = set() if self._follow else {path for path, result in self._results.items() if result and path not in planned}
        if removed:
            self._check_moved(removed)
        before, self._results = self._results, {}
        to_do: list[FileScanTask] = []
        for path, file in planned.items():
            known = None if removed else before.get(path)
            if known is not None and (not known or known.state == FileState.of(file)):
                self._results[path] = before.pop(path)
            elif known is not None or first or removed or self._holds_moved_rows(scan, file):
                to_do.append(file)
        self._obsolete.extend(file.file_path for result in before.values() for file in result.added)
        if scan is not None:
            self._results.update({result.file.file_path: result for result in self._rewritten(scan, to_do)})
        self._done_on = metadata

    def _rewritten(self, scan: DataScan, planned: Sequence[FileScanTask]) -> Iterable[FileResult]:
        """Return the results of files of a scan."""
        whole, others = split_by_coverage(planned, scan.full_schema, scan.exact_filter)
        yield from (FileResult.of(file, REMOVED) for file in whole)
        rewriter = FileRewriter(self._staged, scan, self._mode)
        yield from rewriter.each(lambda file: FileResult.of(file, rewriter.rewrite(rewriter.task_of(file))), others)

    def _check_moved(self, removed: set[str]) -> None:
        """Refuse that files with rows of the change were removed since they were looked at, unless compactions moved the rows."""
        ref = self._branch or MAIN_BRANCH
        base = None if self._done_on is None else self._done_on.snapshot_by_name(ref)
        metadata = self._staged.metadata
        head = metadata.snapshot_by_name(ref)
        if head is not None:
            window = Window(base=base, head=head)
            removed = removed - Conflicts(metadata, self._staged.io, window, None, case_sensitive=True).moved_files()
        if removed:
            names = ", ".join(sorted(removed))
            raise ValidationException(
                f"another writer removed data files whose rows this change replaces: {names}; reload the table and retry"
            )

    def _holds_moved_rows(self, scan: DataScan | None, file: FileScanTask) -> bool:
        """Whether a file that was committed later has matching rows whose ids were assigned before the delete was planned.

        An append has none. Other files are read.
        """
        if not self._follow or scan is None:
            return False
        number = getattr(file.file, "file_sequence_number", None)
        snapshot = next((snapshot for snapshot in scan.table_metadata.snapshots if snapshot.sequence_number == number), None)
        if snapshot is not None and snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND:
            return False
        task = scan._task_builder.build(file)  # noqa: SLF001 - of the same layer
        ids = (batch.column(0) for batch in read_task(scan.read_context(Schema(ROW_ID)), task))
        return any(pc.any(pc.less(column, self._new_rows_from)).as_py() for column in ids)
