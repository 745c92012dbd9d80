"""The guard against regressions: what icelock costs beside PyIceberg on plain tables, compared with the ratios that were recorded last.

Each case runs both in one process by turns, the second one first in every other round, and counts CPU seconds of this process and its
children. Other work on the machine makes both slower for a while, by half and more where cores share caches and clock: so a round's two
runs are short and follow each other, and what is compared is the sum of one side's beside the sum of the other's, without the rounds
whose ratios are the lowest and the highest. (The least of each side, which was compared before, comes from different moments: on the same
code it was off by up to 1.4.) Of three processes the median counts, since memory lies elsewhere in each. A case that looks slower than
recorded is run in up to four more before it counts. It is a regression from ``WORSE`` times the recorded ratio on, so that a fifth more is
seen. Takes about six minutes and 1 GB, with ``--record`` twice as long, for it takes all seven processes; no JVM.

Tried with seven processes beside a load of 7 to 14 on two cores: of 245 medians of three none was 13 % above that of all, and of the same
with a fifth more 89 % were.

    make bench-check            compare, a table; exit code 1 if a case is slower
    make bench-check RECORD=1   write benchmarks/recorded.json
"""

from __future__ import annotations

import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from synthetic import made_table, with_vectors  # noqa: E402 - found through the path above

from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402

RECORDED: Final = Path(__file__).with_name("recorded.json")
WORSE: Final = 1.13
"""A fifth more is found, and 5 % of noise is not: the record has some too."""
ROUNDS: Final = 9
"""In a process."""
FEW_ROUNDS: Final = 5
"""Of runs that take ``LONG_SECONDS``."""
LONG_SECONDS: Final = 0.5
PROCESSES: Final = 3
MOST_PROCESSES: Final = 7
LEAST_SECONDS: Final = 0.1
"""Of a run; a shorter one is repeated within it."""
ROWS: Final = 200_000
FILES: Final = 4
TINY: Final = 200
PLANNED: Final = 1000
SMALL: Final = 4
_SCAN: Final = "(sys.argv[1], **json.loads(sys.argv[2])).load_table('db.rows').scan(selected_fields=('id',)).to_arrow().num_rows)"
_FIRST: Final = (
    f"import json, sys; import icelock; print(icelock.load_catalog{_SCAN}",
    f"import json, sys; from pyiceberg.catalog import load_catalog; print(load_catalog{_SCAN}",
)

Run = Callable[[], Any]
Costs = tuple[float, float]
"""CPU seconds of a round: ours, theirs."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What both do, with the same answer."""

    name: str
    ours: Run
    theirs: Run


@dataclass(frozen=True, kw_only=True)
class Lake:
    """The same tables twice: encrypted, and PyIceberg's plain ones."""

    folder: Path
    ours: Any
    theirs: Any
    ways: tuple[tuple[str, dict[str, str]], ...]

    def both(self, name: str) -> tuple[Any, Any]:
        return self.ours.load_table(name), self.theirs.load_table(name)


def rows(first: int, count: int) -> pa.Table:
    """Rows of an id, two doubles and a string."""
    numbers = np.random.default_rng(first)
    columns: dict[str, Any] = {"id": np.arange(first, first + count), "d1": numbers.random(count), "d2": numbers.random(count)}
    return pa.table({**columns, "s": pa.array([f"{number:016x}" for number in numbers.integers(0, 1 << 60, count)])})


def made_lake(folder: Path) -> Lake:
    lake = TestLake.with_namespace(folder)
    plain = {"type": "sql", "uri": f"sqlite:///{folder / 'plain.db'}", "warehouse": f"file://{folder / 'plain-warehouse'}"}
    made = Lake(
        folder=folder, ours=lake.catalog(), theirs=load_catalog("plain", **plain), ways=(("test", lake.properties()), ("plain", plain))
    )
    made.theirs.create_namespace("db")
    part = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "part"))
    few = rows(0, 10 * TINY)
    tiny = few.append_column("part", pa.array(np.arange(len(few)) // 10))
    each = ROWS // FILES
    for name, spec, parts in (
        ("db.rows", PartitionSpec(), [rows(number * each, each) for number in range(FILES)]),
        ("db.tiny", part, [tiny]),
        ("db.small", PartitionSpec(), [few.slice(0, 10)]),
    ):
        ours = made.ours.create_table(name, parts[0].schema, partition_spec=spec, properties=KEYED)
        theirs = made.theirs.create_table(name, ours.schema(), partition_spec=spec)
        for table in (ours, theirs):
            for some in parts:
                table.append(some)
    made_table(made.ours, "db.planned", PLANNED)
    made_table(made.theirs, "db.planned", PLANNED, plain=True)
    made_table(made.ours, "db.vectors", PLANNED)
    with_vectors(made.ours, "db.vectors", PLANNED)
    return made


def cases(lake: Lake) -> Iterator[Case]:
    """Yield what is measured."""

    def scans(name: str, table: str, **scan: Any) -> Case:
        ours, theirs = (lambda found=found: found.scan(**scan).to_arrow().num_rows for found in lake.both(table))
        return Case(name=name, ours=ours, theirs=theirs)

    yield scans("full scan", "db.rows")
    yield scans("one column", "db.rows", selected_fields=("d1",))
    yield scans("filter of 1 %", "db.rows", row_filter=f"id >= {ROWS - ROWS // 100}")
    yield scans("point filter", "db.rows", row_filter=f"id = {ROWS // 2}")
    yield scans(f"scan of {TINY} tiny files", "db.tiny")
    ours, theirs = lake.both("db.rows")
    yield Case(
        name="count of a filter",
        ours=lambda: ours.scan(row_filter="d1 < 0.25").count(),
        theirs=lambda: theirs.scan(row_filter="d1 < 0.25").count(),
    )
    yield Case(name="first scan of a process", ours=lambda: first(lake, 0), theirs=lambda: first(lake, 1))
    yield Case(
        name="load a table, ten rows",
        ours=lambda: lake.ours.load_table("db.small").scan().to_arrow().num_rows,
        theirs=lambda: lake.theirs.load_table("db.small").scan().to_arrow().num_rows,
    )
    yield from plans(lake)
    yield from writes(lake)


def plans(lake: Lake) -> Iterator[Case]:
    ours, theirs = lake.both("db.planned")
    deleted = lake.ours.load_table("db.vectors")

    def peer() -> int:
        return sum(1 for _ in theirs.scan().plan_files())

    yield Case(name=f"plan of {PLANNED:,} files", ours=lambda: sum(1 for _ in ours.scan().iter_tasks()), theirs=peer)
    yield Case(
        name="plan of them with a vector each", ours=lambda: sum(len(task.deletes) for task in deleted.scan().iter_tasks()), theirs=peer
    )
    yield Case(name="plan_files", ours=lambda: sum(1 for _ in ours.scan().plan_files()), theirs=peer)


def writes(lake: Lake) -> Iterator[Case]:
    numbers = iter(range(1 << 30))
    many, some = rows(0, ROWS // 2), rows(0, 10)

    def made(catalog: Any, properties: dict[str, str]) -> Any:
        return catalog.create_table(f"db.w{next(numbers)}", some.schema, properties=properties)

    def append(catalog: Any, properties: dict[str, str]) -> None:
        made(catalog, properties).append(many)

    def small(catalog: Any, properties: dict[str, str]) -> None:
        table = made(catalog, properties)  # a new one: PyIceberg's appends take longer with each snapshot
        for _ in range(SMALL):
            table.append(some)

    def delete(catalog: Any, properties: dict[str, str]) -> None:
        table = made(catalog, properties)
        table.append(many)
        table.delete("d1 < 0.01")

    yield Case(name="append", ours=lambda: append(lake.ours, KEYED), theirs=lambda: append(lake.theirs, {}))
    yield Case(name=f"table made, {SMALL} appends of ten rows", ours=lambda: small(lake.ours, KEYED), theirs=lambda: small(lake.theirs, {}))
    yield Case(name="append, delete 1 %", ours=lambda: delete(lake.ours, KEYED), theirs=lambda: delete(lake.theirs, {}))


def first(lake: Lake, which: int) -> str:
    name, properties = lake.ways[which]
    command = [sys.executable, "-c", _FIRST[which], name, json.dumps(properties)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cpu() -> float:
    """CPU seconds of this process, all its threads, and of its children that ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def seconds(run: Run, times: int) -> float:
    gc.collect()
    start = cpu()
    for _ in range(times):
        run()
    return (cpu() - start) / times


def times_of(run: Run) -> int:
    """How often a run, which is warm, is repeated so that it is long enough to be measured."""
    return max(1, round(LEAST_SECONDS / max(seconds(run, 1), 1e-4)))


def rounds(case: Case) -> list[Costs]:
    """Return what both cost in some rounds."""
    if case.ours() != case.theirs():
        msg = f"{case.name}: the answers differ"
        raise AssertionError(msg)
    sides = [(run, times_of(run), list[float]()) for run in (case.ours, case.theirs)]
    number, wanted = 0, ROUNDS
    while number < wanted:
        for run, times, took in sides if number % 2 else reversed(sides):
            took.append(seconds(run, times))
        wanted = FEW_ROUNDS if max(took[0] for *_, took in sides) >= LONG_SECONDS else ROUNDS
        number += 1
    return list(zip(sides[0][2], sides[1][2], strict=True))


def ratio(costs: Collection[Costs]) -> float:
    """Return ours ÷ theirs of all rounds but the two whose ratios are the lowest and the highest."""
    ordered = sorted(costs, key=lambda cost: cost[0] / cost[1])
    ours, theirs = (sum(side) for side in zip(*(ordered[1:-1] if len(ordered) > 2 else ordered), strict=True))
    return ours / theirs


def in_this_process(wanted: Collection[str]) -> dict[str, float]:
    """Return the ratios of cases, all if none is wanted."""
    with tempfile.TemporaryDirectory() as folder:
        return {case.name: ratio(rounds(case)) for case in cases(made_lake(Path(folder))) if not wanted or case.name in wanted}


def one_process(wanted: Collection[str]) -> dict[str, float]:
    """Return the same, from a process of its own."""
    command = [sys.executable, __file__, "--once", *(word for name in wanted for word in ("--case", name))]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def measured(wanted: Collection[str], recorded: Mapping[str, float]) -> dict[str, tuple[float, int]]:
    """Return the ratios of cases, and how many processes they come from: more where one looks slower than recorded, all for a record."""
    found: dict[str, list[float]] = {}
    least = PROCESSES if recorded else MOST_PROCESSES
    for number in range(MOST_PROCESSES):
        again = [name for name in found if slower(statistics.median(found[name]), recorded.get(name))]
        if number < least or again:
            for name, of in one_process(again if number >= least else wanted).items():
                found.setdefault(name, []).append(of)
            click.echo(f"process {number + 1} is done", err=True)
    return {name: (statistics.median(ratios), len(ratios)) for name, ratios in found.items()}


def shown(found: dict[str, tuple[float, int]], recorded: dict[str, float], kind: str) -> Table:
    out = Table(title="CPU, icelock ÷ PyIceberg on plain tables", caption=f"recorded with {kind}")
    for column in ("", "recorded", "now", "processes", "now ÷ recorded", ""):
        out.add_column(column, justify="left" if not column else "right")
    for name, (of, processes) in found.items():
        before = recorded.get(name)
        change = "" if before is None else f"{of / before:.2f}"
        told = "new: record it" if before is None else "SLOWER" if slower(of, before) else ""
        out.add_row(name, "" if before is None else f"{before:.2f}", f"{of:.2f}", str(processes), change, told)
    return out


def slower(now: float, recorded: float | None) -> bool:
    return recorded is not None and now >= recorded * WORSE


def machine() -> str:
    """What the ratios depend on, besides the code."""
    names = ", ".join(f"{module.__name__} {module.__version__}" for module in (pa, np))
    return f"Python {platform.python_version()}, {names}, {platform.machine()}"


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--record", is_flag=True, help=f"Write {RECORDED.name} in place of comparing.")
@click.option("--case", "wanted", multiple=True, help="As in the table; all without it.")
@click.option("--once", is_flag=True, hidden=True, help="One process's ratios, as JSON.")
def main(*, record: bool, wanted: tuple[str, ...], once: bool) -> None:
    """Measure, and compare or record."""
    if once:
        click.echo(json.dumps(in_this_process(wanted)))
        return
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {"with": "nothing", "ratios": {}}
    recorded = known["ratios"]
    start = time.perf_counter()
    found = measured(wanted, {} if record else recorded)
    Console(width=120).print(shown(found, recorded, known["with"]))
    click.echo(f"{time.perf_counter() - start:.0f} s")
    if record:
        ratios = {**(recorded if wanted else {}), **{name: round(of, 3) for name, (of, _) in found.items()}}
        RECORDED.write_text(json.dumps({"with": machine(), "ratios": ratios}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    elif any(slower(of, recorded.get(name)) for name, (of, _) in found.items()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
