"""What an executor does for a write: the rows of one task become encrypted files. Importing this module loads no catalog and no KMS.

Spark pickles one writer for executors and for the commit, so ``TaskWriter`` is plain data without keys of files: schema, partition spec,
sort order, storage settings, and a ticket that only the driver's machine can redeem (``spark.sealed.ticket``). A task mints the keys of its
own files, and seals its message about them (``spark.sealed.hpke``).

Rows of a change (``Action.MERGE``) have more columns: ``_row_id`` of the row that they replace, which is stored. Then come those that go
into the message: ``OPERATION``, which may be left out, and ``POSITIONS``, file and position of that row, null for a new row. Of a row with
the operation ``DELETES`` nothing is written.

A failed task deletes its files itself, unless Spark kills its process first. ``abort`` deletes those of finished tasks and of killed
processes, and so does ``commit`` when a task was retried.

Not here: planning (``spark.driver.plan_write``), the commit (``spark.driver.commit``), files (``arrow.write.writer``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from icelock.errors import PolicyError
from icelock.spark.sealed.hpke import Sender
from icelock.spark.sealed.messages import FilesWritten, RowCounts, SealedFiles, StreamFiles
from icelock.spark.task.imports import settle_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64

    from icelock.arrow.write.context import WriteContext
    from icelock.metadata.manifest import DataFile
    from icelock.spark.sealed.ticket import Ticket

POSITIONS: Final = ("icelock replaced file", "icelock replaced position")
OPERATION: Final = "icelock operation"
QUERY: Final = "sql.streaming.queryId"  # Spark's local property
DELETES: Final = 1  # Spark's RowDeltaUtils.DELETE_OPERATION
_WRITE_SETTINGS: Final = ("write.", "format-version")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A write without its rows; ``columns`` are the table's names for the input's; schema, spec and sort order are Iceberg's JSON.

    ``sender`` seals messages to the driver. ``change`` names the last columns of rows that say which row of the table each replaces.
    """

    columns: tuple[str, ...]
    schema: str
    spec: str
    sort_order: str
    location: str
    properties: Mapping[str, str]
    storage: Mapping[str, str]
    data_key_length: int
    operation_id: str
    sender: Sender
    change: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, context: WriteContext, columns: Sequence[str], storage: Mapping[str, str], *, sender: Sender, change: tuple[str, ...] = ()
    ) -> WritePlan:
        """Return the plan of a transaction; ``storage`` are the FileIO's properties that executors may have."""
        from icelock.metadata.canonical_json import schema_json, spec_json

        return cls(
            columns=tuple(columns),
            schema=schema_json(context.schema),
            spec=spec_json(context.spec),
            sort_order=context.sort_order.model_dump_json(),
            location=context.location,
            properties={name: value for name, value in context.properties.items() if name.startswith(_WRITE_SETTINGS)},
            storage=dict(storage),
            data_key_length=context.data_key_length,
            operation_id=context.operation_id,
            sender=sender,
            change=change,
        )

    def context(self) -> WriteContext:
        """Return the transaction's context, with a new FileIO."""
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.table.sorting import SortOrder

        from icelock.arrow.write.context import WriteContext
        from icelock.io.storage import open_storage
        from icelock.metadata.column_types import schema_from_json

        return WriteContext(
            schema=schema_from_json(self.schema),
            spec=PartitionSpec.model_validate_json(self.spec),
            sort_order=SortOrder.model_validate_json(self.sort_order),
            location=self.location,
            properties=self.properties,
            io=open_storage(dict(self.storage), self.location),
            data_key_length=self.data_key_length,
            operation_id=self.operation_id,
        )


class TaskWriter(DataSourceArrowWriter):
    """The writer: ``write`` runs on executors, ``commit`` and ``abort`` in the driver."""

    def __init__(self, plan: WritePlan, ticket: Ticket) -> None:
        self.plan = plan
        self.ticket = ticket

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SealedFiles:
        """Write the rows of one task; errors are those of ``write_rows``."""
        return write_rows(self.plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of the messages in one snapshot; on an error nothing is committed (``spark.driver.commit``)."""
        from icelock.spark.driver.commit import commit_write

        commit_write(self.plan.context(), self.ticket, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of a job that failed before its commit began."""
        from icelock.spark.driver.commit import abort_write

        abort_write(self.plan.context(), self.ticket, messages)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.plan.location})"


class StreamTaskWriter(DataSourceStreamArrowWriter):
    """The writer of a batch of a stream on executors; ``ticket`` is what ``sealed_write`` returned."""

    def __init__(self, plan: WritePlan, ticket: bytes) -> None:
        self._plan = plan
        self._ticket = ticket

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamFiles:
        """Write the rows of one task; errors are those of ``write_rows``, and a PolicyError where Spark does not tell the query."""
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(QUERY)
        if query is None:
            raise PolicyError("Spark does not tell tasks which query they are of, so its batches could be written twice: use foreachBatch")
        return StreamFiles(write_rows(self._plan, iterator), self._ticket, query)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._plan.location})"


def write_rows(plan: WritePlan, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Write the rows of one task, or of the calling process; on an error (those of ``write_data_files``) its files are deleted."""
    from icelock.arrow.write.writer import write_data_files
    from icelock.keys.entropy import SystemEntropy

    task = TaskContext.get()
    if task is not None:
        settle_imports()
    names = [*plan.columns, *plan.change]
    batches: Iterator[pa.RecordBatch] = (batch.rename_columns(names) for batch in rows if batch.num_rows)
    number, attempt = (0, 0) if task is None else (task.partitionId(), task.attemptNumber())
    changes = _Changes(plan.change)
    stored = changes.stored(batches) if plan.change else batches
    files = write_data_files(plan.context(), stored, task_id=number, entropy=SystemEntropy())
    return SealedFiles.of(changes.told(files, retried=attempt > 0), plan.sender)


class _Changes:
    """What rows of a change say beside the columns that are stored: which rows of the table they replace or delete."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._positions: dict[str, BitMap64] = {}
        self._updated = 0
        self._deleted = 0

    def stored(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write, without the columns that say this."""
        import pyarrow.compute as pc

        for batch in batches:
            paths, positions = (batch.column(name) for name in POSITIONS)
            self._collect(paths.dictionary_encode(), positions)
            written = batch.select(range(batch.num_columns - len(self._names)))
            if OPERATION in self._names:
                kept = pc.not_equal(batch.column(OPERATION), DELETES)
                written, paths = written.filter(kept), paths.filter(kept)
                self._deleted += batch.num_rows - written.num_rows
            self._updated += len(paths) - paths.null_count
            if written.num_rows:
                yield written

    def _collect(self, paths: pa.DictionaryArray, positions: pa.Array) -> None:
        import pyarrow.compute as pc
        from pyroaring import BitMap64

        for code, path in enumerate(paths.dictionary.to_pylist()):
            of_path = positions.filter(pc.equal(paths.indices, code))
            self._positions.setdefault(path, BitMap64()).update(of_path.to_pylist())

    def told(self, files: Sequence[DataFile], *, retried: bool) -> FilesWritten:
        """Return what the task has to tell."""
        inserted = sum(file.record_count for file in files) - self._updated
        return FilesWritten(
            files,
            retried=retried,
            positions={path: found.serialize() for path, found in self._positions.items()},
            counts=RowCounts(inserted=inserted, updated=self._updated, deleted=self._deleted),
        )
