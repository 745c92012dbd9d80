"""An audit's files are opened by Spark's tasks; the calling process of a classic session reads what leads to them.

A job opens at most ``_MOST`` files, so that the keys of few are in memory at once, whatever the table has. Splits and messages are sealed.

Not here: which files, and what is wrong with a table (``audit``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from icelock.audit.file_check import Checked, FileTask, check_files
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import IntegrityError
from icelock.spark.driver.compact_here import storage_for_tasks
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.rewrite_here import SMALL, run_splits
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.settings.session import settings_of
from icelock.spark.task.check_files import CheckPlan, CheckSplit, FilesChecked, check_sealed
from icelock.spark.task.splits import shares

_JOB: Final = "audit"
_MOST: Final = 20_000
_OPENING: Final = 64 << 10  # what is read of a file at least
_SHARES: Final = 4  # tasks for each that the cluster runs at once, so that one of slow storage does not end last
_WORTH_A_TASK: Final = 256 << 20  # bytes: a task more costs 60 ms of CPU, a fifth of what so many take to authenticate


class CheckByTasks:
    """``CheckFiles`` for tables of a catalog, in one session."""

    def __init__(self, spark: SparkSession, catalog: EncryptedCatalog) -> None:
        self._spark = spark
        self._catalog = catalog

    def __call__(self, io: FileIO, tasks: Iterable[FileTask], *, threads: int) -> Iterator[Checked]:
        """Yield what was found in each file; see ``CheckFiles``.

        Raises:
            IntegrityError: a task's message was changed, or tells of fewer files than it was given.
            PySparkException: tasks failed, with icelock's error in its message.
        """
        left = iter(tasks)
        while some := list(islice(left, _MOST)):
            if sum(map(_cost, some)) <= SMALL:
                yield from check_files(io, some, threads=threads)
            else:
                yield from self._by_tasks(io, some, threads)

    def _by_tasks(self, io: FileIO, tasks: Sequence[FileTask], threads: int) -> Iterator[Checked]:
        recipient = Recipient.new(str(uuid.uuid4()), _JOB)
        costs = [_cost(task) for task in tasks]
        number = min(len(tasks), tasks_for(sum(costs), settings_of(self._spark).parallelism))
        divided = [[tasks[place] for place in share] for share in shares(costs, number)]
        plan = CheckPlan(
            storage=storage_for_tasks(io, self._catalog),
            location=tasks[0].path,
            threads=threads,
            sender=recipient.sender,
        )
        messages = run_splits(self._spark, [CheckSplit(share) for share in divided], partial(check_sealed, plan))
        check()
        for task, (share, message) in enumerate(zip(divided, messages, strict=True)):
            told = FilesChecked.open(message, recipient, task=task)
            if told.count != len(share):
                raise IntegrityError(f"task {task} of the audit was given {len(share)} files and tells of {told.count}")
            wrong = {path: Checked(path, code, sentence) for path, code, sentence in told.wrong}
            yield from (wrong.get(file.path, Checked(file.path)) for file in share)


def tasks_for(size: int, parallelism: int) -> int:
    """Return how many tasks open files of so many bytes: one for each that the cluster runs at once, or several if they are worth it."""
    return max(parallelism, min(parallelism * _SHARES, size // _WORTH_A_TASK))


def _cost(task: FileTask) -> int:
    """Return about how many bytes of a file are read."""
    size = task.key.encrypted_length or 0
    return max(size, _OPENING) if task.every_byte else _OPENING
