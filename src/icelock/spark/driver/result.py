"""What an operation did, as far as it is known: what tasks counted, and the summary of its snapshot.

Not here: what tasks count (``spark.sealed.messages``), the snapshot (``spark.driver.snapshot``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Self

from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Snapshot

from icelock.plan.delete_index import is_vector
from icelock.shown import Shown
from icelock.spark.sealed.job import Action, Job
from icelock.spark.sealed.messages import FilesWritten

_REPLACES_FILES: Final = frozenset({Action.OVERWRITE, Action.OVERWRITE_PARTITIONS})
_REPLACES_TABLE: Final = frozenset({Action.REPLACE, Action.CREATE_OR_REPLACE})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChangeResult(Shown):
    """What an operation did; ``snapshot_id`` is None if there was nothing to do, and no snapshot was made.

    Args:
        snapshot_id: of the snapshot that it made.
        rows_inserted: new rows; those of an overwrite that replace others are new rows.
        rows_updated: rows that an upsert changed.
        rows_deleted: rows that are gone; None where it would take reading them: those of a table that is replaced, and of files with
            equality deletes or position delete files that are removed as a whole.
        files_added: data files, those with rows that were only copied too.
        files_removed: data files.
        delete_files_added: deletion vectors.
        delete_files_removed: deletion vectors and other delete files that are no longer needed.
    """

    snapshot_id: int | None = None
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int | None = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what ``to_json`` was called on."""
        return cls(**json.loads(text))


def result_of(job: Job, done: FilesWritten, snapshot: Snapshot | None, whole: Iterable[FileScanTask]) -> ChangeResult:
    """Return the result of a job that was committed.

    Args:
        job: that made the commit.
        done: what tasks did.
        snapshot: that was made; None if there was nothing to do.
        whole: files that were removed unread.
    """
    if snapshot is None or snapshot.summary is None:
        return ChangeResult()
    summary = snapshot.summary.additional_properties
    counts = done.counts
    return ChangeResult(
        snapshot_id=snapshot.snapshot_id,
        rows_inserted=counts.inserted,
        rows_updated=counts.updated,
        rows_deleted=_deleted(job, done, summary, whole),
        files_added=_number(summary, "added-data-files"),
        files_removed=_number(summary, "deleted-data-files"),
        delete_files_added=_number(summary, "added-delete-files"),
        delete_files_removed=_number(summary, "removed-delete-files"),
    )


def _deleted(job: Job, done: FilesWritten, summary: Mapping[str, str], whole: Iterable[FileScanTask]) -> int | None:
    if job.action in _REPLACES_TABLE:
        return None
    if job.action in _REPLACES_FILES:
        return _replaced(done.counts.inserted, summary)
    live = [_live_rows(task) for task in whole]
    return None if None in live else done.counts.deleted + sum(rows for rows in live if rows is not None)


def _live_rows(task: FileScanTask) -> int | None:
    """Return how many rows a file has that are not deleted; None if only reading tells."""
    deletes = list(task.delete_files)
    if any(not is_vector(file) for file in deletes):
        return None
    return int(task.file.record_count) - sum(int(file.record_count) for file in deletes)


def _replaced(inserted: int, summary: Mapping[str, str]) -> int | None:
    """Return how many rows an overwrite removed, by what the snapshot has less than the one before."""
    if _number(summary, "total-equality-deletes") or _number(summary, "removed-equality-deletes"):
        return None
    if _number(summary, "removed-delete-files") != _number(summary, "removed-dvs"):
        return None
    records = _number(summary, "added-records") - _number(summary, "deleted-records")
    deletes = _number(summary, "added-position-deletes") - _number(summary, "removed-position-deletes")
    return inserted - (records - deletes)


def _number(summary: Mapping[str, str], name: str) -> int:
    return int(summary.get(name, 0))
