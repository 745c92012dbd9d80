"""Commit messages: what a task tells the driver about its files.

``FilesWritten`` is the content as plain values, with the files' key metadata and bounds. A message holds it sealed (``SealedFiles``), in
one part or several; only the last one opens as the last, so none can be left out. Spark decides which attempts' messages ``commit`` gets
(case C-56).

Not here: how parts are sealed (``spark.sealed.hpke``), writing files (``spark.task.write``), committing them (``spark.driver.commit``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from icelock.errors import IntegrityError
from icelock.spark.sealed.hpke import Place, Recipient, Sender

if TYPE_CHECKING:
    from icelock.metadata.manifest import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows of the table a task inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            inserted=self.inserted + other.inserted, updated=self.updated + other.updated, deleted=self.deleted + other.deleted
        )


class FilesWritten:
    """The data files of one task attempt; empty for an empty partition."""

    def __init__(  # noqa: PLR0913 - what a task has to tell
        self,
        files: Sequence[DataFile] = (),
        *,
        retried: bool = False,
        seen: Sequence[str] = (),
        removed: Sequence[str] = (),
        positions: Mapping[str, bytes] | None = None,
        counts: RowCounts | None = None,
    ) -> None:
        """Take the values of the files.

        Args:
            files: that were written.
            retried: whether the task had an earlier attempt.
            seen: files of the table that a task examined, changed or not.
            removed: those of them that the written ones replace, or that have no row left.
            positions: of removed rows, as a serialized 64-bit roaring bitmap, by file of the table.
            counts: of rows.
        """
        self.counts = counts or RowCounts()
        self.retried = retried
        self.seen = tuple(seen)
        self.removed = tuple(removed)
        self.positions = dict(positions or {})
        self._files = tuple(_values(files))

    @classmethod
    def together(cls, messages: Iterable[FilesWritten], *, retried: bool) -> FilesWritten:
        """Return several messages as one; positions of the same file are united."""
        from pyroaring import BitMap64

        one = cls(retried=retried)
        for message in messages:
            one._files += message._files  # noqa: SLF001 - of this class
            one.seen += message.seen
            one.removed += message.removed
            one.counts += message.counts
            for path, positions in message.positions.items():
                both = BitMap64.deserialize(positions) | BitMap64.deserialize(one.positions[path]) if path in one.positions else None
                one.positions[path] = positions if both is None else both.serialize()
        return one

    @property
    def paths(self) -> list[str]:
        """Where the files are."""
        return [plain["file_path"] for _, plain in self._files]

    @property
    def files(self) -> list[DataFile]:
        """The files as manifest entries."""
        from icelock.metadata.file_values import file_of

        return [file_of(spec_id, plain) for spec_id, plain in self._files]

    def __repr__(self) -> str:
        return f"FilesWritten({len(self._files)} files)"


class SealedFiles(WriterCommitMessage):
    """``FilesWritten`` of one task attempt, sealed for the driver."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        """Take what ``seal_part`` returned, in order."""
        self.parts = tuple(parts)

    @classmethod
    def of(cls, written: FilesWritten, sender: Sender) -> SealedFiles:
        """Return a message of one part."""
        return cls([seal_part(written, sender, part=0, last=True)])

    def open(self, recipient: Recipient, *, task: int) -> FilesWritten:
        """Return what the task wrote; a message that was changed, or is not this task's, is an IntegrityError."""
        if not self.parts:
            raise IntegrityError(f"the message of task {task} is empty: its parts were lost")
        places = [Place(task=task, part=part, last=part == len(self.parts) - 1) for part in range(len(self.parts))]
        opened = [recipient.open(part, place) for part, place in zip(self.parts, places, strict=True)]
        written: list[FilesWritten] = [pickle.loads(part) for part in opened]  # noqa: S301 - Spark had unpickled the message already
        return FilesWritten.together(written, retried=any(part.retried for part in written))

    def __repr__(self) -> str:
        return f"SealedFiles({len(self.parts)} parts)"


class StreamFiles(WriterCommitMessage):
    """``SealedFiles`` of a task of a stream's batch, with what the commit needs."""

    def __init__(self, files: SealedFiles, ticket: bytes, query: str) -> None:
        """Take the files, what ``sealed_write`` returned, and the query's id."""
        self.files = files
        self.ticket = ticket
        self.query = query

    def __repr__(self) -> str:
        return f"StreamFiles({self.files!r})"


def seal_part(written: object, sender: Sender, *, part: int, last: bool) -> bytes:
    """Return one part of this task's message."""
    task = TaskContext.get()
    place = Place(task=0 if task is None else task.partitionId(), part=part, last=last)
    return sender.seal(pickle.dumps(written), place)


def _values(files: Sequence[DataFile]) -> list[tuple[int, dict[str, Any]]]:
    if not files:
        return []
    from icelock.metadata.file_values import values_of

    return [(file.spec_id, values_of(file)) for file in files]
