"""What CI runs of a sweep over many alike cells: a part that changes from day to day, and on the day it is the same everywhere.

``ICELOCK_SWEEPS=all`` runs all of them. Cells are chosen by a test (``in_turn``, ``todays``), or they are a test's parameters, and the
test has the mark ``turns(every)``: then the others are deselected (``of_today``), as are two thirds of what the second Spark repeats.
The lanes of ``make test`` take a week (``--weekly``) for what is marked so, for what the second Spark repeats, and for the costliest of
all other tests (``costly_of_today``, ``tests/costly.tsv``).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import pytest

Cell = TypeVar("Cell")
WHOLE: Final = os.environ.get("ICELOCK_SWEEPS") == "all"
COSTLY: Final = Path(__file__).parents[1] / "costly.tsv"
_SECOND_EVERY: Final = 3
_WEEK: Final = 7


def turn(name: str, every: int) -> int:
    """Return which of ``every`` parts of the sweep ``name`` is run today: the next one tomorrow."""
    return (datetime.now(UTC).date().toordinal() + zlib.crc32(name.encode())) % every


def in_turn(name: str, count: int, every: int, *, always: Iterable[int] = ()) -> list[int]:
    """Return which of ``count`` cells of the sweep ``name`` are run today: one of ``every``, another one each day, and ``always``."""
    if WHOLE:
        return list(range(count))
    day = datetime.now(UTC).date()
    chosen = sorted({*range(turn(name, every), count, every), *always})
    print(f"{name}: {len(chosen)} of {count}, those of {day}" if len(chosen) > 100 else f"{name}: {chosen} of {count}, those of {day}")
    return chosen


def todays(name: str, cells: Sequence[Cell], every: int, *, always: Iterable[int] = ()) -> list[Cell]:
    """Return the same of the cells themselves."""
    return [cells[number] for number in in_turn(name, len(cells), every, always=always)]


def of_today(items: Sequence[pytest.Item], *, second: bool, weekly: bool = False) -> list[pytest.Item]:
    """Return the tests that are run today, in their order: of each sweep of N tests or more one of N, and what is in no sweep.

    A sweep is the cases of one function that has the mark ``turns(N)``, or of all that name the same one: ``turns(N, sweep="...")``.
    In the lane of the ``second`` Spark, all that is run on the first one too is a single sweep, but for ``spark43(daily=True)``.
    Where sweeps are ``weekly``, N is seven for all.
    """
    sweeps: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in [] if WHOLE else items:
        if (sweep := _second_sweep(item) if second else _sweep(item)) is not None:
            sweeps.setdefault(sweep, []).append(item)
    waiting: set[pytest.Item] = set()
    for (name, every), cases in sweeps.items():
        # In no order of theirs: parameters alternate as the parts do, and a part would have one value of two.
        shuffled = sorted(cases, key=lambda case: (zlib.crc32(case.nodeid.encode()), case.nodeid))
        parts = min(_WEEK if weekly else every, len(cases))
        waiting |= {*cases}.difference(shuffled[turn(name, parts) :: parts])
    return [item for item in items if item not in waiting]


def costly() -> dict[str, float]:
    """Return the CPU seconds of the tests that cost most, by their ids, as they were measured last."""
    return {test: float(seconds) for seconds, test in (line.split("\t", 1) for line in COSTLY.read_text().splitlines())}


def costly_of_today(items: Sequence[pytest.Item], seconds: Mapping[str, float], *, second: bool) -> list[pytest.Item]:
    """Return the tests that are run today, in their order: those without ``seconds`` or in a sweep, and of the others a seventh by time."""
    sweep = _second_sweep if second else _sweep
    waits = [] if WHOLE else [item for item in items if item.nodeid in seconds and sweep(item) is None]
    loads, part_of = [0.0] * _WEEK, dict[pytest.Item, int]()
    for item in sorted(waits, key=lambda item: (-seconds[item.nodeid], item.nodeid)):
        part_of[item] = loads.index(min(loads))
        loads[part_of[item]] += seconds[item.nodeid]
    today = turn("costly tests", _WEEK)
    return [item for item in items if part_of.get(item, today) == today]


def _sweep(item: pytest.Item) -> tuple[str, int] | None:
    mark = item.get_closest_marker("turns")
    return mark and (mark.kwargs.get("sweep", item.nodeid.partition("[")[0]), *mark.args)


def _second_sweep(item: pytest.Item) -> tuple[str, int] | None:
    mark = item.get_closest_marker("spark43")
    return None if mark is None or mark.kwargs.get("daily") else ("the second Spark", _SECOND_EVERY)
