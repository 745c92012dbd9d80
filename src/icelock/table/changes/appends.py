"""A scan of the rows that append snapshots added between two snapshots (Java BaseIncrementalAppendScan), for engines.

Snapshots of other operations are skipped with their rows, and deletes are ignored: a row that was deleted later was appended all the same.
Columns are the table's current ones. Without an end, the range ends where the scan is pinned.

Not here: which snapshots (``bounds``), PyIceberg's scan of that name (``table.read.scan``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from icelock.errors import PolicyError
from icelock.table.changes.bounds import Bounds
from icelock.table.read.scan import AddedFiles, DataScan, appends_of


class AppendedFiles(AddedFiles):
    """A scan of the data files that append snapshots within ``bounds`` added."""

    bounds: Bounds

    @classmethod
    def within(cls, scan: DataScan, bounds: Bounds) -> Self:
        """Return the scan of such files that reads the columns of ``scan``, on whose branch ``bounds`` are.

        Raises:
            PolicyError: bounds that do not fit the table, or an end alone (as in Java).
            ExpiredSnapshotError: see ``Bounds.snapshots``.
        """
        if bounds.start is None and bounds.since is None:
            raise PolicyError("a read between snapshots needs a start: give start-snapshot-id; one of all up to a snapshot is snapshot-id")
        made = cls.like(scan)
        made.bounds = bounds
        _ = made.by  # refuses bounds
        return made

    def update(self, **overrides: Any) -> Self:
        """Return a copy with other arguments, within the same bounds."""
        changed = super().update(**overrides)
        changed.bounds = self.bounds
        return changed

    def pinned(self, snapshot_id: int) -> Self:
        """Return the same scan, which ends at a snapshot if it has no end."""
        made = super().pinned(snapshot_id)
        if self.bounds.end is None and self.bounds.until is None:
            made.bounds = replace(self.bounds, end=snapshot_id)
        return made

    @cached_property
    def by(self) -> frozenset[int]:  # type: ignore[override]  # a value there
        """The snapshots."""
        return appends_of(self.bounds.snapshots(self.table_metadata))
