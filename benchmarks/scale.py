"""A large lake on synthetic metadata: the figures of docs/scale.md, checked at a tenth of them by the real planner and committer.

1. a plan of a million files (the manifest of 10,000 files, listed a hundred times), and what its metadata takes on storage;
2. writers of one table, each with an append a minute: a hundred commits as fast as they come, on SQLite and in the memory catalog;
3. ten thousand tables: made, listed, loaded, and what the key service is asked.

CPU seconds are those of this process, so other work on the machine hardly changes them. No JVM; some 1.5 GB of memory at most.

    python benchmarks/scale.py [--files 1000000] [--writers 100] [--tables 10000] [--case files]... [--json]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Self

import click
import polars as pl  # noqa: F401 - imported before memory is looked at
from pyiceberg.manifest import ManifestContent
from rich.console import Console
from rich.table import Table

import icelock
from icelock import metrics

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from synthetic import FILES_A_MANIFEST, data_file, made_table  # noqa: E402 - found through the path above

from tests.lakes.sqlite import TestLake  # noqa: E402

MIB: Final = 1 << 20
THREADS: Final = 8
SNAPSHOTS: Final = 100
READ: Final = 100
_READ: Final = """
import json, sys
import icelock
from icelock import metrics
catalog = icelock.load_catalog("test", **json.loads(sys.argv[1]))
for number in 2 * list(range(int(sys.argv[2]))):
    assert len(list(catalog.load_table(f"db.t{number}").scan().iter_tasks())) == 1
print(metrics.snapshot().kms_calls)
"""
_FORGET_PEAK: Final = "5"  # proc(5), clear_refs


class Cost:
    """CPU and wall seconds, calls of the key service, and how far memory rose, of a ``with`` block (Linux)."""

    def __enter__(self) -> Self:
        Path("/proc/self/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")
        self._before = _memory("VmRSS"), _cpu(), time.perf_counter(), _kms_calls()
        return self

    def __exit__(self, *error: object) -> None:
        memory, cpu, start, calls = self._before
        self.cpu, self.wall, self.rise = _cpu() - cpu, time.perf_counter() - start, _memory("VmHWM") - memory
        self.calls = _kms_calls() - calls

    def shown(self) -> str:
        return f"{self.cpu:.1f} s of CPU, {self.wall:.1f} s, {self.rise:,.0f} MiB more"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def _kms_calls() -> int:
    return metrics.snapshot().kms_calls


def _size(location: str) -> int:
    return Path(location.removeprefix("file://")).stat().st_size


def files(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """A table of one full manifest, whose plan lists that manifest as often as the count wants."""
    table = made_table(TestLake.with_namespace(folder).catalog(), "db.t", min(count, FILES_A_MANIFEST))
    snapshot = table.current_snapshot()
    (manifest,) = snapshot.manifests(table.io)
    listed = [manifest] * max(1, count // FILES_A_MANIFEST)
    a_file = manifest.manifest_length / (manifest.added_files_count or 1)
    yield "a data file of ten columns, in its manifest", f"{a_file:.0f} bytes"
    scan = table.scan()
    with Cost() as cost:
        deletes, planned = scan._manifest_planner.planned(listed)  # noqa: SLF001 - a list that no table has
        found = sum(1 for some in planned for _ in some.tasks(deletes))
    yield f"plan of {found:,} files, task by task", f"{cost.shown()}; {cost.cpu / found * 1e6:.1f} µs a file"
    with Cost() as cost:
        deletes, planned = scan._manifest_planner.planned(listed)  # noqa: SLF001
        tasks = [task for some in planned for task in some.tasks(deletes)]
    yield "the same, with all tasks held", f"{cost.shown()}; {cost.rise * MIB / len(tasks):.0f} bytes a task"
    del tasks
    with Cost() as cost:
        found = sum(len(some) for some in _entries(scan, listed[: max(1, len(listed) // 10)]))
    yield f"plan_files of {found:,} files, manifest by manifest", f"{cost.shown()}; {cost.cpu / found * 1e6:.0f} µs a file"


def _entries(scan: Any, listed: list[Any]) -> Iterator[list[Any]]:
    return scan._manifest_planner.plan_manifest_entries(m for m in listed if m.content == ManifestContent.DATA)  # type: ignore[no-any-return]  # noqa: SLF001


def writers(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """Each writer has a table object of its own and appends once; a few at a time, which wait for their turns."""
    lake = TestLake.with_namespace(folder)
    memory = icelock.load_catalog("memory", **{**lake.properties(), "type": "in-memory"})
    made: list[tuple[str, Callable[[], Any]]] = [("SQLite, a catalog for each writer", lake.catalog), ("memory", lambda: memory)]
    for name, load in made:
        first = load()
        if name == "memory":
            first.create_namespace("db")
        made_table(first, "db.t", 0)
        loaded = [load().load_table("db.t") for _ in range(count)]
        with Cost() as cost, ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(_append, loaded, range(count)))
        table = first.load_table("db.t")
        there = len(table.metadata.snapshots)
        if there != count:
            msg = f"{name}: {there} snapshots of {count} commits"
            raise AssertionError(msg)
        yield f"{count} writers, {name}", f"{count / cost.wall:.1f} commits a second; {cost.cpu / count * 1000:.0f} ms of CPU a commit"
    yield from _growth(first)


def _append(table: Any, number: int) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().merge_append() as append:
        append.append_data_file(data_file(table, number, FILES_A_MANIFEST))


def _growth(catalog: Any) -> Iterator[tuple[str, str]]:
    """What a snapshot adds to metadata.json, and to the time of a commit."""
    table = made_table(catalog, "db.grows", 0)
    seen: list[tuple[int, float]] = []
    for number in range(3 * SNAPSHOTS):
        if number % SNAPSHOTS == 0:
            first = number
            with Cost() as cost:
                for more in range(10):
                    _append(table, first + more)
            seen.append((_size(table.metadata_location), cost.cpu / 10))
        elif number % SNAPSHOTS >= 10:  # the ten above
            _append(table, number)
    (small, fast), *_, (large, slow) = seen
    yield (
        "metadata.json, more a snapshot",
        f"{(large - small) / (2 * SNAPSHOTS):.0f} bytes (of {large // 1024} KiB at {2 * SNAPSHOTS + 10} snapshots)",
    )
    yield "a commit, more a snapshot kept", f"{(slow - fast) / (2 * SNAPSHOTS) * 1e6:.0f} µs of CPU (from {fast * 1000:.0f} ms)"
    snapshot = table.current_snapshot()
    yield "manifest list, a manifest", f"{_size(snapshot.manifest_list) / len(snapshot.manifests(table.io)):.0f} bytes"


def tables(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    lake = TestLake.with_namespace(folder)
    catalog = lake.catalog()
    with Cost() as cost:
        for number in range(count):
            made_table(catalog, f"db.t{number}", 0)
    yield f"{count:,} tables made", f"{cost.shown()}; {cost.cpu / count * 1000:.1f} ms and {cost.calls / count:.1f} KMS calls a table"
    with Cost() as cost:
        listed = len(catalog.list_tables("db"))
    yield f"{listed:,} tables listed", cost.shown()
    with closing(lake.catalog()) as other, Cost() as cost:
        loaded = [other.load_table(f"db.t{number}") for number in range(count)]
    held = f"{cost.rise * MIB / count / 1024:.0f} KiB a table held"
    yield (
        f"{count:,} tables loaded",
        f"{cost.shown()}; {cost.cpu / count * 1000:.1f} ms and {cost.calls / count:.1f} KMS calls a table, {held}",
    )
    for table in loaded[:READ]:
        _append(table, 0)
    command = [sys.executable, "-c", _READ, json.dumps(lake.properties()), str(min(READ, count))]
    calls = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
    yield "a process that plans each table twice", f"{int(calls[0]) / min(READ, count):.1f} KMS calls a table"
    yield "metadata.json of a new table", f"{_size(loaded[0].metadata_location)} bytes"


CASES: Final = {"files": files, "writers": writers, "tables": tables}


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--files", "file_count", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--writers", "writer_count", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--tables", "table_count", default=10_000, show_default=True, type=click.IntRange(min=1))
@click.option("--case", "wanted", multiple=True, type=click.Choice(list(CASES)), help="All without it.")
@click.option("--json", "as_json", is_flag=True)
def main(*, file_count: int, writer_count: int, table_count: int, wanted: tuple[str, ...], as_json: bool) -> None:
    """Simulate, and print."""
    counts = {"files": file_count, "writers": writer_count, "tables": table_count}
    found: dict[str, str] = {}
    for name, case in CASES.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for what, cost in case(Path(folder), counts[name]):
                found[what] = cost
                click.echo(f"{what}: {cost}", err=True)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    out = Table("", "", title="A large lake on synthetic metadata")
    for row in found.items():
        out.add_row(*row)
    Console(width=140).print(out)


if __name__ == "__main__":
    main()
