"""Scans of a table with keys: PyIceberg's planning, our reading.

Schema of a scan, as Java (cases J-08): without a snapshot, or on a branch, the table's current schema; with a snapshot id, or
on a tag, the schema of that snapshot. Planning is always local: a server's plan has no key metadata.

Not here: reading one file (``arrow.read``).
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.table import DataScan as IcebergDataScan
from pyiceberg.table import FileScanTask
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.arrow.read import ReadContext, count_task, read_task
from icelock.errors import PolicyError
from icelock.io.file_io import EncryptingFileIO
from icelock.metadata.plan import ScanTask
from icelock.table.planner import Planner, null_safe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

    from icelock.metadata.manifest import DataFile

_TABLE_SCHEMA = "icelock.scan-schema"


class DataScan(IcebergDataScan):
    """PyIceberg's ``DataScan`` that decrypts; every method raises IntegrityError when bytes were changed."""

    @property
    def full_schema(self) -> Schema:
        """The schema that the filter is bound to and columns are selected from."""
        snapshot = self.snapshot()
        if self.snapshot_id is not None and snapshot is None:
            msg = f"snapshot {self.snapshot_id} is not in the table's metadata; table.snapshots() lists those that are"
            raise PolicyError(msg)
        if self.snapshot_id is None or self.options.get(_TABLE_SCHEMA) == "current" or snapshot is None or snapshot.schema_id is None:
            return self.table_metadata.schema()
        return self.table_metadata.schema_by_id(snapshot.schema_id) or self.table_metadata.schema()

    def projection(self) -> Schema:
        """Return the selected columns of the scan's schema.

        Raises:
            ValueError: a name is not a column.
        """
        if "*" in self.selected_fields:
            return self.full_schema
        return self.full_schema.select(*self.selected_fields, case_sensitive=self.case_sensitive)

    def use_ref(self, name: str) -> Self:
        """Return a scan of the branch or tag.

        Raises:
            ValueError: no such ref, or a snapshot id is set already.
        """
        scan = super().use_ref(name)
        if self.table_metadata.refs[name].snapshot_ref_type == SnapshotRefType.BRANCH:
            return scan.update(options={**self.options, _TABLE_SCHEMA: "current"})
        return scan

    def pinned(self, snapshot_id: int) -> Self:
        """Return the same scan of one snapshot: unless a snapshot or tag was asked for, its schema stays the table's current one."""
        if self.snapshot_id is not None:
            return self.update(snapshot_id=snapshot_id)
        return self.update(snapshot_id=snapshot_id, options={**self.options, _TABLE_SCHEMA: "current"})

    @cached_property
    def _manifest_planner(self) -> Planner:
        return Planner(
            table_metadata=self._planning_metadata(),
            io=self.io,
            row_filter=self.row_filter,
            case_sensitive=self.case_sensitive,
            options=self.options,
        )

    def _planning_metadata(self) -> TableMetadata:
        # PyIceberg's planner binds the filter to the current schema; a scan of an old snapshot needs that snapshot's.
        schema_id = self.full_schema.schema_id
        if schema_id == self.table_metadata.current_schema_id:
            return self.table_metadata
        return self.table_metadata.model_copy(update={"current_schema_id": schema_id})

    def plan_files(self) -> list[FileScanTask]:
        """Return the files that may hold matching rows, with their delete files; plans locally."""
        _ = self.full_schema
        return list(self._plan_files_local())

    def scan_tasks(self) -> list[ScanTask]:
        """Return the plan as ``ScanTask``: what engines take."""
        return [ScanTask.from_iceberg(task) for task in self.plan_files()]

    def whole_files(self) -> tuple[list[DataFile], list[DataFile]]:
        """Return the data files all of whose rows match the filter, and those of which only some do.

        Where metrics do not decide it, the filter's columns are read.
        """
        strict = _StrictMetricsEvaluator(self.full_schema, self.row_filter, self.case_sensitive).eval
        context = self.read_context()
        whole: list[DataFile] = []
        cut: list[DataFile] = []
        for task in self.plan_files():
            if task.delete_files:
                cut.append(task.file)  # type: ignore[arg-type]
                continue
            known = null_safe(self.row_filter) and (task.residual == AlwaysTrue() or strict(task.file))
            matching = task.file.record_count if known else count_task(context, ScanTask.from_iceberg(task))
            if matching == task.file.record_count:
                whole.append(task.file)  # type: ignore[arg-type]
            elif matching:
                cut.append(task.file)  # type: ignore[arg-type]
        return whole, cut

    def read_context(self) -> ReadContext:
        """Return what a reader of data files needs: no KMS client, no KEK."""
        encrypted = isinstance(self.io, EncryptingFileIO)
        return ReadContext(
            schema=self.projection(),
            table_schema=self.full_schema,
            row_filter=self.row_filter,
            case_sensitive=self.case_sensitive,
            specs=self.table_metadata.specs(),
            name_mapping=self.table_metadata.name_mapping(),
            io=self.io.inner if isinstance(self.io, EncryptingFileIO) else self.io,
            allow_plaintext=not encrypted or self.io.allow_plaintext,  # type: ignore[attr-defined]
        )

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all matching rows into one Arrow table; files are read side by side."""
        context = self.read_context()
        schema = context.arrow_schema
        tasks = self.scan_tasks()
        if self.limit is not None:
            batches = list(self._limited(context, tasks))
        else:
            read = ExecutorFactory.get_or_create().map(lambda task: list(read_task(context, task)), tasks)
            batches = list(itertools.chain.from_iterable(read))
        return _encode(pa.Table.from_batches(batches, schema=schema), dictionary_columns)

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """Return a reader that yields record batches, file after file."""
        context = self.read_context()
        schema = context.arrow_schema
        batches = self._limited(context, self.scan_tasks())
        if not dictionary_columns:
            return pa.RecordBatchReader.from_batches(schema, batches)
        encoded = _encode(schema.empty_table(), dictionary_columns).schema
        return pa.RecordBatchReader.from_batches(encoded, (batch.cast(encoded) for batch in batches))

    def count(self) -> int:
        """Return the number of matching rows; without a filter and without deletes no data file is read."""
        context = self.read_context()
        total = sum(count_task(context, task) for task in self.scan_tasks())
        return total if self.limit is None else min(total, self.limit)

    def _limited(self, context: ReadContext, tasks: list[ScanTask]) -> Iterator[pa.RecordBatch]:
        left = self.limit
        for task in tasks:
            if left is not None and left <= 0:
                return
            for batch in read_task(context, task):
                taken = batch if left is None else batch.slice(0, left)
                yield taken
                if left is not None:
                    left -= len(taken)
                    if left <= 0:
                        return


def _encode(table: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    for name in columns:
        index = table.schema.get_field_index(name)
        if index >= 0 and pa.types.is_string(table.schema.field(index).type):
            table = table.set_column(index, name, table.column(index).dictionary_encode())
    return table
