"""How much memory the Python workers of Spark's executors need, while a large table is written and read.

On a standalone master with two workers of one core: rows come from ``spark.range``, so nothing but the table is large. A table is written
by ``df.write``, read by the Python data source into ``noop``, and written partitioned, with several files open in each task. The peak is
the kernel's (VmHWM, set back before each phase, so on Linux), of the one Python process that had the most; "idle" is a worker that has
loaded icelock and PyArrow and done nothing. With several sizes the peaks show that they do not grow with the table.

    python benchmarks/memory.py [--json] [--size 10GB]... [--open-files 4] [--folder DIR]

Sizes are of Parquet files on disk. The folder needs room for two tables of that size. Needs a JDK 17 or 21.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.table import Table

import icelock
import icelock.spark

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.spark.standalone import Cluster, connected  # noqa: E402 - found through the path above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIB = 1 << 20
UNITS = {"MB": 10**6, "GB": 10**9}
ROW_BYTES = 56  # of a row in zstd Parquet: id and random numbers do not shrink, and hexadecimal digits by half
TASK_BYTES = 500 * 10**6
SCHEMA = "id bigint, a double, b double, c double, d double, name string, part int"
FORGET_PEAK = "5"  # proc(5), clear_refs


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One line of the report: seconds, bytes on disk, MiB of the largest Python process, how many there were."""

    size: str
    phase: str
    rows: int
    stored_bytes: int
    tasks: int
    seconds: float
    workers: int
    peak_mib: float
    idle_mib: float


class Watch:
    """Notes the peak of each Python process of the executors, ten times a second, until it is left."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.peaks: dict[int, int] = {}
        self.seconds = 0.0

    def __enter__(self) -> Self:
        for pid in self._cluster.pythons():
            _proc(pid, "clear_refs", FORGET_PEAK)
        self._begun = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            for pid in self._cluster.pythons():
                found = re.search(r"VmHWM:\s+(\d+) kB", _proc(pid, "status"))
                if found:
                    self.peaks[pid] = max(self.peaks.get(pid, 0), int(found.group(1)) * 1024)


def _proc(pid: int, name: str, write: str | None = None) -> str:
    """Read or write a file of a process; a process that is gone has none."""
    path = Path(f"/proc/{pid}/{name}")
    try:
        return path.read_text() if write is None else str(path.write_text(write))
    except OSError:
        return ""


class Memory:
    """One cluster, one session, a table for each size."""

    def __init__(self, cluster: Cluster, spark: SparkSession, folder: Path, open_files: int) -> None:
        self._cluster = cluster
        self._spark = spark
        self._folder = folder
        self._open_files = open_files
        self._warehouse = folder / "warehouse"
        keys = {"encryption.kms-type": "memory", "kms.memory.keys.key": bytes(range(16)).hex()}
        properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": self._warehouse.as_uri(), **keys}
        self._catalog = icelock.load_catalog("lake", **properties)
        self._catalog.create_namespace("db")
        icelock.spark.register(spark, {"lake": properties})
        self._idle = self._idle_peak()

    def run(self, size: str) -> list[Phase]:
        """Measure all phases of a size, and delete its tables."""
        wanted = _bytes(size)
        rows, tasks = wanted // ROW_BYTES, max(2, -(-wanted // TASK_BYTES))
        made = []

        def phase(name: str, table: str, work: Callable[[], None]) -> None:
            with Watch(self._cluster) as watch:
                work()
            stored = sum(file.stat().st_size for file in (self._warehouse / "db" / table).rglob("*.parquet"))
            peaks = sorted(watch.peaks.values())
            made.append(
                Phase(
                    size=size,
                    phase=name,
                    rows=rows,
                    stored_bytes=stored,
                    tasks=tasks,
                    seconds=watch.seconds,
                    workers=len(peaks),
                    peak_mib=peaks[-1] / MIB,
                    idle_mib=self._idle / MIB,
                )
            )

        self._make("flat")
        phase("write", "flat", lambda: _save(self._rows(rows, tasks), "flat"))
        phase("read", "flat", lambda: self._spark.read.format("icelock").load("lake.db.flat").write.format("noop").mode("overwrite").save())
        self._make("parts", partitioned=True)
        phase(f"write, {self._open_files} files open", "parts", lambda: _save(self._rows(rows, tasks), "parts"))
        for table in ("flat", "parts"):
            self._catalog.drop_table(f"db.{table}")
            shutil.rmtree(self._warehouse / "db" / table)
        return made

    def _rows(self, rows: int, tasks: int) -> DataFrame:
        columns = ("id", "rand(1) a", "rand(2) b", "rand(3) c", "rand(4) d", "md5(cast(id as string)) name")
        return self._spark.range(0, rows, 1, tasks).selectExpr(*columns, f"cast(id % {self._open_files} as int) part")

    def _make(self, table: str, *, partitioned: bool = False) -> None:
        empty = self._spark.createDataFrame([], SCHEMA)
        writer = icelock.spark.write_to(empty, f"lake.db.{table}").tableProperty("encryption.key-id", "key")
        (writer.partitionedBy("part") if partitioned else writer).create()

    def _idle_peak(self) -> int:
        def load(batches: Any) -> Any:
            import time  # noqa: PLC0415 - this function travels

            import icelock.arrow.read.task  # noqa: PLC0415
            import icelock.arrow.write.writer  # noqa: PLC0415, F401

            time.sleep(0.5)
            yield from batches

        with Watch(self._cluster) as watch:
            self._spark.range(0, 2, 1, 2).mapInArrow(load, "id bigint").count()
        return max(watch.peaks.values())


def _save(df: DataFrame, table: str) -> None:
    df.write.format("icelock").mode("append").save(f"lake.db.{table}")


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)\s*(MB|GB)", size)
    if found is None:
        msg = f"{size!r} is no size such as 500MB or 10GB"
        raise click.BadParameter(msg)
    return int(found.group(1)) * UNITS[found.group(2)]


def _report(phases: list[Phase]) -> Table:
    table = Table(title="peak memory of one Python worker", title_justify="left")
    for column in ("size", "phase", "rows", "MB stored", "tasks", "s", "Python processes", "peak MiB", "above idle"):
        table.add_column(column, justify="left" if column in {"size", "phase"} else "right")
    for line in phases:
        table.add_row(
            line.size,
            line.phase,
            f"{line.rows:,}",
            f"{line.stored_bytes / 10**6:,.0f}",
            str(line.tasks),
            f"{line.seconds:.0f}",
            str(line.workers),
            f"{line.peak_mib:.0f}",
            f"{line.peak_mib - line.idle_mib:.0f}",
        )
    return table


@click.command(help=__doc__)
@click.option(
    "--size", "sizes", multiple=True, default=("10GB",), show_default=True, help="Of the table, such as 500MB; several times for several."
)
@click.option("--open-files", default=4, show_default=True, help="Partitions, of which each task writes all.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Where to work; a temporary folder if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(sizes: tuple[str, ...], open_files: int, folder: Path | None, *, as_json: bool) -> None:
    for size in sizes:
        _bytes(size)
    with tempfile.TemporaryDirectory(dir=folder, prefix="icelock-memory-") as made:
        work = Path(made)
        with Cluster.start(work / "cluster", memory_mb=2048) as cluster, connected(cluster, {"spark.executor.memory": "1g"}) as spark:
            memory = Memory(cluster, spark, work, open_files)
            phases = [line for size in sizes for line in memory.run(size)]
    if as_json:
        click.echo(json.dumps([asdict(line) for line in phases], indent=1))
    else:
        Console(width=140).print(_report(phases))


if __name__ == "__main__":
    main()
