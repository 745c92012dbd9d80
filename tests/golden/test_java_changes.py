"""Changes between Java's snapshots: with Java's rows at one they give those at the next; equality deletes and vectors too."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import icelock
from tests.golden import test_java_deletes as deletes
from tests.golden import test_static_table as written
from tests.golden.relocate import TABLES, expected
from tests.helpers.changelog import check_applied, told


def java(name: str) -> tuple[icelock.StaticTable, dict[str, Any]]:
    """Return a table and Java's rows: by snapshot, and those of the current schema under ``now``."""
    of_deletes = name in deletes.TABLES
    table = deletes.open_table(name) if of_deletes else written.open_table(name)
    found = deletes.expected(name) if of_deletes else expected(name)
    return table, {**found["at_snapshot"], "now": found["rows"]}


def steps(table: Any) -> list[tuple[Any, Any]]:
    """Snapshots with the one before, where both have one schema (Java's rows at each have their own)."""
    by_id = {one.snapshot_id: one for one in table.snapshots()}
    pairs = [(by_id.get(one.parent_snapshot_id), one) for one in by_id.values()]
    return [(before, after) for before, after in pairs if before is not None and before.schema_id == after.schema_id]


@pytest.mark.parametrize("name", [*TABLES, *deletes.TABLES])
@pytest.mark.parametrize("arguments", [{}, {"updates": False}, {"net_changes": True}], ids=["", "without updates", "net"])
def test_each_snapshot_takes_java_s_rows_to_the_next(name: str, arguments: dict[str, Any]) -> None:
    table, at = java(name)
    for before, after in steps(table):
        changes = table.changes(start_snapshot_id=before.snapshot_id, end_snapshot_id=after.snapshot_id, **arguments).to_arrow()
        check_applied(at[str(before.snapshot_id)], changes, at[str(after.snapshot_id)])
        assert set(changes["_commit_snapshot_id"].to_pylist()) <= {after.snapshot_id}


@pytest.mark.parametrize("name", [*TABLES, *deletes.TABLES])
@pytest.mark.parametrize("net", [False, True])
def test_the_whole_history_takes_nothing_to_java_s_rows(name: str, net: bool) -> None:  # noqa: FBT001
    table, at = java(name)
    check_applied([], table.changes(net_changes=net).to_arrow(), at["now"])


def test_java_s_copy_on_write_update_is_told_as_updates() -> None:
    """``UPDATE ... SET cat = 'upd' WHERE id % 10 = 1``, then a MERGE: Java keeps the row ids, and rewrote 50 rows."""
    table, _ = java("cow_update")
    first, second, _ = (one.snapshot_id for one in table.snapshots())
    found = told(table.changes(start_snapshot_id=first, selected_fields=("id", "cat")))
    updates = [((n, "cat1", "UPDATE_BEFORE", 0), (n, "upd", "UPDATE_AFTER", 0)) for n in (1, 11, 21, 31, 41)]
    assert found[:10] == list(itertools.chain.from_iterable(updates))
    assert (3, "cat3", "DELETE", 1) in found
    assert (1000, "new", "INSERT", 1) in found
    assert told(table.changes(start_snapshot_id=first, end_snapshot_id=second, selected_fields=("id", "cat"))) == found[:10]


def test_a_merge_of_java_s_into_a_vector_and_a_file_is_told_as_updates() -> None:
    table, _ = java("mor_dv")
    start = table.snapshots()[3].snapshot_id
    assert told(table.changes(start_snapshot_id=start, selected_fields=("id", "note"))) == [
        (5, "note 595", "UPDATE_BEFORE", 0),
        (5, "updated", "UPDATE_AFTER", 0),
        (105, "note 495", "UPDATE_BEFORE", 0),
        (105, "updated", "UPDATE_AFTER", 0),
    ]
