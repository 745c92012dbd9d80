"""``incremental_append_scan``: the rows that append snapshots added between two snapshots (PyIceberg's, with decryption).

Snapshots of other operations are skipped with their rows; delete files are ignored, so rows that were deleted later still count as added
(as in Java and PyIceberg). The schema is the table's current one.

Not here: reading (``table.scan``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table import IncrementalAppendScan as IcebergIncrementalAppendScan
from pyiceberg.table.snapshots import Operation, ancestors_between_ids

from icelock.arrow.read.task import count_task
from icelock.plan.task import ScanTask
from icelock.table.scan import DataScan, Filtered


class IncrementalAppendScan(Filtered, IcebergIncrementalAppendScan):
    """PyIceberg's ``IncrementalAppendScan`` that decrypts; every method raises IntegrityError when bytes were changed."""

    def projection(self) -> Schema:
        """Return the selected columns of the table's current schema, and the named metadata columns."""
        return self._rows().projection()

    def plan_files(self) -> list[FileScanTask]:
        """Return the files that append snapshots of the range added and that may hold matching rows.

        Raises:
            ValueError: a snapshot does not exist, or is not an ancestor of the other (PyIceberg's error).
        """
        return self._rows().plan_files()

    def scan_tasks(self) -> list[ScanTask]:
        """Return the plan as ``ScanTask``, for engines."""
        return list(self._rows().iter_tasks())

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all matching rows into one Arrow table."""
        return self._rows().to_arrow(dictionary_columns)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """Return a reader that yields record batches, file after file."""
        return self._rows().to_arrow_batch_reader(dictionary_columns)

    def count(self) -> int:
        """Return the number of matching rows; without a filter no data file is read."""
        return self._rows().count()

    def _rows(self) -> _AddedRows:
        rows = _AddedRows(
            table_metadata=self.table_metadata,
            io=self.io,
            row_filter=self.row_filter,
            selected_fields=self.selected_fields,
            case_sensitive=self.case_sensitive,
            options=self.options,
            limit=self.limit,
        )
        rows.by = self._append_snapshots()
        return rows

    def _append_snapshots(self) -> frozenset[int]:
        if self.from_snapshot_id is None and self.to_snapshot_id is None and self.table_metadata.current_snapshot() is None:
            return frozenset()
        first, last = self._validate_and_resolve_snapshots()
        between = ancestors_between_ids(first, last, self.table_metadata)
        return frozenset(one.snapshot_id for one in between if one.summary is not None and one.summary.operation == Operation.APPEND)


class _AddedRows(DataScan):
    """A scan of the files that the snapshots ``by`` added."""

    by: frozenset[int] = frozenset()

    def plan_files(self) -> list[FileScanTask]:
        return self._manifest_planner.plan_files(self._manifests(), self._added)

    def iter_tasks(self) -> Iterator[ScanTask]:
        builder = self._task_builder
        return (builder.build(task) for task in self.plan_files())

    def count(self) -> int:
        self.projection()  # refuses unknown columns
        context = self.read_context(Schema())
        total = sum(count_task(context, task) for task in self.iter_tasks())
        return total if self.limit is None else min(total, self.limit)

    def _manifests(self) -> list[ManifestFile]:
        found: dict[str, ManifestFile] = {}
        for snapshot in self.table_metadata.snapshots:
            if snapshot.snapshot_id in self.by:
                for manifest in snapshot.manifests(self.io):
                    if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in self.by:
                        found[manifest.manifest_path] = manifest
        return list(found.values())

    def _added(self, entry: ManifestEntry) -> bool:
        return entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in self.by
