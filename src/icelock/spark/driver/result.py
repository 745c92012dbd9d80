"""What an operation did, as far as it is known: what tasks counted, and the summary of its snapshot.

Not here: what tasks count (``spark.sealed.messages``), the summary (``table.change_result``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Snapshot

from icelock.plan.delete_index import is_vector
from icelock.spark.sealed.job import Action, Job
from icelock.spark.sealed.messages import FilesWritten
from icelock.table.change_result import ChangeResult

_REPLACES_FILES: Final = frozenset({Action.OVERWRITE, Action.OVERWRITE_PARTITIONS})
_REPLACES_TABLE: Final = frozenset({Action.REPLACE, Action.CREATE_OR_REPLACE})


def result_of(job: Job, done: FilesWritten, snapshot: Snapshot | None, whole: Iterable[FileScanTask]) -> ChangeResult:
    """Return the result of a job that was committed.

    Args:
        job: that made the commit.
        done: what tasks did.
        snapshot: that was made; None if there was nothing to do.
        whole: files that were removed unread.
    """
    made = ChangeResult.of_snapshot(snapshot, done.counts.inserted)
    if made.snapshot_id is None:
        return made
    return replace(made, rows_updated=done.counts.updated, rows_deleted=_deleted(job, done, made, whole))


def _deleted(job: Job, done: FilesWritten, made: ChangeResult, whole: Iterable[FileScanTask]) -> int | None:
    if job.action in _REPLACES_TABLE:
        return None
    if job.action in _REPLACES_FILES:
        return made.rows_deleted
    live = [_live_rows(task) for task in whole]
    return None if None in live else done.counts.deleted + sum(rows for rows in live if rows is not None)


def _live_rows(task: FileScanTask) -> int | None:
    """Return how many rows a file has that are not deleted; None if only reading tells."""
    deletes = list(task.delete_files)
    if any(not is_vector(file) for file in deletes):
        return None
    return int(task.file.record_count) - sum(int(file.record_count) for file in deletes)
