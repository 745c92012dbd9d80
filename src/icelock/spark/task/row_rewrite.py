"""What an executor does to remove rows from data files: new files with the other rows, or positions for deletion vectors.

A task gets whole files with their keys, and for an upsert the positions of the rows to remove. It returns one row for each file, sealed for
the driver. These rows pass through Spark's JVM to the writer of the same task (``RewriteWriter``), which makes one message of them.

Importing this module imports no catalog and no KMS. Not here: the work on a file (``arrow.write.row_rewrite``), which files
(``spark.driver.plan_read``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from icelock.spark.sealed.hpke import Sender
from icelock.spark.sealed.messages import FilesWritten, RowCounts, SealedFiles, seal_part
from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.imports import settle_imports
from icelock.spark.task.read import ExecutorReader, ReadPlan
from icelock.spark.task.splits import Split
from icelock.spark.task.write import TaskWriter, WritePlan

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.arrow.write.row_rewrite import RewriteContext
    from icelock.plan.task import ScanTask

RESULT: Final = "result"


class RewriteSplit(Split):
    """The data files of one task, with the positions of the rows to remove unless the plan's filter finds them."""

    def __init__(self, tasks: Sequence[ScanTask], positions: Mapping[str, bytes]) -> None:
        super().__init__(tasks)
        self.positions = {task.path: positions[task.path] for task in tasks if task.path in positions}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """What all tasks of the job share."""

    read: ReadPlan
    write: WritePlan
    merge_on_read: bool

    def context(self) -> RewriteContext:
        """Return the context of a task."""
        from icelock.arrow.write.row_rewrite import DeleteMode, RewriteContext
        from icelock.keys.entropy import SystemEntropy

        mode = DeleteMode.MERGE_ON_READ if self.merge_on_read else DeleteMode.COPY_ON_WRITE
        return RewriteContext(read=self.read.context(), write=cache(self.write.context), mode=mode, entropy=SystemEntropy())


class RewriteReader(ExecutorReader):
    """The reader on executors."""

    def __init__(self, plan: RewritePlan) -> None:
        self._plan = plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one sealed row for each data file of a split; errors as ``rewrite_file``."""
        if not isinstance(partition, RewriteSplit) or not len(partition):
            return
        import pyarrow as pa
        from pyroaring import BitMap64

        from icelock.arrow.write.row_rewrite import rewrite_file

        context, running = self._plan.context(), TaskContext.get()
        number = 0 if running is None else running.partitionId()
        positions = {path: BitMap64.deserialize(rows) for path, rows in partition.positions.items()}
        for part, task in enumerate(partition.tasks):
            found = rewrite_file(context, task, positions.get(task.path), task_id=number)
            told = FilesWritten(
                found.files,
                seen=[task.path],
                removed=[task.path] if found.removed else [],
                positions={} if found.deleted is None else {task.path: found.deleted.serialize()},
                counts=None if task.path in positions else RowCounts(deleted=found.rows),
            )
            sealed = seal_part(told, self._plan.write.sender, part=part, last=False)
            yield pa.record_batch([pa.array([sealed], pa.binary())], names=[RESULT])


class RewriteWriter(TaskWriter):
    """The writer: on executors it gathers the results of its task, in the driver it commits them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SealedFiles:
        """Return the results of one task."""
        return _gathered(self.plan.sender, iterator)


def _gathered(sender: Sender, results: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Return the rows of a ``RewriteReader`` as the message of one task."""
    parts: list[bytes] = [value.as_py() for batch in results for value in batch.column(0)]
    task = TaskContext.get()
    end = FilesWritten(retried=task is not None and task.attemptNumber() > 0)
    return SealedFiles([*parts, seal_part(end, sender, part=len(parts), last=True)])


def rewrite_files(plan: RewritePlan, splits: Sequence[RewriteSplit]) -> SealedFiles:
    """Do what reader and writer do, for one task or in the calling process; errors are those of ``RewriteReader.read``."""
    if TaskContext.get() is not None:
        settle_imports()
    tasks = [task for split in splits for task in split.tasks]
    positions = {path: rows for split in splits for path, rows in split.positions.items()}
    return _gathered(plan.write.sender, RewriteReader(plan).read(RewriteSplit(tasks, positions)))


def rewrite_sealed(plan: RewritePlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Do the same for splits that are sealed rows; a row that was changed is an IntegrityError."""
    return rewrite_files(plan, list(open_splits(key, rows)))
