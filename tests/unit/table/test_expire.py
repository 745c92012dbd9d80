"""Expiry: snapshots, keys and files go together, nothing that is reached does, and other writers' commits count."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException

import icelock
from icelock.errors import CommitError, IntegrityError, KmsError, PolicyError
from icelock.maintenance import leftovers
from icelock.table.maintenance.removal.expire import Expired
from tests.helpers.table_model import verified
from tests.helpers.tables import ids, load
from tests.lakes.sqlite import KEYED, TestLake, people

SOON = datetime.now(UTC) + timedelta(days=1)
# The log of metadata files has no end here, so that none is left over.
QUIET = {**KEYED, "write.metadata.previous-versions-max": "1000"}


def make(lake: TestLake, appends: int, **properties: str) -> Any:
    table = lake.catalog().create_table("db.t", people().schema, properties={**QUIET, **properties})
    for number in range(appends):
        table.append(people(10 * number, 2))
    return table


def expire(table: Any) -> Expired:
    return table.maintenance.expire_snapshots().older_than(SOON).commit()


def names(lake: TestLake, pattern: str) -> set[str]:
    return {path.name for path in lake.warehouse.rglob(pattern)}


def before_the_commit(table: Any, act: Callable[[], None]) -> None:
    """Do something between the plan of an expiry and its first commit."""
    inner, done = table.catalog.commit_table, []

    def commit(*arguments: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return inner(*arguments)

    table.catalog.commit_table = commit


def test_two_hundred_snapshots_keep_one(lake: TestLake) -> None:
    """J-02, J-03: Java takes 742 s, deletes no file and leaves 201 keys."""
    table = make(lake, 200)
    size = Path(table.metadata_location).stat().st_size
    assert len(names(lake, "snap-*.avro")) == 200
    before = set(lake.files())
    begun = time.monotonic()
    done = expire(table)
    assert time.monotonic() - begun < 60
    gone = before - set(lake.files())
    assert (len(done.snapshots), len(done.keys), done.deleted, done.left) == (199, 199, len(gone), ())
    # Lists, and manifests that were merged into others.
    assert sum("/snap-" in name for name in gone) == 199
    assert not any(name.endswith(".parquet") for name in gone)
    fresh = load(lake)
    assert len(fresh.snapshots()) == 1
    [kek, key] = fresh.metadata.encryption_keys
    assert key.key_id == fresh.current_snapshot().key_id
    assert key.encrypted_by_id == kek.key_id
    assert names(lake, "snap-*.avro") == {Path(fresh.current_snapshot().manifest_list).name}
    assert ids(fresh) == sorted(10 * n + k for n in range(200) for k in (0, 1))
    assert Path(fresh.metadata_location).stat().st_size < size / 4
    assert verified(fresh)["keks"] == 1


def test_a_tag_keeps_its_snapshot_with_its_key(lake: TestLake) -> None:
    """C-10 with 40 appends: all but two and the tag go."""
    table = make(lake, 40, **{"history.expire.min-snapshots-to-keep": "2"})
    seventh = table.snapshots()[6].snapshot_id
    table.manage_snapshots().create_tag(seventh, "seven").commit()
    done = expire(table)
    assert len(done.snapshots) == len(done.keys) == 37
    fresh = load(lake)
    kept = {table.snapshots()[-1].snapshot_id, table.snapshots()[-2].snapshot_id, seventh}
    assert {snapshot.snapshot_id for snapshot in fresh.snapshots()} == kept
    assert len(fresh.metadata.encryption_keys) == 4
    assert fresh.scan(snapshot_id=seventh).count() == 14
    assert fresh.scan().use_ref("seven").count() == 14
    assert fresh.scan().count() == 80
    verified(fresh)
    # The tag gone, its snapshot may go too.
    fresh.manage_snapshots().remove_tag("seven").commit()
    assert expire(fresh).snapshots == (seventh,)


def test_old_keks_go_with_the_last_snapshot_that_needs_them(lake: TestLake) -> None:
    catalog = lake.catalog()
    start = catalog.encryption.clock()
    catalog.encryption.clock = lambda: start - 731 * 86_400_000
    table = catalog.create_table("db.t", people().schema, properties=QUIET)
    table.append(people(0))
    catalog.encryption.clock = lambda: start
    table.append(people(10))
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "old").commit()
    assert expire(table).keys == ()
    assert len(table.metadata.encryption_keys) == 4
    table.manage_snapshots().remove_tag("old").commit()
    assert len(expire(table).keys) == 2
    assert ids(load(lake)) == list(range(20))
    assert verified(table)["keks"] == 1


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_files_that_were_replaced_go_and_live_ones_stay(lake: TestLake, mode: str) -> None:
    table = make(lake, 3, **{"write.delete.mode": mode})
    branched = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_branch(branched, "side").commit()
    table.delete("id = 0")
    table.overwrite(people(100, 3), "id >= 20")
    assert ids(table) == [1, 10, 11, 100, 101, 102]
    gone = expire(table)
    assert len(gone.snapshots) == 3
    assert ids(load(lake)) == [1, 10, 11, 100, 101, 102]
    assert load(lake).scan().use_ref("side").count() == 6
    verified(table)
    table.manage_snapshots().remove_branch("side").commit()
    data = len(names(lake, "*.parquet"))
    expire(table)
    # The first file stays with its vector under merge-on-read; the third is gone in both.
    assert data - len(names(lake, "*.parquet")) == (2 if mode == "copy-on-write" else 1)
    assert ids(load(lake)) == [1, 10, 11, 100, 101, 102]
    verified(table)


def test_by_id_and_by_ids_as_pyiceberg_has_them(lake: TestLake) -> None:
    table = make(lake, 5)
    one, two, three = (snapshot.snapshot_id for snapshot in table.snapshots()[:3])
    builder = table.maintenance.expire_snapshots()
    with pytest.raises(PolicyError, match="cannot expire: 'main' names it"):
        builder.by_id(table.current_snapshot().snapshot_id)
    for wrong, why in ((1, "has no snapshot 1;"), (True, "must be a snapshot's id"), ("1", "must be a snapshot's id"), (None, "must be")):
        with pytest.raises(PolicyError, match=why):
            builder.by_id(wrong)  # type: ignore[arg-type]
    assert builder.by_id(two).commit().snapshots == (two,)
    with table.maintenance.expire_snapshots() as expiry:
        expiry.by_ids([one, three])
    assert len(load(lake).snapshots()) == 2
    assert ids(load(lake)) == ids(table) == sorted(10 * n + k for n in range(5) for k in (0, 1))
    verified(table)


def test_without_arguments_the_tables_retention_counts(lake: TestLake) -> None:
    table = make(lake, 4)
    assert table.maintenance.expire_snapshots().commit() == Expired()
    with table.transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "3"})
    time.sleep(0.01)
    assert len(table.maintenance.expire_snapshots().commit().snapshots) == 1


def test_retain_last_keeps_as_many_of_each_branch(lake: TestLake) -> None:
    table = make(lake, 5, **{"history.expire.min-snapshots-to-keep": "4"})
    there = set(lake.files())
    oldest = [snapshot.snapshot_id for snapshot in table.snapshots()][:3]
    done = table.maintenance.expire_snapshots().older_than(SOON).retain_last(2).commit()
    assert done.snapshots == tuple(sorted(oldest))
    assert len(done.files) == done.deleted == 3  # the three lists: the snapshots that are left have all manifests and rows
    assert {Path(file).name for file in done.files} == {Path(file).name for file in there - set(lake.files())}
    with pytest.raises(PolicyError, match="at least 1"):
        table.maintenance.expire_snapshots().retain_last(0)


def test_another_writers_snapshot_is_kept(lake: TestLake) -> None:
    table = make(lake, 5)
    before_the_commit(table, lambda: load(lake).append(people(500, 1)))
    assert len(expire(table).snapshots) == 4
    fresh = load(lake)
    assert len(fresh.snapshots()) == 2
    assert 500 in ids(fresh)
    assert ids(fresh) == ids(table)
    verified(fresh)


def test_a_tag_that_another_writer_sets_meanwhile_is_kept(lake: TestLake) -> None:
    table = make(lake, 5, **{"commit.retry.min-wait-ms": "1"})
    second = table.snapshots()[1].snapshot_id
    before_the_commit(table, lambda: load(lake).manage_snapshots().create_tag(second, "late").commit())
    assert second not in expire(table).snapshots
    fresh = load(lake)
    assert len(fresh.snapshots()) == 2
    assert fresh.scan().use_ref("late").count() == 4
    verified(fresh)


def test_a_rollback_that_another_writer_makes_meanwhile_is_kept(lake: TestLake) -> None:
    """The head that was is expired instead, and the file that only it had."""
    table = make(lake, 5, **{"commit.retry.min-wait-ms": "1"})
    second = table.snapshots()[1].snapshot_id

    def roll_back() -> None:
        other = load(lake)
        other.manage_snapshots().rollback_to_snapshot(second).commit()
        other.append(people(700, 1))

    before_the_commit(table, roll_back)
    expire(table)
    assert ids(load(lake)) == [0, 1, 10, 11, 700]
    verified(table)


def test_it_is_tried_again_after_a_conflict_as_often_as_the_table_says(lake: TestLake) -> None:
    table = make(lake, 3, **{"commit.retry.num-retries": "2", "commit.retry.min-wait-ms": "1"})
    before = lake.files()
    inner, calls = table.catalog.commit_table, []

    def commit(*arguments: Any) -> Any:
        calls.append(True)
        if len(calls) <= limit:
            msg = "another was first"
            raise CommitFailedException(msg)
        return inner(*arguments)

    table.catalog.commit_table = commit
    limit = 9
    with pytest.raises(CommitFailedException, match="another was first"):
        expire(table)
    assert len(calls) == 3
    assert lake.files() == before
    calls.clear()
    limit = 2
    assert len(expire(table).snapshots) == 2


def test_a_commit_whose_answer_was_lost_is_found_and_finished(lake: TestLake) -> None:
    table = make(lake, 4)
    inner = table.catalog.commit_table

    def commit(*arguments: Any) -> Any:
        inner(*arguments)
        raise TimeoutError

    table.catalog.commit_table = commit
    done = expire(table)
    assert (len(done.snapshots), done.deleted) == (3, 3)
    assert leftovers(load(lake)).files == ()


def test_a_commit_that_was_not_made_changes_nothing(lake: TestLake) -> None:
    table = make(lake, 4)
    before = lake.files()

    def commit(*_: Any) -> Any:
        raise TimeoutError

    table.catalog.commit_table = commit
    with pytest.raises(TimeoutError):
        expire(table)
    assert lake.files() == before
    assert load(lake).metadata == table.metadata


def test_a_catalog_that_keeps_something_else_is_an_error_and_no_file_goes(lake: TestLake) -> None:
    table = make(lake, 4)
    before = set(lake.files())

    def commit(*_: Any) -> Any:
        msg = "did not come back"
        raise CommitError(msg)

    table.catalog.commit_table = commit
    with pytest.raises(CommitError):
        expire(table)
    assert set(lake.files()) == before


def test_without_the_kms_nothing_is_expired(lake: TestLake) -> None:
    make(lake, 3)
    table = load(lake)
    before = lake.files()
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError, match=r"table db\.t") as caught:
        expire(table)
    assert "snap-" in caught.value.__notes__[0]
    assert lake.files() == before


def test_a_list_that_cannot_be_read_stops_it_unless_files_may_stay(lake: TestLake) -> None:
    """The keys go all the same then, and what is left is listed."""
    table = make(lake, 4)
    damaged = Path(table.snapshots()[1].manifest_list)
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1])
    before = lake.files()
    with pytest.raises(IntegrityError, match=damaged.name):
        expire(table)
    assert lake.files() == before
    done = table.maintenance.expire_snapshots().older_than(SOON).clean_expired_files(clean=False).commit()
    assert (len(done.snapshots), len(done.keys), done.deleted) == (3, 3, 0)
    assert [file.kind.value for file in leftovers(load(lake)).files] == ["manifest list"] * 3


def test_files_that_cannot_be_deleted_are_named_and_listed(lake: TestLake) -> None:
    table = make(lake, 3)
    stuck = table.snapshots()[0].manifest_list
    delete = table.storage.delete

    def refuse(location: str) -> None:
        if location == stuck:
            raise PermissionError(location)
        delete(location)

    table.storage.delete = refuse
    done = expire(table)
    assert (done.left, done.deleted) == ((stuck,), 1)
    assert [file.path for file in leftovers(load(lake)).files] == [stuck]


def test_a_storage_that_fails_after_the_commit_deletes_nothing(lake: TestLake) -> None:
    table = make(lake, 3)
    table.overwrite(people(50, 1))
    before = set(lake.files())
    head = table.current_snapshot().manifest_list
    original = table.storage.new_input

    def refuse(location: str) -> Any:
        if location == head:
            raise TimeoutError(location)
        return original(location)

    table.storage.new_input = refuse
    with pytest.raises(TimeoutError) as caught:
        expire(table)
    assert any("leftovers" in note for note in caught.value.__notes__)
    assert before < set(lake.files())
    fresh = load(lake)
    assert len(fresh.snapshots()) == 1
    assert ids(fresh) == [50]
    # Three lists of appends, their manifests and data files; the overwrite listed no manifest of theirs but rewritten ones, which stay.
    assert {file.kind.value for file in leftovers(fresh).files} == {"manifest list", "manifest", "data"}


def test_tables_whose_files_may_be_shared_keep_them(lake: TestLake) -> None:
    table = make(lake, 3, **{"gc.enabled": "false"})
    before = lake.files()
    with pytest.raises(PolicyError, match=r"gc\.enabled"):
        table.maintenance.expire_snapshots()
    with pytest.raises(PolicyError, match=r"gc\.enabled"):
        lake.catalog().purge_table("db.t")
    assert lake.files() == before
    assert lake.catalog().table_exists("db.t")


def test_a_static_table_has_no_catalog_to_commit_to(lake: TestLake) -> None:
    table = make(lake, 2)
    static = icelock.StaticTable.from_metadata(table.metadata_location, lake.properties())
    with pytest.raises(PolicyError, match="static"):
        static.maintenance.expire_snapshots()


def test_writers_that_began_before_an_expiry_commit_after_it(lake: TestLake) -> None:
    """Their starting snapshot is gone: an append needs none, and a delete finds out that it cannot tell what came between."""
    table = make(lake, 2)
    append = load(lake).transaction()
    append.append(people(500, 1))
    delete = load(lake).transaction()
    delete.delete("id = 0")
    table.append(people(50, 1))
    expire(table)
    append.commit_transaction()
    with pytest.raises(ValidationException):
        delete.commit_transaction()
    assert ids(load(lake)) == [0, 1, 10, 11, 50, 500]
    assert leftovers(load(lake)).files == ()
    load(lake).delete("id = 0")
    assert ids(load(lake)) == [1, 10, 11, 50, 500]


def refused_once(table: Any, act: Callable[[], None], *, made: bool) -> None:
    """Answer the first commit with a conflict: ``made`` says whether it was made first; then others do something."""
    inner, done = table.catalog.commit_table, []

    def commit(of: Any, requirements: Any, updates: Any) -> Any:
        if done:
            return inner(of, requirements, updates)
        done.append(True)
        for requirement in requirements:
            requirement.validate(of.metadata)
        if made:
            inner(of, requirements, updates)
        act()
        raise CommitFailedException("409")

    table.catalog.commit_table = commit


def test_an_expiry_that_was_made_though_the_answer_was_a_conflict_deletes_its_files(lake: TestLake) -> None:
    """A gateway sends the request twice, and gives back what the second was answered; meanwhile others write."""
    table = make(lake, 4)
    going = sorted(snapshot.snapshot_id for snapshot in table.snapshots()[:3])
    lists = {Path(snapshot.manifest_list).name for snapshot in table.snapshots()[:3]}
    refused_once(table, lambda: load(lake).append(people(90, 2)), made=True)
    done = expire(table)
    assert (sorted(done.snapshots), len(done.keys), done.deleted, done.left) == (going, 3, 3, ())
    assert {Path(file).name for file in done.files} == lists
    assert not lists & names(lake, "snap-*.avro")
    fresh = load(lake)
    assert (len(fresh.snapshots()), leftovers(fresh).files) == (2, ())
    assert ids(fresh) == [0, 1, 10, 11, 20, 21, 30, 31, 90, 91]


def test_an_expiry_that_was_refused_is_done_again(lake: TestLake) -> None:
    table = make(lake, 3)
    refused_once(table, lambda: load(lake).append(people(90, 2)), made=False)
    assert len(expire(table).snapshots) == 3
    assert ids(load(lake)) == [0, 1, 10, 11, 20, 21, 90, 91]


def test_of_two_expiries_at_the_same_moment_the_later_finds_the_files_gone(lake: TestLake) -> None:
    """Manifests that it has to read for their files were deleted by the one that was faster."""
    table = make(lake, 3)
    table.overwrite(people(50, 2))
    faster: list[Expired] = []
    refused_once(table, lambda: faster.append(expire(load(lake))), made=False)
    assert expire(table) == Expired()
    assert len(faster[0].snapshots) == 3
    assert leftovers(load(lake)).files == ()
    assert ids(load(lake)) == [50, 51]


@pytest.mark.parametrize("number", ["3", 2.5, True, None])
def test_a_number_of_snapshots_to_keep_is_a_number(lake: TestLake, number: Any) -> None:
    with pytest.raises(PolicyError, match=r"retain_last is .*; it must be a whole number of at least 1"):
        make(lake, 1).maintenance.expire_snapshots().retain_last(number)
