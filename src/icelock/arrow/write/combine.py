"""Live rows of several data files into new ones: the work of one task of a compaction. Plain Python and Spark executors both use it.

Rows keep their ``_row_id`` and ``_last_updated_sequence_number`` as stored columns (``row_rewrite.with_lineage``). Memory is bounded by a
batch and the open files' row groups; if rows get an order, all rows of the task are held.

Nothing is committed; on an error the new files are deleted. Not here: which files (``table.maintenance.compaction.compact_plan``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.task import read_task
from icelock.arrow.write.conform import InputPlan
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.schema import write_schema
from icelock.arrow.write.sort import RowSorter
from icelock.arrow.write.writer import write_data_files
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile
from icelock.plan.task import ScanTask

_SLICE_ROWS = 65_536

Arrange = Callable[[pa.Table], pa.Table]
"""Puts rows of the stored schema in another order."""


def combine_files(  # noqa: PLR0913 - what is read, how it is written, and its order
    read: ReadContext,
    write: WriteContext,
    tasks: Sequence[ScanTask],
    *,
    task_id: int,
    entropy: Entropy,
    arrange: Arrange | None = None,
    by_name: bool = False,
) -> list[DataFile]:
    """Write the live rows of data files to new files; return their manifest entries.

    Args:
        read: of the table; its filter does not matter.
        write: a context by ``with_lineage``; another's if the rows go to another table.
        tasks: the data files.
        task_id: part of the names of new files.
        entropy: where keys come from.
        arrange: the order of rows over all files; None: file after file, sorted by ``write.sort_order`` within row groups.
        by_name: whether columns go by the names of ``read.schema``, for another table, whose ids are its own.

    Raises:
        IntegrityError: a file fails authentication or has not as many rows as its entry says, or storage does not hold what was written;
            nothing is left.
        PolicyError: a file or column that is not read or written here.
    """
    every_row = replace(read, schema=read.schema if by_name else write.schema, row_filter=AlwaysTrue())
    rows: Iterator[pa.RecordBatch] = (batch for task in tasks for batch in read_task(every_row, task, counted=True))
    if arrange is not None:
        rows = _arranged(rows, write, arrange)
    return write_data_files(write, rows, task_id=task_id, entropy=entropy)


def sorted_by(write: WriteContext) -> Arrange:
    """Return what sorts rows by the sort order of a context."""
    sorter = RowSorter(write.sort_order, write_schema(write.schema))
    return lambda table: sorter.sort(table)[0]


def _arranged(rows: Iterator[pa.RecordBatch], write: WriteContext, arrange: Arrange) -> Iterator[pa.RecordBatch]:
    target = write_schema(write.schema)
    plans: dict[pa.Schema, InputPlan] = {}
    stored: list[pa.RecordBatch] = []
    for batch in rows:
        if batch.num_rows:
            if batch.schema not in plans:
                plans[batch.schema] = InputPlan(batch.schema, target, downcast_ns=write.downcast_ns)
            stored.append(plans[batch.schema].apply(batch))
    if stored:
        yield from arrange(pa.Table.from_batches(stored)).to_batches(max_chunksize=_SLICE_ROWS)
