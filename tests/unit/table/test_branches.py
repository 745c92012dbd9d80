"""Branches and tags: written to, moved, rolled back; keys and settings stay, and a branch that moved is a conflict."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lake import KEYED, TestLake
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from tests.unit.table.model import ARROW, arrow, row, rows_of, verified

from icelock.errors import PolicyError

RETRY = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5", "commit.retry.num-retries": "3"}
BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", ARROW, partition_spec=BY_N, properties={**KEYED, **RETRY})
    made.append(arrow(map(row, range(10))))
    made.manage_snapshots().create_branch(
        made.current_snapshot().snapshot_id, "b", max_ref_age_ms=10**12, max_snapshot_age_ms=10**11, min_snapshots_to_keep=7
    ).commit()
    return made


def load(lake: TestLake) -> Any:
    return lake.catalog().load_table("db.t")


def ids(table: Any, ref: str = "main") -> list[int]:
    return sorted(table.scan().use_ref(ref).to_arrow()["id"].to_pylist())


OPERATIONS = {
    "append": (lambda t: t.append(arrow([row(50)]), branch="b"), [*range(10), 50]),
    "overwrite": (lambda t: t.overwrite(arrow([row(50)]), overwrite_filter="id < 8", branch="b"), [8, 9, 50]),
    "delete": (lambda t: t.delete("id < 8", branch="b"), [8, 9]),
    "upsert": (lambda t: t.upsert(arrow([(3, 3, "new"), row(50)]), ["id"], branch="b"), [*range(10), 50]),
    "dynamic": (lambda t: t.dynamic_partition_overwrite(arrow([(50, 1, "x")]), branch="b"), [0, 2, 3, 4, 5, 6, 8, 9, 50]),
}


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_a_branch_is_written_and_main_stays(lake: TestLake, table: Any, operation: str) -> None:
    write, expected = OPERATIONS[operation]
    before = table.current_snapshot().snapshot_id
    write(table)
    fresh = load(lake)
    assert ids(fresh, "b") == expected
    assert ids(fresh) == list(range(10))
    assert fresh.current_snapshot().snapshot_id == before
    ref = fresh.metadata.refs["b"]
    assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (10**12, 10**11, 7), "a commit keeps them"
    assert fresh.snapshot_by_id(ref.snapshot_id).parent_snapshot_id == before
    verified(fresh)


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_writers_of_two_branches_are_in_no_conflict(lake: TestLake, table: Any, operation: str) -> None:
    write, expected = OPERATIONS[operation]
    load(lake).delete("true")
    write(table)
    assert ids(load(lake), "b") == expected
    assert ids(load(lake)) == []
    verified(load(lake))


def test_two_branches_in_one_transaction_are_both_looked_at(lake: TestLake, table: Any) -> None:
    """A commit of another writer to the second branch is kept too."""
    with table.transaction() as tx:
        tx.append(arrow([row(50)]))
        tx.append(arrow([row(60)]), branch="b")
        load(lake).append(arrow([row(70)]), branch="b")
    assert ids(load(lake)) == [*range(10), 50]
    assert ids(load(lake), "b") == [*range(10), 60, 70]
    verified(load(lake))


def test_a_tag_made_in_a_transaction_survives_another_attempt(lake: TestLake, table: Any) -> None:
    with table.transaction() as tx:
        tx.append(arrow([row(50)]))
        tx.manage_snapshots().create_tag(tx.table_metadata.current_snapshot_id, "mine").commit()
        load(lake).append(arrow([row(70)]))
    fresh = load(lake)
    assert ids(fresh, "mine") == [*range(10), 50, 70]
    assert ids(fresh) == [*range(10), 50, 70]
    verified(fresh)


def test_a_new_branch_is_made_by_writing_to_it(lake: TestLake, table: Any) -> None:
    """PyIceberg's way: it begins with what is written."""
    table.append(arrow([row(50)]), branch="new")
    assert ids(load(lake), "new") == [50]
    assert ids(load(lake)) == list(range(10))
    verified(load(lake))


def test_a_tag_cannot_be_written(lake: TestLake, table: Any) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    before = lake.files()
    for write in (
        lambda: table.append(arrow([row(50)]), branch="v1"),
        lambda: table.delete("id = 1", branch="v1"),
        lambda: table.upsert(arrow([row(50)]), ["id"], branch="v1"),
        lambda: table.dynamic_partition_overwrite(arrow([row(50)]), branch="v1"),
    ):
        with pytest.raises(ValueError, match="tag"):
            write()
        assert lake.files() == before


# --- moving


def test_fast_forward(lake: TestLake, table: Any) -> None:
    table.append(arrow([row(50)]), branch="b")
    table.append(arrow([row(51)]), branch="b")
    table.manage_snapshots().fast_forward_branch("main", "b").commit()
    assert ids(load(lake)) == [*range(10), 50, 51]
    assert load(lake).metadata.refs["main"].snapshot_id == table.metadata.refs["b"].snapshot_id
    assert load(lake).metadata.refs["main"].min_snapshots_to_keep is None
    table.append(arrow([row(52)]))
    table.manage_snapshots().fast_forward_branch("b", "main").commit()
    assert ids(load(lake), "b") == [*range(10), 50, 51, 52]
    assert load(lake).metadata.refs["b"].min_snapshots_to_keep == 7
    verified(load(lake))


def test_fast_forward_makes_a_branch_and_keeps_one_that_is_there_already(lake: TestLake, table: Any) -> None:
    table.manage_snapshots().fast_forward_branch("new", "b").commit()
    table.manage_snapshots().fast_forward_branch("b", "main").commit()
    assert ids(load(lake), "new") == ids(load(lake), "b") == list(range(10))


def test_branches_that_went_two_ways_are_not_fast_forwarded(lake: TestLake, table: Any) -> None:
    table.append(arrow([row(50)]), branch="b")
    table.append(arrow([row(60)]))
    before = lake.files()
    with pytest.raises(PolicyError, match="no ancestor"):
        table.manage_snapshots().fast_forward_branch("main", "b").commit()
    assert lake.files() == before
    table.manage_snapshots().replace_branch("main", "b").commit()
    assert ids(load(lake)) == [*range(10), 50]
    verified(load(lake))


def test_a_fast_forward_of_a_branch_that_moved_is_a_conflict(lake: TestLake, table: Any) -> None:
    table.append(arrow([row(50)]), branch="b")
    builder = table.manage_snapshots().fast_forward_branch("main", "b")
    load(lake).append(arrow([row(60)]))
    with pytest.raises(CommitFailedException):
        builder.commit()
    assert ids(load(lake)) == [*range(10), 60]


@pytest.mark.parametrize(
    ("move", "match"),
    [
        (lambda m: m.fast_forward_branch("main", "none"), "no branch or tag"),
        (lambda m: m.fast_forward_branch("v1", "main"), "is a tag"),
        (lambda m: m.replace_branch("v1", "main"), "is a tag"),
        (lambda m: m.replace_branch("none", "main"), "no branch or tag"),
        (lambda m: m.cherrypick_snapshot(1), "cherry-picked"),
    ],
)
def test_moves_that_are_refused(lake: TestLake, table: Any, move: Any, match: str) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    before = lake.files()
    with pytest.raises(PolicyError, match=match):
        move(table.manage_snapshots())
    assert lake.files() == before


def test_rollback(lake: TestLake, table: Any) -> None:
    first = table.current_snapshot()
    table.append(arrow([row(50)]))
    second = table.current_snapshot()
    table.delete("id < 5")
    assert ids(load(lake)) == [*range(5, 10), 50]
    table.manage_snapshots().rollback_to_snapshot(second.snapshot_id).commit()
    assert ids(load(lake)) == [*range(10), 50]
    table.manage_snapshots().rollback_to_timestamp(second.timestamp_ms).commit()
    assert ids(load(lake)) == list(range(10)), "the last one before that time"
    table.manage_snapshots().set_current_snapshot(snapshot_id=second.snapshot_id).commit()
    assert ids(load(lake)) == [*range(10), 50]
    table.manage_snapshots().set_current_snapshot(ref_name="b").commit()
    assert load(lake).current_snapshot().snapshot_id == first.snapshot_id
    table.append(arrow([row(99)]))
    assert ids(load(lake)) == [*range(10), 99]
    assert len(load(lake).snapshots()) == 4
    with pytest.raises(ValueError, match="not an ancestor"):
        table.manage_snapshots().rollback_to_snapshot(second.snapshot_id).commit()
    verified(load(lake))


def test_time_travel_on_a_branch_whose_schema_is_older(lake: TestLake, table: Any) -> None:
    """As Java: a branch is read with the table's schema, a snapshot or tag with its own."""
    table.append(arrow([row(50)]), branch="b")
    snapshot = table.metadata.refs["b"].snapshot_id
    table.manage_snapshots().create_tag(snapshot, "v1").commit()
    with table.update_schema() as update:
        update.rename_column("s", "text")
    fresh = load(lake)
    assert fresh.scan().use_ref("b").to_arrow().column_names == ["id", "n", "text"]
    assert fresh.scan().use_ref("v1").to_arrow().column_names == ["id", "n", "s"]
    assert fresh.scan(snapshot_id=snapshot).to_arrow().column_names == ["id", "n", "s"]
    fresh.append(pa.table({"id": pa.array([51], pa.int64()), "text": ["t"]}), branch="b")
    assert ids(load(lake), "b") == [*range(10), 50, 51]
    assert rows_of(table, snapshot_id=snapshot)[-1] == row(50)
