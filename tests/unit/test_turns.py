"""Cells of sweeps take turns by day: in as many days as it has parts, a sweep is run whole, and each day's part holds some of each test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.helpers import cpu_seconds, turns


@dataclass(eq=False)
class Item:
    """What ``of_today`` asks a test that pytest collected."""

    nodeid: str
    marks: tuple[Any, ...] = ()

    def get_closest_marker(self, name: str) -> Any:
        return next((mark.mark for mark in self.marks if mark.name == name), None)


TURNS, BOTH = pytest.mark.turns(3), pytest.mark.turns(2, sweep="both")
SWEEP = [Item(f"test_sweep[{form}-{mode}]", (TURNS,)) for form in range(5) for mode in "ab"]
PAIR = [Item(f"test_pair[{mode}]", (TURNS,)) for mode in "ab"]
ONE, OTHER = Item("test_one", (BOTH, pytest.mark.spark43)), Item("test_other", (BOTH, pytest.mark.spark43))
THIRD, DAILY = Item("test_third", (pytest.mark.spark43,)), Item("test_daily", (pytest.mark.spark43(daily=True),))
NEWEST = Item("test_newest", (pytest.mark.newest,))
ITEMS: Any = [*SWEEP, ONE, *PAIR, THIRD, DAILY, OTHER, NEWEST]
ON_SECOND: Any = [ONE, THIRD, DAILY, OTHER, NEWEST]


@pytest.fixture
def three_days(monkeypatch: pytest.MonkeyPatch) -> Iterable[int]:
    def days() -> Iterator[int]:
        for day in range(3):
            now = datetime(2026, 12, 30, tzinfo=UTC) + timedelta(days=day)
            monkeypatch.setattr(turns, "datetime", type("Clock", (), {"now": staticmethod(lambda _zone, now=now: now)}))
            yield day

    monkeypatch.setattr(turns, "WHOLE", False)
    return days()


def test_a_sweep_is_whole_after_its_days_and_nothing_of_it_runs_twice(three_days: Iterable[int]) -> None:
    seen: list[Any] = []
    for _ in three_days:
        today: list[Any] = turns.of_today(ITEMS, second=False)
        assert [item for item in ITEMS if item in today] == today
        here = [item for item in today if item in SWEEP]
        assert len(here) in {3, 4}
        assert {item.nodeid[-2] for item in here} == {"a", "b"}
        assert len([item for item in today if item in PAIR]) == 1
        assert (ONE in today) + (OTHER in today) == 1
        assert [item for item in today if item not in {*SWEEP, *PAIR, ONE, OTHER}] == [THIRD, DAILY, NEWEST]
        seen += here
    assert sorted(item.nodeid for item in seen) == sorted(item.nodeid for item in SWEEP)


def test_on_the_second_spark_all_are_one_sweep(three_days: Iterable[int]) -> None:
    seen: list[Any] = []
    for _ in three_days:
        today: list[Any] = turns.of_today(ON_SECOND, second=True)
        assert (len(today), DAILY in today, NEWEST in today) == (3, True, True)
        seen += [item for item in today if item not in (DAILY, NEWEST)]
    assert sorted(item.nodeid for item in seen) == ["test_one", "test_other", "test_third"]


def test_in_the_lanes_a_sweep_takes_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WHOLE", False)
    seen: list[Any] = []
    for day in range(7):
        monkeypatch.setattr(turns, "turn", lambda _name, every, day=day: day % every)
        today: list[Any] = turns.of_today(ITEMS, second=False, weekly=True)
        seen += [item for item in today if item in SWEEP]
        assert len([item for item in today if item in PAIR]) == 1
    assert sorted(item.nodeid for item in seen) == sorted(item.nodeid for item in SWEEP)


def test_one_that_is_asked_for_alone_is_run(three_days: Iterable[int]) -> None:
    alone: Any = SWEEP[:1]
    for _ in three_days:
        assert turns.of_today(alone, second=False) == alone


def test_all_are_run_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WHOLE", True)
    assert turns.of_today(ITEMS, second=False) == ITEMS
    assert turns.of_today(ON_SECOND, second=True) == ON_SECOND


COSTS = {"a": 9.0, "b": 5.0, "c": 4.0, "d": 4.0, "e": 3.0, "f": 2.5, "g": 2.0, "h": 1.0, "test_sweep[0-a]": 50.0, "gone": 9.0}
COSTLY = [Item(name) for name in "hgfedcba"]


def test_the_costliest_share_their_days_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 9 | 5 | 4 | 4 | 3 | 2.5 | 2 + 1."""
    monkeypatch.setattr(turns, "WHOLE", False)
    items: Any = [SWEEP[0], *COSTLY, DAILY]
    parts = []
    for day in range(7):
        monkeypatch.setattr(turns, "turn", lambda _name, every, day=day: day % every)
        today: list[Any] = turns.costly_of_today(items, COSTS, second=False)
        assert (today[0], today[-1]) == (SWEEP[0], DAILY)
        parts.append("".join(item.nodeid for item in today[1:-1]))
    assert parts == ["a", "b", "c", "d", "e", "f", "hg"]
    assert turns.costly_of_today([THIRD, *COSTLY[:1]], {"test_third": 9.0, "f": 1.0}, second=True)[0] == THIRD


def test_what_is_listed() -> None:
    small, large, at = "0.09\ttests/unit/test_b.py::test_x", "7.10\ttests/unit/test_b.py::test_y[a]", "0.10\ttests/a/test_a.py::test_z"
    never, sweep = "9\ttests/leak/test_c.py::test_x", "8\ttests/spark/test_sweep.py::test_x"
    before = {"tests/unit/test_b.py::test_x": 5.0, "tests/unit/test_b.py::test_z": 3.0}  # the first is cheap now, the other did not run
    lines = [small, large, at, never, sweep]
    assert cpu_seconds.listed(lines, ["tests/spark/test_sweep.py"], before) == [at, large, "3.00\ttests/unit/test_b.py::test_z"]
