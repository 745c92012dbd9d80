"""Which snapshots lie between a start and an end, by Java's rules (BaseIncrementalScan, SparkChangelogScanBuilder).

The start is left out, the end is in. Without an end it is the branch's tip, without a start the oldest ancestor that is left is the first
in. A start may be expired itself as long as the snapshot after it is not. Times choose among the branch's ancestors, or those of an end
that is none of them: the end is the last snapshot that is not later; the start is the snapshot of exactly that time, else the one before
the first later snapshot.

Unlike Java, a start that is the end gives no snapshots, where Java refuses: a reader that comes back too early has nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from icelock.errors import ExpiredSnapshotError, PolicyError
from icelock.table.moments import to_bound
from icelock.table.refs import no_such_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A start and an end, each as a snapshot id (``start``, ``end``) or a time (``since``, ``until``), on the line of a branch."""

    start: int | None = None
    end: int | None = None
    since: int | datetime | None = None
    until: int | datetime | None = None
    branch: str | None = None

    def snapshots(self, metadata: TableMetadata) -> list[Snapshot]:
        """Return the snapshots of the range, the oldest first.

        Raises:
            PolicyError: bounds that contradict each other, a snapshot or branch that the table does not have, or a start that is not on
                the end's line.
            ExpiredSnapshotError: the start, or a snapshot after it, was expired.
        """
        since, until = self._times()
        line = list(ancestors_of(self._tip(metadata), metadata))  # those that are left, the newest first
        ended = line if self.end is None else self._line_to_end(metadata, line, self.end)
        if self.end is not None and all(one.snapshot_id != self.end for one in line):
            line = ended  # of another branch, or one that was rolled back
        if since is not None and (not line or line[0].timestamp_ms < since):
            return []
        first = self.start if since is None else _before(line, since)
        if until is not None:
            ended = [one for one in ended if one.timestamp_ms <= until]
        if not line and self.start is not None:
            raise PolicyError(f"the start, snapshot {self.start}, is not in the table's metadata; it has no snapshots on this branch")
        return _after(metadata, ended, first) if ended else []

    def _times(self) -> tuple[int | None, int | None]:
        for name, snapshot_id, moment in (("start", self.start, self.since), ("end", self.end, self.until)):
            if snapshot_id is not None and moment is not None:
                raise PolicyError(f"{name}_snapshot_id and {name}_timestamp are both given; give one of them")
        since, until = (
            None if moment is None else to_bound(moment, name=name)
            for name, moment in (("start_timestamp", self.since), ("end_timestamp", self.until))
        )
        if since is not None and until is not None and since >= until:
            raise PolicyError(f"start_timestamp ({since} ms) is not before end_timestamp ({until} ms)")
        return since, until

    def _tip(self, metadata: TableMetadata) -> Snapshot | None:
        if self.branch is None:
            return metadata.current_snapshot()
        ref = metadata.refs.get(self.branch)
        if ref is None and self.branch == MAIN_BRANCH:
            return None
        if ref is None or ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise PolicyError(f"the table {no_such_ref(metadata.refs, self.branch, SnapshotRefType.BRANCH)}")
        return metadata.snapshot_by_id(ref.snapshot_id)

    def _line_to_end(self, metadata: TableMetadata, line: list[Snapshot], end: int) -> list[Snapshot]:
        last = metadata.snapshot_by_id(end)
        if last is None:
            raise PolicyError(f"the end, snapshot {end}, is not in the table's metadata; table.snapshots() lists those that are")
        if self.branch is not None and all(one.snapshot_id != end for one in line):
            raise PolicyError(f"the end, snapshot {end}, is not an ancestor of branch {self.branch}")
        return list(ancestors_of(last, metadata))


def _before(line: list[Snapshot], moment: int) -> int | None:
    """Return the id of the last snapshot that counts as before a time; None if the table's first one is later."""
    later = None
    for one in line:
        if one.timestamp_ms == moment:
            return one.snapshot_id
        if one.timestamp_ms < moment:
            break
        later = one
    else:
        if later is not None and later.parent_snapshot_id is not None:
            raise ExpiredSnapshotError(
                f"snapshots at and before start_timestamp ({moment} ms) were expired: the oldest that is left, {later.snapshot_id}, is of "
                f"{later.timestamp_ms} ms. {_way_on(line)}"
            )
    return None if later is None else later.parent_snapshot_id


def _after(metadata: TableMetadata, line: list[Snapshot], start: int | None) -> list[Snapshot]:
    """Return the snapshots of a line after the start, the oldest first."""
    if start is None:
        return line[::-1]
    found: list[Snapshot] = []
    for one in line:
        if one.snapshot_id == start:
            return found[::-1]
        found.append(one)
    oldest, end = found[-1], line[0].snapshot_id
    if oldest.parent_snapshot_id == start:
        return found[::-1]
    known = metadata.snapshot_by_id(start) is not None
    if oldest.parent_snapshot_id is None:
        gone = "" if known else ", and is not in the table's metadata"
        raise PolicyError(f"the start, snapshot {start}, is not an ancestor of the end, {end}{gone}: no changes lead from one to the other")
    what = (
        f"between the start, snapshot {start}, and the end, {end}, snapshots"
        if known
        else f"the start, snapshot {start}, and snapshots after it"
    )
    raise ExpiredSnapshotError(f"{what} were expired: {oldest.parent_snapshot_id} is not there any more. {_way_on(line)}")


def _way_on(line: list[Snapshot]) -> str:
    oldest, newest = line[-1], line[0]
    begin = oldest.snapshot_id if oldest.parent_snapshot_id is None else oldest.parent_snapshot_id
    takes_away = oldest.summary is None or oldest.summary.operation not in {Operation.APPEND, Operation.REPLACE}
    later = f" for appends; for changes at {oldest.snapshot_id}, since what that one took away is gone" if takes_away else ""
    return (
        f"Read the whole table at snapshot {newest.snapshot_id} once and its changes from there; or, if what came before does not matter, "
        f"begin at {begin}, the earliest start that is left{later}"
    )
