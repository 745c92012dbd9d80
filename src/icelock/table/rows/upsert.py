"""Updating and inserting rows by key: what becomes of each data file, and which rows are new (Java's MERGE with two clauses).

1. Every file that can have one of the keys is read; a row whose key is in the source, and whose other values differ, is to be updated.
   A key that two rows of the table have is refused when rows are updated.
2. Updated rows leave their file: copy-on-write writes the others to new files with their row lineage, merge-on-read marks positions in
   a deletion vector (``write.merge.mode``).
3. Source rows for updated ones, with the ``_row_id`` of these and no sequence number of their own, and source rows whose key was not
   found go to new files.

On another attempt files whose state is the same keep their result (``table.rows.delete``). Memory: the source, a row group of the table,
and of each file the row numbers that match.

Not here: keys and conflict filter (``table.rows.source_rows``), the snapshot (``table.commit.row_delta``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import UpsertResult
from pyiceberg.types import NestedField, UnknownType
from pyroaring import BitMap64

from icelock.arrow.read.deletes import bitmap_of
from icelock.arrow.read.task import read_task
from icelock.arrow.write.row_rewrite import MERGE_MODE, with_lineage
from icelock.arrow.write.writer import write_data_files
from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import LAST_UPDATED, POS, ROW_ID
from icelock.table.rows.delete import DeleteByFilter
from icelock.table.rows.file_rewrite import FileResult, FileRewriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyiceberg.table import FileScanTask

    from icelock.arrow.read.context import ReadContext
    from icelock.metadata.manifest import DataFile
    from icelock.plan.task import ScanTask
    from icelock.table.commit.row_delta import Change
    from icelock.table.rows.source_rows import SourceRows
    from icelock.table.scan import DataScan
    from icelock.table.state import StagesFiles

_FEW_ROWS: Final = 1 << 16  # the source is indexed anew for each lookup, so rows are gathered
_MANY_ROWS: Final = 1 << 20


def _none() -> pa.Array:
    return pa.array([], pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matches:
    """Rows of a file whose key is in the source: ``found`` are all source rows, ``updated`` those that differ, with the rows' ids."""

    found: pa.Array
    updated: pa.Array = dataclasses.field(default_factory=_none)
    row_ids: pa.Array = dataclasses.field(default_factory=_none)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MatchedFile(FileResult):
    matches: _Matches

    def __bool__(self) -> bool:
        """Whether the file has to be there: it changes, or a source row is not inserted because of it."""
        return self.removed or self.vector is not None or len(self.matches.found) > 0


class Upsert(DeleteByFilter):
    """A ``RowChange``: takes the place of rows of a branch, and adds others; ``result`` says how many."""

    mode_property = MERGE_MODE
    by_name = True
    """Rows of another attempt are compared and written by the names of columns."""

    def __init__(self, staged: StagesFiles, source: SourceRows, *, branch: str | None, update: bool, insert: bool) -> None:
        """Prepare the change; nothing is read.

        Raises:
            PolicyError: a ``write.merge.mode`` that is none, or rows that lack a column.
        """
        super().__init__(staged, source.row_filter, case_sensitive=True, branch=branch, follow_rows=False)
        if update:
            source.check_whole()
        self.result = UpsertResult()
        self._source = source
        self._update = update
        self._insert = insert
        self._new_files: tuple[DataFile, ...] = ()
        self._new_rows: tuple[pa.Array, pa.Array] | None = None

    def resolve(self) -> Change:
        """Do the work that is not done yet, and return the change; see ``RowChange``."""
        change = super().resolve()
        self._write_new_rows()
        return dataclasses.replace(change, added=(*change.added, *self._new_files))

    def _rewritten(self, scan: DataScan, planned: Sequence[FileScanTask]) -> Iterable[FileResult]:
        rewriter = FileRewriter(self._staged, scan, self._mode)
        reader = _MatchReader(rewriter.read, self._source, update=self._update)

        def work(file: FileScanTask) -> FileResult:
            task = rewriter.task_of(file)
            matches, positions = reader.read(task)
            return _MatchedFile.of(file, rewriter.rewrite(task, positions), matches=matches)

        return rewriter.each(work, planned)

    def _write_new_rows(self) -> None:
        """Write updated and inserted rows, unless they are those of the attempt before."""
        matches = [result.matches for result in self._results.values() if isinstance(result, _MatchedFile)]
        found = pa.concat_arrays([_none(), *(match.found for match in matches)])
        if self._update and len(found) > len(pc.unique(found)):
            raise PolicyError(
                "two rows of the table have one key of the input: which is to be updated cannot be told; delete one, or add join_cols"
            )
        updated = pa.concat_arrays([_none(), *(match.updated for match in matches)])
        row_ids = pa.concat_arrays([_none(), *(match.row_ids for match in matches)])
        inserted = _others(self._source.stored.num_rows, found) if self._insert else _none()
        rows = (pa.concat_arrays([updated, inserted]), pa.concat_arrays([row_ids, pa.nulls(len(inserted), pa.int64())]))
        self.result = UpsertResult(rows_updated=len(updated), rows_inserted=len(inserted))
        if self._new_rows == rows:
            return
        self._obsolete.extend(file.file_path for file in self._new_files)
        self._new_rows = rows
        context = self._staged.write_context()
        if len(updated):
            context = with_lineage(context)
        batches = self._batches(*rows, lineage=bool(len(updated)))
        self._new_files = tuple(write_data_files(context, batches, task_id=0, entropy=self._staged.entropy))
        self._staged.track(*(file.file_path for file in self._new_files))

    def _batches(self, rows: pa.Array, row_ids: pa.Array, *, lineage: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), _FEW_ROWS):
            taken = self._source.stored.take(rows.slice(start, _FEW_ROWS))  # Arrow takes no rows of some other types, such as views
            if lineage:
                taken = taken.append_column(ROW_ID.name, row_ids.slice(start, _FEW_ROWS))
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

    def read(self, task: ScanTask) -> tuple[_Matches, BitMap64]:
        """Return the matches of a file, and the positions of the rows to update."""
        parts, positions = [_Matches(found=_none())], BitMap64()
        for batch in self._gathered(task):
            matches, updated = self._matches(batch)
            parts.append(matches)
            positions |= bitmap_of(updated)
        names = [field.name for field in dataclasses.fields(_Matches)]
        return _Matches(**{name: pa.concat_arrays([getattr(part, name) for part in parts]) for name in names}), positions

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

    def _matches(self, batch: pa.RecordBatch) -> tuple[_Matches, pa.Array]:
        last = batch.num_columns - 2
        rows = batch.select(list(range(last)))
        source_rows = self._source.find(rows)
        known, found = source_rows.is_valid(), source_rows.drop_null()
        if not self._update or not len(found):
            return _Matches(found=found), _none()
        changed = self._source.differs(rows.filter(known), found)
        positions, row_ids = (batch.column(i).filter(known).filter(changed) for i in (last, last + 1))
        return _Matches(found=found, updated=found.filter(changed), row_ids=row_ids), positions


def _apart(field: NestedField, table: Schema) -> NestedField:
    """Return a metadata column under a name that no column of the table has."""
    name = field.name
    while name in table.column_names:
        name = f"_{name}"
    return NestedField(field.field_id, name, field.field_type, required=field.required)


def _others(count: int, found: pa.Array) -> pa.Array:
    """Return the numbers below ``count`` that are not in ``found``."""
    every = pa.array(range(count), pa.int64())
    return every.filter(pc.invert(pc.is_in(every, value_set=found)))
