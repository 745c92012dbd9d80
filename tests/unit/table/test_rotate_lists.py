"""Level ``lists``: manifests and lists of all snapshots under new keys; rows of every snapshot as before; nothing needs the old KEK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation, Summary

from icelock.errors import IntegrityError, KeyUnavailableError, PolicyError
from icelock.io.files import EncryptedInputFile
from icelock.keys.rewrap import keks_under
from icelock.maintenance import audit, leftovers, remove_leftovers
from icelock.metadata.manifest import read_manifest_rows
from icelock.metadata.manifest_list import write_manifest_list
from icelock.metadata.updates import AddEncryptionKeyUpdate, MoveManifestListUpdate, apply_updates
from icelock.table.guard.key_rotation import KeyRotation, MovedList
from icelock.table.guard.rules import check_change
from icelock.table.maintenance.rotation import list_moves as moves_module
from icelock.table.maintenance.rotation import rotate_lists as module
from tests.helpers.table_model import LINEAGE, arrow, row, rows_of
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_compact import MOR, make
from tests.unit.table.test_rotate import keks
from tests.unit.table.test_rotate_data import lake_of, loaded, sealed, verified, with_every_kind_of_delete

MARK = "icelock.rotation-kek"


def every_row(table: Any) -> dict[int, list[Any]]:
    """Rows of each snapshot, with their ids and the numbers of their last change."""
    found = {}
    for snapshot in table.snapshots():
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        ids = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=LINEAGE).to_arrow().to_pylist()
        found[snapshot.snapshot_id] = sorted(rows, key=repr) + sorted(ids, key=repr)
    return found


def as_stored(table: Any) -> dict[int, list[Any]]:
    """What manifests and lists say in each snapshot, but for places and keys of manifests."""
    found = {}
    for snapshot in table.snapshots():
        rows = []
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            kept = [value for number, value in enumerate(manifest._data) if number not in {0, 14}]
            numbers = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
            stored = [[*(getattr(entry, name) for name in numbers), *map(plain_value, entry.data_file._data)] for entry in entries]
            rows.append(repr((kept, stored)))
        found[snapshot.snapshot_id] = rows
    return found


def plain_value(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, Mapping) else value


def without_place(snapshot: Any) -> dict[str, Any]:
    return {name: value for name, value in snapshot.model_dump(by_alias=True).items() if name not in {"manifest-list", "key-id"}}


def with_history(lake: TestLake) -> Any:
    """Every kind of delete, a branch with rows of its own, a tag."""
    table = with_every_kind_of_delete(lake)
    with table.manage_snapshots() as change:
        change.create_branch(table.snapshots()[1].snapshot_id, "side").create_tag(table.snapshots()[0].snapshot_id, "then")
    table.append(arrow([row(60)]), branch="side")
    table.overwrite(arrow([row(3), row(61)]), overwrite_filter="id = 3")
    return table


@pytest.mark.parametrize("to_key", ["keyA", "keyB"])
def test_every_snapshot_is_as_before_and_nothing_needs_the_old_kek(lake: TestLake, to_key: str) -> None:
    table = with_history(lake)
    rows, stored, (old,) = every_row(table), as_stored(table), keks(table)
    before, snapshots, refs = lake.files(), table.metadata.snapshots, table.metadata.refs
    numbers = (table.metadata.last_sequence_number, table.metadata.next_row_id, table.metadata.snapshot_log)
    manifests = {manifest.manifest_path for one in table.snapshots() for manifest in one.manifests(table.io)}
    lake.calls.take()
    done = loaded(lake).maintenance.rotate("lists", to_key=to_key)
    wrapped = ["unwrap keyA", "wrap keyB", "unwrap keyB"] if to_key == "keyB" else ["unwrap keyA"]
    assert lake.calls.take() == [*wrapped, f"wrap {to_key}", f"unwrap {to_key}"]
    assert (done.rotated_snapshots, done.rewritten_manifests, done.left_files) == (len(snapshots), len(manifests), 0), "each manifest once"
    assert len(snapshots) > len(manifests) / 2 > 2
    assert set(done.removed_keys) - {old.key_id} == {snapshot.key_id for snapshot in snapshots}
    table = table.refresh()
    if to_key == "keyB":  # by the old one this process has just told that it is the same table; an expiry takes it
        assert [(kek.key_id, kek.encrypted_by_id) for kek in keks(table)] == [(done.kek, "keyB"), (old.key_id, "keyB")]
        assert expire_all_keys(table) == (old.key_id,)
    assert [kek.key_id for kek in keks(table)] == [done.kek]
    assert set(sealed(table)) == {done.kek}
    assert [without_place(one) for one in table.metadata.snapshots] == [without_place(one) for one in snapshots]
    assert (table.metadata.last_sequence_number, table.metadata.next_row_id, table.metadata.snapshot_log) == numbers
    assert table.metadata.refs == refs
    assert MARK not in table.metadata.properties
    assert every_row(table) == rows == every_row(lake_of(lake, to_key))
    assert as_stored(table) == stored
    after = lake.files()
    assert {name: after[name] for name in before} == before, "no file was changed or removed: readers of older metadata go on"
    unreached = {place(file.path) for file in leftovers(table, older_than=timedelta(0)).files}
    lists = {place(one.manifest_list) for one in snapshots}
    assert unreached == lists | {place(path) for path in manifests}, "and leftovers finds those that nothing reaches"
    assert audit(lake.catalog(), "db.t", depth=["open"]).verdict.value == "sound"
    remove_leftovers(table, older_than=timedelta(0))
    assert every_row(table) == rows, "and takes them away"
    verified(table, to_key)


def expire_all_keys(table: Any) -> tuple[str, ...]:
    """Expire no snapshot; return the ids of key entries that go."""
    keys: tuple[str, ...] = table.maintenance.expire_snapshots().retain_last(100).commit().keys
    return keys


def place(path: str) -> str:
    return path.removeprefix("file://")


class Killed(BaseException):
    """As SIGKILL: nothing of icelock's cleans up after it that a new process could not."""


def test_killed_it_is_gone_on_with_and_nothing_is_written_twice(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six snapshots, each with the manifests of those before, two a commit; the second commit does not come."""
    table = make(lake, 6, **{"commit.manifest-merge.enabled": "false"})
    rows, stored, (old,) = every_row(table), as_stored(table), keks(table)
    monkeypatch.setattr(module, "_LEAST_SNAPSHOTS", 2)
    monkeypatch.setattr(module, "_COMMITS", 3)
    commit = moves_module.ListMoves.commit

    def killed(self: Any) -> Any:
        if {snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots} and sealed(table).count(old.key_id) < 6:
            self.certain = False  # nobody is left to delete anything
            raise Killed
        return commit(self)

    monkeypatch.setattr(moves_module.ListMoves, "commit", killed)
    with pytest.raises(Killed):
        loaded(lake).maintenance.rotate("lists")
    monkeypatch.setattr(moves_module.ListMoves, "commit", commit)
    table = loaded(lake)
    unfinished = table.metadata.properties[MARK].rpartition(":")[2]
    assert sealed(table) == [unfinished] * 2 + [old.key_id] * 4
    assert (every_row(table), as_stored(table)) == (rows, stored), "a table is whole in between"
    with pytest.raises(PolicyError, match=r"level 'lists' was not finished.*icelock rotate --level lists"):
        loaded(lake).maintenance.rotate("data")
    written = {manifest.manifest_path for one in table.snapshots()[:2] for manifest in one.manifests(table.io)}
    table.append(arrow([row(90)]))
    plan = table.maintenance.rotate("lists", dry_run=True)
    assert (plan.resumed, plan.kek, plan.rotated_snapshots, plan.new_keks) == (True, unfinished, 5, 0), (
        "and the one that lists manifests of before"
    )
    done = table.maintenance.rotate("lists")
    assert (done.resumed, done.kek, done.made, done.rotated_snapshots, done.left_files) == (True, unfinished, (), 5, 0)
    assert set(sealed(table)) == {unfinished}
    assert MARK not in table.metadata.properties
    now = {manifest.manifest_path for one in table.snapshots()[:6] for manifest in one.manifests(table.io)}
    assert (len(written), len(now)) == (2, 6)
    assert written < now, "manifests that the first call committed are listed again"
    assert {number: found for number, found in every_row(table).items() if number in rows} == rows
    left = {file.path for file in leftovers(table, older_than=timedelta(0)).files}
    assert len(left) == 7 + 6 + 2 + 2, "lists and manifests of before, and two of each that the killed call wrote last"
    remove_leftovers(table, older_than=timedelta(0))
    verified(table, "keyA")
    again = table.maintenance.rotate("lists")
    assert (again.resumed, again.rotated_snapshots, len(again.made)) == (False, 7, 1), "a finished one is not gone on with"


def beside(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any]) -> None:
    """Let others act before the commits of the lists, one each time."""
    left, commit = list(acts), moves_module.ListMoves.commit

    def other(self: Any) -> Any:
        if left:
            left.pop(0)()
        return commit(self)

    monkeypatch.setattr(moves_module.ListMoves, "commit", other)


def test_beside_writers_an_expiry_and_another_rotation(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A held writer under the old KEK, a delete, an expired snapshot, a KEK of another rotation: nothing is lost, all is done."""
    table = make(lake, 4, **MOR)
    held = loaded(lake)
    first = table.snapshots()[0].snapshot_id
    rows = every_row(table)

    def others() -> None:
        loaded(lake).delete("id in (3, 14)")
        held.append(arrow([row(50)]))
        loaded(lake).maintenance.expire_snapshots().by_ids([first]).commit()
        loaded(lake).maintenance.rotate("kek")
        loaded(lake).append(arrow([row(51)]))

    beside(monkeypatch, others)
    done = table.maintenance.rotate("lists")
    assert (done.rotated_snapshots, done.left_files) == (6, 0), "three of before, and three that list manifests of before"
    table = loaded(lake)
    assert first not in {snapshot.snapshot_id for snapshot in table.snapshots()}
    expected = sorted([*(row(number) for number in range(40) if number not in {3, 14}), row(50), row(51)])
    assert rows_of(table) == expected
    assert {number: found for number, found in every_row(table).items() if number in rows} == {
        number: found for number, found in rows.items() if number != first
    }
    assert [kek.key_id for kek in keks(table)] != [done.kek], "the later one is left: its rotation came after this one began"
    assert len(keks(table)) == 1
    held.append(arrow([row(52)]))
    assert rows_of(loaded(lake)) == sorted([*expected, row(52)])
    remove_leftovers(table.refresh(), older_than=timedelta(0))
    verified(table, "keyA")


@pytest.mark.parametrize("when", ["before the commit", "before the lists are read"])
def test_an_expiry_between_two_commits_takes_manifests_that_later_ones_have(
    lake: TestLake, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The first snapshot is moved, with the manifest that all have; it expires, and that manifest's copy is deleted with it."""
    table = make(lake, 4, **{"commit.manifest-merge.enabled": "false"})
    rows, first = every_row(table), table.snapshots()[0].snapshot_id
    monkeypatch.setattr(module, "_LEAST_SNAPSHOTS", 1)

    def expire() -> None:
        loaded(lake).maintenance.expire_snapshots().by_ids([first]).commit()

    if when == "before the commit":
        beside(monkeypatch, lambda: None, expire)
    else:
        forget, left = module.RotatedLists._forget_lost, [lambda: None, expire]
        monkeypatch.setattr(module.RotatedLists, "_forget_lost", lambda self: (left and left.pop(0)(), forget(self)))
    done = table.maintenance.rotate("lists")
    assert (done.rotated_snapshots, done.left_files) == (4, 0)
    assert every_row(loaded(lake)) == {number: found for number, found in rows.items() if number != first}
    remove_leftovers(table.refresh(), older_than=timedelta(0))
    verified(table, "keyA")


def test_a_snapshot_that_expires_while_its_list_is_read(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, 3)
    rows, first = every_row(table), table.snapshots()[0].snapshot_id
    forget, left = module.RotatedLists._forget_lost, [first]

    def expiring(self: Any) -> None:
        if left:
            loaded(lake).maintenance.expire_snapshots().by_ids([left.pop()]).commit()
        forget(self)

    monkeypatch.setattr(module.RotatedLists, "_forget_lost", expiring)
    done = table.maintenance.rotate("lists")
    assert (done.rotated_snapshots, done.left_files) == (2, 0)
    assert every_row(loaded(lake)) == {number: found for number, found in rows.items() if number != first}


@pytest.mark.parametrize("other", ["an expiry", "a rotation"])
def test_what_others_take_between_two_commits_is_not_read(lake: TestLake, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """A commit follows the table to a version that lacks the keys of lists which are still to come."""
    table = make(lake, 4)
    rows, newest = every_row(table), table.current_snapshot().snapshot_id
    monkeypatch.setattr(module, "_LEAST_SNAPSHOTS", 1)

    def act() -> None:
        if other == "a rotation":
            loaded(lake).maintenance.rotate("lists")
        else:
            loaded(lake).maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).retain_last(1).commit()

    beside(monkeypatch, lambda: None, act)
    assert table.maintenance.rotate("lists").left_files == 0
    assert every_row(loaded(lake)) == (rows if other == "a rotation" else {newest: rows[newest]})
    remove_leftovers(table.refresh(), older_than=timedelta(0))
    verified(table, "keyA")


def test_a_list_that_is_written_again_assigns_no_row_ids(lake: TestLake) -> None:
    """A manifest of a table that had none when it was written: all else would be ids that no reader has seen."""
    table = make(lake, 1)
    snapshot = table.current_snapshot()
    (manifest,) = snapshot.manifests(table.io)
    manifest.first_row_id = None
    arguments = {"manifests": [manifest], "snapshot_id": 1, "parent_snapshot_id": None, "sequence_number": 1, "first_row_id": 100}
    for again, expected in ((True, None), (False, 100)):
        location = f"{table.location()}/metadata/snap-{again}.avro"
        written = write_manifest_list(table.io, location=location, again=again, **arguments)
        (row_of_it,) = read_manifest_rows(EncryptedInputFile(table.storage.new_input(location), written.key_metadata))
        assert row_of_it.first_row_id == expected


def test_a_writer_that_is_at_work_meanwhile(lake: TestLake) -> None:
    """What it read lies at other places now; it finds its rows, and its commit is looked at after another rotation."""
    table, other = make(lake, 3, **MOR), loaded(lake)
    with table.transaction() as change:
        change.delete("id = 5")
        change.append(arrow([row(80)]))
        other.maintenance.rotate("lists")
    assert rows_of(loaded(lake)) == sorted([*(row(number) for number in range(30) if number != 5), row(80)])
    load, rotated = table.catalog.load_table, []

    def after_another(name: Any) -> Any:
        if not rotated:
            rotated.append(loaded(lake).maintenance.rotate("lists"))
        return load(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.catalog, "load_table", after_another)
        table.append(arrow([row(81)]))
    assert rotated[0].rotated_snapshots == 6, "three, the two of the transaction, and the append whose writer looks for it"
    assert rows_of(loaded(lake)) == sorted([*(row(number) for number in range(30) if number != 5), row(80), row(81)])


def test_an_unreadable_snapshot_stops_it_before_anything_is_written(lake: TestLake) -> None:
    table = make(lake, 3)
    second = table.snapshots()[1]
    (manifest,) = {one.manifest_path for one in second.manifests(table.io)} - {
        one.manifest_path for one in table.snapshots()[0].manifests(table.io)
    }
    for path, needs in ((manifest, table.snapshots()[1:]), (second.manifest_list, [second])):
        file = Path(place(path))
        sound = file.read_bytes()
        for damage in (sound[:-20] + bytes(20), None):
            file.write_bytes(damage) if damage else file.unlink()
            before, location = lake.files(), table.refresh().metadata_location
            for dry_run in (True, False):
                with pytest.raises(IntegrityError, match=r"Nothing was changed.*drop_unreadable") as raised:
                    loaded(lake).maintenance.rotate("lists", to_key="keyB", dry_run=dry_run)
                assert all(str(one.snapshot_id) in str(raised.value) for one in needs)
            assert (lake.files(), table.refresh().metadata_location) == (before, location)
        file.write_bytes(sound)
    assert loaded(lake).maintenance.rotate("lists").rotated_snapshots == 3


def forged(table: Any, change: Callable[[dict[str, Any]], None]) -> tuple[tuple[Any, ...], Any]:
    """A right rotation of the second snapshot's list, with one change to its parts."""
    second = table.snapshots()[1]
    rows = second.manifests(table.io)
    location = f"{table.location()}/metadata/snap-forged.avro"
    written = write_manifest_list(
        table.io,
        location=location,
        manifests=rows,
        snapshot_id=second.snapshot_id,
        parent_snapshot_id=second.parent_snapshot_id,
        sequence_number=second.sequence_number,
        first_row_id=second.first_row_id,
        again=True,
    )
    key = table.io.manager.seal_manifest_list_key(written.key_metadata)
    parts = {"number": second.snapshot_id, "before": (second.manifest_list, second.key_id), "list": location, "key_id": key.key_id}
    parts |= {"pair": None, "entries": key.new_entries, "table": table, "more": ()}
    change(parts)
    pair = parts["pair"] or (parts["list"], parts["key_id"])
    kept = keks_under(table.metadata.encryption_keys, "keyA")
    rotation = KeyRotation(
        table="db.t",
        from_key="keyA",
        to_key="keyA",
        before=kept,
        after=kept,
        lists=(MovedList(snapshot_id=parts["number"], before=parts["before"], after=pair),),
    )
    entries = [AddEncryptionKeyUpdate(**{"encryption-key": entry}) for entry in parts["entries"]]
    move = MoveManifestListUpdate(**{"snapshot-id": parts["number"], "manifest-list": parts["list"], "key-id": parts["key_id"]})
    return (*entries, move, *parts["more"]), rotation


def first_list(parts: dict[str, Any]) -> None:
    parts["list"] = parts["table"].snapshots()[0].manifest_list


def first_key(parts: dict[str, Any]) -> None:
    parts["key_id"], parts["entries"] = parts["table"].snapshots()[0].key_id, ()


def both_of_the_first(parts: dict[str, Any]) -> None:
    first_list(parts)
    first_key(parts)


def of_another_pair(parts: dict[str, Any]) -> None:
    parts["pair"] = ("file:///elsewhere", parts["key_id"])


def of_a_moved_snapshot(parts: dict[str, Any]) -> None:
    parts["before"] = (parts["table"].snapshots()[0].manifest_list, parts["before"][1])


def plain(parts: dict[str, Any]) -> None:
    path = Path(place(parts["list"]))
    path.write_bytes(b"Obj\x01".ljust(path.stat().st_size))


def cut(parts: dict[str, Any]) -> None:
    path = Path(place(parts["list"]))
    path.write_bytes(path.read_bytes()[:-1])


def under_a_foreign_kek(parts: dict[str, Any]) -> None:
    parts["entries"] = tuple(replace(entry, encrypted_by_id="bm9uZQ") for entry in parts["entries"])


def of_another_key(parts: dict[str, Any]) -> None:
    manager = parts["table"].io.manager
    other = manager.seal_manifest_list_key(manager.open_manifest_list_key(parts["table"].snapshots()[0].key_id))
    (entry,) = other.new_entries
    parts["entries"] = (replace(entry, key_id=parts["key_id"]),)


def an_entry_too_many(parts: dict[str, Any]) -> None:
    manager = parts["table"].io.manager
    other = manager.seal_manifest_list_key(manager.open_manifest_list_key(parts["table"].snapshots()[0].key_id))
    parts["entries"] = (*parts["entries"], *other.new_entries)


FORGED = [
    (first_list, IntegrityError, "bytes on storage"),
    (first_key, IntegrityError, "bytes on storage"),
    (both_of_the_first, PolicyError, "has key-id"),
    (of_another_pair, PolicyError, "only icelock rotate replaces one"),
    (of_a_moved_snapshot, CommitFailedException, "removed or rotated a snapshot"),
    (plain, IntegrityError, "not encrypted"),
    (cut, IntegrityError, "bytes on storage"),
    (under_a_foreign_kek, (PolicyError, KeyUnavailableError), "bm9uZQ"),
    (of_another_key, IntegrityError, "bytes on storage"),
    (an_entry_too_many, PolicyError, "belong to no snapshot"),
]


@pytest.mark.parametrize(("fault", "kind", "words"), FORGED, ids=lambda value: getattr(value, "__name__", None))
def test_a_forged_rotation_is_refused(lake: TestLake, fault: Callable[[dict[str, Any]], None], kind: Any, words: str) -> None:
    table = make(lake, 1)
    table.append(arrow([row(number) for number in range(10, 300)]))
    updates, rotation = forged(table, fault)
    location = table.metadata_location
    with pytest.raises(kind, match=words):
        table.catalog.commit_table(table, (rotation,), updates)
    assert loaded(lake).metadata_location == location


def test_a_right_one_is_taken_with_its_requirement_only(lake: TestLake) -> None:
    table = make(lake, 2)
    rows = every_row(table)
    updates, rotation = forged(table, lambda _parts: None)
    with pytest.raises(PolicyError, match="only icelock rotate replaces one"):
        table.catalog.commit_table(table, (), updates)
    table.catalog.commit_table(table, (rotation,), updates)
    assert loaded(lake).snapshots()[1].manifest_list == updates[-1].manifest_list
    assert every_row(loaded(lake)) == rows


@pytest.mark.parametrize(
    "name", ["summary", "sequence_number", "parent_snapshot_id", "timestamp_ms", "schema_id", "first_row_id", "added_rows"]
)
def test_nothing_else_of_a_snapshot_may_change(lake: TestLake, name: str) -> None:
    """Whatever an update is called: the metadata before and after are compared."""
    table = make(lake, 2)
    updates, rotation = forged(table, lambda _parts: None)
    right = apply_updates(table.metadata, updates, now_ms=table.encryption.clock)
    check_change(table.metadata, right, table="db.t", rotation=rotation)
    value = Summary(Operation.DELETE) if name == "summary" else 4711
    snapshots = [right.snapshots[0], right.snapshots[1].model_copy(update={name: value})]
    with pytest.raises(PolicyError, match="snapshots never change"):
        check_change(table.metadata, right.model_copy(update={"snapshots": snapshots}), table="db.t", rotation=rotation)
    with pytest.raises(PolicyError, match="snapshots never change"):
        check_change(table.metadata, right, table="db.t", rotation=replace(rotation, lists=()))
    unkeyed = right.snapshots[1].model_copy(update={"key_id": None})
    moved: Any = replace(rotation, lists=(replace(rotation.lists[0], after=(unkeyed.manifest_list, None)),))  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="no key-id"):
        check_change(table.metadata, right.model_copy(update={"snapshots": [right.snapshots[0], unkeyed]}), table="db.t", rotation=moved)


def test_what_is_refused(lake: TestLake) -> None:
    table = make(lake, 1)
    with pytest.raises(PolicyError, match=r"use level 'wrap' with it.*and then use 'lists'"):
        table.maintenance.rotate("lists", kms=table.encryption.kms())
    with pytest.raises(PolicyError, match="white space"):
        table.maintenance.rotate("lists", to_key=" keyB")


def test_a_table_without_snapshots(lake: TestLake) -> None:
    table = make(lake, 0)
    done = table.maintenance.rotate("lists")
    assert (done.rotated_snapshots, done.rewritten_manifests, len(done.made), done.left_files) == (0, 0, 1, 0)
    assert MARK not in table.metadata.properties
    table.append(arrow([row(1)]))
    assert sealed(table) == [done.kek]
