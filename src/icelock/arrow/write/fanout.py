"""Rows of many partitions in any order, gathered to row groups and files, with bounded memory and bounded open files.

Rows wait in memory by partition. When more than ``max_buffered_bytes`` wait, the largest partition is written as a row group; when more
than ``max_open_files`` would be open, the least recently used file is ended (its partition gets another one later). So the number of
files grows only if a task's partitions exceed both bounds. Incoming batches are gathered before they are split, since a split costs time
for each partition in it.

Sizes in table properties are stored bytes, those in memory Arrow bytes: `Compression` has the ratio of the last write, and all partitions
of a task share it. A row group ends at ``write.parquet.row-group-size-bytes``; a file ends at ``write.target-file-size-bytes``, or a
little earlier if the rest is too small for a row group. It is opened when its first row group is complete, so partitions that only gather
rows hold no file.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pat

from icelock.arrow.nested import used_bytes
from icelock.arrow.write.data_file import DataFiles, OpenDataFile
from icelock.metadata.manifest import DataFile
from icelock.plan.partition_set import identity_of

_SPLIT_ROWS: Final = 1 << 17
_SPLIT_BYTES: Final = 32 << 20
_SMALL_CHUNK_ROWS: Final = 4096
_LEAST_MEASURED: Final = 64 << 10
_LEAST_SHARE: Final = 8  # a nearly full file does not begin a row group smaller than an eighth of the wanted size


class Compression:
    """Stored bytes for each Arrow byte, as last measured."""

    def __init__(self) -> None:
        self.ratio = 1.0

    def measured(self, arrow_bytes: int, stored_bytes: int) -> None:
        """Update from a written row group; a small one says more about Parquet's overhead than about the data."""
        if arrow_bytes >= _LEAST_MEASURED and stored_bytes > 0:
            self.ratio = stored_bytes / arrow_bytes


class PartitionWriter:
    """Writes one partition's rows to one file after another."""

    def __init__(
        self,
        files: DataFiles,
        partition: Sequence[Any],
        compression: Compression,
        opening: Callable[[PartitionWriter], None],
        max_bytes: int,
    ) -> None:
        """Make a writer that calls ``opening`` before it opens a file; ``max_bytes`` limits a row group in Arrow bytes."""
        self.buffered_bytes = 0
        self.written: list[DataFile] = []
        self._files = files
        self._partition = partition
        self._compression = compression
        self._opening = opening
        self._max_bytes = max_bytes
        self._buffer: list[pa.RecordBatch] = []
        self._rows = 0
        self._file: OpenDataFile | None = None

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._file is not None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows of the stored schema; write the row groups that they fill."""
        options = self._files.options
        row_bytes = max(used_bytes(batch) / batch.num_rows, 1e-3) if batch.num_rows else 1.0
        start = 0
        while start < batch.num_rows:
            target = self._target_bytes()
            least = options.row_group_min_rows if self.buffered_bytes < self._max_bytes else 1
            room = max(math.ceil((target - self.buffered_bytes) / row_bytes), least - self._rows, 1)
            wanted = min(room, options.row_group_max_rows - self._rows)
            piece = batch if not start and wanted >= batch.num_rows else batch.slice(start, wanted)
            start += piece.num_rows
            self._buffer.append(piece)
            self._rows += piece.num_rows
            self.buffered_bytes += math.ceil(row_bytes * piece.num_rows)
            full = self.buffered_bytes >= target and self._rows >= least
            if full or self._rows >= options.row_group_max_rows:
                self.flush()

    def flush(self) -> None:
        """Write the gathered rows as a row group, and end the file if it is large enough."""
        if not self._rows:
            return
        table, arrow_bytes = self._gathered(), self.buffered_bytes
        self._buffer, self._rows, self.buffered_bytes = [], 0, 0
        for part in _parts(table, self._files.options.max_levels):
            if self._file is None:
                self._opening(self)
                self._file = self._files.open(self._partition, part)
            before = self._file.stored_bytes
            self._file.write(part)
            self._compression.measured(arrow_bytes * part.num_rows // table.num_rows, self._file.stored_bytes - before)
            if self._file.full or self._left() * _LEAST_SHARE < self._wanted():
                self.close_file()

    def close_file(self) -> None:
        """End the open file, if any; gathered rows are kept."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                self.written.append(file.close())
            except BaseException:
                file.abort()
                raise

    def close(self) -> None:
        """Write everything and end the open file."""
        self.flush()
        self.close_file()

    def abort(self) -> None:
        """Stop writing and drop gathered rows."""
        self._buffer, self._rows, self.buffered_bytes = [], 0, 0
        if self._file is not None:
            self._file.abort()
            self._file = None

    def _gathered(self) -> pa.Table:
        table = pa.Table.from_batches(self._buffer, schema=self._files.target.arrow)
        many_small = len(self._buffer) > 1 and table.num_rows < len(self._buffer) * _SMALL_CHUNK_ROWS
        return table.combine_chunks() if many_small else table

    def _target_bytes(self) -> int:
        """Return the Arrow bytes at which the next row group is complete."""
        wanted = min(self._wanted(), max(self._left(), 1))
        return max(1, min(int(wanted / self._compression.ratio), self._max_bytes))

    def _wanted(self) -> int:
        return min(self._files.options.row_group_bytes, self._files.options.target_file_bytes)

    def _left(self) -> int:
        return self._files.options.target_file_bytes - (0 if self._file is None else self._file.stored_bytes)


def _parts(table: pa.Table, max_levels: int) -> Iterator[pa.Table]:
    """Yield the table, halved until no column has more values than its pages can number (case C-21)."""
    levels = max(sum(_levels(chunk) for chunk in column.chunks) for column in table.columns)
    if levels <= max_levels or table.num_rows == 1:
        yield table
        return
    half = table.num_rows // 2
    yield from _parts(table.slice(0, half), max_levels)
    yield from _parts(table.slice(half), max_levels)


def _levels(array: pa.Array) -> int:
    """Return an upper bound of the values and nulls that Parquet stores for an array's fullest leaf."""
    kind = array.type
    if pat.is_struct(kind):
        return max(_levels(array.field(index)) for index in range(kind.num_fields))
    if pat.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return len(array) + max(_levels(child.slice(first, last - first)) for child in (array.keys, array.items))
    if pat.is_list(kind):
        return len(array) + _levels(array.flatten())
    return len(array)


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
