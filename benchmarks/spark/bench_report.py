"""What ``spark_vs_java.py`` prints: tables for a terminal, Markdown, JSON.

Not here: measuring (``bench_runs``).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyspark
from bench_cases import DATA_FRAME_WRITE, JAVA, JAVA_PLAIN, NATIVE, OWN_PLAIN, PYTHON, SPARK_PLAIN, UNCACHED, WRITE_TO, Row
from bench_runs import Times
from rich.console import Console
from rich.table import Table

from tests.interop.toolchain import ICEBERG_VERSION

GROUPS: Final = {
    "reads": "Reading",
    "writes": "Writing",
    "fixed": "Tables of one row",
}
RATIOS: Final = (
    (NATIVE, JAVA),
    (PYTHON, JAVA),
    (NATIVE, OWN_PLAIN),
    (NATIVE, SPARK_PLAIN),
    (JAVA, JAVA_PLAIN),
    (WRITE_TO, JAVA),
    (DATA_FRAME_WRITE, JAVA),
)
UNNAMED: Final = ("processor", "memory", "system", "master")
ORDER: Final = (JAVA, UNCACHED, JAVA_PLAIN, NATIVE, PYTHON, OWN_PLAIN, SPARK_PLAIN, WRITE_TO, DATA_FRAME_WRITE, "rows alone")


def machine(spark: Any) -> dict[str, str]:
    """Return what figures depend on."""
    model = next((line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    kilobytes = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "memory": f"{kilobytes / (1 << 20):.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "master": str(spark.sparkContext.master),
        "Spark": pyspark.__version__,
        "Iceberg Java": ICEBERG_VERSION,
        "Java": str(spark._jvm.java.lang.System.getProperty("java.version")),  # noqa: SLF001 - PySpark has no other way
        "Python": platform.python_version(),
        "pyarrow": pa.__version__,
    }


def _lines(path: str) -> list[str]:
    found = Path(path)
    return found.read_text().splitlines() if found.exists() else []


def markers(page: Path, rows: int) -> tuple[str, str]:
    """Return the lines of a page that the tables for a number of rows stand between.

    Raises:
        ClickException: the page has no such lines.
    """
    begin, end = f"<!-- spark_vs_java {rows} -->\n", f"<!-- end of spark_vs_java {rows} -->\n"
    text = page.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        msg = f"{page} has no lines {begin.strip()} and {end.strip()}"
        raise click.ClickException(msg)
    return begin, end


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table of text."""

    title: str
    head: list[str]
    lines: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All figures; ``load`` is the system's load average before and after, which has this program in it afterwards."""

    rows: int
    cases: list[Row]
    machine: dict[str, str]
    load: tuple[float, float]
    seconds: float

    def show(self) -> None:
        """Print tables."""
        console = Console(width=200)
        for sheet in self._sheets():
            console.print(_rich(sheet))
        console.print(self._foot(), soft_wrap=True)

    def into_page(self, page: Path) -> None:
        """Put the tables into a Markdown page, between its markers for this number of rows."""
        begin, end = markers(page, self.rows)
        text = page.read_text(encoding="utf-8")
        before, after = text.split(begin)[0], text.split(end)[1]
        made = "\n".join([*(_markdown(sheet) for sheet in self._sheets()), self._foot() + "\n"])
        page.write_text(f"{before}{begin}\n{made}\n{end}{after}", encoding="utf-8")

    def _sheets(self) -> list[Sheet]:
        sheets = []
        for group, title in GROUPS.items():
            cases = [row for row in self.cases if row.group == group]
            if not cases:
                continue
            unit, factor = ("ms", 1000.0) if group == "fixed" else ("s", 1.0)
            of = f"{title}, {self.rows:,} rows" if group != "fixed" else title

            def wall(times: Times, factor: float = factor) -> str:
                return f"{_figure(times.best() * factor)} / {_figure(times.median() * factor)}"

            def cpu(times: Times, factor: float = factor) -> str:
                return _figure(times.median_cpu() * factor)

            sheets += [
                _sheet(f"{of}: {unit}, min / median", cases, wall, _ratio(Times.best, Times.median)),
                _sheet(f"{of}: CPU, {unit}", cases, cpu, _ratio(Times.median_cpu)),
            ]
        return sheets

    def _foot(self) -> str:
        facts = ", ".join(value if name in UNNAMED else f"{name} {value}" for name, value in self.machine.items())
        return f"{facts}; load average {self.load[0]:.1f} before, {self.load[1]:.1f} after; {self.seconds:.0f} s in all."

    def as_json(self) -> dict[str, Any]:
        """Return every run's figures."""
        return {
            "rows": self.rows,
            "machine": self.machine,
            "load": self.load,
            "seconds": self.seconds,
            "cases": [
                {
                    "case": row.case,
                    "what": row.what,
                    "files": row.files,
                    "times": {engine: {"wall_s": times.wall, "cpu_s": times.cpu} for engine, times in row.times.items()},
                }
                for row in self.cases
            ],
        }


def _ratio(*figures: Callable[[Times], float]) -> Callable[[Times, Times], str]:
    return lambda ours, theirs: " / ".join(f"{figure(ours) / max(figure(theirs), 1e-9):.2f}" for figure in figures)


def _sheet(title: str, cases: list[Row], cell: Callable[[Times], str], ratio: Callable[[Times, Times], str]) -> Sheet:
    engines = [engine for engine in ORDER if any(engine in row.times for row in cases)]
    ratios = [pair for pair in RATIOS if any(set(pair) <= row.times.keys() for row in cases)]
    both = len({row.files for row in cases}) > 1
    head = ["", *(["files of"] if both else []), *engines, *(f"{one} ÷ {other}" for one, other in ratios)]
    lines = [
        [
            row.what,
            *([row.files] if both else []),
            *(cell(row.times[engine]) if engine in row.times else "" for engine in engines),
            *(ratio(row.times[one], row.times[other]) if {one, other} <= row.times.keys() else "" for one, other in ratios),
        ]
        for row in cases
    ]
    return Sheet(title=title, head=head, lines=lines)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _markdown(sheet: Sheet) -> str:
    lines = [sheet.head, ["---"] * len(sheet.head), *sheet.lines]
    return f"{sheet.title}:\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rich(sheet: Sheet) -> Table:
    out = Table(title=sheet.title)
    for i, name in enumerate(sheet.head):
        out.add_column(name, justify="left" if i == 0 else "right")
    for line in sheet.lines:
        out.add_row(*line)
    return out
