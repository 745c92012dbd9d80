"""What an executor does to remove rows from data files: new files with the other rows, or positions for deletion vectors.

A task has whole files, the keys of those files, and for an upsert the positions of the rows that go. One row for each file comes out,
sealed for the driver. Rows pass through Spark's JVM to the writer of the same task (``RewriteWriter``), which makes one message of them:

    copy-on-write   the file goes; rows that stay are in new files, with row ids and sequence numbers as stored columns
    merge-on-read   positions of the rows that match; the driver makes deletion vectors of them

Importing it brings in no catalog and no KMS. Not here: which files (``spark.driver.plan_rewrite``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, InputPartition, WriterCommitMessage

from icelock.spark.sealed.messages import FilesWritten, SealedFiles, seal_part
from icelock.spark.task.read import ExecutorReader, ReadPlan
from icelock.spark.task.splits import Split
from icelock.spark.task.write import WritePlan

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.arrow.read.context import ReadContext
    from icelock.plan.task import ScanTask
    from icelock.spark.sealed.ticket import Ticket

RESULT: Final = "result"


class RewriteSplit(Split):
    """The data files of one task, with the positions of the rows that go where a filter does not say it."""

    def __init__(self, tasks: Sequence[ScanTask], positions: Mapping[str, bytes]) -> None:
        super().__init__(tasks)
        self.positions = {task.path: positions[task.path] for task in tasks if task.path in positions}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """What all tasks of the job share."""

    read: ReadPlan
    write: WritePlan
    merge_on_read: bool


class RewriteReader(ExecutorReader):
    """The reader on executors."""

    def __init__(self, plan: RewritePlan) -> None:
        self._plan = plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one sealed row for each data file of a split.

        Raises:
            IntegrityError: a file fails authentication, or storage does not hold what was written.
        """
        if not isinstance(partition, RewriteSplit) or not len(partition):
            return
        import pyarrow as pa

        cutter = _Cutter(self._plan)
        for number, task in enumerate(partition.tasks):
            result = cutter.cut(task, partition.positions.get(task.path))
            sealed = seal_part(result, self._plan.write.sender, part=number, last=False)
            yield pa.record_batch([pa.array([sealed], pa.binary())], names=[RESULT])


class RewriteWriter(DataSourceArrowWriter):
    """The writer: on executors it gathers the results of its task, in the driver it commits them."""

    def __init__(self, plan: WritePlan, ticket: Ticket) -> None:
        self._plan = plan
        self._ticket = ticket

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Return the results of one task."""
        parts: list[bytes] = [value.as_py() for batch in iterator for value in batch.column(0)]
        task = TaskContext.get()
        end = FilesWritten(retried=task is not None and task.attemptNumber() > 0)
        return SealedFiles([*parts, seal_part(end, self._plan.sender, part=len(parts), last=True)])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make one snapshot of the results.

        Raises:
            CommitError: a message is missing, or the table was replaced by another; nothing was committed and the files are gone.
            IntegrityError: a message is not what a task of this job sent; the same.
            ValidationException: another writer's commit is in conflict; the same.
            CommitFailedException: other writers won each time; the same.
        """
        from icelock.spark.driver.commit import commit_write

        commit_write(self._plan, self._ticket, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files of a job that failed before its commit began, and those that were staged for it."""
        from icelock.spark.driver.commit import abort_write

        abort_write(self._plan, self._ticket, messages)

    def __repr__(self) -> str:
        return f"RewriteWriter({self._plan.location})"


class _Cutter:
    """Does the work on data files, one after another."""

    def __init__(self, plan: RewritePlan) -> None:
        from pyiceberg.expressions import AlwaysTrue

        self._plan = plan
        self._matching = plan.read.context()
        self._every_row: ReadContext = replace(self._matching, row_filter=AlwaysTrue())

    def cut(self, task: ScanTask, positions: bytes | None) -> FilesWritten:
        """Return what becomes of a file; ``positions`` are of the rows that go, or the plan's filter says which."""
        if positions is not None:
            return self._rewritten(task, self._except_positions(task, positions))
        if self._plan.merge_on_read:
            return self._positions(task)
        from icelock.arrow.read.task import count_task

        matching = count_task(self._matching, task)
        if not matching:
            return FilesWritten(seen=[task.path])
        if matching == count_task(self._every_row, task):
            return FilesWritten(seen=[task.path], gone=[task.path])
        return self._rewritten(task, self._others(task))

    def _rewritten(self, task: ScanTask, rows: Iterator[pa.RecordBatch]) -> FilesWritten:
        from icelock.arrow.write.writer import write_data_files
        from icelock.keys.entropy import SystemEntropy

        number = TaskContext.get()
        files = write_data_files(
            self._plan.write.context(), rows, task_id=0 if number is None else number.partitionId(), entropy=SystemEntropy()
        )
        return FilesWritten(files, seen=[task.path], gone=[task.path])

    def _others(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        from icelock.arrow.read.row_filter import RowMatcher
        from icelock.arrow.read.task import read_task

        matcher = RowMatcher(self._matching.filter_plan, self._matching.table_schema)
        for batch in read_task(replace(self._every_row, schema=self._plan.write.context().schema), task):
            yield matcher.others(batch)

    def _except_positions(self, task: ScanTask, positions: bytes) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa
        from pyiceberg.schema import Schema
        from pyroaring import BitMap64

        from icelock.arrow.read.task import read_task
        from icelock.metadata.metadata_columns import POS

        stored = self._plan.write.context().schema
        goes = np.fromiter(BitMap64.deserialize(positions), np.int64)
        for batch in read_task(replace(self._every_row, schema=Schema(*stored.fields, POS, schema_id=stored.schema_id)), task):
            stays = np.isin(batch.column(batch.num_columns - 1).to_numpy(), goes, invert=True)
            yield batch.select(range(batch.num_columns - 1)).filter(pa.array(stays))

    def _positions(self, task: ScanTask) -> FilesWritten:
        from pyiceberg.schema import Schema
        from pyroaring import BitMap64

        from icelock.arrow.read.task import read_task
        from icelock.metadata.metadata_columns import POS

        found = BitMap64()
        for batch in read_task(replace(self._matching, schema=Schema(POS)), task):
            found |= BitMap64(batch.column(0).to_numpy())
        return FilesWritten(seen=[task.path], positions={task.path: found.serialize()} if found else {})
