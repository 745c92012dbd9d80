"""Two writers: no delete is lost, no row comes back, and what cannot be decided is an error that leaves nothing behind."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests.helpers.table_model import ARROW, LINEAGE, arrow, delete_entries, live_entries, row, rows_of, verified
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake

COW, MOR = "copy-on-write", "merge-on-read"
BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
RETRY = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "20"}
SNAPSHOT = {"write.delete.isolation-level": "snapshot", "write.update.isolation-level": "snapshot"}


def make(lake: TestLake, mode: str, *, spec: PartitionSpec = PartitionSpec(), rows: int = 20, **properties: str) -> Any:  # noqa: B008
    settings = {**KEYED, **RETRY, "write.delete.mode": mode, **properties}
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties=settings)
    table.append(arrow(map(row, range(rows))))
    return table


def ids(table: Any) -> list[int]:
    return [r[0] for r in rows_of(table)]


def lineage(table: Any) -> dict[int, tuple[int, int]]:
    found = table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()
    return {r["id"]: (r["_row_id"], r["_last_updated_sequence_number"]) for r in found}


@pytest.fixture(params=[COW, MOR])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def compacted(lake: TestLake, mode: str, *acts: Callable[[Any], Any], late: Callable[[Any], Any] | None = None) -> Any:
    """Return a table of two files that was loaded before others acted on it, compacted it, and acted again."""
    make(lake, mode, **{"write.merge.mode": mode}).append(arrow(map(row, range(20, 40))))
    stale, other = load(lake), load(lake)
    for act in acts:
        act(other)
    assert other.maintenance.compact(options={"rewrite-all": "true"}).rewritten_files == 2
    if late is not None:
        late(other)
    return stale


def test_what_replaces_rows_finds_those_that_a_compaction_moved(lake: TestLake, mode: str) -> None:
    """A compaction changes no row, so nothing has to be done again by the user; ids of rows stay."""
    stale = compacted(lake, mode, late=lambda other: other.maintenance.compact(sort_by="id desc", options={"rewrite-all": "true"}))
    before = lineage(stale)
    assert stale.upsert(arrow([(3, 1, "changed"), (100, 1, "new")]), ["id"]).rows_updated == 1
    fresh = load(lake)
    expected = {i: row(i) for i in range(40)} | {3: (3, 1, "changed"), 100: (100, 1, "new")}
    assert rows_of(fresh) == sorted(expected.values())
    ids_after = {i: row_id for i, (row_id, _) in lineage(fresh).items()}
    assert {i: ids_after[i] for i in before} == {i: row_id for i, (row_id, _) in before.items()}
    assert len(set(ids_after.values())) == 41
    verified(fresh)


def test_an_overwrite_finds_rows_that_a_compaction_moved(lake: TestLake, mode: str) -> None:
    stale = compacted(lake, mode)
    stale.overwrite(arrow([row(200)]), "id < 25 and id != 7")
    assert ids(load(lake)) == [7, *range(25, 40), 200]
    verified(load(lake))


@pytest.mark.parametrize(
    ("acts", "late"),
    [([lambda other: other.delete("id = 3")], None), ([], lambda other: other.delete("id = 3"))],
    ids=["deleted before the compaction", "after it"],
)
def test_a_compaction_hides_no_delete(lake: TestLake, mode: str, acts: list[Any], late: Any) -> None:
    """Whatever else came in between is a conflict as without it, by vectors and by rewritten files."""
    stale = compacted(lake, mode, *acts, late=late)
    with pytest.raises(ValidationException, match=r"deleted rows|removed rows|added rows"):
        stale.upsert(arrow([(3, 1, "changed")]), ["id"])
    assert ids(load(lake)) == [i for i in range(40) if i != 3]
    verified(load(lake))


def test_partitions_that_were_compacted_are_replaced(lake: TestLake) -> None:
    make(lake, COW, spec=BY_N).append(arrow(map(row, range(20, 40))))
    stale, other = load(lake), load(lake)
    assert other.maintenance.compact(options={"rewrite-all": "true"}).rewritten_files
    gone = row(7)[1]
    stale.dynamic_partition_overwrite(arrow([(500, gone, "only")]))
    assert rows_of(load(lake)) == sorted([*(row(i) for i in range(40) if row(i)[1] != gone), (500, gone, "only")])


@pytest.mark.turns(2)
@pytest.mark.parametrize("theirs", [COW, MOR])
@pytest.mark.parametrize("level", [{}, SNAPSHOT], ids=["serializable", "snapshot"])
def test_two_deletes_in_one_file_both_hold(lake: TestLake, mode: str, theirs: str, level: dict[str, str]) -> None:
    """The second is worked out again on what the first left: a vector on a vector, a rewrite of a rewrite, and mixed."""
    stale = make(lake, theirs, **level)
    before = lineage(stale)
    load(lake).delete("id in (3, 4, 5)")
    with load(lake).transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})
    stale.metadata = stale.metadata.model_copy(update={"properties": {**stale.metadata.properties, "write.delete.mode": mode}})
    stale.delete("id in (5, 6)")
    fresh = load(lake)
    assert ids(fresh) == [i for i in range(20) if i not in (3, 4, 5, 6)]
    assert lineage(fresh) == {i: before[i] for i in ids(fresh)}
    assert len(fresh.snapshots()) == 3
    assert len(delete_entries(fresh)) == (1 if MOR in (mode, theirs) and not (mode == COW and theirs == MOR) else 0)
    verified(fresh)


def test_a_delete_of_rows_that_another_deleted_is_no_commit(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    load(lake).delete("id in (3, 4, 5)")
    stale.delete("id = 4")
    assert len(load(lake).snapshots()) == 2
    verified(load(lake))


def test_a_delete_finds_rows_that_another_writer_moved(lake: TestLake, mode: str) -> None:
    """A rewrite of the whole table by another delete; the stale writer's files are all gone."""
    stale = make(lake, COW, spec=BY_N)
    with load(lake).transaction() as tx:
        tx.delete("id in (0, 1, 2, 4)")
    with load(lake).transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})
    stale.delete("id >= 10 and id < 15")
    assert ids(load(lake)) == [3, *range(5, 10), *range(15, 20)]
    verified(load(lake))


def test_a_whole_file_goes_with_the_vector_that_another_writer_gave_it(lake: TestLake, mode: str) -> None:
    stale = make(lake, MOR, spec=BY_N)
    load(lake).delete("id in (1, 7)")
    stale.metadata = stale.metadata.model_copy(update={"properties": {**stale.metadata.properties, "write.delete.mode": mode}})
    stale.delete("n = 1")
    fresh = load(lake)
    assert {r[1] for r in rows_of(fresh)} == {0, 2, None}
    assert delete_entries(fresh) == []
    verified(fresh)


def test_new_rows_that_may_match_are_a_conflict_when_serializable(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    load(lake).append(arrow([row(7)]))
    before = lake.files()
    with pytest.raises(ValidationException, match=r"added rows that the filter may match"):
        stale.delete("id = 7 or id = 8")
    assert lake.files() == before
    assert len(ids(load(lake))) == 21


def test_new_rows_that_cannot_match_are_none(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    load(lake).append(arrow([row(100), row(101)]))
    stale.delete("id = 7")
    assert ids(load(lake)) == [*range(7), *range(8, 20), 100, 101]
    verified(load(lake))


def test_new_rows_stay_under_snapshot_isolation(lake: TestLake, mode: str) -> None:
    """The delete was planned before them (PyIceberg and Java do the same)."""
    stale = make(lake, mode, **SNAPSHOT)
    load(lake).append(arrow([row(7), row(30)]))
    stale.delete("id >= 5")
    assert ids(load(lake)) == [0, 1, 2, 3, 4, 7, 30]
    verified(load(lake))


def test_a_delete_that_found_nothing_is_checked_too(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    other = load(lake)
    other.append(arrow([row(77)]))
    with pytest.raises(ValidationException, match="added rows"):
        stale.delete("id = 77")
    load(lake).delete("id = 77")
    assert ids(load(lake)) == list(range(20))


@pytest.mark.parametrize("level", [{}, SNAPSHOT], ids=["serializable", "snapshot"])
@pytest.mark.parametrize("change", [lambda t: t.delete("id = 3"), lambda t: t.overwrite(arrow([row(50)]), overwrite_filter="id = 3")])
def test_an_overwrite_of_what_another_changed_is_a_conflict(
    lake: TestLake, mode: str, level: dict[str, str], change: Callable[[Any], None]
) -> None:
    """Its new rows may rest on the deleted one: nothing is resurrected."""
    stale = make(lake, mode, **level)
    change(load(lake))
    before = lake.files()
    with pytest.raises(ValidationException, match="conflict"):
        stale.overwrite(arrow([row(3), row(4)]), overwrite_filter="id in (3, 4)")
    assert lake.files() == before


def test_an_overwrite_elsewhere_is_none(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode, spec=BY_N)
    load(lake).delete("n = 1 and id < 10")
    stale.overwrite(arrow([row(300)]), overwrite_filter="n = 2 and id < 10")
    expected = [i for i in range(20) if i >= 10 or row(i)[1] not in (1, 2)]
    assert ids(load(lake)) == [*expected, 300]
    verified(load(lake))


def test_an_overwrite_of_the_table_against_an_append(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    load(lake).append(arrow([row(40)]))
    with pytest.raises(ValidationException, match="added rows"):
        stale.overwrite(arrow([row(1)]))


def test_row_ids_of_a_transaction_that_is_tried_again(lake: TestLake, mode: str) -> None:
    """The rows that it appended get other ids on the second attempt, so the file with their stored ids is written again."""
    stale, other = make(lake, mode), load(lake)
    tx = stale.transaction()
    tx.append(arrow(map(row, range(100, 110))))
    tx.delete("id in (101, 102, 3)")
    other.append(arrow(map(row, range(200, 205))))
    tx.commit_transaction()
    fresh = load(lake)
    assert ids(fresh) == [i for i in range(20) if i != 3] + [100, *range(103, 110), *range(200, 205)]
    found = lineage(fresh)
    assert len({row_id for row_id, _ in found.values()}) == len(found)
    assert {found[i][1] for i in range(200, 205)} == {2}
    assert {found[i][1] for i in (100, *range(103, 110))} == {3}
    verified(fresh)


def test_files_of_failed_attempts_are_deleted(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    for number in (1, 2):
        load(lake).delete(f"id = {number}")
    stale.delete("id = 9")
    verified(load(lake))  # no file that no snapshot reaches
    assert len(load(lake).metadata.encryption_keys) == 5, "a KEK and one list key a snapshot"


def test_a_failing_storage_at_the_second_attempt_leaves_nothing(lake: TestLake, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = make(lake, mode)
    load(lake).delete("id = 1")
    before = lake.files()
    from pyiceberg.io.pyarrow import PyArrowFile  # noqa: PLC0415

    create, lists = PyArrowFile.create, []

    def failing(self: PyArrowFile, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002
        lists.extend([1] if "/snap-" in self.location else [])
        if len(lists) == 2:
            msg = "disk full"
            raise OSError(28, msg)
        return create(self, overwrite)

    monkeypatch.setattr(PyArrowFile, "create", failing)
    with pytest.raises(OSError, match="disk full"):
        stale.delete("id = 9")
    monkeypatch.undo()
    assert lake.files() == before


def test_a_branch_that_was_rolled_back_is_a_conflict(lake: TestLake, mode: str) -> None:
    make(lake, mode)
    load(lake).append(arrow([row(50)]))
    stale, other = load(lake), load(lake)
    first = other.snapshots()[0].snapshot_id
    with other.transaction() as tx:
        updates, requirements = tx._set_ref_snapshot(snapshot_id=first, ref_name="main", type="branch")
        tx._stage(updates, requirements)
    with pytest.raises(ValidationException, match="no longer an ancestor"):
        stale.delete("id = 7")
    assert ids(load(lake)) == list(range(20))


def test_data_files_of_an_overwrite_must_still_be_there(lake: TestLake) -> None:
    """The engine's way: files were written elsewhere, and replace those that it planned on."""
    stale = make(lake, COW)
    tx = stale.transaction()
    replaced = [task.file for task in stale.scan().plan_files()]
    tx.overwrite_data_files(tx._write(arrow([row(1)])), replaced)
    load(lake).delete("id = 5")
    before = lake.files()
    with pytest.raises(ValidationException):
        tx.commit_transaction()
    after = lake.files()
    assert {name for name in before if name in after} == set(after)
    verified(load(lake))


def test_an_overwrite_of_data_files_drops_their_vectors(lake: TestLake) -> None:
    table = make(lake, MOR)
    table.delete("id = 5")
    with table.transaction() as tx:
        tx.overwrite_data_files(tx._write(arrow([row(1)])), [task.file for task in table.scan().plan_files()])
    assert delete_entries(table) == []
    assert ids(table) == [1]
    verified(table)


def test_a_commit_that_landed_but_was_reported_as_failed_is_not_done_twice(
    lake: TestLake, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake, mode)
    commit, calls = table.catalog.commit_table, []

    def lost(*arguments: Any) -> Any:
        response = commit(*arguments)
        calls.append(1)
        if len(calls) == 1:
            msg = "the answer was lost"
            raise CommitFailedException(msg)
        return response

    monkeypatch.setattr(table.catalog, "commit_table", lost)
    with table.transaction() as tx:
        tx.delete("id = 1000")
        tx.append(arrow([row(30)]))
        tx.delete("id = 3")
    monkeypatch.undo()
    assert len(calls) == 1
    assert ids(load(lake)) == [i for i in range(20) if i != 3] + [30]
    verified(load(lake))


@pytest.mark.turns(2)
def test_many_writers_delete_every_row_once(lake: TestLake, mode: str) -> None:
    """4 threads delete 5 single rows each and append 2, all from one table: every delete holds, every append is there."""
    make(lake, mode, rows=40, **{"commit.retry.total-timeout-ms": "120000", "commit.retry.num-retries": "200"})
    chance = random.Random(5)
    numbers = chance.sample(range(40), 20)
    errors: list[BaseException] = []

    def work(part: int) -> None:
        try:
            for number in numbers[part::4]:
                load(lake).delete(f"id = {number}")
            load(lake).append(arrow([row(100 + part)]))
        except BaseException as e:  # noqa: BLE001 - shown below
            errors.append(e)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    fresh = load(lake)
    assert ids(fresh) == [i for i in range(40) if i not in numbers] + [100, 101, 102, 103]
    assert len({row_id for row_id, _ in lineage(fresh).values()}) == 24
    assert len(live_entries(fresh)) >= 5
    verified(fresh)
