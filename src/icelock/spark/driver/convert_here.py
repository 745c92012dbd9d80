"""A conversion's work by Spark's tasks: a job for many data files, a task for each, which reads and writes it in one Python worker.

The calling process of a classic session plans and commits (``table.maintenance.conversion.convert``). Tasks get the names of plain files,
and draw the keys of what they write; splits and messages are sealed. When a job fails, no file of it is left.

Not here: which files (``table.maintenance.conversion.convert_files``), the work itself (``spark.task.combine``).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession
from pyspark.sql import types as sp

from icelock.arrow.read.context import ReadContext
from icelock.arrow.write.context import WriteContext
from icelock.catalog.base import EncryptedCatalog
from icelock.keys.entropy import Entropy
from icelock.metadata.canonical_json import schema_json
from icelock.metadata.manifest import DataFile
from icelock.plan.task import ScanTask
from icelock.spark.driver.compact_here import Job, storage_for_tasks
from icelock.spark.driver.rewrite_here import SMALL, one_by_one, run_splits
from icelock.spark.task.combine import CombinePlan, combine_sealed
from icelock.spark.task.read import ReadPlan
from icelock.spark.task.splits import Split
from icelock.table.maintenance.conversion.convert_files import bytes_of, write_here
from icelock.table.plain import AnyTable

_AT_ONCE: Final = 2000  # files of a job: what a failure costs, and the messages that are held
_AT_ONCE_KEPT: Final = 200  # with a progress file, which has whole jobs: what a kill costs


class ConvertByTasks:
    """``WriteFiles`` for a plain table, in one session.

    ``to`` is the catalog of a copy, if it is another's; ``is_kept`` says that finished files are kept in a progress file.
    """

    def __init__(self, spark: SparkSession, table: AnyTable, to: EncryptedCatalog | None = None, *, is_kept: bool = False) -> None:
        self._spark = spark
        self._at_once = _AT_ONCE_KEPT if is_kept else _AT_ONCE
        self._to = to
        self._location = table.metadata.location
        self._storage = storage_for_tasks(table.io, table.catalog)

    def __call__(  # noqa: PLR0913 - WriteFiles
        self,
        read: ReadContext,
        write: WriteContext,
        tasks: Sequence[ScanTask],
        entropy: Entropy,
        *,
        by_name: bool,
        whole: Sequence[Schema] = (),
    ) -> Generator[tuple[int, list[DataFile]]]:
        """Write the rows of data files; see ``WriteFiles``."""
        if bytes_of(tasks) <= SMALL:
            yield from write_here(read, write, tasks, entropy, by_name=by_name, whole=whole)
            return
        for start in range(0, len(tasks), self._at_once):
            written = self._written(read, write, tasks[start : start + self._at_once], by_name=by_name, whole=whole)
            yield from one_by_one(enumerate(written, start), write.io, lambda numbered: [file.file_path for file in numbered[1]])

    def _written(
        self, read: ReadContext, write: WriteContext, tasks: Sequence[ScanTask], *, by_name: bool, whole: Sequence[Schema]
    ) -> list[list[DataFile]]:
        """Write some files in one job."""
        to = self._storage if self._to is None else storage_for_tasks(write.io, self._to)
        job = Job(write, to)
        every_row = replace(read, schema=read.schema if by_name else write.schema, row_filter=AlwaysTrue())
        plan = CombinePlan(
            read=ReadPlan.of(every_row, sp.StructType(), self._storage, self._location),
            write=job.plan,
            by_name=by_name,
            whole=tuple(map(schema_json, whole)),
        )
        with job.leaving_nothing():
            messages = run_splits(self._spark, [Split([task]) for task in tasks], partial(combine_sealed, plan))
            return [written.files for _, written in zip(tasks, job.opened(messages), strict=True)]
