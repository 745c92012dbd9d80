"""A row-level change that an engine worked out on one snapshot: the files that it read, and what it wrote for them.

The change holds for the files as they were planned. If the branch has moved on, each file must still be there with the same delete files,
or the change would undo what another writer did.

Not here: isolation levels (``table.commit.conflicts``), the snapshot (``table.commit.row_delta``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyroaring import BitMap64

from icelock.arrow.write.row_rewrite import mark_deleted
from icelock.metadata.manifest import DataFile
from icelock.table.commit.row_delta import Change
from icelock.table.rows.file_rewrite import FileChange, FileResult, FileState
from icelock.table.scan import DataScan
from icelock.table.state import StagesFiles


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
        staged: StagesFiles,
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
