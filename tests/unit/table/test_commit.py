"""One transaction among others: what a conflict makes anew, what it keeps, and what a shared table object shows."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from icelock.errors import PolicyError
from icelock.table.commit.protocol import CommitProtocol
from tests.helpers.tables import ids, load
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED, TestLake, people

QUICK = {**KEYED, "commit.retry.min-wait-ms": "1"}


def make(lake: TestLake, **properties: str) -> Any:
    table = lake.catalog().create_table("db.t", people().schema, properties={**QUICK, **properties})
    table.append(people())
    return table


def used_keys(metadata: Any) -> set[str]:
    lists = {snapshot.key_id for snapshot in metadata.snapshots}
    return lists | {key.encrypted_by_id for key in metadata.encryption_keys if key.key_id in lists}


def test_a_transaction_that_was_open_while_its_table_object_committed(lake: TestLake) -> None:
    """C-05: every snapshot's key is there and opens its list."""
    table = make(lake)
    transaction = table.transaction()
    transaction.append(people(10))
    table.append(people(20))
    assert transaction.commit_transaction() is table
    assert ids(table) == ids(load(lake)) == list(range(30))
    metadata = load(lake).metadata
    assert {key.key_id for key in metadata.encryption_keys} == used_keys(metadata)
    assert [len(snapshot.manifests(table.io)) for snapshot in metadata.snapshots] == [1, 2, 3]


def test_two_appends_and_a_property_keep_together_through_a_conflict(lake: TestLake) -> None:
    """C-06."""
    stale = make(lake)
    load(lake).append(people(10))
    with stale.transaction() as transaction:
        transaction.append(people(20))
        transaction.set_properties({"owner": "me"})
        transaction.append(people(30))
    metadata = load(lake).metadata
    assert ids(load(lake)) == list(range(40))
    assert metadata.properties["owner"] == "me"
    assert len(metadata.snapshots) == 4
    assert {key.key_id for key in metadata.encryption_keys} == used_keys(metadata)
    assert sorted(s.first_row_id for s in metadata.snapshots) == [0, 10, 20, 30]


def test_a_tag_of_a_snapshot_of_the_same_transaction_survives_a_conflict(lake: TestLake) -> None:
    """PyIceberg drops every change of a ref when it makes snapshots again."""
    stale = make(lake)
    load(lake).append(people(10))
    transaction = stale.transaction()
    transaction.append(people(20))
    head = transaction.table_metadata.current_snapshot_id
    transaction._apply(*transaction._set_ref_snapshot(snapshot_id=head, ref_name="mine", type="tag"))
    transaction.commit_transaction()
    refs = load(lake).refs()
    assert refs["mine"].snapshot_id == refs["main"].snapshot_id == head
    assert load(lake).scan(snapshot_id=head).count() == 30


def test_the_kek_of_an_attempt_that_lost_is_not_left_and_nothing_is_wrapped_twice(lake: TestLake) -> None:
    """Both mint the table's first KEK; the one that loses uses the other's."""
    lake.catalog().create_table("db.t", people().schema, properties=QUICK)
    one, two = load(lake), load(lake)
    transaction = two.transaction()
    transaction.append(people(10))
    one.append(people())
    lake.calls.take()
    transaction.commit_transaction()
    assert "wrap keyA" not in lake.calls.take()
    metadata = load(lake).metadata
    assert {key.key_id for key in metadata.encryption_keys} == used_keys(metadata)
    assert len(metadata.encryption_keys) == 3


def test_the_kek_of_a_refused_attempt_is_used_again(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.catalog().create_table("db.t", people().schema, properties=QUICK)
    lake.calls.take()
    refuse(table, monkeypatch, times=2)
    table.append(people())
    assert lake.calls.take() == ["wrap keyA", "unwrap keyA"]
    metadata = load(lake).metadata
    assert {key.key_id for key in metadata.encryption_keys} == used_keys(metadata)
    assert len(metadata.encryption_keys) == 2
    assert sum("/snap-" in name for name in lake.files()) == 1


def refuse(table: Any, monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    real, calls = table.catalog.commit_table, []

    def commit(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) <= times:
            msg = "refused"
            raise CommitFailedException(msg)
        return real(*arguments)

    monkeypatch.setattr(table.catalog, "commit_table", commit)
    return calls


@pytest.mark.parametrize(("refused", "made"), [(4, True), (5, False)])
def test_java_s_four_retries_are_the_default(lake: TestLake, monkeypatch: pytest.MonkeyPatch, refused: int, made: bool) -> None:  # noqa: FBT001
    table = make(lake)
    before = lake.files()
    calls = refuse(table, monkeypatch, times=refused)
    if made:
        table.append(people(10))
    else:
        with pytest.raises(CommitFailedException, match="refused"):
            table.append(people(10))
        assert lake.files() == before
    monkeypatch.undo()
    assert len(calls) == 5
    assert len(ids(load(lake))) == (20 if made else 10)


def test_no_try_begins_after_the_total_time(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, **{"commit.retry.total-timeout-ms": "0"})
    calls = refuse(table, monkeypatch, times=1)
    with pytest.raises(CommitFailedException):
        table.append(people(10))
    assert len(calls) == 1


def test_commits_of_others_do_not_count_as_failed_tries(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten others come first, each time; one retry is allowed."""
    stale = make(lake, **{"commit.retry.num-retries": "1"})
    for number in range(10):
        load(lake).append(people(100 + number, 1))
    calls = refuse(stale, monkeypatch, times=0)
    stale.append(people(10))
    assert len(calls) == 1
    assert len(ids(load(lake))) == 30


def test_with_no_retries_a_commit_holds_for_what_was_seen_only(lake: TestLake) -> None:
    stale = make(lake, **{"commit.retry.num-retries": "0"})
    load(lake).append(people(10))
    before = lake.files()
    with pytest.raises(CommitFailedException, match=r"commit\.retry\.num-retries is 0"):
        stale.append(people(20))
    assert lake.files() == before


def test_a_conflict_keeps_data_files_and_the_manifest_of_new_files(lake: TestLake) -> None:
    stale = make(lake)
    transaction = stale.transaction()
    transaction.append(people(10))
    staged = {name for name in lake.files() if not name.endswith(".json")}
    load(lake).append(people(20))
    transaction.commit_transaction()
    kept = staged & set(lake.files())
    assert sorted(name for name in staged - kept if "/snap-" not in name) == []
    assert len([name for name in staged - kept if "/snap-" in name]) == 1, "only the manifest list is made anew"
    assert ids(load(lake)) == list(range(30))


def test_an_append_does_not_need_the_snapshot_that_it_began_on(lake: TestLake) -> None:
    stale = make(lake)
    transaction = stale.transaction()
    transaction.append(people(20))
    other = load(lake)
    other.append(people(10))
    other.maintenance.expire_snapshots().by_id(stale.metadata.current_snapshot_id).commit()
    transaction.commit_transaction()
    assert ids(load(lake)) == list(range(30))


def test_a_change_that_takes_long_is_made_again_outside_its_turn_and_inside_at_last(
    lake: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others commit each time that it is worked out outside; inside they cannot."""
    stale = make(lake, **{"write.delete.isolation-level": "snapshot"})
    transaction = stale.transaction()
    transaction.delete("id = 3")
    load(lake).append(people(100, 1))
    inside: list[bool] = []
    real = CommitProtocol._rebuild

    def rebuild(self: Any) -> None:
        real(self)
        inside.append(self._staged.cannot_lose)
        if not inside[-1]:
            load(lake).append(people(101 + len(inside), 1))

    monkeypatch.setattr(CommitProtocol, "_rebuild", rebuild)
    transaction.commit_transaction()
    monkeypatch.undo()
    assert inside == [False, False, True]
    assert ids(load(lake)) == [*(i for i in range(10) if i != 3), 100, 102, 103]


def test_a_shared_object_does_not_go_back(lake: TestLake) -> None:
    table = make(lake)
    early = table.at_one_version()
    table.append(people(10))
    newest = table.metadata_location
    table.advance(early)
    assert table.metadata_location == newest
    assert early.metadata_location != newest, "a version of its own is not moved on"
    assert len(ids(early)) == 10
    assert len(ids(table)) == 20
    early.advance(table)
    assert early.metadata_location == newest


def test_a_refresh_that_was_overtaken_does_not_go_back(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake)
    real = table.catalog.load_table

    def slow(identifier: Any) -> Any:
        found = real(identifier)
        monkeypatch.undo()
        table.append(people(10))
        return found

    monkeypatch.setattr(table.catalog, "load_table", slow)
    assert len(ids(table.refresh())) == 20


def test_readers_of_a_shared_object_see_one_version(lake: TestLake) -> None:
    """Metadata and keys of one scan belong together while other threads commit."""
    table = make(lake)
    errors: list[BaseException] = []
    reads: list[int] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                reads.append(table.scan().count())
                assert reads[-1] % 10 == 0
        except BaseException as e:  # noqa: BLE001 - shown below
            errors.append(e)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(10):
        before = len(reads)
        table.append(people((number + 1) * 10))
        assert wait_until(lambda: errors or len(reads) > before)  # noqa: B023 - asked here
    stop.set()
    for reader in readers:
        reader.join()
    assert errors == []
    assert table.scan().count() == 110


def test_a_transaction_that_failed_is_not_used_again(lake: TestLake) -> None:
    table = make(lake)
    transaction = table.transaction().set_properties({"write.format.default": "orc"})
    before = lake.files()
    with pytest.raises(PolicyError):
        transaction.commit_transaction()
    with pytest.raises(RuntimeError, match="cannot be reused"):
        transaction.commit_transaction()
    assert lake.files() == before
