"""How long a conversion takes, and how long it makes others wait.

``convert``: a plain table of Java's becomes an encrypted one by icelock's tasks, beside Java Iceberg 1.12.0's CREATE TABLE AS SELECT of
the same rows into an encrypted table, in one session on one metastore; undone, or dropped, after each run, untimed. Wall time is the
minimum; CPU time (JVM, Python workers, this process) is the median. Rows and sums are compared after each run.

``switch``: processes that append a row again and again to a plain table of a SQL catalog, while it is converted: their usual commit
(median, from before the conversion), the longest one of theirs that went on during the switch, and for how long that held the table's turn.

    python benchmarks/convert_vs_java.py [--rows 5000000] [--files 40] [--rounds 3] [--warm 1] [--case convert|switch] [--writers 8]

``convert`` needs what the interop tests need: a JDK and, once, Maven.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click
from pyiceberg.catalog import load_catalog

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

from bench_runs import Clock, Way, by_turns  # noqa: E402 - found through the path above
from bench_tables import Tables, base_frame  # noqa: E402

import icelock.spark  # noqa: E402
from icelock.maintenance import convert, undo_conversion  # noqa: E402
from tests.interop.session import DATABASE, interop_session  # noqa: E402
from tests.lakes.sqlite import TestLake, people  # noqa: E402

CASES: Final = ("convert", "switch")
_ALONE: Final = 10  # commits of each writer before the conversion


def converted(place: Path, *, rows: int, files: int, rounds: int, warm: int) -> dict[str, Any]:
    """Return the seconds of each engine."""
    with interop_session(place) as session:
        tables = Tables(session, rows)
        spark, frame = session.spark, base_frame(session.spark, rows)
        tables.create("plain", frame, encrypted=False, more={"write.distribution-mode": "none"})
        frame.repartition(files).writeTo(f"ice.{DATABASE}.plain").append()
        properties = "'format-version' = '3', 'encryption.key-id' = 'keyA', 'write.distribution-mode' = 'none'"
        ctas = f"CREATE TABLE ice.{DATABASE}.copy USING iceberg TBLPROPERTIES ({properties}) AS SELECT * FROM ice.{DATABASE}.plain"  # noqa: S608
        told: dict[str, Any] = {}

        def told_of(engine: str, table: str) -> None:
            whole = f"ice.{DATABASE}.{table}"
            spark.sql(f"REFRESH TABLE {whole}")
            told.setdefault(engine, tuple(spark.sql(f"SELECT count(*), sum(id), count(distinct s1) FROM {whole}").first()))  # noqa: S608

        def drop_copy() -> None:
            told_of("Java", "copy")
            tables.drop("copy")

        def undo() -> None:
            told_of("icelock", "plain")
            undo_conversion(tables.catalog.load_table((DATABASE, "plain")))
            spark.sql(f"REFRESH TABLE ice.{DATABASE}.plain")

        def convert_by_tasks() -> None:
            icelock.spark.convert(spark, f"ours.{DATABASE}.plain", key_id="keyA")

        ways = [
            Way(name="Java", run=lambda: _done(spark.sql(ctas).collect()), after=drop_copy),
            Way(name="icelock", run=convert_by_tasks, after=undo),
        ]
        found = by_turns(Clock(spark), ways, rounds=rounds, warm=warm)
    if len(set(told.values())) != 1:
        raise click.ClickException(f"the engines leave different rows: {told}")
    return {name: {"wall_s": times.wall, "cpu_s": times.cpu} for name, times in found.items()}


def _done(_rows: Any) -> None:
    """Have no answer."""


def append_rows(properties: dict[str, str], number: int, told: Any) -> None:
    """Append rows until the table is encrypted; tell when each commit began and ended, by the machine's clock."""
    catalog, row = load_catalog("test", type="sql", **properties), 1_000_000 * number
    while True:
        begun = time.monotonic()
        try:
            table = catalog.load_table("db.t")
            if table.metadata.format_version == 3:
                return
            table.append(people(row, 1))
        except Exception:  # noqa: BLE001 - it lost, or met the encrypted table
            told.put((begun, time.monotonic(), False))
        else:
            told.put((begun, time.monotonic(), True))
        row += 1


def switched(place: Path, *, rows: int, files: int, writers: int) -> dict[str, float]:
    """Return seconds: an ordinary commit of a writer, the longest at the switch, and the switch's turn."""
    lake = TestLake.with_namespace(place)
    made = lake.catalog(**{"icelock.plain-tables": "db.t"}).create_table("db.t", people().schema, properties={"icelock.plain": "true"})
    for number in range(files):
        made.append(people(number * (rows // files), rows // files))
    plain = {name: lake.properties()[name] for name in ("uri", "warehouse")}
    spawn = multiprocessing.get_context("spawn")
    told: Any = spawn.Queue()
    working = [spawn.Process(target=append_rows, args=(plain, number, told)) for number in range(1, writers + 1)]
    for process in working:
        process.start()
    commits = [told.get() for _ in range(_ALONE * writers)]
    begun = time.monotonic()
    done = convert(lake.catalog().load_table("db.t"), key_id="keyA")
    ended = time.monotonic()
    while any(process.is_alive() for process in working) or not told.empty():
        while not told.empty():
            commits.append(told.get())
        time.sleep(0.05)
    ordinary = statistics.median(end - start for start, end, made_it in commits if made_it and end < begun)
    during = [end - start for start, end, _ in commits if start < ended and end > ended - done.turn_seconds]
    return {"ordinary_commit_s": ordinary, "longest_at_switch_s": max(during, default=0.0), "turn_s": done.turn_seconds}


@click.command()
@click.option(
    "--rows", default=5_000_000, show_default=True, type=click.IntRange(min=1000), help="Rows of the table (switch: a hundredth)."
)
@click.option("--files", default=40, show_default=True, type=click.IntRange(min=1), help="Files of the table.")
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES), help="Only this case; may be given again.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds that count.")
@click.option("--warm", default=1, show_default=True, type=click.IntRange(min=0), help="Rounds before, that do not.")
@click.option("--writers", default=8, show_default=True, type=click.IntRange(min=1), help="Processes at work at the switch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(  # noqa: PLR0913 - click's signature
    *, rows: int, files: int, cases: tuple[str, ...], rounds: int, warm: int, writers: int, as_json: bool
) -> None:
    """Time a conversion beside Java's CREATE TABLE AS SELECT, and what others wait for it."""
    found: dict[str, Any] = {}
    for case in cases or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch).resolve()
            if case == "convert":
                found[case] = converted(place, rows=rows, files=files, rounds=rounds, warm=warm)
            else:
                found[case] = switched(place, rows=rows // 100, files=files, writers=writers)
    if as_json:
        click.echo(json.dumps(found))
        return
    if "convert" in found:
        best, cpu = ({name: of(times[kind]) for name, times in found["convert"].items()} for of, kind in _FIGURES)
        click.echo(f"{rows:,} rows in {files} files; wall s (min): {best}, CPU s (median): {cpu}")
        click.echo(f"icelock / Java: {best['icelock'] / best['Java']:.2f} wall, {cpu['icelock'] / cpu['Java']:.2f} CPU")
    if "switch" in found:
        figures = found["switch"]
        click.echo(f"{writers} writers: {', '.join(f'{name} {seconds:.3f}' for name, seconds in figures.items())}")
        click.echo(f"longest / ordinary: {figures['longest_at_switch_s'] / figures['ordinary_commit_s']:.1f}")


_FIGURES: Final = ((min, "wall_s"), (statistics.median, "cpu_s"))

if __name__ == "__main__":
    main()
