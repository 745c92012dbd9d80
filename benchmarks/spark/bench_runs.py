"""Timed runs by turns: wall time, and CPU time of the JVM, this process and all Python workers.

Other work on the machine changes wall time, CPU time hardly. CPU time is counted in ticks of 10 ms (proc(5)), so short queries are
repeated within a run.

Not here: what is run (``bench_cases``).
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to get a case done. ``before`` is not timed; ``run`` returns the answer (rows), or None when it has none."""

    name: str
    run: Callable[[], Any]
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None


@dataclass(kw_only=True)
class Times:
    """Seconds of each run that counted."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def best(self) -> float:
        return min(self.wall)

    def median(self) -> float:
        return statistics.median(self.wall)

    def median_cpu(self) -> float:
        return statistics.median(self.cpu)


@dataclass(frozen=True, kw_only=True)
class Used:
    """CPU ticks by process, its own and those of its children that ended and were waited for; and seconds of this process."""

    own: dict[int, int]
    children: dict[int, int]
    here: float

    def since(self, before: Used) -> float:
        """Seconds between two readings.

        What a process had used before and ended since is in its parent's count of children, unless nobody waited for it.
        """
        own = sum(ticks - before.own.get(pid, 0) for pid, ticks in self.own.items())
        ended = sum(ticks + before.children[pid] for pid, ticks in before.own.items() if pid not in self.own)
        children = sum(ticks - before.children.get(pid, 0) for pid, ticks in self.children.items())
        return (own + max(0, children - ended)) / _TICKS + self.here - before.here


class Clock:
    """Reads CPU time of this process, the JVM and the processes that it started; the metastore is left out."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm  # noqa: SLF001 - PySpark has no other way
        self._pid = int(self._jvm.java.lang.ProcessHandle.current().pid())

    def used(self) -> Used:
        """CPU time so far."""
        found = {int(entry.name): stat for entry in Path("/proc").iterdir() if entry.name.isdigit() and (stat := _stat(entry))}
        tree, grown = {self._pid}, True
        while grown:
            more = {pid for pid, stat in found.items() if int(stat[_PARENT]) in tree} - tree
            tree, grown = tree | more, bool(more)
        times = {pid: [int(ticks) for ticks in found[pid][_TIMES]] for pid in tree if pid in found}
        return Used(
            own={pid: user + system for pid, (user, system, _, _) in times.items()},
            children={pid: user + system for pid, (_, _, user, system) in times.items()},
            here=time.process_time(),
        )

    def collect_garbage(self) -> None:
        """Let no run pay for the garbage of another."""
        self._jvm.java.lang.System.gc()


def _stat(process: Path) -> list[str] | None:
    """Return the fields of proc(5) from the third one on, the state."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # it ended
        return None


def by_turns(clock: Clock, ways: Iterable[Way], *, rounds: int, warm: int, repeat: int = 1) -> dict[str, Times]:
    """Run each way in every round, each round in another order; the first ``warm`` rounds do not count.

    Raises:
        ValueError: two ways gave different answers.
    """
    order = list(ways)
    times = {way.name: Times() for way in order}
    answers: dict[str, Any] = {}
    for number in range(warm + rounds):
        for way in order[number % len(order) :] + order[: number % len(order)]:
            wall, cpu, answer = _once(clock, way, repeat)
            check_equal({**answers, way.name: answer})
            answers = answers or {way.name: answer}
            if number >= warm:
                times[way.name].wall.append(wall)
                times[way.name].cpu.append(cpu)
    return times


def _once(clock: Clock, way: Way, repeat: int) -> tuple[float, float, Any]:
    """Return wall and CPU seconds of one repetition, and the answer."""
    way.before()
    clock.collect_garbage()
    answer = None
    before, start = clock.used(), time.perf_counter()
    for _ in range(repeat):
        answer = way.run()
    wall = time.perf_counter() - start
    cpu = clock.used().since(before)
    way.after()
    return wall / repeat, cpu / repeat, answer


def check_equal(answers: dict[str, Any]) -> None:
    """Check that all have the same rows; floating point sums may differ by their order.

    Raises:
        ValueError: they differ.
    """
    (first, expected), *others = answers.items()
    for name, found in others:
        if not _same(expected, found):
            msg = f"{first} and {name} give different answers: {str(expected)[:300]} and {str(found)[:300]}"
            raise ValueError(msg)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)
