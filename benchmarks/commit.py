"""How long a commit takes, beside Java Iceberg 1.12.0 on the same metastore in the same run.

Appends one data file a commit (the file's entry only: writing rows is not timed) to a table that has 1, 50 and 200 snapshots: icelock
on sqlite, PostgreSQL and Hive, Java on Hive. icelock and Java take turns, ten commits each, so that both meet the same noise; both
are warm. Then the race of case J-06: 8 threads append 10 times each through Hive under default settings, each with a table object of
its own from one catalog.

    python benchmarks/commit.py [--json] [--at 1,50,200] [--commits 20] [--races 3]

Needs what the interop tests need (a JDK and, once, Maven) and PostgreSQL's server.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import click
import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record
from rich.console import Console
from rich.table import Table

import icelock
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.interop.session import catalog_properties  # noqa: E402
from tests.interop.toolchain import class_path  # noqa: E402
from tests.servers.metastore import Metastore, spark_jars  # noqa: E402 - found through the path above
from tests.servers.postgres import Postgres  # noqa: E402

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string())])
KEYED = {"encryption.key-id": "keyA"}
JAVA, HIVE = "Java, Hive", "icelock, Hive"
THREADS, EACH = 8, 10
TURN = 10


class JavaCommits:
    """A JVM that commits when it is asked to."""

    def __init__(self, to: IO[str], answers: IO[str]) -> None:
        self._to = to
        self._answers = answers

    def ask(self, command: str) -> list[float]:
        self._to.write(command + "\n")
        self._to.flush()
        answer = self._answers.readline()
        if not answer:
            msg = f"Java ended at: {command}"
            raise RuntimeError(msg)
        return [float(word) for word in answer.split()]


@contextmanager
def java_commits(metastore: Metastore, folder: Path) -> Iterator[JavaCommits]:
    jars = ":".join([*map(str, class_path()), f"{spark_jars()}/*"])
    classes = folder / "classes"
    source = Path(__file__).parent / "java/CommitTimes.java"
    subprocess.run(["javac", "-nowarn", "-proc:none", "-d", str(classes), "-cp", jars, str(source)], check=True, capture_output=True)
    command = ["java", "-cp", f"{classes}:{jars}", "CommitTimes", metastore.uri, folder.as_uri()]
    with (
        (folder / "java.log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder) as process,
        cast("IO[str]", process.stdin) as commands,  # its end ends Java
    ):
        yield JavaCommits(commands, cast("IO[str]", process.stdout))


def data_file(table: Any) -> DataFile:
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=table.location_provider().new_data_location(f"{time.monotonic_ns()}.parquet"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=10,
        file_size_in_bytes=1234,
        key_metadata=mint_file_key(SystemEntropy(), 16).closed(1234).encode(),  # type: ignore[arg-type]
    )
    made.spec_id = 0
    made.fresh = True  # as after writing rows: a file from elsewhere is looked for among those that are there
    return made


def appends(table: Any, count: int) -> list[float]:
    """Milliseconds of each commit; negative if it failed."""
    took = []
    for _ in range(count):
        file = data_file(table)
        start = time.perf_counter()
        made = True
        try:
            with table.transaction() as transaction, transaction.update_snapshot().merge_append() as append:
                append.append_data_file(file)
        except CommitFailedException:
            made = False
        milliseconds = (time.perf_counter() - start) * 1000
        took.append(milliseconds if made else -milliseconds)
    return took


def catalogs(stack: ExitStack, metastore: Metastore, folder: Path) -> dict[str, Any]:
    hive = catalog_properties(metastore.uri, folder)
    sql = {key: value for key, value in hive.items() if key not in {"type", "uri"}}
    server = stack.enter_context(Postgres(fsync="on"))
    return {
        "icelock, sqlite": icelock.load_catalog("sqlite", **{**sql, "type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}),
        "icelock, PostgreSQL": icelock.load_catalog("pg", **{**sql, "type": "sql", "uri": server.uri()}),
        HIVE: icelock.load_catalog("hive", **hive),
    }


def commit_times(ours: dict[str, Any], java: JavaCommits, at: list[int], commits: int) -> dict[str, dict[int, list[float]]]:
    """Milliseconds by writer and number of snapshots."""
    tables = {who: catalog.create_table(f"bench.{catalog.name}_commits", SCHEMA, properties=KEYED) for who, catalog in ours.items()}
    run: dict[str, Any] = {who: lambda count, table=table: appends(table, count) for who, table in tables.items()}
    run[JAVA] = lambda count: java.ask(f"append bench.java_commits {count}")
    java.ask("append bench.java_warm 30")
    for catalog in ours.values():
        appends(catalog.create_table(f"bench.{catalog.name}_warm", SCHEMA, properties=KEYED), 30)
    times: dict[str, dict[int, list[float]]] = {who: {} for who in run}
    there = 0
    for number in at:
        for commit in run.values():
            commit(number - there)
        there = number
        took: dict[str, list[float]] = {who: [] for who in run}
        for _ in range(0, commits, TURN):
            for who, commit in run.items():
                took[who] += commit(TURN)
            there += TURN
        for who, found in took.items():
            times[who][number] = found
    return times


def races(catalog: Any, java: JavaCommits, count: int) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {HIVE: [], JAVA: []}
    for number in range(count):
        name = f"bench.race_{number}"
        catalog.create_table(name, SCHEMA, properties=KEYED)
        with ThreadPoolExecutor(THREADS) as pool:
            parts = list(pool.map(lambda _, name=name: appends(catalog.load_table(name), EACH), range(THREADS)))
        found[HIVE].append([took for part in parts for took in part])
        found[JAVA].append(java.ask(f"race bench.java_race_{number} {THREADS} {EACH}"))
    return found


def shown_times(times: dict[str, dict[int, list[float]]]) -> Table:
    out = Table(title="ms a commit, min and median; ratio of medians to Java's")
    for column in ("snapshots", *times):
        out.add_column(column, justify="right")
    for number in next(iter(times.values())):
        base = statistics.median(times[JAVA][number])
        cells = [
            f"{min(found[number]):.0f} / {statistics.median(found[number]):.0f}"
            + ("" if who == JAVA else f"  {statistics.median(found[number]) / base:.2f}")
            for who, found in times.items()
        ]
        out.add_row(str(number), *cells)
    return out


def shown_races(found: dict[str, list[list[float]]]) -> Table:
    out = Table(title=f"{THREADS} threads x {EACH} appends through Hive, default settings, one column a race")
    for column in ("", *(str(number + 1) for number in range(len(found[JAVA])))):
        out.add_column(column, justify="right")
    for who, runs in found.items():
        out.add_row(who, *(f"{sum(t > 0 for t in run)} of {len(run)}, slowest {max(map(abs, run)) / 1000:.1f} s" for run in runs))
    return out


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--at", default="1,50,200", show_default=True, help="Numbers of snapshots.")
@click.option(
    "--commits", default=20, show_default=True, type=click.IntRange(min=TURN), help="Commits that are timed at each, in turns of ten."
)
@click.option("--races", "race_count", default=3, show_default=True, type=click.IntRange(min=1), help="Races of each.")
def main(*, as_json: bool, at: str, commits: int, race_count: int) -> None:
    """Time commits beside Java Iceberg."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        metastore = stack.enter_context(Metastore(warehouse=folder))
        ours = catalogs(stack, metastore, folder)
        for who, catalog in ours.items():
            catalog.create_namespace("bench", {} if who != HIVE else {"location": f"{folder.as_uri()}/bench.db"})
        java = stack.enter_context(java_commits(metastore, folder))
        times = commit_times(ours, java, [int(number) for number in at.split(",")], commits)
        raced = races(ours[HIVE], java, race_count)
        for catalog in ours.values():
            catalog.close()
    if as_json:
        click.echo(json.dumps({"commits_ms": times, "races_ms": raced}, indent=2))
    else:
        console = Console(width=160)
        console.print(shown_times(times))
        console.print(shown_races(raced))


if __name__ == "__main__":
    main()
