"""What each test costs: a plug-in that measures CPU seconds, of a test's processes too, and the command that lists the costliest.

As root on Linux with control groups (version 1 or 2):
``ICELOCK_SWEEPS=all CPU_SECONDS=FOLDER make test PYTEST_ARGS="-p tests.helpers.cpu_seconds"``, then
``python -m tests.helpers.cpu_seconds FOLDER``, which writes ``tests/costly.tsv``. Tests that this run left out keep their figures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.helpers.turns import COSTLY, costly

# CPU seconds from which a test is listed.
_LISTED_FROM: Final = 0.1
# Nothing of these waits: keys that leak, what README promises, kills and faults. Nor do modules that choose what they try today themselves.
_NEVER: Final = ("tests/leak/", "tests/demo/", "tests/test_", "tests/crash/", "tests/faults/")
_GROUPS: Final = Path("/sys/fs/cgroup")


class _Group:
    """A control group of this process and of all that it starts."""

    def __init__(self) -> None:
        first = (_GROUPS / "cpuacct").is_dir()
        self.folder = (_GROUPS / "cpuacct" if first else _GROUPS) / f"tests-{os.getpid()}"
        self.folder.mkdir(exist_ok=True)
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        self._first = first

    def seconds(self) -> float:
        if self._first:
            return int((self.folder / "cpuacct.usage").read_text()) / 1e9
        stat = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6


_group = _Group() if "CPU_SECONDS" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _group is None or item.get_closest_marker("turns"):  # a sweep takes turns already
        return (yield)
    before = _group.seconds()
    result = yield
    with (Path(os.environ["CPU_SECONDS"]) / f"{os.getpid()}.tsv").open("a") as file:
        file.write(f"{_group.seconds() - before:.2f}\t{item.nodeid}\n")
    return result


def listed(lines: Iterable[str], sweeps: Iterable[str], before: Mapping[str, float] = MappingProxyType({})) -> list[str]:
    """Return the lines of ``tests/costly.tsv``: those of the tests that cost enough and are in none of the ``sweeps`` (modules).

    ``before``: figures of tests that may not be among ``lines``.
    """
    costs = {**before, **{test: float(cost) for cost, test in (line.split("\t", 1) for line in lines)}}
    chosen = (f"{cost:.2f}\t{test}" for test, cost in costs.items() if cost >= _LISTED_FROM)
    never = (*_NEVER, *(f"{module}::" for module in sweeps))
    return sorted((line for line in chosen if not line.partition("\t")[2].startswith(never)), key=lambda line: line.partition("\t")[2])


def main(folder: str) -> None:
    """Write ``tests/costly.tsv`` from the files of one run."""
    root = COSTLY.parents[1]
    lines = [line for file in sorted(Path(folder).glob("*.tsv")) for line in file.read_text().splitlines()]
    modules = (path for path in root.glob("tests/**/test_*.py") if any(call in path.read_text() for call in ("todays(", "in_turn(")))
    before = {test: cost for test, cost in costly().items() if (root / test.partition("::")[0]).is_file()}
    COSTLY.write_text("".join(f"{line}\n" for line in listed(lines, (str(path.relative_to(root)) for path in modules), before)))


if __name__ == "__main__":
    main(sys.argv[1])
