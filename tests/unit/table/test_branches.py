"""Branches and tags: written to, moved, rolled back; keys and settings stay, and a branch that moved is a conflict."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from icelock.errors import PolicyError
from tests.helpers.table_model import ARROW, arrow, row, rows_of, verified
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake

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


WRITES: dict[str, Callable[..., Any]] = {
    "append": lambda t, name: t.append(arrow([row(50)]), branch=name),
    "overwrite": lambda t, name: t.overwrite(arrow([row(50)]), branch=name),
    "delete": lambda t, name: t.delete("id = 1", branch=name),
    "delete of nothing": lambda t, name: t.delete("id = 1000", branch=name),
    "upsert": lambda t, name: t.upsert(arrow([row(50)]), ["id"], branch=name),
    "dynamic": lambda t, name: t.dynamic_partition_overwrite(arrow([row(50)]), branch=name),
    "add_files": lambda t, name: t.add_files(["file:///not/there.parquet"], branch=name, reencrypt=True),
    "producer": lambda t, name: t.transaction().update_snapshot(branch=name).fast_append(),
}


@pytest.mark.parametrize("operation", list(WRITES))
def test_a_branch_that_is_not_there_is_not_written(lake: TestLake, table: Any, operation: str) -> None:
    """PyIceberg makes a branch of a misspelt name, without the rows of any other; Spark's writes refuse it."""
    before = lake.files()
    with pytest.raises(PolicyError, match=r"has no branch 'mian'; did you mean 'main'\? it has: b, main; .*create_branch"):
        WRITES[operation](table, "mian")
    assert lake.files() == before
    assert set(load(lake).metadata.refs) == {"main", "b"}


def test_a_branch_that_is_removed_meanwhile_does_not_come_back(lake: TestLake, table: Any) -> None:
    """It would have nothing but the rows of this write."""
    before = set(lake.files())
    transaction = table.transaction()
    transaction.append(arrow([row(50)]), branch="b")
    load(lake).manage_snapshots().remove_branch("b").commit()
    with pytest.raises(PolicyError, match="has no branch 'b'"):
        transaction.commit_transaction()
    assert set(load(lake).metadata.refs) == {"main"}
    assert not [name for name in set(lake.files()) - before if name.endswith((".parquet", ".avro"))]


def test_the_first_write_of_a_table_is_to_the_main_branch(lake: TestLake) -> None:
    empty = lake.catalog().create_table("db.empty", arrow([row(0)]).schema, properties=KEYED)
    before = lake.files()
    with pytest.raises(PolicyError, match=r"has no branch 'b'; it has: none; .*write to the main branch first"):
        empty.append(arrow([row(50)]), branch="b")
    assert lake.files() == before
    empty.append(arrow([row(50)]), branch="main")


NAMES: dict[str, tuple[Callable[..., Any], str]] = {
    "remove_branch": (lambda m, _: m.remove_branch("mian"), "no branch or tag 'mian'; did you mean 'main'"),
    "remove_tag": (lambda m, _: m.remove_tag("v2"), "no branch or tag 'v2'; it has: b, main, v1"),
    "remove_branch of the main branch": (lambda m, _: m.remove_branch("main"), "the main branch cannot be removed"),
    "remove_branch of a tag": (lambda m, _: m.remove_branch("v1"), "v1 is a tag"),
    "remove_tag of a branch": (lambda m, _: m.remove_tag("b"), "b is a branch"),
    "create_branch": (lambda m, t: m.create_branch(t.current_snapshot().snapshot_id, "b"), "there is a branch 'b' already"),
    "create_branch of a tag": (lambda m, t: m.create_branch(t.current_snapshot().snapshot_id, "v1"), "there is a tag 'v1' already"),
    "create_tag": (lambda m, t: m.create_tag(t.current_snapshot().snapshot_id, "v1"), "there is a tag 'v1' already"),
    "create_tag twice": (lambda m, t: [m.create_tag(t.current_snapshot().snapshot_id, "v3") for _ in "12"], "there is a tag 'v3' already"),
    "create_branch of no snapshot": (lambda m, _: m.create_branch(5, "c"), "no snapshot 5"),
    "create_tag of no snapshot": (lambda m, _: m.create_tag(5, "c"), "no snapshot 5"),
    "set_current_snapshot": (lambda m, _: m.set_current_snapshot(5), "no snapshot 5"),
    "set_current_snapshot of no ref": (lambda m, _: m.set_current_snapshot(ref_name="man"), "did you mean 'main'"),
    "set_current_snapshot of both": (lambda m, _: m.set_current_snapshot(5, "b"), "either a snapshot_id or a ref_name"),
    "rollback_to_snapshot": (lambda m, _: m.rollback_to_snapshot(5), "no snapshot 5"),
    "use_ref": (lambda _, t: t.scan().use_ref("mian"), "no branch or tag 'mian'; did you mean 'main'"),
}


@pytest.mark.parametrize("what", list(NAMES))
def test_names_and_snapshots_that_are_none(lake: TestLake, table: Any, what: str) -> None:
    """As Java's ``UpdateSnapshotReferencesOperation``; PyIceberg moves a branch that is to be created, and removes nothing."""
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    before = load(lake).metadata
    call, message = NAMES[what]
    with pytest.raises(PolicyError, match=re.escape(message)):
        call(table.manage_snapshots(), table)
    assert load(lake).metadata == before


def test_a_tag_is_moved_by_removing_and_making_it(lake: TestLake, table: Any) -> None:
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "v1").commit()
    table.append(arrow([row(50)]))
    latest = table.current_snapshot().snapshot_id
    table.manage_snapshots().remove_tag("v1").create_tag(latest, "v1").commit()
    assert load(lake).metadata.refs["v1"].snapshot_id == latest


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
    with pytest.raises(PolicyError, match="not an ancestor"):
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
    with pytest.raises(PolicyError, match=r"not an ancestor of its head: set_current_snapshot moves"):
        table.manage_snapshots().rollback_to_snapshot(second.snapshot_id).commit()
    with pytest.raises(PolicyError, match=rf"no snapshot before {first.timestamp_ms} ms .*its oldest one is of {first.timestamp_ms} ms"):
        table.manage_snapshots().rollback_to_timestamp(first.timestamp_ms)
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
