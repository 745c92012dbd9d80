"""Rows of many partitions in any order, with bounded memory and bounded open files.

Rows wait in memory by partition. When more than ``max_buffered_bytes`` wait, the largest partition is written as a row group; when more
than ``max_open_files`` would be open, the least recently used file is ended (its partition gets another one later). So the number of
files grows only if a task's partitions exceed both bounds.

Incoming batches are gathered before they are split, since a split costs time for each partition in it.

Not here: row groups and files of one partition (``arrow.write.partition_writer``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

import pyarrow as pa

from icelock.arrow.write.data_file import DataFiles
from icelock.arrow.write.partition_writer import Compression, PartitionWriter
from icelock.arrow.write.sizes import used_bytes
from icelock.metadata.manifest import DataFile
from icelock.metadata.partition_identity import identity_of

_SPLIT_ROWS: Final = 1 << 17
_SPLIT_BYTES: Final = 32 << 20


class FanoutWriter:
    """Distributes batches of the stored schema to partition writers."""

    def __init__(self, files: DataFiles, *, max_open_files: int, max_buffered_bytes: int) -> None:
        self._files = files
        self._max_open = max_open_files
        self._max_bytes = max_buffered_bytes
        self._compression = Compression()
        self._writers: OrderedDict[Hashable, PartitionWriter] = OrderedDict()
        self._open: OrderedDict[int, PartitionWriter] = OrderedDict()
        self._buffered = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return sum(writer.is_open for writer in self._writers.values())

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows in any order."""
        if not self._files.partitioner.partitioned:
            self._append((None,) * len(self._files.partitioner), batch)
            return
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += used_bytes(batch)
        if self._pending_rows >= _SPLIT_ROWS or self._pending_bytes >= _SPLIT_BYTES:
            self._split()

    def close(self) -> list[DataFile]:
        """Write what waits and end all files; return them in order of the first row of their partitions."""
        self._split()
        for writer in self._writers.values():
            writer.close()
        return [data_file for writer in self._writers.values() for data_file in writer.written]

    def abort(self) -> None:
        """Stop writing and drop what waits."""
        self._pending = []
        for writer in self._writers.values():
            writer.abort()

    def _split(self) -> None:
        if not self._pending:
            return
        batch = pa.concat_batches(self._pending) if len(self._pending) > 1 else self._pending[0]
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        for partition, rows in self._files.partitioner.split(batch):
            self._append(partition, rows)

    def _append(self, partition: tuple[Any, ...], rows: pa.RecordBatch) -> None:
        identity = identity_of(partition)
        writer = self._writers.get(identity)
        if writer is None:
            writer = PartitionWriter(self._files, partition, self._compression, self._make_room, self._max_bytes)
            self._writers[identity] = writer
        before = writer.buffered_bytes
        writer.append(rows)
        self._buffered += writer.buffered_bytes - before
        if writer.is_open:
            self._open[id(writer)] = writer
            self._open.move_to_end(id(writer))
        self._relieve()

    def _relieve(self) -> None:
        """Write the largest partitions until no more than the bound waits."""
        while self._buffered > self._max_bytes:
            fullest = max(self._writers.values(), key=lambda writer: writer.buffered_bytes)
            self._buffered -= fullest.buffered_bytes
            fullest.flush()

    def _make_room(self, writer: PartitionWriter) -> None:
        """End the least recently used files, so that ``writer`` may open one."""
        self._open = OrderedDict((key, value) for key, value in self._open.items() if value.is_open)
        while len(self._open) >= self._max_open:
            _, oldest = self._open.popitem(last=False)
            oldest.close_file()
        self._open[id(writer)] = writer
