"""Deletes rows of one data file: what becomes of the file. Plain Python and Spark executors both use it.

1. Positions of the rows to delete are given, or found by the filter of the read context. Rows for which the filter is NULL are kept.
2. No row is deleted: the file stays as it is.
3. All live rows are deleted: the file is removed.
4. Some are: ``copy-on-write`` writes the other live rows to new files, with their ``_row_id`` and ``_last_updated_sequence_number`` as
   stored columns; ``merge-on-read`` returns all deleted positions of the file for a deletion vector, which replaces an older one and
   position deletes for this file alone. Rows that equality deletes hit are left to these.

Only filter columns are read for 1, and memory is bounded by a batch and one bitmap (at most a bit a row). When writing fails, the new files
are deleted (``arrow.write.writer``). Nothing is committed.

Not here: files that need no reading (``plan.whole_files``), deletion vectors and commits (``table.rows``), Spark's side
(``spark.task.row_rewrite``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import Deletes, bitmap_of, check_deletes
from icelock.arrow.read.task import count_task, read_task
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.writer import write_data_files
from icelock.errors import PolicyError
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile
from icelock.metadata.metadata_columns import LAST_UPDATED, POS, ROW_ID
from icelock.plan.task import ScanTask

DELETE_MODE: Final = "write.delete.mode"
UPDATE_MODE: Final = "write.update.mode"
MERGE_MODE: Final = "write.merge.mode"
_LINEAGE: Final = (ROW_ID, LAST_UPDATED)


class DeleteMode(Enum):
    """How some of a file's rows are deleted."""

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"

    @classmethod
    def of(cls, properties: Mapping[str, str], name: str = DELETE_MODE) -> DeleteMode:
        """Return a table's mode by the property ``name``; Java's default is copy-on-write.

        Raises:
            PolicyError: the property has another value.
        """
        value = properties.get(name, cls.COPY_ON_WRITE.value)
        try:
            return cls(value.lower())
        except ValueError as e:
            raise PolicyError(f"{name} is {value!r}; it must be {' or '.join(mode.value for mode in cls)}") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What becomes of a data file: nothing; or it is ``removed``, and new ``files`` hold the rows that it keeps; or it gets a vector.

    ``deleted`` are all positions of the vector, those deleted before too; ``rows`` is how many rows the table loses.
    """

    removed: bool = False
    files: tuple[DataFile, ...] = ()
    deleted: BitMap64 | None = None
    rows: int = field(default=0, compare=False)


UNCHANGED: Final = Rewrite()
REMOVED: Final = Rewrite(removed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteContext:
    """What all files of a rewrite share.

    The filter of ``read`` says which rows are deleted. ``write`` is called for each file that is rewritten, and returns a context by
    ``with_lineage``. ``entropy`` is where keys of new files come from.
    """

    read: ReadContext
    write: Callable[[], WriteContext]
    mode: DeleteMode
    entropy: Entropy


def rewrite_file(context: RewriteContext, task: ScanTask, positions: BitMap64 | None = None, *, task_id: int = 0) -> Rewrite:
    """Delete rows of a data file.

    Args:
        context: what all files share.
        task: the data file.
        positions: of the rows to delete; None: those that match the filter.
        task_id: part of the names of new files.

    Raises:
        IntegrityError: a file fails authentication, or storage does not hold what was written. No new file is left, on any error.
        PolicyError: a file or column that is not read or written here, or a column name that ``with_lineage`` refuses.
    """
    marked = mark_deleted(context.read, task, positions)
    if marked.deleted is None or context.mode is DeleteMode.MERGE_ON_READ:
        return marked
    write = context.write()
    every_row = replace(context.read, schema=write.schema, row_filter=AlwaysTrue())
    rows = read_task(every_row, task, without=marked.deleted)
    files = tuple(write_data_files(write, rows, task_id=task_id, entropy=context.entropy))
    return Rewrite(removed=True, files=files, rows=marked.rows)


def mark_deleted(read: ReadContext, task: ScanTask, positions: BitMap64 | None = None) -> Rewrite:
    """Return what becomes of a data file in merge-on-read; nothing is written. Arguments and errors are those of ``rewrite_file``."""
    if positions is None:
        positions = _matching(read, task)
    if not positions:
        return UNCHANGED
    every_row = replace(read, row_filter=AlwaysTrue())
    before = Deletes.read(every_row, task)
    live = count_task(every_row, task) if before.compares else task.record_count - len(before.positions)
    rows = len(positions - before.positions)
    return Rewrite(removed=True, rows=rows) if rows == live else Rewrite(deleted=positions | before.positions, rows=rows)


def deleted_rows(read: ReadContext, task: ScanTask) -> BitMap64:
    """Return the positions of all deleted rows of a data file, by positions or by equality; only compared columns are read.

    Raises:
        IntegrityError: a file fails authentication, or a delete file does not belong to the data file.
        PolicyError, FormatError: a file that is not read here, or an invalid one.
    """
    every_row = replace(read, row_filter=AlwaysTrue())
    check_deletes(every_row, task)
    deletes = Deletes.read(every_row, task)
    if not deletes.compares:
        return deletes.positions
    return BitMap64(range(task.record_count)) - _matching(every_row, task)


def _matching(read: ReadContext, task: ScanTask) -> BitMap64:
    found = BitMap64()
    for batch in read_task(replace(read, schema=Schema(POS)), task):
        found |= bitmap_of(batch.column(0))
    return found


def with_lineage(context: WriteContext) -> WriteContext:
    """Return the context of files whose rows keep their ids: its schema has the columns of row lineage.

    Raises:
        PolicyError: a column of the table has one of their names.
    """
    schema = context.schema
    for column in schema.fields:
        if column.name in {lineage.name for lineage in _LINEAGE}:
            raise PolicyError(f"column {column.name!r} has a reserved name, and rewritten files need it for row lineage: rename the column")
    return replace(context, schema=Schema(*schema.fields, *_LINEAGE, schema_id=schema.schema_id))
