"""Turns: first come, first served, and one at a time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from icelock.catalog.commit.queue import CommitQueues, FairLock
from icelock.table.commit.protocol import CommitTurn
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED, TestLake, people

NAME = ("db", "t")


def test_the_lock_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    lock, order, threads = FairLock(), [], []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    with lock:
        for number in range(20):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            assert wait_until(lambda: len(lock._waiting) > number)  # noqa: B023 - asked here
        assert order == []
    for thread in threads:
        thread.join()
    assert order == list(range(20))
    assert not lock._taken


def test_one_holds_the_lock_at_a_time() -> None:
    lock, inside, most = FairLock(), [], []

    def work() -> None:
        for _ in range(200):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(most) == 1600


class _Interrupted:
    """A waiter's lock: the wait ends with Ctrl-C."""

    def __init__(self, meanwhile: Any) -> None:
        self._calls = 0
        self._meanwhile = meanwhile

    def acquire(self) -> None:
        self._calls += 1
        if self._calls == 2:
            self._meanwhile()
            raise KeyboardInterrupt

    def release(self) -> None:
        pass


@pytest.mark.parametrize("given", [False, True], ids=["while waiting", "when it was given already"])
def test_who_is_interrupted_while_waiting_does_not_keep_the_lock(monkeypatch: pytest.MonkeyPatch, given: bool) -> None:  # noqa: FBT001
    lock = FairLock()
    lock.__enter__()
    with monkeypatch.context() as patch:
        patch.setattr("icelock.catalog.commit.queue.threading.Lock", lambda: _Interrupted(lock.__exit__ if given else lambda: None))
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
    if not given:
        lock.__exit__()
    with lock:
        assert lock._taken
    assert not lock._taken


def test_a_turn_is_held_by_one_thread_and_found_whatever_the_case_of_its_name() -> None:
    turns, turn = CommitQueues(), CommitTurn("a")
    assert turns.held(NAME) is None
    with turns.holding(NAME, turn):
        assert turns.held(("DB", "T")) is turn
        found: list[CommitTurn | None] = []
        thread = threading.Thread(target=lambda: found.append(turns.held(NAME)))
        thread.start()
        thread.join()
        assert found == [None]
    assert turns.held(NAME) is None
    assert turns.queue(NAME) is turns.queue(("DB", "T"))
    assert turns.queue(NAME) is not turns.queue(("db", "u"))


def test_a_thread_that_holds_a_turn_gets_it_again(lake: TestLake) -> None:
    catalog = lake.catalog()
    table = catalog.create_table("db.t", people().schema, properties=KEYED)
    with catalog.turn(NAME) as turn, catalog.turn(NAME) as again:
        assert again is turn
        assert turn.location == table.metadata_location
        assert turn.load().metadata_location == table.metadata_location
    with catalog.turn(("db", "nowhere")) as turn:
        assert turn.location is None
