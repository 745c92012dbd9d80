"""The times of a commit: the one place that decides them.

Writers' clocks differ. Java Iceberg does not load a table whose snapshot log or metadata log goes back by more than a minute, or whose
``last-updated-ms`` is that much before either log's end (TableMetadata's constructor: "[BUG] Expected sorted snapshot log entries."). So
times never go back here: a commit has the time of the writer's clock, or of its base if that is later. The next commit corrects a log
that an earlier version of icelock left unsorted: an entry takes the time of the one before.

The age of KEKs, and what an expiry considers old, go by the clock itself.

Not here: how updates are applied (``metadata.updates``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.table.metadata import TableMetadata


def commit_time_ms(base: TableMetadata, clock_ms: int) -> int:
    """Return the time of a commit, or of a snapshot, on top of ``base``, in ms since 1970: never before any earlier one."""
    return max(clock_ms, base.last_updated_ms, _latest(base.snapshot_log), _latest(base.metadata_log))


def timed(base: TableMetadata, changed: TableMetadata, clock_ms: int) -> TableMetadata:
    """Return changed metadata with the commit's times: ``last-updated-ms`` and the logs.

    An added snapshot's own time becomes the commit's; one that became current again (a rollback) gets the commit's time in the log, as in
    Java.
    """
    there = {snapshot.snapshot_id for snapshot in base.snapshots}
    added = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in changed.snapshots if snapshot.snapshot_id not in there}
    moment = max([commit_time_ms(base, 0), *added.values()]) if added else commit_time_ms(base, clock_ms)
    old = {id(entry) for entry in base.snapshot_log}
    log = [
        entry if id(entry) in old else entry.model_copy(update={"timestamp_ms": added.get(entry.snapshot_id, moment)})
        for entry in changed.snapshot_log
    ]
    snapshot_log, metadata_log = _sorted(log), _sorted(changed.metadata_log)
    last = max(moment, _latest(snapshot_log), _latest(metadata_log))
    return changed.model_copy(update={"snapshot_log": snapshot_log, "metadata_log": metadata_log, "last_updated_ms": last})


def _latest(log: Sequence[Any]) -> int:
    return max((entry.timestamp_ms for entry in log), default=0)


def _sorted(log: Sequence[Any]) -> list[Any]:
    """Return a log in the same order, in which no entry's time is before its predecessor's."""
    found: list[Any] = []
    for entry in log:
        before = found[-1].timestamp_ms if found else entry.timestamp_ms
        found.append(entry if entry.timestamp_ms >= before else entry.model_copy(update={"timestamp_ms": before}))
    return found
