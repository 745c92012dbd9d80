"""What an executor does for a compaction: the live rows of the data files of one task go to new files. Neither catalog nor KMS is imported.

Not here: which files (``table.maintenance.compaction.compact_plan``), the work itself (``arrow.write.combine``), jobs
(``spark.driver.compact_here``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from icelock.spark.sealed.messages import FilesWritten, SealedFiles
from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.imports import settle_imports
from icelock.spark.task.read import ReadPlan, TaskReader
from icelock.spark.task.write import WritePlan

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.metadata.manifest import DataFile
    from icelock.plan.task import ScanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinePlan:
    """What all tasks of the job share; ``by_name`` as ``combine_files``; ``whole`` are schemas as JSON, if files go whole to new ones."""

    read: ReadPlan
    write: WritePlan
    by_name: bool = False
    whole: tuple[str, ...] = ()


def combine_sealed(plan: CombinePlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Write the rows of the files in sealed splits; errors are those of ``combine_files``, and IntegrityError for a changed split."""
    settle_imports()
    running = TaskContext.get()
    number, attempt = (0, 0) if running is None else (running.partitionId(), running.attemptNumber())
    tasks = [task for split in open_splits(key, rows) for task in split.tasks]
    files = _written_whole(plan, tasks, number) if plan.whole else _combined(plan, tasks, number)
    return SealedFiles.of(FilesWritten(files, retried=attempt > 0), plan.write.sender)


def _combined(plan: CombinePlan, tasks: Sequence[ScanTask], number: int) -> list[DataFile]:
    from icelock.arrow.write.combine import combine_files
    from icelock.keys.entropy import SystemEntropy

    return combine_files(plan.read.context(), plan.write.context(), tasks, task_id=number, entropy=SystemEntropy(), by_name=plan.by_name)


def _written_whole(plan: CombinePlan, tasks: Sequence[ScanTask], number: int) -> list[DataFile]:
    from icelock.arrow.write.whole_file import write_whole
    from icelock.keys.entropy import SystemEntropy
    from icelock.metadata.column_types import schema_from_json

    (task,) = tasks  # a file each: an error of a second one would leave the first
    schemas = [schema_from_json(schema) for schema in plan.whole]
    return write_whole(plan.read.context(), plan.write.context(), task, schemas=schemas, task_id=number, entropy=SystemEntropy())


def read_sealed(plan: ReadPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in sealed splits, in Spark's Arrow form; errors are those of ``TaskReader.read``."""
    reader = TaskReader(plan)
    for split in open_splits(key, rows):
        yield from reader.read(split)


def z_values(schema: str, names: Sequence[str]) -> Callable[..., pa.Array]:
    """Return a function from arrays of columns, in Spark's form, to their Z-values; ``schema`` is Iceberg's JSON of the table's."""
    import pyarrow as pa

    def interleave(*columns: pa.Array) -> pa.Array:
        from icelock.arrow.write.conform import InputPlan
        from icelock.arrow.write.schema import write_schema
        from icelock.arrow.write.z_order import interleaved, ordered_bits
        from icelock.metadata.column_types import schema_from_json

        target = write_schema(schema_from_json(schema).select(*names))
        batch = pa.RecordBatch.from_arrays(list(columns), names=list(names))
        stored = InputPlan(batch.schema, target).apply(batch)
        return interleaved([ordered_bits(stored.column(name)) for name in names]).cast(pa.binary())

    interleave.__annotations__ = {"columns": pa.Array, "return": pa.Array}  # Spark looks for types, not for their names
    return interleave
