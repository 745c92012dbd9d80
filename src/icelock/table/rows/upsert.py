"""Updating and inserting rows by key: which rows of each data file are updated, and which source rows are new (Java's MERGE).

1. Each file that may have one of the keys is read. A row is updated if the source has its key and other values.
   If rows are updated, a key of the source that two rows of the table have is refused.
2. Updated rows are deleted from their file, by ``write.merge.mode`` (``arrow.write.row_rewrite``).
3. New files get the source rows of updated rows, with the ``_row_id`` of these and no sequence number of their own, and the source rows
   whose key was not found.

Results are kept from attempt to attempt (``table.rows.delete``). In memory are the source, a row group of the table, and of each file the
numbers of the source rows whose key it has.

Not here: keys, comparison and conflict filter (``table.rows.source_rows``), the snapshot (``table.commit.row_delta``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, UpsertResult
from pyiceberg.types import NestedField, UnknownType
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import bitmap_of
from icelock.arrow.read.task import read_task
from icelock.arrow.write.row_rewrite import MERGE_MODE, with_lineage
from icelock.arrow.write.writer import write_data_files
from icelock.errors import PolicyError
from icelock.metadata.manifest import DataFile
from icelock.metadata.metadata_columns import LAST_UPDATED, POS, ROW_ID
from icelock.plan.task import ScanTask
from icelock.table.commit.row_delta import Change
from icelock.table.commit.staged import Staged
from icelock.table.read.scan import DataScan
from icelock.table.rows.delete import DeleteByFilter
from icelock.table.rows.file_rewrite import FileResult, FileRewriter
from icelock.table.rows.source_rows import SourceRows

_FEW_ROWS: Final = 1 << 16  # the source is indexed for each lookup, so rows are gathered
_MANY_ROWS: Final = 1 << 20
_UPDATED: Final = pa.schema([("source", pa.int64()), ("row_id", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class _MatchedFile(FileResult):
    """``found`` are the source rows whose key the file has, ``updated`` those of them that differ, with the ids of the rows."""

    found: pa.ChunkedArray
    updated: pa.Table

    def __bool__(self) -> bool:
        """Whether the file has to be there: it changes, or a source row is not inserted because of it."""
        return self.removed or self.vector is not None or len(self.found) > 0


class Upsert(DeleteByFilter):
    """A ``RowChange``: updates rows of a branch by key, and inserts others; ``result`` says how many."""

    mode_property = MERGE_MODE
    by_name = True
    """Another attempt compares and writes rows by the names of columns."""

    def __init__(self, staged: Staged, source: SourceRows, *, branch: str | None, update: bool, insert: bool) -> None:
        """Prepare the change; nothing is read.

        Raises:
            PolicyError: an invalid ``write.merge.mode``, or rows that lack a column.
        """
        super().__init__(staged, source.row_filter, case_sensitive=True, branch=branch, follow_rows=False)
        if update:
            source.check_whole()
        self.result = UpsertResult()
        self._source = source
        self._update = update
        self._insert = insert
        self._new_files: tuple[DataFile, ...] = ()
        self._new_rows: pa.Table | None = None

    def resolve(self) -> Change:
        """Do the work that is left, and return the change; see ``RowChange``."""
        change = super().resolve()
        self._write_new_rows()
        return dataclasses.replace(change, added=(*change.added, *self._new_files))

    def _rewritten(self, scan: DataScan, planned: Sequence[FileScanTask]) -> Iterable[FileResult]:
        rewriter = FileRewriter(self._staged, scan, self._mode)
        reader = _MatchReader(rewriter.read, self._source, update=self._update)

        def work(file: FileScanTask) -> FileResult:
            task = rewriter.task_of(file)
            found, updated, positions = reader.read(task)
            return _MatchedFile.of(file, rewriter.rewrite(task, positions), found=found, updated=updated)

        return rewriter.each(work, planned)

    def _write_new_rows(self) -> None:
        """Write updated and inserted rows, unless they are those of the attempt before."""
        matched = [result for result in self._results.values() if isinstance(result, _MatchedFile)]
        found = pa.chunked_array([chunk for file in matched for chunk in file.found.chunks], pa.int64())
        if self._update and len(found) > len(pc.unique(found)):
            raise PolicyError(
                "two rows of the table have the same key of the input, so it is unclear which to update: delete one, or add join_cols"
            )
        updated = pa.concat_tables([_UPDATED.empty_table(), *(file.updated for file in matched)])
        every = pa.arange(0, self._source.stored.num_rows if self._insert else 0)
        inserted = every.filter(pc.invert(pc.is_in(every, value_set=found)))
        new = pa.table([inserted, pa.nulls(len(inserted), pa.int64())], schema=_UPDATED)
        rows = pa.concat_tables([updated, new]).combine_chunks()
        self.result = UpsertResult(rows_updated=len(updated), rows_inserted=len(inserted))
        if self._new_rows == rows:
            return
        self._obsolete.extend(file.file_path for file in self._new_files)
        self._new_rows = rows
        context = self._staged.write_context()
        if len(updated):
            context = with_lineage(context)
        batches = self._batches(rows, lineage=len(updated) > 0)
        self._new_files = tuple(write_data_files(context, batches, task_id=0, entropy=self._staged.entropy))
        self._staged.track(*(file.file_path for file in self._new_files))

    def _batches(self, rows: pa.Table, *, lineage: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), _FEW_ROWS):
            part = rows.slice(start, _FEW_ROWS)
            taken = self._source.stored.take(part["source"])  # the user's rows may have types that Arrow cannot take from, such as views
            if lineage:
                taken = taken.append_column(ROW_ID.name, part["row_id"])
                taken = taken.append_column(LAST_UPDATED.name, pa.nulls(len(taken), pa.int64()))
            yield from taken.to_batches()


class _MatchReader:
    """Finds the rows of data files whose key is in the source."""

    def __init__(self, context: ReadContext, source: SourceRows, *, update: bool) -> None:
        self._source = source
        self._update = update
        table = context.table_schema
        names = [field.name for field in table.fields if not isinstance(field.field_type, UnknownType)] if update else source.key_names
        columns = table.select(*names)
        schema = Schema(*columns.fields, _apart(POS, table), _apart(ROW_ID, table), schema_id=table.schema_id)
        self._context = dataclasses.replace(context, schema=schema)

    def read(self, task: ScanTask) -> tuple[pa.ChunkedArray, pa.Table, BitMap64]:
        """Return what ``_MatchedFile`` has of a file, and the positions of the rows to update."""
        found, updated, positions = [], [_UPDATED.empty_table()], BitMap64()
        for batch in self._gathered(task):
            rows = batch.select(batch.schema.names[:-2])
            numbers = self._source.find(rows)
            known, numbers = numbers.is_valid(), numbers.drop_null()
            found.append(numbers)
            if self._update and len(numbers):
                changed = self._source.differs(rows.filter(known), numbers)
                where, row_ids = (column.filter(known).filter(changed) for column in batch.columns[-2:])
                updated.append(pa.table([numbers.filter(changed), row_ids], schema=_UPDATED))
                positions |= bitmap_of(where)
        return pa.chunked_array(found, pa.int64()), pa.concat_tables(updated), positions

    def _gathered(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        wanted = min(max(self._source.stored.num_rows, _FEW_ROWS), _MANY_ROWS)
        waiting: list[pa.RecordBatch] = []
        for batch in read_task(self._context, task):
            waiting.append(batch)
            if sum(len(one) for one in waiting) >= wanted:
                yield pa.concat_batches(waiting)
                waiting = []
        if waiting:
            yield pa.concat_batches(waiting)


def _apart(field: NestedField, table: Schema) -> NestedField:
    """Return a metadata column under a name that no column of the table has."""
    name = field.name
    while name in table.column_names:
        name = f"_{name}"
    return NestedField(field.field_id, name, field.field_type, required=field.required)
