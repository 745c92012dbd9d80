"""Level ``data``: after it and an expiry nothing needs the old KEK; killed, it is gone on with; beside writers; branches, not tags."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import icelock
from icelock.errors import PolicyError
from icelock.maintenance import audit
from icelock.table.maintenance.compaction import compact as compact_module
from icelock.table.maintenance.maintenance_table import MaintenanceTable
from icelock.table.maintenance.workers import HERE, Workers
from tests.helpers.counting_kms import KEYS
from tests.helpers.table_model import arrow, row, rows_of
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_compact import BY_N, MOR, lineage, make, meanwhile
from tests.unit.table.test_older_deletes import PATH_ID, commit, equality, paths, positions
from tests.unit.table.test_rewrite_deletes import without
from tests.unit.table.test_rotate import keks, only
from tests.verify.verify_table import verify

MARK = "icelock.rotation-kek"


def loaded(lake: TestLake, **more: str) -> Any:
    return lake.catalog(**more).load_table("db.t")


def sealed(table: Any) -> list[str]:
    """The KEK of each snapshot, by the metadata alone."""
    entries = {key.key_id: key.encrypted_by_id for key in table.metadata.encryption_keys}
    return [entries[snapshot.key_id] for snapshot in table.metadata.snapshots]


def expire_all(table: Any) -> Any:
    return table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()


def verified(table: Any, key: str, unreached: int = 0) -> None:
    report = verify(Path(table.metadata_location.removeprefix("file://")), {key: [KEYS[key]]})
    assert report["unreached_files"] == unreached


def with_every_kind_of_delete(lake: TestLake) -> Any:
    """Ids 0 to 29 in three files, of which 0, 9 and 15 (positions of two files), 12 (equality) and 21 (vector) are deleted."""
    table = make(lake, 3, **MOR)
    first, second = paths(table)[:2]
    commit(table, positions(table, "p1", {first: [0, 9], second: [5]}))
    commit(table, equality(table, "e1", [12]))
    table.delete("id = 21")
    return table


@pytest.mark.parametrize("to_key", ["keyA", "keyB"])
def test_after_it_and_an_expiry_nothing_needs_the_old_kek(lake: TestLake, to_key: str) -> None:
    table = with_every_kind_of_delete(lake)
    expected = without(0, 9, 15, 12, 21, rows=30)
    assert rows_of(table) == expected
    before, files, (old,) = lineage(table), set(lake.files()), keks(table)
    lake.calls.take()
    done = table.maintenance.rotate("data", to_key=to_key)
    both = ["wrap keyB", "unwrap keyB"]
    assert lake.calls.take() == ([*both, *both] if to_key == "keyB" else ["wrap keyA", "unwrap keyA"]), (
        "to wrap the old one, and for a new one"
    )
    assert (done.from_key, done.to_key, done.resumed, done.new_keks, done.made) == ("keyA", to_key, False, 1, (done.kek,))
    assert done.wrapped == ((old.key_id,) if to_key == "keyB" else ())
    assert (done.rewritten_files, done.added_files, done.removed_delete_files, done.left_files) == (3, 1, 3, 0)
    assert (rows_of(table), lineage(table)) == (expected, before), "rows, row ids and their numbers"
    assert MARK not in table.metadata.properties
    assert audit(lake.catalog(), "db.t", depth=["open"]).verdict.value == "sound", "old snapshots and new ones"
    assert sealed(table)[-len(done.snapshots) :] == [done.kek] * len(done.snapshots)
    expired = expire_all(table)
    assert old.key_id in expired.keys
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    left = {name for name in lake.files() if not name.endswith(".json")}
    assert not left & files, "every file of before is gone: data, deletes, manifests, lists"
    verified(table, to_key)
    assert rows_of(lake_of(lake, to_key)) == expected


def lake_of(lake: TestLake, key_id: str) -> Any:
    """The table in a process whose KMS has one master key."""
    return icelock.load_catalog("test", **{**lake.properties(), **only(key_id)}).load_table("db.t")


@pytest.mark.parametrize("level", ["data", "all"])
def test_position_deletes_whose_bounds_have_every_name_between_them(lake: TestLake, level: Any) -> None:
    """They apply to files that were written later, by their names' bounds, which would be written again then, or never be done."""
    table = make(lake, 3)
    first, second = paths(table)
    bounds = {"lower_bounds": {PATH_ID: b"/"}, "upper_bounds": {PATH_ID: b"~"}}
    commit(table, positions(table, "p1", {first: [0, 9], second: [5]}, **bounds))
    plan = table.maintenance.rotate(level, dry_run=True)
    done = table.maintenance.rotate(level)
    assert (done.rewritten_files, done.left_files, done.removed_delete_files) == (plan.rewritten_files, 0, 1)
    assert MARK not in table.metadata.properties
    assert rows_of(table) == without(0, 9, 15, rows=30)


class Killed(BaseException):
    """As SIGKILL: nothing of icelock's cleans up after it that a new process could not."""


def killed_after(groups: int) -> Workers:
    def combine(work: Any, planned: Any) -> Iterator[Any]:
        nonlocal groups
        for done in HERE.combine(work, planned):
            if not groups:
                raise Killed
            groups -= 1
            yield done

    return Workers(combine=combine, copy=HERE.copy, find_deleted=HERE.find_deleted)


def test_killed_it_is_gone_on_with_and_nothing_is_written_twice(lake: TestLake) -> None:
    """Ten rows in each of two files of four partitions (n is 0, 1, 2 or null): groups of a commit each."""
    table = make(lake, 2, BY_N)
    expected, before = rows_of(table), lineage(table)
    assert len(table.inspect.data_files()) == 8
    with pytest.raises(Killed):
        MaintenanceTable(table, killed_after(2)).rotate("data")
    table = loaded(lake)
    unfinished = table.metadata.properties[MARK]
    written = {path for path in table.inspect.data_files()["file_path"].to_pylist() if path not in paths_of_first(table)}
    assert len(written) == 2, "two groups were committed"
    plan = table.maintenance.rotate("data", dry_run=True)
    assert (plan.kek, plan.resumed, plan.new_keks, plan.rewritten_files) == (unfinished, True, 0, 4)
    table.append(arrow([row(100)]))
    done = table.maintenance.rotate("data")
    assert (done.kek, done.resumed, done.made, done.rewritten_files, done.added_files, done.left_files) == (unfinished, True, (), 4, 2, 0)
    now = set(table.inspect.data_files()["file_path"].to_pylist())
    assert written < now, "what the first call wrote is not written again"
    assert len(now) == 5, "four partitions, and the file that was appended meanwhile"
    assert rows_of(table) == sorted([*expected, row(100)])
    assert {number: found for number, found in lineage(table).items() if number != 100} == before
    assert MARK not in table.metadata.properties
    again = table.maintenance.rotate("data")
    assert (again.resumed, again.rewritten_files, len(again.made)) == (False, 5, 1), "a finished one is not gone on with: this is another"
    assert again.kek != unfinished
    expire_all(table)
    verified(table, "keyA", unreached=1)  # the killed call's last file: remove_leftovers finds it


def paths_of_first(table: Any) -> set[str]:
    return {path for snapshot in table.snapshots()[:2] for path in table.inspect.data_files(snapshot.snapshot_id)["file_path"].to_pylist()}


def test_beside_writers(lake: TestLake) -> None:
    """One appends, one deletes rows of a file that is being written again, one that holds the table from before appends."""
    table = make(lake, 2, **MOR)
    held = loaded(lake)
    told = meanwhile(lambda: (loaded(lake).append(arrow([row(50)])), loaded(lake).delete("id in (3, 14)"), held.append(arrow([row(51)]))))
    done = table.maintenance.rotate("data", progress=told)
    assert (done.left_files, done.rewritten_files) == (0, 2)
    expected = sorted([*without(3, 14), row(50), row(51)])
    assert rows_of(table) == expected
    expire_all(table)
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    verified(table, "keyA")
    assert rows_of(loaded(lake)) == expected


def test_branches_are_written_again_and_tags_need_the_old_kek(lake: TestLake) -> None:
    table = make(lake, 2)
    with table.manage_snapshots() as change:
        change.create_branch(table.snapshots()[0].snapshot_id, "side").create_tag(table.snapshots()[0].snapshot_id, "then")
    table.append(arrow([row(60)]), branch="side")
    (old,) = keks(table)
    done = table.maintenance.rotate("data")
    assert (done.rewritten_files, done.added_files, done.left_files) == (4, 2, 0), "two of main; of side one of these, and its own"
    assert [(use.kek, use.refs) for use in done.keks] == [(done.kek, ("main", "side")), (old.key_id, ("then",))]
    expire_all(table)
    assert {kek.key_id for kek in keks(table)} == {done.kek, old.key_id}, "the tag keeps its snapshot"
    side = sorted([*map(row, range(10)), row(60)])
    assert rows_of(table, snapshot_id=table.metadata.refs["then"].snapshot_id) == without(rows=10)
    assert rows_of(table, snapshot_id=table.metadata.refs["side"].snapshot_id) == side
    table.manage_snapshots().remove_tag("then").commit()
    expire_all(table)
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    verified(table, "keyA")


def test_a_file_that_cannot_be_read_is_left_and_the_call_after_goes_on(lake: TestLake) -> None:
    table = make(lake, 2, BY_N)
    path = Path(paths(table)[0].removeprefix("file://"))
    sound = path.read_bytes()
    path.write_bytes(sound[:-30] + bytes(30))
    done = table.maintenance.rotate("data")
    assert (done.left_files, done.rewritten_files) == (2, 6), "the group of the damaged file is left"
    assert table.metadata.properties[MARK] == done.kek
    path.write_bytes(sound)
    again = table.maintenance.rotate("data")
    assert (again.kek, again.resumed, again.rewritten_files, again.left_files) == (done.kek, True, 2, 0)
    assert rows_of(table) == without()


def test_a_dry_run_counts_files_and_bytes(lake: TestLake) -> None:
    """Two snapshots under the first KEK, one under the second, which lists the two manifests of before: by the sizes on disk."""
    table = make(lake, 2)
    first = size(lake)
    table.maintenance.rotate("kek")
    before = set(lake.files())
    table.append(arrow([row(70)]))
    after = lake.files()
    added = size(lake, without=before)
    shared = first - sum(Path(snapshot.manifest_list.removeprefix("file://")).stat().st_size for snapshot in table.snapshots()[:2])
    plan = table.maintenance.rotate("data", dry_run=True)
    assert lake.files() == after
    new, old = plan.keks
    assert (old.snapshots, old.files, old.bytes) == (2, 6, first), "two lists, two manifests, two data files"
    assert (new.snapshots, new.files, new.bytes) == (1, 7, shared + added), "its own three, and the four that both lead to"
    assert (plan.new_keks, plan.kek, plan.rewritten_files, plan.made) == (1, None, 3, ())
    assert table.maintenance.rotate("wrap", dry_run=True).keks == plan.keks, "of each level"


def size(lake: TestLake, without: set[str] = frozenset()) -> int:  # type: ignore[assignment]
    return sum(len(data) for name, data in lake.files().items() if not name.endswith(".json") and name not in without)


def test_what_is_refused(lake: TestLake) -> None:
    table = make(lake, 1)
    before = lake.files()
    for arguments, words in {
        ("data", " keyB"): "white space",
        ("none", None): "must be one of kek, wrap, lists, data, all",
    }.items():
        with pytest.raises(PolicyError, match=words):
            table.maintenance.rotate(arguments[0], to_key=arguments[1])
    with pytest.raises(PolicyError, match="use level 'wrap' with it"):
        table.maintenance.rotate("data", kms=table.encryption.kms())
    assert lake.files() == before


def test_a_table_without_rows(lake: TestLake) -> None:
    table = make(lake, 0)
    done = table.maintenance.rotate("data")
    assert (done.left_files, done.rewritten_files, done.snapshots, len(done.made)) == (0, 0, (), 1)
    assert MARK not in table.metadata.properties
    table.append(arrow([row(1)]))
    assert sealed(table) == [done.kek]


@pytest.mark.parametrize("how", ["deleted", "vectors", "overwritten", "branch", "never had any"])
def test_a_branch_without_rows_is_sealed_again(lake: TestLake, how: str) -> None:
    """Its manifest list, and manifests with entries of deleted files, were under the old KEK."""
    table = make(lake, 2, **(MOR if how == "vectors" else {}))
    kept = [] if how != "branch" else rows_of(table)
    if how == "branch":
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()
        table.delete("id >= 0", branch="b")
    elif how == "vectors":
        table.delete("id < 6")
        table.delete("id >= 6")
    elif how == "deleted":
        table.delete("id >= 0")
    else:
        table.overwrite(arrow([]))
    if how == "never had any":
        table.append(arrow([]))
        expire_all(table)
    (old,) = keks(table)
    before = {name for name in lake.files() if not name.endswith(".json")}
    done = loaded(lake).maintenance.rotate("data")
    table = loaded(lake)
    assert (done.left_files, MARK in table.metadata.properties) == (0, False)
    assert {name for name, ref in table.metadata.refs.items() if sealed_by(table, ref.snapshot_id) != done.kek} == set()
    assert old.key_id in expire_all(table).keys
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    assert not before & set(lake.files())
    verified(table, "keyA")
    assert rows_of(table) == kept
    again = loaded(lake).maintenance.rotate("data")
    assert len(again.snapshots) == len(table.metadata.refs), "another rotation, for one more KEK"


def sealed_by(table: Any, snapshot_id: int) -> str:
    return dict(zip([snapshot.snapshot_id for snapshot in table.metadata.snapshots], sealed(table), strict=True))[snapshot_id]


def test_an_expired_snapshot_in_between_makes_files_be_written_again(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can tell any more under which KEK the snapshot was that added them."""
    table = make(lake, 2, BY_N)
    with pytest.raises(Killed):
        MaintenanceTable(table, killed_after(2)).rotate("data")
    monkeypatch.setattr(compact_module, "_AT_ONCE", 1)
    table = loaded(lake)
    table.append(arrow([row(80)]))
    expire_all(table)
    done = table.maintenance.rotate("data")
    assert (done.resumed, done.left_files, done.rewritten_files) == (True, 0, 6), "four that were left, two that the killed call wrote"
    assert rows_of(table) == sorted([*without(), row(80)])


def test_a_delete_of_before_that_applies_to_a_file_of_after(lake: TestLake) -> None:
    """A compaction was planned before the delete, and committed after the KEK was made: its file is new, its delete is not."""
    table, other = make(lake, 2), loaded(lake)

    def between() -> None:
        commit(other.refresh(), equality(other, "e1", [4]))
        with pytest.raises(Killed):
            MaintenanceTable(loaded(lake), killed_after(0)).rotate("data")

    assert table.maintenance.compact(options={"rewrite-all": "true"}, progress=meanwhile(between)).rewritten_files == 2
    assert sealed(table)[-1] == table.metadata.properties[MARK]
    assert rows_of(table) == without(4)
    done = table.maintenance.rotate("data")
    assert (done.resumed, done.rewritten_files, done.removed_delete_files, done.left_files) == (True, 1, 1, 0)
    assert rows_of(table) == without(4)
    expire_all(table)
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    verified(table, "keyA", unreached=1)  # the killed call's


def test_a_mark_that_names_an_older_kek_is_not_believed(lake: TestLake) -> None:
    """Whoever writes the metadata could have a rotation go on under a KEK that leaked."""
    table = make(lake, 2)
    (old,) = keks(table)
    table.maintenance.rotate("kek")
    table.append(arrow([row(90)]))
    for marked in (old.key_id, "bm9uZQ", "keyA"):
        with table.transaction() as change:
            change.set_properties({MARK: marked})
        done = table.maintenance.rotate("data")
        assert (done.resumed, done.left_files, len(done.made)) == (False, 0, 1)
        assert done.kek not in (marked, old.key_id)
        assert MARK not in table.metadata.properties
    assert rows_of(table) == sorted([*without(), row(90)])
