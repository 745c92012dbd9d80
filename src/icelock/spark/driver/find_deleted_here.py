"""Deleted rows of data files are found by Spark's tasks; the calling process of a classic session plans and commits.

A task reads delete files, and of data files that equality deletes may hit the compared columns. It writes nothing, so a job that fails
leaves nothing. Splits and messages are sealed.

Not here: which files, vectors and the commit (``table.rows.delete_rewrite``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from icelock.spark.driver.compact_here import read_plan_of
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.rewrite_here import SMALL, run_splits
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.settings.session import settings_of
from icelock.spark.task.find_deleted import FindPlan, find_sealed
from icelock.spark.task.splits import plan_splits
from icelock.table.read.scan import DataScan
from icelock.table.rows.delete_rewrite import find_here
from icelock.table.table import Table

_JOB: Final = "find deleted"
_FEW_FILES: Final = 256  # a millisecond or two each


class FindByTasks:
    """``FindDeleted`` for a table, in one session."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table

    def __call__(self, scan: DataScan, files: Sequence[FileScanTask]) -> Iterator[BitMap64]:
        """Yield the positions of the deleted rows of each file; see ``FindDeleted``."""
        if len(files) <= _FEW_FILES and sum(map(_bytes_to_read, files)) <= SMALL:
            yield from find_here(scan, files)
            return
        found = self._found(scan, files)
        for file in files:
            yield BitMap64.deserialize(found.pop(file.file.file_path))  # a file that no task told of would bring rows back

    def _found(self, scan: DataScan, files: Sequence[FileScanTask]) -> dict[str, bytes]:
        recipient = Recipient.new(str(uuid.uuid4()), _JOB)
        task_of = scan._task_builder.build
        splits = plan_splits(
            [task_of(file) for file in files], self._table.metadata.properties, parallelism=settings_of(self._spark).parallelism
        )
        plan = FindPlan(read=read_plan_of(self._table, scan, Schema()), sender=recipient.sender)
        messages = run_splits(self._spark, splits, partial(find_sealed, plan))
        check()
        opened = (message.open(recipient, task=task) for task, message in enumerate(messages))
        return {path: rows for told in opened for path, rows in told.positions.items()}


def _bytes_to_read(file: FileScanTask) -> int:
    """Return about how many bytes are read to find a file's deleted rows."""
    by_value = any(delete.content == DataFileContent.EQUALITY_DELETES for delete in file.delete_files)
    return sum(delete.file_size_in_bytes for delete in file.delete_files) + (file.file.file_size_in_bytes if by_value else 0)
