"""What an executor does for an audit: it opens files, to the end if every byte is asked for. Neither catalog nor KMS is imported.

Not here: which files, and what is wrong with a table (``audit``), jobs (``spark.driver.audit_here``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icelock.spark.sealed.hpke import Place, Recipient, Sender
from icelock.spark.sealed.messages import SealedFiles, seal_part
from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.imports import settle_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.audit.file_check import FileTask


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """What all tasks of the job share: settings of the storage, a location of the table, and the threads of a task."""

    storage: Mapping[str, str]
    location: str
    threads: int
    sender: Sender


class CheckSplit:
    """The files of one task, as plain values with their keys."""

    def __init__(self, tasks: Sequence[FileTask]) -> None:
        self._tasks = tuple(task.plain() for task in tasks)

    @property
    def tasks(self) -> list[FileTask]:
        """The files to open."""
        from icelock.audit.file_check import FileTask

        return [FileTask.of_plain(task) for task in self._tasks]

    def __repr__(self) -> str:
        return f"CheckSplit({len(self._tasks)} files)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesChecked:
    """How many files a task opened, and those of them with which something is wrong, as plain values of ``Checked``."""

    count: int
    wrong: Sequence[tuple[str, str | None, str]]

    def seal(self, sender: Sender) -> SealedFiles:
        """Return this as the message of the task that runs."""
        return SealedFiles([seal_part(self, sender, part=0, last=True)])

    @classmethod
    def open(cls, message: SealedFiles, recipient: Recipient, *, task: int) -> FilesChecked:
        """Return what a task told; a message that was changed, or is not this task's, is an IntegrityError."""
        told: FilesChecked = pickle.loads(recipient.open(b"".join(message.parts), Place(task=task)))  # noqa: S301 - as all messages
        return told


def check_sealed(plan: CheckPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Open the files of sealed splits, and return what is wrong with them; splits that were changed are an IntegrityError."""
    from icelock.audit.file_check import check_files
    from icelock.io.storage import open_storage

    settle_imports()
    io = open_storage(dict(plan.storage), plan.location)
    count, wrong = 0, list[tuple[str, str | None, str]]()
    for checked in check_files(io, (task for split in open_splits(key, rows) for task in split.tasks), threads=plan.threads):
        count += 1
        if checked.sentence:
            wrong.append((checked.path, checked.code, checked.sentence))
    return FilesChecked(count=count, wrong=wrong).seal(plan.sender)
