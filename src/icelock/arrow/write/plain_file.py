"""Data files of plain tables, without keys, written by PyIceberg.

Not here: encrypted files (``arrow.write.writer``), the commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import WriteTask
from pyiceberg.table.metadata import TableMetadata

from icelock.arrow.write.conform import InputPlan
from icelock.arrow.write.partition import Partitioner
from icelock.arrow.write.schema import WriteSchema, write_schema
from icelock.io.listing import delete_files

_MOST_BYTES: Final = 512 << 20


def data_files(metadata: TableMetadata, io: FileIO, rows: Iterator[pa.RecordBatch]) -> list[DataFile]:
    """Write rows in the order of the table's columns; on an error (PyIceberg's, or a PolicyError of values) no file is left."""
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
