"""Rows of one partition, gathered to row groups and files of the sizes that the table asks for.

Sizes in table properties are stored bytes, those in memory Arrow bytes: `Compression` has the ratio of the last write, and all partitions
of a task share it. A row group ends at ``write.parquet.row-group-size-bytes``; a file ends at
``write.target-file-size-bytes``, or a little earlier if the rest is too small for a row group.

A file is opened when its first row group is complete, so partitions that only gather rows hold no file.

Not here: many partitions (``arrow.write.fanout``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pat

from icelock.arrow.write.data_file import DataFiles, OpenDataFile
from icelock.arrow.write.sizes import used_bytes
from icelock.metadata.manifest import DataFile

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
