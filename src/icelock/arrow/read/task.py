"""ScanTask to Arrow: one process, one file at a time, batch by batch.

Steps for a task: 1 its key metadata says whether the file is encrypted (never the bytes). 2 read its delete files. 3 open the file
through ``arrow.read.stored_file``. 4 match field ids. 5 read the leaf columns that output, filter and equality deletes need, without row
groups that the footer's statistics exclude. 6 drop rows by deletes and filter; those that are deleted stay if the output says which ones
they are. 7 project to the output schema.

No key, reader or property object is shared between files, nothing is read before the first batch is requested, and memory is
bounded by a row group's stored bytes, one batch, and the deletes.

Not here: which files (``plan.task``), threads over files and limits (``table``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import Deletes, RowDeletes, check_deletes
from icelock.arrow.read.project import FileColumns, Lineage, Projection
from icelock.arrow.read.row_filter import RowFilter
from icelock.arrow.read.stored_file import FirstLook, Rows, StoredFile, check_rows, open_file
from icelock.errors import FormatError
from icelock.metadata.metadata_columns import file_constants, shows_deleted
from icelock.plan.task import ScanTask


def needs_reading(context: ReadContext, task: ScanTask) -> bool:
    """Whether counting a task's rows needs reading: without filter and deletes it is ``record_count``."""
    if isinstance(context.bound_filter, AlwaysFalse):
        return False
    return bool(task.deletes) or not isinstance(context.bound_filter, AlwaysTrue)


def count_task(context: ReadContext, task: ScanTask) -> int:
    """Return how many live rows match the filter; only the columns of filter and equality deletes are read.

    Without these the data file is not opened: its manifest entry and the deleted positions say how many rows are left.
    """
    if not needs_reading(context, task):
        return 0 if isinstance(context.bound_filter, AlwaysFalse) else task.record_count
    check_deletes(context, task)
    if isinstance(context.bound_filter, AlwaysTrue):
        deletes = Deletes.read(context, task)
        if not deletes.compares:
            return task.record_count - len(deletes.positions)
    return sum(batch.num_rows for batch in read_task(dataclasses.replace(context, schema=Schema()), task))


def read_task(context: ReadContext, task: ScanTask, *, without: BitMap64 | None = None, counted: bool = False) -> Iterator[pa.RecordBatch]:
    """Return the live rows of a data file that match the filter, in file order, as batches of ``context.arrow_schema``.

    Rows at the positions ``without`` are as if they were deleted. With ``_deleted`` in the schema deleted rows are there too. If they are
    ``counted``, a Parquet file must have as many as its entry says, as those of the other formats always must.

    What can be refused without reading is refused at the call; files are opened when the first batch is asked for, the data file
    last, and closed after the last batch, or when the iterator is.

    Raises:
        PolicyError: a plain file in an encrypted table, or a file format that is not read.
        IntegrityError: a file fails authentication, or is not as long as its key metadata or as full as its manifest entry says.
        FormatError: a file is not of its format, or does not hold what the schema asks for.
        KeyUnavailableError: a file is encrypted and the task has no key metadata for it.
    """
    stored = StoredFile.of(task, allow_plaintext=context.allow_plaintext)
    check_deletes(context, task)
    if isinstance(context.bound_filter, AlwaysFalse):
        return iter(())
    return _read(context, task, stored, without, counted=counted)


def _read(context: ReadContext, task: ScanTask, stored: StoredFile, without: BitMap64 | None, *, counted: bool) -> Iterator[pa.RecordBatch]:
    deletes = Deletes.read(context, task, also=without) if task.deletes or without else None
    with open_file(stored, context.io, schema=context.table_schema, name_mapping=context.name_mapping) as file:
        if counted:
            check_rows(file, task.path, task.record_count)
        yield from read_open(context, task, file, deletes)


def read_live(context: ReadContext, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
    """Return the rows that are live by the deletes of one task; with a second task of the same file, those that are no longer live by its.

    Raises as ``read_task``, and as late.
    """
    return read_task(context, tasks[0]) if len(tasks) == 1 else read_lost(context, *tasks)


def read_lost(context: ReadContext, task: ScanTask, later: ScanTask) -> Iterator[pa.RecordBatch]:
    """Return the rows that are live by the deletes of ``task`` and not by those of ``later``, a task of the same data file.

    The file is not opened if only positions are deleted, and ``later`` has no others. Raises as ``read_task``, and as late.
    """
    stored = StoredFile.of(task, allow_plaintext=context.allow_plaintext)
    for one in (task, later):
        check_deletes(context, one)
    return iter(()) if isinstance(context.bound_filter, AlwaysFalse) else _read_lost(context, task, later, stored)


def _read_lost(context: ReadContext, task: ScanTask, later: ScanTask, stored: StoredFile) -> Iterator[pa.RecordBatch]:
    deletes, gone = Deletes.read(context, task), Deletes.read(context, later)
    if not gone.compares and not gone.positions - deletes.positions:
        return
    with open_file(stored, context.io, schema=context.table_schema, name_mapping=context.name_mapping) as file:
        yield from read_open(context, task, file, deletes, gone)


def read_open(
    context: ReadContext, task: ScanTask, file: Rows, deletes: Deletes | None = None, gone: Deletes | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file that is open, as ``read_task``.

    ``deletes`` are those to apply, whatever the task has; of the rows that they leave only those come out that ``gone`` deletes.
    """
    source = FileColumns(
        location=task.path,
        fields=file.fields,
        constants=_constants(context, task),
        lineage=Lineage(first_row_id=task.first_row_id, sequence_number=task.sequence_number),
    )
    rows = _Rows(context, source, deletes, gone)
    for first, batch in file.batches(rows.leaves, context.bound_filter, rows.look):
        result = rows.finish(batch, first)
        if result.num_rows:
            yield result


class _Rows:
    """Turns batches of a data file into the rows that come out."""

    def __init__(self, context: ReadContext, source: FileColumns, deletes: Deletes | None, gone: Deletes | None) -> None:
        self._projection = Projection(context.schema, context.arrow_schema, source)
        filtered = not isinstance(context.bound_filter, AlwaysTrue)
        self._filter: RowFilter | None = RowFilter(context.filter_plan, source) if filtered else None
        self._deletes: RowDeletes | None = None if deletes is None else deletes.bind(source)
        self._gone: RowDeletes | None = None if gone is None else gone.bind(source)
        self._shows_deleted = shows_deleted(context.schema)
        parts = (part for part in (self._projection, self._filter, self._deletes, self._gone) if part is not None)
        self.leaves = sorted({leaf for part in parts for leaf in part.leaves})

    @property
    def look(self) -> FirstLook | None:
        """A look at the filter's columns before the others are read, where the filter finds single values and has few of the columns."""
        if self._filter is None or not self._filter.finds_values or len(self._filter.leaves) * 2 > len(self.leaves):
            return None
        return FirstLook(leaves=self._filter.leaves, has_rows=self._filter.has_rows)

    def finish(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return what is left of a batch whose first row has position ``first``."""
        mask = None if self._filter is None else self._filter.keep(batch)
        kept = None if self._deletes is None else self._deletes.keep(batch, first)
        deleted = pc.invert(kept) if self._shows_deleted and kept is not None else None
        if kept is not None and not self._shows_deleted:
            mask = kept if mask is None else pc.and_kleene(mask, kept)
        if self._gone is not None:
            left = self._gone.keep(batch, first)
            lost = pa.repeat(pa.scalar(value=False), batch.num_rows) if left is None else pc.invert(left)
            mask = lost if mask is None else pc.and_kleene(mask, lost)
        positions = pa.arange(first, first + batch.num_rows) if self._projection.needs_positions else None
        if mask is not None:
            batch = batch.filter(mask)
            positions, deleted = (None if column is None else column.filter(mask) for column in (positions, deleted))
        return self._projection.apply(batch, positions, deleted)


def _constants(context: ReadContext, task: ScanTask) -> dict[int, Any]:
    """Return values that all rows share, by field id: identity partition values for columns that the file lacks, metadata columns."""
    spec = context.specs.get(task.spec_id)
    if task.partition and (spec is None or len(spec.fields) != len(task.partition)):
        raise FormatError(
            f"{task.path} has {len(task.partition)} partition values, which do not fit partition spec {task.spec_id} of the table ({spec})"
        )
    constants = file_constants(context.schema, path=task.path, spec=spec, spec_id=task.spec_id, partition=task.partition)
    if spec is not None:
        for field, value in zip(spec.fields, task.partition, strict=False):
            if isinstance(field.transform, IdentityTransform):
                constants[field.source_id] = value
    return constants
