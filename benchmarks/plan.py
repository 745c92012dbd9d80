"""How long planning takes, beside Java Iceberg 1.12.0, on the same tables in the same run.

Makes tables of 1,000, 10,000 and 100,000 data files (their manifests only: ten columns with metrics, 1,000 partitions, 10,000 files a
manifest, sorted by partition) in a Hive catalog, and plans them with both by turns: all files, and one partition of the largest table;
then tables each of whose files has a deletion vector, a thousand of them in a Puffin file.
A plan is counted when every task of it has been made, and both let go of them. CPU time is that of all threads of a process, so other
work on the machine hardly changes it. The last rows are the first plan of the largest table in a process of its own: from start to end,
the plan alone, and the most memory that the process had (VmHWM, so on Linux).

    python benchmarks/plan.py [--json] [--rounds 9] [--fresh 3] [--sizes 1000,10000,100000] [--vectors 10000,100000] [--folder DIR]

With ``--folder`` the tables are kept there and found again. Needs what the interop tests need: a JDK and, once, Maven.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import icelock

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from synthetic import PARTITIONS, made_table, with_vectors  # noqa: E402 - found through the path above

from tests.interop.java_side import Java  # noqa: E402
from tests.interop.session import DATABASE, Session, catalog_properties, interop_session  # noqa: E402
from tests.interop.toolchain import class_path  # noqa: E402
from tests.servers.metastore import spark_jars  # noqa: E402

ONE_PARTITION = 500
ONCE = """
import json, sys, time
start = time.perf_counter()
import icelock
table = icelock.load_catalog("ours", **json.loads(sys.argv[1])).load_table(sys.argv[2])
loaded = time.perf_counter()
files = sum(1 for _ in table.scan().iter_tasks())
took = time.perf_counter() - loaded
memory = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(files, int(took * 1e9), memory)
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Milliseconds of all rounds, or MB of memory; ``cpu`` is CPU milliseconds of one round, the mean of all, of ours and of Java's."""

    what: str
    unit: str
    ours: list[float]
    java: list[float]
    cpu: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "unit": self.unit, "ours": self.ours, "java": self.java, "ratio": self.ratio, "cpu": self.cpu}

    @property
    def ratio(self) -> float:
        """Ours to Java's, of medians."""
        return statistics.median(self.ours) / statistics.median(self.java)


def tables(session: Session, folder: Path, sizes: list[int], *, deleted: bool = False) -> dict[int, str]:
    """Names by size; tables that an earlier run left in the folder are registered again. ``deleted``: with a vector for each file."""
    catalog = icelock.load_catalog("ours", **session.properties)
    kept_in = folder / "tables.json"
    kept = json.loads(kept_in.read_text()) if kept_in.exists() else {}
    names = {}
    for files in sizes:
        name = f"{DATABASE}.{'vectors' if deleted else 'files'}_{files}"
        if name in kept:
            catalog.register_table(name, kept[name])
        else:
            made = made_table(catalog, name, files)
            kept[name] = (with_vectors(catalog, name, files) if deleted else made).metadata_location
        names[files] = name
    kept_in.write_text(json.dumps(kept))
    return names


def timed(run: Callable[[], int], expected: int) -> float:
    """Milliseconds of one run, which returns the number of tasks."""
    start = time.perf_counter()
    found = run()
    took = (time.perf_counter() - start) * 1000
    if found != expected:
        msg = f"{found} tasks instead of {expected}"
        raise AssertionError(msg)
    return took


def cpu_ms(pid: int) -> float:
    """CPU time that a process has used so far, all its threads (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def by_turns(what: str, ours: Callable[[], int], java: Callable[[], int], *, expected: int, rounds: int, jvm: int) -> Row:  # noqa: PLR0913
    """Time both; the first rounds of each warm it up and do not count."""
    for _ in range(3):
        timed(java, expected)
        timed(ours, expected)
    before = cpu_ms(os.getpid()), cpu_ms(jvm)
    pairs = [(timed(ours, expected), timed(java, expected)) for _ in range(rounds)]
    cpu = ((cpu_ms(os.getpid()) - before[0]) / rounds, (cpu_ms(jvm) - before[1]) / rounds)
    return Row(what=what, unit="ms", ours=[pair[0] for pair in pairs], java=[pair[1] for pair in pairs], cpu=cpu)


def warm_rows(session: Session, names: dict[int, str], deleted: dict[int, str], rounds: int) -> list[Row]:
    catalog, java = icelock.load_catalog("ours", **session.properties), Java(session)
    iceberg = java.jvm.org.apache.iceberg
    jvm = int(java.jvm.java.lang.ProcessHandle.current().pid())
    size_of = iceberg.relocated.com.google.common.collect.Iterables.size

    def row(what: str, name: str, expected: int, part: int | None = None) -> Row:
        ours, theirs = catalog.load_table(name), java.table(name.split(".")[1])

        def plan_ours() -> int:
            scan = ours.scan() if part is None else ours.scan(row_filter=f"part = {part}")
            return sum(1 for _ in scan.iter_tasks())

        def plan_theirs() -> int:
            scan = theirs.newScan()
            scan = scan if part is None else scan.filter(iceberg.expressions.Expressions.equal("part", part))
            tasks = scan.planFiles()
            try:
                return int(size_of(tasks))
            finally:
                tasks.close()

        return by_turns(what, plan_ours, plan_theirs, expected=expected, rounds=rounds, jvm=jvm)

    rows = [row(f"{files:,} files", name, files) for files, name in names.items()]
    largest = max(names)
    rows.append(row(f"one partition of {largest:,} files", names[largest], max(1, largest // PARTITIONS), ONE_PARTITION))
    return rows + [row(f"{files:,} files, a vector each", name, files) for files, name in deleted.items()]


def once(command: list[str], files: int, folder: Path) -> tuple[float, float, float]:
    """Milliseconds from start to end and of the plan, and MB, of a process that plans once."""
    start = time.perf_counter()
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )
    took = (time.perf_counter() - start) * 1000
    found, plan, memory = map(int, done.stdout.split())
    if found != files:
        msg = f"{found} tasks instead of {files}"
        raise AssertionError(msg)
    return took, plan / 1e6, memory / 1024


def fresh_rows(session: Session, folder: Path, name: str, files: int, rounds: int) -> list[Row]:
    jars = [*class_path(), folder / "classes"]
    compiled = [
        "javac",
        "-nowarn",
        "-proc:none",
        "-d",
        str(jars[-1]),
        "-cp",
        f"{jars[0]}:{spark_jars()}/*",
        str(Path(__file__).parent / "java/PlanOnce.java"),
    ]
    subprocess.run(compiled, check=True, capture_output=True)
    path = ":".join([*map(str, jars), f"{spark_jars()}/*"])
    java = ["java", "-cp", path, "PlanOnce", session.uri, session.warehouse.as_uri(), name]
    ours = [sys.executable, "-c", ONCE, json.dumps(catalog_properties(session.uri, session.warehouse)), name]
    pairs = [(once(ours, files, folder), once(java, files, folder)) for _ in range(rounds)]
    what = f"first plan of {files:,} files"
    return [
        Row(what=f"{what}, {kind}", unit=unit, ours=[pair[0][i] for pair in pairs], java=[pair[1][i] for pair in pairs])
        for i, (kind, unit) in enumerate((("from start to end", "ms"), ("the plan", "ms"), ("memory", "MB")))
    ]


def shown(rows: list[Row]) -> Table:
    out = Table(title="Planning beside Java Iceberg 1.12.0: min and median, CPU of one plan")
    out.add_column("")
    for column in ("", "icelock", "", "Java", "", "ratio of medians", "CPU icelock", "CPU Java"):
        out.add_column(column, justify="right")
    for row in rows:
        figures = (min(row.ours), statistics.median(row.ours), min(row.java), statistics.median(row.java))
        cpu = ("", "") if row.cpu is None else (f"{row.cpu[0]:,.0f}", f"{row.cpu[1]:,.0f}")
        out.add_row(row.what, row.unit, *(f"{figure:,.0f}" for figure in figures), f"{row.ratio:.2f}", *cpu)
    return out


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(min=1), help="Rounds that count, after three that do not.")
@click.option("--fresh", default=3, show_default=True, type=click.IntRange(min=1), help="Processes that plan once, of each.")
@click.option("--sizes", default="1000,10000,100000", show_default=True, help="Files of the tables.")
@click.option("--vectors", "deleted", default="10000,100000", show_default=True, help="Files of the tables with vectors.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Where the tables are kept.")
def main(*, as_json: bool, rounds: int, fresh: int, sizes: str, deleted: str, folder: Path | None) -> None:  # noqa: PLR0913 - click's
    """Time planning beside Java Iceberg."""
    counts, with_each = ([int(size) for size in given.split(",") if size] for given in (sizes, deleted))
    with tempfile.TemporaryDirectory() as scratch:
        place = (folder or Path(scratch)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        with interop_session(place) as session:
            names = tables(session, place, counts)
            rows = warm_rows(session, names, tables(session, place, with_each, deleted=True), rounds)
            rows += fresh_rows(session, Path(scratch), names[max(counts)], max(counts), fresh)
    if as_json:
        click.echo(json.dumps({"rows": [row.as_json() for row in rows]}, indent=2))
    else:
        Console().print(shown(rows))


if __name__ == "__main__":
    main()
