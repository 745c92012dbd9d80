"""A row-level change that an engine worked out on one snapshot: which files it read, and what it wrote for them.

The change holds for the files as they were planned. On a branch that has moved on since, each of them must still be there with the same
delete files, or the change would undo what another writer did.

Not here: isolation levels (``table.commit.conflicts``), the snapshot (``table.commit.row_delta``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import ValidationException

from icelock.table.commit.row_delta import Change
from icelock.table.rows.file_work import DeleteMode, FileResult, FileState, FileWork, unchanged_file
from icelock.table.rows.vector_file import VectorFile

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import FileScanTask
    from pyroaring import BitMap64

    from icelock.metadata.manifest import DataFile
    from icelock.table.commit.staging import Staging
    from icelock.table.scan import DataScan


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWork:
    """What an engine's tasks did.

    Args:
        removed: data files of the plan whose rows were read and written again.
        added: new data files. Rows of before carry both columns of row lineage (``table.rows.file_work.lineage_schema``), changed ones
            their ``_row_id`` and null, new ones null and null.
        cut: data files of the plan, each with the positions of live rows that go; their deletion vectors are made here.
    """

    removed: Sequence[FileScanTask] = ()
    added: Sequence[DataFile] = ()
    cut: Sequence[tuple[FileScanTask, BitMap64]] = ()


class EngineChange:
    """A ``RowChange`` of files that were worked out elsewhere."""

    def __init__(
        self,
        transaction: Staging,
        change: EngineWork,
        row_filter: BooleanExpression,
        base_snapshot_id: int | None,
        *,
        case_sensitive: bool,
        branch: str | None,
    ) -> None:
        self._transaction = transaction
        self._change = change
        self._filter = row_filter
        self._base_snapshot_id = base_snapshot_id
        self._case_sensitive = case_sensitive
        self._branch = branch
        self._vectors = VectorFile(transaction)
        self._results: list[FileResult] | None = None
        self._obsolete: list[str] = []

    def resolve(self) -> Change:
        """Check that the files are as they were planned, and return the change; see ``RowChange``."""
        scan = self._transaction.branch_scan(self._filter, case_sensitive=self._case_sensitive, branch=self._branch)
        head = None if scan is None else scan.snapshot()
        if (None if head is None else head.snapshot_id) != self._base_snapshot_id:
            self._check_files(scan)
        if self._results is None:
            work = None if scan is None else _Given(self._transaction, scan, DeleteMode.MERGE_ON_READ)
            self._results = [] if work is None else [work.cut(planned, positions) for planned, positions in self._change.cut]
        vectors = [(result.file, result.vector) for result in self._results if result.vector is not None]
        self._obsolete.extend(self._vectors.write(vectors))
        removed = [planned.file for planned in self._change.removed]
        return Change(
            removed=[*removed, *(result.file for result in self._results if result.goes)],
            added=self._change.added,
            deletes=self._vectors.entries,
            replaced=frozenset().union(*(result.replaced for result in self._results)),
        )

    def obsolete(self) -> list[str]:
        """Return files of earlier attempts that are no longer needed."""
        found, self._obsolete = self._obsolete, []
        return found

    def touches(self, data_file: str) -> bool:
        """Whether the engine may have looked at a data file: which it did without changing it, is not known."""
        del data_file
        return True

    def _check_files(self, scan: DataScan | None) -> None:
        there = {} if scan is None else {planned.file.file_path: FileState.of(planned) for planned in scan.plan_files()}
        wanted = [*self._change.removed, *(planned for planned, _ in self._change.cut)]
        moved = sorted(planned.file.file_path for planned in wanted if there.get(planned.file.file_path) != FileState.of(planned))
        if moved:
            raise ValidationException(
                f"another writer changed data files that this change was worked out on: {', '.join(moved)}; look and do it again"
            )


class _Given(FileWork):
    def cut(self, planned: FileScanTask, positions: BitMap64) -> FileResult:
        """Return what becomes of a data file some of whose rows go."""
        return self._with_vector(planned, positions) if positions else unchanged_file(planned)

    def _on(self, planned: FileScanTask) -> FileResult:
        return unchanged_file(planned)
