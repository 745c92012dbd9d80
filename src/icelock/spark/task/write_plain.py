"""What an executor does for a write to a plain table: the rows of one task become PyIceberg's data files, without keys.

Not here: the commit, and whether the table may take rows (``spark.statements.plain_tables``), encrypted files (``spark.task.write``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from pyspark import TaskContext

from icelock.spark.sealed.hpke import Sender
from icelock.spark.sealed.messages import FilesWritten, RowCounts, SealedFiles
from icelock.spark.task.imports import settle_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import WriteTask
    from pyiceberg.table.metadata import TableMetadata

    from icelock.arrow.write.schema import WriteSchema

_MOST_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWritePlan:
    """A write without its rows: the table's metadata as JSON without history, and the FileIO's properties that executors may have."""

    metadata: str
    storage: Mapping[str, str]
    sender: Sender

    @classmethod
    def of(cls, metadata: TableMetadata, storage: Mapping[str, str], *, sender: Sender) -> Self:
        """Return the plan of a write to a table that is like this now."""
        from icelock.metadata.table_metadata import without_history

        return cls(metadata=without_history(metadata).model_dump_json(), storage=dict(storage), sender=sender)


def write_plain_rows(plan: PlainWritePlan, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Write the rows of one task; errors as ``data_files``."""
    from pyiceberg.table.metadata import TableMetadataUtil

    from icelock.io.storage import open_storage

    task = TaskContext.get()
    if task is not None:
        settle_imports()
    metadata = TableMetadataUtil.parse_raw(plan.metadata)
    made = data_files(metadata, open_storage(dict(plan.storage), metadata.location), rows)
    retried = task is not None and task.attemptNumber() > 0
    counts = RowCounts(inserted=sum(int(file.record_count) for file in made))
    return SealedFiles.of(FilesWritten(made, retried=retried, counts=counts), plan.sender)  # type: ignore[arg-type]  # PyIceberg's files


def data_files(metadata: TableMetadata, io: FileIO, rows: Iterator[pa.RecordBatch]) -> list[DataFile]:
    """Write rows in the order of the table's columns; on an error (PyIceberg's, or a PolicyError of values) no file is left."""
    from pyiceberg.io.pyarrow import write_file

    from icelock.arrow.write.conform import InputPlan
    from icelock.arrow.write.schema import write_schema
    from icelock.io.listing import delete_files

    target = write_schema(metadata.schema())
    names = [field.name for field in target.fields]
    named = (batch.rename_columns(names) for batch in rows if batch.num_rows)
    fitted = (InputPlan(batch.schema, target).apply(batch) for batch in named)
    made: list[DataFile] = []
    try:
        for tasks in _gathered(metadata, target, fitted):
            made += write_file(io, metadata, iter(tasks))
    except BaseException:
        delete_files(io, [file.file_path for file in made])
        raise
    for file in made:
        file.spec_id = metadata.default_spec_id
    return made


def _gathered(metadata: TableMetadata, target: WriteSchema, batches: Iterator[pa.RecordBatch]) -> Iterator[list[WriteTask]]:
    """Gather batches to files, one for each partition; at most about ``_MOST_BYTES`` are in memory."""
    from pyiceberg.schema import sanitize_column_names
    from pyiceberg.table import WriteTask

    from icelock.arrow.write.partition import Partitioner

    partitioner, write_id, numbers = Partitioner(metadata.spec(), target), uuid.uuid4(), count()
    stored = sanitize_column_names(metadata.schema())  # the names that batches have
    found: dict[str, WriteTask] = {}
    size = 0
    for batch in batches:
        for values, part in partitioner.split(batch):
            key = repr(values)  # 0.0 and -0.0 are two partitions, NaN is one
            if key not in found:
                found[key] = WriteTask(write_id, next(numbers), stored, [], partition_key=partitioner.key(values))
            found[key].record_batches.append(part)
        size += batch.nbytes
        if size >= _MOST_BYTES:
            yield list(found.values())
            found, size = {}, 0
    if found:
        yield list(found.values())
