"""What a change of rows did, as users are told: ``ChangeResult``.

Not here: what Spark's tasks count (``spark.driver.result``), who returns it (``table.reported_changes``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from pyiceberg.table.snapshots import Operation, Snapshot

from icelock.shown import Shown

_COUNTS: Final = ("rows_inserted", "rows_updated", "files_added", "files_removed", "delete_files_added", "delete_files_removed")


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

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot | None, inserted: int) -> Self:
        """Return what a snapshot did, by its summary, that added so many new rows; None: there was nothing to do."""
        if snapshot is None or snapshot.summary is None:
            return cls()
        summary = snapshot.summary.additional_properties
        return cls(
            snapshot_id=snapshot.snapshot_id,
            rows_inserted=inserted,
            rows_deleted=_rows_removed(inserted, summary),
            files_added=_number(summary, "added-data-files"),
            files_removed=_number(summary, "deleted-data-files"),
            delete_files_added=_number(summary, "added-delete-files"),
            delete_files_removed=_number(summary, "removed-delete-files"),
        )

    @classmethod
    def of_snapshots(cls, snapshots: Iterable[Snapshot]) -> Self:
        """Return what PyIceberg's snapshots of one change did together: it adds rows by appends, and copies them by other operations."""
        done = cls()
        for snapshot in snapshots:
            summary = snapshot.summary
            appended = summary is not None and summary.operation == Operation.APPEND
            added = _number(summary.additional_properties, "added-records") if summary is not None and appended else 0
            done = done._then(cls.of_snapshot(snapshot, added))
        return done

    def _then(self, other: Self) -> Self:
        unknown = self.rows_deleted is None or other.rows_deleted is None
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        deleted = None if unknown else (self.rows_deleted or 0) + (other.rows_deleted or 0)
        return replace(other, rows_deleted=deleted, **counts)

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what ``to_json`` was called on."""
        return cls(**json.loads(text))


def _rows_removed(inserted: int, summary: Mapping[str, str]) -> int | None:
    """Return how many rows an overwrite removed, by what the snapshot has less than the one before."""
    if _number(summary, "total-equality-deletes") or _number(summary, "removed-equality-deletes"):
        return None
    if _number(summary, "removed-delete-files") != _number(summary, "removed-dvs"):
        return None
    records = _number(summary, "added-records") - _number(summary, "deleted-records")
    deletes = _number(summary, "added-position-deletes") - _number(summary, "removed-position-deletes")
    return inserted - (records - deletes)


def _number(summary: Mapping[str, str], name: str) -> int:
    """Return a count of a snapshot's summary; 0 where it has none."""
    return int(summary.get(name, 0))
