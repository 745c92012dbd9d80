"""Writes Arrow batches to encrypted data files of a table, in one process: plain Python or a Spark executor.

Steps:

1. settings, types, transforms and the number of columns are checked, then the schema of the first batch; nothing is written yet;
2. batches are converted to the stored schema (``arrow.write.conform``), split by partition (``arrow.write.fanout``), gathered to row groups
   (``arrow.write.fanout``), sorted (``arrow.write.sort``) and written under a new key for each file
   (``arrow.write.parquet_file``);
3. `DataFileWriter.close` ends all files and returns their manifest entries with key metadata; nothing is committed here.

On any error, and on `abort`, all files of this writer are deleted.

Needs no KMS, no KEK and no other file's key. Not here: manifests and commits (``table``), Spark's side (``spark``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyiceberg.schema import Schema

from icelock.arrow.nested import used_bytes
from icelock.arrow.write.conform import InputPlan
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.data_file import DataFiles
from icelock.arrow.write.fanout import FanoutWriter
from icelock.arrow.write.schema import write_schema
from icelock.errors import PolicyError
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile

_SLICE_BYTES: Final = 256 << 20  # so that 32-bit offsets hold


class DataFileWriter:
    """Writes batches to new data files; as a context manager it aborts unless it was closed.

    Not thread-safe. After `close`, `abort` or an error it takes no more rows.
    """

    def __init__(self, context: WriteContext, *, task_id: int, entropy: Entropy) -> None:
        """Check everything that is known before the first batch; no file is created.

        Args:
            context: the table's state.
            task_id: the number of this task in the write.
            entropy: where keys come from.

        Raises:
            PolicyError: settings, types, transforms or a column count that an encrypted table cannot have.
        """
        self._context = context
        self._files = DataFiles(context, task_id=task_id, entropy=entropy)
        self._fanout = FanoutWriter(self._files, max_open_files=context.max_open_files, max_buffered_bytes=context.max_buffered_bytes)
        self._source: pa.Schema | None = None
        self._plan: InputPlan | None = None
        self._done = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch, with its columns in any order.

        Raises:
            PolicyError: the batch does not fit the table, or the writer is done. All files are deleted first.
        """
        self._check_active()
        try:
            if self._plan is None or batch.schema != self._source:
                self._plan = InputPlan(batch.schema, self._files.target, downcast_ns=self._context.downcast_ns)
                self._source = batch.schema
            for piece in _pieces(batch):
                self._fanout.write(self._plan.apply(piece))
        except BaseException as e:
            self._fail(e)
            raise

    def close(self) -> list[DataFile]:
        """End all files; return their manifest entries, empty without rows.

        Raises:
            IntegrityError: a stored file differs from what was written. All files are deleted first.
            PolicyError: the writer is done.
        """
        self._check_active()
        try:
            data_files = self._fanout.close()
        except BaseException as e:
            self._fail(e)
            raise
        self._done = True
        return data_files

    def abort(self) -> list[str]:
        """Delete all files of this writer, also after `close`; return the locations that could not be deleted."""
        self._done = True
        self._fanout.abort()
        return self._files.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if not self._done:
            self.abort()

    def _check_active(self) -> None:
        if self._done:
            raise PolicyError("the writer was closed or aborted; make a new one")

    def _fail(self, error: BaseException) -> None:
        left = self.abort()
        if left:
            error.add_note(f"these files could not be deleted and belong to no table: {', '.join(left)}")


def write_data_files(context: WriteContext, batches: Iterable[pa.RecordBatch], *, task_id: int, entropy: Entropy) -> list[DataFile]:
    """Write batches to new data files and return their manifest entries with key metadata; nothing is committed.

    Raises:
        PolicyError: settings or rows that the table cannot have; nothing is left on storage.
        IntegrityError: storage does not hold what was written; nothing is left.
    """
    with DataFileWriter(context, task_id=task_id, entropy=entropy) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def check_input(schema: Schema, source: pa.Schema, *, downcast_ns: bool = False) -> None:
    """Check that batches of an Arrow schema can be written into a table; for use before tasks start.

    Raises:
        PolicyError: names every column that does not fit.
    """
    InputPlan(source, write_schema(schema), downcast_ns=downcast_ns)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in slices of at most `_SLICE_BYTES` on average; nothing if it has no rows."""
    if not batch.num_rows:
        return
    rows = math.ceil(batch.num_rows / max(1, math.ceil(used_bytes(batch) / _SLICE_BYTES)))
    if rows == batch.num_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


__all__ = ["DataFileWriter", "WriteContext", "check_input", "write_data_files"]
