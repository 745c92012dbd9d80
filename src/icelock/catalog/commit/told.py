"""What is told of a commit that was made: one line, and counters (docs/how-to/observability.md).

Not here: how it is made (``catalog.commit.store``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.table.update import AddSnapshotUpdate

from icelock import metrics, telemetry

if TYPE_CHECKING:
    from icelock.catalog.commit.store import Change

_COUNTS = {
    "added_files": "added-data-files",
    "added_delete_files": "added-delete-files",
    "added_rows": "added-records",
    "added_bytes": "added-files-size",
    "removed_files": "deleted-data-files",
    "removed_rows": "deleted-records",
}


def tell_commit(change: Change, location: str, *, start: float) -> None:
    """Count a commit and log it; ``location`` is the new metadata file, ``start`` a reading of ``time.perf_counter``."""
    snapshots: list[Any] = [update.snapshot for update in change.updates if isinstance(update, AddSnapshotUpdate)]
    counts = {name: sum(_number(snapshot.summary, key) for snapshot in snapshots) for name, key in _COUNTS.items()}
    metrics.add(commits=1, data_files_committed=counts["added_files"], bytes_committed=counts["added_bytes"])
    telemetry.event(
        "catalog",
        logging.INFO,
        "commit",
        catalog=getattr(change.staged.catalog, "name", None),
        table=".".join(change.staged.name()),
        operation=snapshots[-1].summary.operation.value if snapshots and snapshots[-1].summary is not None else "metadata",
        snapshot=snapshots[-1].snapshot_id if snapshots else None,
        **{name: count for name, count in counts.items() if count},
        metadata=location,
        duration_ms=telemetry.milliseconds_since(start),
    )


def _number(summary: Mapping[str, str] | None, name: str) -> int:
    found = None if summary is None else summary[name]
    return int(found) if found and found.isdecimal() else 0
