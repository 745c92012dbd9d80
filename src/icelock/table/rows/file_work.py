"""What becomes of one data file when rows that match a filter are deleted.

1. none matches: it stays as it is. Rows that the filter leaves undecided (nulls) do not match.
2. all live rows match: the file goes, by metadata alone. Nothing is read where partition and metrics say so.
3. some match: copy-on-write reads the others, live ones only, and writes them to new files with their ``_row_id`` and
   ``_last_updated_sequence_number`` as stored columns; merge-on-read adds the positions to the file's deletion vector, which takes
   the place of an older one and of position deletes for this file. Rows that equality deletes hit are left to them.

A result holds for the state of the file that it was worked out on: row ids, sequence number and delete files.

Not here: which files (``table.rows.delete``), reading and writing (``arrow``).
"""

from __future__ import annotations

import array
import dataclasses
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.utils.concurrent import ExecutorFactory
from pyroaring import BitMap64

from icelock.arrow.read.deletes import Deletes
from icelock.arrow.read.row_filter import RowMatcher
from icelock.arrow.read.task import count_task, read_task
from icelock.arrow.write.writer import DataFileWriter
from icelock.errors import PolicyError
from icelock.io.puffin.write import DeletionVector
from icelock.metadata.metadata_columns import LAST_UPDATED, POS, ROW_ID
from icelock.plan.delete_files import DeleteFileId, delete_file_id, referenced_data_file
from icelock.plan.whole_files import WholeFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.table import FileScanTask
    from pyiceberg.types import NestedField

    from icelock.metadata.manifest import DataFile
    from icelock.plan.task import ScanTask
    from icelock.table.commit.staging import Staging
    from icelock.table.scan import DataScan

DELETE_MODE: Final = "write.delete.mode"
_LINEAGE: Final = (ROW_ID, LAST_UPDATED)
_POSITION_BYTES: Final = 8


class DeleteMode(Enum):
    """How rows of a file that keeps others are deleted (``write.delete.mode``)."""

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"

    @classmethod
    def of(cls, properties: Mapping[str, str], name: str = DELETE_MODE) -> DeleteMode:
        """Return a table's mode for deletes, or for what the property ``name`` is about; Java's default is copy-on-write.

        Raises:
            PolicyError: another value.
        """
        value = properties.get(name, cls.COPY_ON_WRITE.value)
        try:
            return cls(value.lower())
        except ValueError as e:
            raise PolicyError(f"{name} is {value!r}; it must be {' or '.join(mode.value for mode in cls)}") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What the work on a data file depends on beside the filter."""

    first_row_id: int | None
    sequence_number: int | None
    deletes: frozenset[DeleteFileId]

    @classmethod
    def of(cls, task: FileScanTask) -> FileState:
        """Return the state that a plan found a file in."""
        return cls(
            first_row_id=getattr(task.file, "first_row_id", None),
            sequence_number=getattr(task.file, "sequence_number", None),
            deletes=frozenset(delete_file_id(delete) for delete in task.delete_files),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """What becomes of one data file: it goes, and ``kept`` rows are in new files; or it gets a ``vector``; or nothing happens."""

    file: DataFile
    state: FileState
    goes: bool = False
    kept: tuple[DataFile, ...] = ()
    vector: DeletionVector | None = None
    replaced: frozenset[DeleteFileId] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything happens."""
        return self.goes or self.vector is not None


class FileWork(ABC):
    """Does the work on data files of one scan; what a file's rows have to do with it, ``_on`` says."""

    def __init__(self, transaction: Staging, scan: DataScan, mode: DeleteMode) -> None:
        self._transaction = transaction
        self._mode = mode
        self._matching = scan.read_context(Schema())
        self._every_row = dataclasses.replace(self._matching, row_filter=AlwaysTrue())
        self._tasks = scan._task_builder  # noqa: SLF001 - of the same layer
        self._count = itertools.count()

    def on_all(self, planned: Sequence[FileScanTask]) -> Iterable[FileResult]:
        """Return what becomes of data files.

        Positions are looked for in several files at once; files are rewritten one after another, each with its row group in memory.
        """
        if self._mode is DeleteMode.COPY_ON_WRITE:
            return map(self._on, planned)
        return ExecutorFactory.get_or_create().map(self._on, planned)

    @abstractmethod
    def _on(self, planned: FileScanTask) -> FileResult:
        """Return what becomes of one data file."""

    def _rewritten(self, task: ScanTask, others: Callable[[pa.RecordBatch], pa.RecordBatch], *more: NestedField) -> tuple[DataFile, ...]:
        """Write live rows to new files, with their row lineage.

        Args:
            task: the data file.
            others: what stays of a batch whose columns are the table's, the lineage, and ``more``; without ``more``.
            more: metadata columns.
        """
        table = self._matching.table_schema
        schema = lineage_schema(table)
        read = Schema(*schema.fields, *more, schema_id=table.schema_id)
        rows = read_task(dataclasses.replace(self._every_row, schema=read), task)
        context = dataclasses.replace(self._transaction.write_context(), schema=schema)
        with DataFileWriter(context, task_id=next(self._count), entropy=self._transaction.entropy) as writer:
            for batch in rows:
                writer.write(others(batch))
            files = writer.close()
        self._transaction.track(*(file.file_path for file in files))
        return tuple(files)

    def _with_vector(self, planned: FileScanTask, positions: BitMap64) -> FileResult:
        """Return a data file with a deletion vector for positions of live rows; without any left, it goes."""
        task = self._tasks.build(planned)
        unchanged = unchanged_file(planned)
        before = Deletes.read(self._every_row, task)
        live = count_task(self._every_row, task) if before.compares else task.record_count - len(before.positions)
        if len(positions) == live:
            return dataclasses.replace(unchanged, goes=True)
        return dataclasses.replace(
            unchanged,
            vector=DeletionVector.of(task.path, positions | before.positions),
            replaced=frozenset(delete_file_id(delete) for delete in planned.delete_files if referenced_data_file(delete) == task.path),
        )


class FilterWork(FileWork):
    """Deletes the rows that match the scan's filter."""

    def __init__(self, transaction: Staging, scan: DataScan, mode: DeleteMode) -> None:
        super().__init__(transaction, scan, mode)
        self._known = WholeFiles(scan.full_schema, scan.exact_filter)

    def _on(self, planned: FileScanTask) -> FileResult:
        unchanged = unchanged_file(planned)
        if self._known.certain(planned):
            return dataclasses.replace(unchanged, goes=True)
        task = self._tasks.build(planned)
        if self._mode is DeleteMode.MERGE_ON_READ:
            positions = self._positions(task)
            return self._with_vector(planned, positions) if positions else unchanged
        matching = count_task(self._matching, task)
        if not matching:
            return unchanged
        others = RowMatcher(self._matching.filter_plan, self._matching.table_schema).others
        kept = () if matching == count_task(self._every_row, task) else self._rewritten(task, others)
        return dataclasses.replace(unchanged, goes=True, kept=kept)

    def _positions(self, task: ScanTask) -> BitMap64:
        found = BitMap64()
        for batch in read_task(dataclasses.replace(self._matching, schema=Schema(POS)), task):
            found |= bitmap_of(batch.column(0))
        return found


def bitmap_of(positions: pa.Array) -> BitMap64:
    """Return the bitmap of an int64 array without nulls."""
    stored = memoryview(positions.buffers()[1])[_POSITION_BYTES * positions.offset : _POSITION_BYTES * (positions.offset + len(positions))]
    return BitMap64(array.array("Q", stored.tobytes()))


def unchanged_file(planned: FileScanTask) -> FileResult:
    """Return the result of a data file to which nothing happens."""
    return FileResult(file=planned.file, state=FileState.of(planned))  # type: ignore[arg-type]  # our DataFile


def lineage_schema(schema: Schema) -> Schema:
    """Return a table's schema with the columns of row lineage, for files that hold rows of before.

    Raises:
        PolicyError: the table has a column with the name of one.
    """
    check_lineage_names(schema)
    return Schema(*schema.fields, *_LINEAGE, schema_id=schema.schema_id)


def check_lineage_names(schema: Schema) -> None:
    """Check that a table has no column with the name of a lineage column, which rewritten files hold.

    Raises:
        PolicyError: it has; names the column.
    """
    for field in schema.fields:
        if field.name in {lineage.name for lineage in _LINEAGE}:
            raise PolicyError(f"column {field.name!r} has a reserved name, and rewritten files need it for row lineage: rename the column")
