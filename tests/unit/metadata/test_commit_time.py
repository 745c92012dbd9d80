"""Times of commits: never before what is there, whatever the clock says, and logs that Java's TableMetadata takes."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.metadata import MetadataLogEntry, SnapshotLogEntry
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

from icelock.metadata.table_metadata import Snapshot
from icelock.metadata.updates import apply_updates, commit_time_ms
from tests.lakes.sqlite import KEYED, TestLake, people

SET = SetPropertiesUpdate(updates={"a": "1"})
T = 1_700_000_000_000


@pytest.fixture
def base(lake: TestLake) -> Any:
    """Two snapshots at T and T + 10, and two metadata files before this one."""
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    made.append(people(0, 1))
    made.append(people(1, 1))
    metadata = made.metadata
    snapshots = [one.model_copy(update={"timestamp_ms": T + 10 * number}) for number, one in enumerate(metadata.snapshots)]
    log = [SnapshotLogEntry(snapshot_id=one.snapshot_id, timestamp_ms=one.timestamp_ms) for one in snapshots]
    files = [MetadataLogEntry(metadata_file=f"m{number}", timestamp_ms=T + number) for number in range(2)]
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": log, "metadata_log": files, "last_updated_ms": T + 10})


def added(base: Any, time: int) -> tuple[Any, ...]:
    snapshot = Snapshot(
        snapshot_id=7, manifest_list="l", sequence_number=9, timestamp_ms=time, first_row_id=base.next_row_id, added_rows=0, key_id="k"
    )
    return AddSnapshotUpdate(snapshot=snapshot), main(7)


def main(number: int) -> Any:
    return SetSnapshotRefUpdate(snapshot_id=number, ref_name="main", type=SnapshotRefType.BRANCH)


def applied(base: Any, updates: tuple[Any, ...], clock: int) -> Any:
    return apply_updates(base, updates, now_ms=lambda: clock, metadata_location="m2")


def times(metadata: Any) -> tuple[list[int], list[int], int]:
    snapshots, files = ([entry.timestamp_ms - T for entry in log] for log in (metadata.snapshot_log, metadata.metadata_log))
    return snapshots, files, metadata.last_updated_ms - T


@pytest.mark.parametrize(("clock", "time"), [(T - 90_000, 10), (T + 9, 10), (T + 11, 11), (T + 10**10, 10**10), (0, 10)])
def test_a_change_has_the_clocks_time_or_that_of_what_was_there(base: Any, clock: int, time: int) -> None:
    assert times(applied(base, (SET,), clock)) == ([0, 10], [0, 1, 10], time)
    assert commit_time_ms(base, clock) == T + time


@pytest.mark.parametrize(("clock", "time"), [(T - 90_000, 10), (T + 50, 50)])
def test_a_rollback_is_logged_at_the_time_of_the_commit(base: Any, clock: int, time: int) -> None:
    """Java TableMetadata.Builder.setRef: "rollback to an existing snapshot will use current timestamp as the time of the change"."""
    assert times(applied(base, (main(base.snapshots[0].snapshot_id),), clock)) == ([0, 10, time], [0, 1, 10], time)


def test_a_snapshot_s_own_time_is_the_commit_s(base: Any) -> None:
    assert times(applied(base, added(base, T + 30), T + 99)) == ([0, 10, 30], [0, 1, 10], 30)
    assert times(applied(base, added(base, T - 90_000), T - 90_000)) == ([0, 10, 10], [0, 1, 10], 10), "not made here, so not trusted"


def test_times_of_the_logs_count_too(base: Any) -> None:
    log = [*base.snapshot_log, SnapshotLogEntry(snapshot_id=base.snapshots[0].snapshot_id, timestamp_ms=T + 70)]
    assert times(applied(base.model_copy(update={"snapshot_log": log}), (SET,), T + 20)) == ([0, 10, 70], [0, 1, 10], 70)
    files = [*base.metadata_log, MetadataLogEntry(metadata_file="m", timestamp_ms=T + 80)]
    assert times(applied(base.model_copy(update={"metadata_log": files}), (SET,), T + 20)) == ([0, 10], [0, 1, 80, 80], 80)


def test_logs_that_went_back_are_put_right(base: Any) -> None:
    """As versions before this one left them, so that Java could not load the table."""
    broken = [base.snapshot_log[0].model_copy(update={"timestamp_ms": T + 90_010}), base.snapshot_log[1]]
    assert times(applied(base.model_copy(update={"snapshot_log": broken}), (SET,), T + 20)) == ([90_010, 90_010], [0, 1, 10], 90_010)


def test_what_is_expired_leaves_the_log_and_the_rest_keeps_its_times(base: Any) -> None:
    gone = RemoveSnapshotsUpdate(snapshot_ids=[base.snapshots[0].snapshot_id])
    result = applied(base, (gone,), T - 90_000)
    assert times(result) == ([10], [0, 1, 10], 10)
    assert [snapshot.timestamp_ms for snapshot in result.snapshots] == [T + 10]
