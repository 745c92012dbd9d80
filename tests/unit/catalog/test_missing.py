"""What of a commit a table is without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from icelock.catalog.commit.outcome import missing_part


def snapshot(number: int, parent: int | None) -> Any:
    return SimpleNamespace(snapshot_id=number, parent_snapshot_id=parent, manifest_list=f"list {number}", sequence_number=number)


def a_table(*snapshots: Any, refs: dict[str, int] | None = None, log: tuple[int, ...] = (), **properties: str) -> Any:
    return SimpleNamespace(
        snapshots=list(snapshots),
        refs={name: SimpleNamespace(snapshot_id=number) for name, number in (refs or {}).items()},
        snapshot_log=[SimpleNamespace(snapshot_id=number) for number in log],
        properties=properties,
    )


ONE, TWO, THREE = snapshot(1, None), snapshot(2, 1), snapshot(3, 2)
ADDS_TWO = (
    AddSnapshotUpdate.model_construct(snapshot=TWO),
    SetSnapshotRefUpdate.model_construct(ref_name="main", snapshot_id=2),
)


@pytest.mark.parametrize(
    ("kept", "followed", "words"),
    [
        (a_table(ONE, TWO, refs={"main": 2}), False, ""),
        (a_table(ONE, TWO, refs={"main": 1}), False, "main does not point"),
        (a_table(ONE, TWO), False, "main does not point"),
        (a_table(ONE, refs={"main": 1}), False, "is not there"),
        (a_table(ONE, TWO, THREE, refs={"main": 3}), True, ""),
        (a_table(TWO, snapshot(4, 3), refs={"main": 4}), True, ""),  # 3 was expired, 2 is kept by a tag
        (a_table(ONE, TWO, refs={"main": 1}), True, "main does not point"),  # said to be followed, and never on main
        (a_table(ONE, TWO, refs={"main": 1}, log=(1, 2, 1)), True, ""),  # rolled back since
        (a_table(THREE, refs={"main": 3}), True, ""),  # expired since
        (a_table(ONE, snapshot(2, None), refs={"main": 2}), True, "another parent"),
    ],
)
def test_what_a_table_lacks_of_a_new_snapshot(kept: Any, followed: bool, words: str) -> None:  # noqa: FBT001
    found = missing_part(ADDS_TWO, a_table(ONE, TWO, refs={"main": 2}), kept, followed=followed)
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(
    ("update", "kept", "words"),
    [
        (SetPropertiesUpdate(updates={"a": "1"}), a_table(), "property a"),
        (SetPropertiesUpdate(updates={"a": "1"}), a_table(a="2"), "property a"),
        (SetPropertiesUpdate(updates={"a": "1"}), a_table(a="1", b="2"), ""),
        (RemovePropertiesUpdate(removals=["b"]), a_table(b="2"), "property b"),
        (RemovePropertiesUpdate(removals=["b"]), a_table(), ""),
        (RemoveSnapshotRefUpdate(ref_name="t"), a_table(ONE, refs={"t": 1}), "t is still there"),
        (RemoveSnapshotsUpdate(snapshot_ids=[1]), a_table(ONE), "snapshot 1 is still there"),
    ],
)
def test_what_a_table_lacks_of_other_changes(update: Any, kept: Any, words: str) -> None:
    found = missing_part((update,), a_table(a="1"), kept, followed=False)
    assert words in found
    assert bool(words) == bool(found)
