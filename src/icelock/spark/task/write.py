"""What an executor does for a write: the rows of one task become encrypted files. Importing this module loads no catalog and no KMS.

Spark pickles one writer for executors and for the commit, so ``TaskWriter`` is plain data without keys of files: schema, partition spec,
sort order, storage settings, and a ticket that only the driver's machine can redeem (``spark.sealed.ticket``). A task mints the keys of its
own files, and seals its message about them (``spark.sealed.hpke``).

Rows of an upsert have three more columns: ``_row_id`` of the row that they replace, which is stored, then its file and position, which go
into the message (``POSITIONS``).

A failed task deletes its files itself, unless Spark kills its process first. ``abort`` deletes those of finished tasks and of killed
processes, and so does ``commit`` when a task was retried.

Not here: planning (``spark.driver.plan_write``), the commit (``spark.driver.commit``), files (``arrow.write.writer``).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from icelock.spark.sealed.hpke import Sender
from icelock.spark.sealed.messages import FilesWritten, SealedFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64

    from icelock.arrow.write.context import WriteContext
    from icelock.spark.sealed.ticket import Ticket

POSITIONS: Final = ("icelock replaced file", "icelock replaced position")
_WRITE_SETTINGS: Final = ("write.", "format-version")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A write without its rows; ``columns`` are the table's names for the input's; schema, spec and sort order are Iceberg's JSON.

    ``sender`` seals messages to the driver. ``merges``: rows have two more columns, file and position of the row that each replaces.
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
    merges: bool = False

    @classmethod
    def of(
        cls, context: WriteContext, columns: Sequence[str], storage: Mapping[str, str], *, sender: Sender, merges: bool = False
    ) -> WritePlan:
        """Return the plan of a transaction; ``storage`` are the FileIO's properties that executors may have."""
        return cls(
            columns=tuple(columns),
            schema=context.schema.model_dump_json(),
            spec=context.spec.model_dump_json(),
            sort_order=context.sort_order.model_dump_json(),
            location=context.location,
            properties={name: value for name, value in context.properties.items() if name.startswith(_WRITE_SETTINGS)},
            storage=dict(storage),
            data_key_length=context.data_key_length,
            operation_id=context.operation_id,
            sender=sender,
            merges=merges,
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
        """Write the rows of one task; on an error (those of ``write_data_files``) its files are deleted."""
        from icelock.arrow.write.writer import write_data_files
        from icelock.keys.entropy import SystemEntropy

        task = TaskContext.get()
        if task is not None:
            _freeze_imports()
        names = [*self.plan.columns, *(POSITIONS if self.plan.merges else ())]
        batches: Iterator[pa.RecordBatch] = (batch.rename_columns(names) for batch in iterator if batch.num_rows)
        number, attempt = (0, 0) if task is None else (task.partitionId(), task.attemptNumber())
        replaced: dict[str, BitMap64] = {}
        if self.plan.merges:
            batches = _without_positions(batches, replaced)
        files = write_data_files(self.plan.context(), batches, task_id=number, entropy=SystemEntropy())
        positions = {path: found.serialize() for path, found in replaced.items()}
        return SealedFiles.of(FilesWritten(files, retried=attempt > 0, positions=positions), self.plan.sender)

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


@cache
def _freeze_imports() -> None:
    """Exclude our imports from garbage collection, once a process: PySpark collects after each task (60 ms with our imports)."""
    gc.freeze()


def _without_positions(batches: Iterator[pa.RecordBatch], found: dict[str, BitMap64]) -> Iterator[pa.RecordBatch]:
    """Yield batches without their last two columns, and add these positions to ``found``."""
    import pyarrow.compute as pc
    from pyroaring import BitMap64

    for batch in batches:
        rest = batch.num_columns - 2
        paths, positions = batch.column(rest).dictionary_encode(), batch.column(rest + 1)
        for code, path in enumerate(paths.dictionary.to_pylist()):
            of_path = positions.filter(pc.equal(paths.indices, code))
            found.setdefault(path, BitMap64()).update(of_path.to_pylist())
        yield batch.select(range(rest))
