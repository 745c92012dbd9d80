"""The rows that one data file lost or gained in a snapshot, as batches.

A change of a file is one side or two: an added file gains rows, a removed one loses them, and a kept one whose deletes changed loses those
that are newly deleted, and gains those that no delete covers any more (only if a delete file was taken back).

Not here: which of the rows are only moved (``versions``), which belong together (``pairs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import Deletes
from icelock.arrow.read.task import read_live
from icelock.plan.changes import FileChange, FileChangeKind
from icelock.plan.task import EQUALITY_DELETES, ScanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The snapshot that rows were changed by, and its number in the range, from 0."""

    snapshot_id: int
    ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rows that a file gained (``inserted``) or lost."""

    change: FileChange
    commit: Commit
    inserted: bool

    @property
    def tasks(self) -> tuple[ScanTask, ...]:
        """What to read, see ``read_live``."""
        task, later = self.change.task, self.change.later
        if later is None:
            return (task,)
        return (later, task) if self.inserted else (task, later)

    def rows(self, context: ReadContext) -> Iterator[pa.RecordBatch]:
        """Return the rows in file order, always the same ones; raises as ``read_live``."""
        return read_live(context, self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What files lost and gained in one snapshot, or in several for net changes."""

    lost: list[Side] = field(default_factory=list)
    gained: list[Side] = field(default_factory=list)

    def add(self, context: ReadContext, commit: Commit, changes: Sequence[FileChange]) -> None:
        """Add the changes of a snapshot; deletes that were replaced are read, to see if any row came back."""
        for change in changes:
            if change.kind is not FileChangeKind.ADDED:
                self.lost.append(Side(change=change, commit=commit, inserted=False))
            if change.kind is FileChangeKind.ADDED or _gives_back(context, change):
                self.gained.append(Side(change=change, commit=commit, inserted=True))


def _gives_back(context: ReadContext, change: FileChange) -> bool:
    """Whether rows of a kept file may be there again: a vector that replaces another has mostly all of its positions."""
    if change.later is None or not change.loses_deletes:
        return False
    before, after = (Deletes.read(context, task) for task in (change.task, change.later))
    kept = {delete.path for delete in change.later.deletes}
    taken_back = any(delete.content == EQUALITY_DELETES and delete.path not in kept for delete in change.task.deletes)
    return taken_back or bool(before.positions - after.positions)
