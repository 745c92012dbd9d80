"""The times of a commit: the one place that decides them.

Clocks of writers differ. Java Iceberg loads no table whose snapshot log or metadata log goes back by more than a minute, or whose
``last-updated-ms`` is that much before either log's end (TableMetadata's constructor; its words are "[BUG] Expected sorted snapshot log
entries."). So times never go back here: a commit has the time of the writer's clock, or of what it is built on if that is later. A
log that an earlier version of icelock left unsorted is put right by the next commit: an entry takes the time of the one before.

Ages of KEKs, and what an expiry takes for old, are told by the clock itself.

Not here: how updates are applied (``metadata.updates``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table.metadata import TableMetadata


def commit_time_ms(base: TableMetadata, clock_ms: int) -> int:
    """Return the time of a commit, or of a snapshot, on top of ``base``, in ms since 1970: never before any that is there."""
    return max(clock_ms, base.last_updated_ms, _latest(base.snapshot_log), _latest(base.metadata_log))


def timed(base: TableMetadata, changed: TableMetadata, clock_ms: int) -> TableMetadata:
    """Return changed metadata with the commit's times: ``last-updated-ms`` and the logs.

    A snapshot that was added has its own time, which then is the commit's; one that became current again (a rollback) has the commit's in
    the log, as in Java.
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
    """Return a log in which no entry is before the one before it; the order stays."""
    found: list[Any] = []
    for entry in log:
        before = found[-1].timestamp_ms if found else entry.timestamp_ms
        found.append(entry if entry.timestamp_ms >= before else entry.model_copy(update={"timestamp_ms": before}))
    return found
