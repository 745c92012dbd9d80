"""Arguments that Python does not check: an id as text, a table's snapshot, text for a flag or for names, seconds for milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from icelock.errors import ExpiredSnapshotError, PolicyError
from tests.lakes.sqlite import KEYED, TestLake

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]})
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda table, given: table.scan(snapshot_id=given),
    "appended since": lambda table, given: table.incremental_append_scan(from_snapshot_id_exclusive=given),
    "appended until": lambda table, given: table.incremental_append_scan(to_snapshot_id_inclusive=given),
    "changes since": lambda table, given: table.changes(start_snapshot_id=given),
    "changes until": lambda table, given: table.changes(end_snapshot_id=given),
    "expiry": lambda table, given: table.maintenance.expire_snapshots().by_id(given),
    "tag": lambda table, given: table.manage_snapshots().create_tag(given, "tagged"),
    "rollback": lambda table, given: table.manage_snapshots().rollback_to_snapshot(given),
    "current": lambda table, given: table.manage_snapshots().set_current_snapshot(snapshot_id=given),
    "files": lambda table, given: table.inspect.files(snapshot_id=given),
    "entries": lambda table, given: table.inspect.entries(snapshot_id=given),
}


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", ROWS.schema, properties=KEYED)
    made.append(ROWS)
    made.append(ROWS)
    return made


def test_an_id_is_a_whole_number(table: Any) -> None:
    known = table.snapshots()[0].snapshot_id
    for name, call in CALLS.items():
        for given in (str(known), table.snapshots()[0]):
            with pytest.raises(PolicyError, match=f"={known}$") as raised:
                call(table, given)
            assert "it must be a snapshot's id, an int" in str(raised.value), name
        for given in ("main", True, 1.5):
            with pytest.raises(PolicyError, match=r"an int; table\.snapshots\(\) lists them"):
                call(table, given)
    assert table.scan(snapshot_id=np.int64(known)).to_arrow().num_rows == 2
    with pytest.raises(PolicyError, match="has no snapshot 1;"):
        table.inspect.files(snapshot_id=1)


def test_flags_and_names_are_not_text(table: Any) -> None:
    for name in ("updates", "net_changes"):
        with pytest.raises(PolicyError, match=f"{name} is 'no'; it must be True or False"):
            table.changes(**{name: "no"})
    for name in ("identifier_fields", "selected_fields"):
        with pytest.raises(PolicyError, match=rf"{name} is 'id'; it must be a list of names, such as {name}=\['id'\]"):
            table.changes(**{name: "id"})


def test_seconds_are_not_milliseconds(table: Any) -> None:
    """0 is before everything, as it is for Java."""
    for name in ("start_timestamp", "end_timestamp"):
        with pytest.raises(PolicyError, match=f"{name} is 1796072328, .*: for seconds give 1796072328000"):
            table.changes(**{name: 1796072328})
        with pytest.raises(PolicyError, match=f"{name} is -1; ms since 1970 are 0 or more"):
            table.changes(**{name: -1})
    assert table.changes(start_timestamp=0).to_arrow().num_rows == 4


def test_the_start_that_an_expiry_left_can_be_read(table: Any) -> None:
    """What the oldest snapshot took away went with the one before it: its own changes cannot be read, those after it can."""
    first = table.snapshots()[0].snapshot_id
    table.delete("id = 1")
    deleted = table.current_snapshot().snapshot_id
    table.append(ROWS)
    for one in table.snapshots()[:2]:
        table.maintenance.expire_snapshots().by_id(one.snapshot_id).commit()
    with pytest.raises(ExpiredSnapshotError, match=f"for changes at {deleted}, since what that one took away is gone"):
        table.changes(start_snapshot_id=first)
    assert table.changes(start_snapshot_id=deleted).to_arrow().column("id").to_pylist() == [1, 2]


def test_a_start_is_of_the_table_also_where_it_has_no_snapshots(lake: TestLake) -> None:
    empty = lake.catalog().create_table("db.t", ROWS.schema, properties=KEYED)
    with pytest.raises(PolicyError, match="the start, snapshot 99, is not in the table's metadata"):
        empty.changes(start_snapshot_id=99)
