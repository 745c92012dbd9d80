"""How fast Spark reads and writes encrypted tables: icelock beside Java Iceberg 1.12.0, in one session on the same files.

Reading: Java Iceberg on the encrypted table and on a plain copy; icelock's native scan (``icelock.spark.read``) and its Python data source
on the same encrypted table; our own path on the plain copy (Spark's Parquet reader where icelock refuses plain tables). Tables are
written by Java, and the main cases run over one of icelock's too. Before a table is timed all engines must give the same rows, and
every answer is compared. Engines take turns, each round in another order; garbage is collected before a run, untimed.

Wall time is min and median. CPU time is that of the JVM, its Python workers and this process, without the metastore's: it hardly depends
on what else the machine does. Rows are pseudo random numbers and texts of ``spark.range``, zstd.

    python benchmarks/spark_vs_java.py [--rows 5000000] [--case full ...] [--rounds 5] [--warm 1] [--keep DIR] [--json]
                                      [--markdown docs/performance.md]

Above 10 million rows only the large cases run unless ``--case`` says otherwise. Needs what the interop tests need: a JDK and, once, Maven.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

from bench_cases import LARGE, NAMES, Setup, has_native, read_rows, write_rows  # noqa: E402 - found through the path above
from bench_report import Report, machine, markers  # noqa: E402
from bench_runs import Clock  # noqa: E402
from bench_tables import Tables  # noqa: E402

from tests.interop.session import interop_session  # noqa: E402

ALL_UP_TO = 10_000_000


def measured(place: Path, names: tuple[str, ...], *, rows: int, rounds: int, warm: int) -> Report:
    """Run the cases; progress goes to stderr."""
    start, before = time.monotonic(), os.getloadavg()[0]
    with interop_session(place) as session:
        if not has_native():
            click.echo("this icelock has no native scan (icelock.spark.read): its columns are left out", err=True)
        setup = Setup(tables=Tables(session, rows), clock=Clock(session.spark), rounds=rounds, warm=warm)
        found = []
        for run in (read_rows, write_rows):
            for row in run(setup, names):
                found.append(row)
                click.echo(f"{time.monotonic() - start:4.0f} s  {row.case}  {row.files}", err=True)
        facts = machine(session.spark)
    return Report(rows=rows, cases=found, machine=facts, load=(before, os.getloadavg()[0]), seconds=time.monotonic() - start)


@click.command()
@click.option("--rows", default=5_000_000, show_default=True, type=click.IntRange(min=100), help="Rows of the main table.")
@click.option("--case", "cases", multiple=True, type=click.Choice(NAMES), help="Only this case; may be given again.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Rounds that count.")
@click.option(
    "--warm",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Rounds before, that do not; six times as many for tables of one row.",
)
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="A folder where the tables are kept and found again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="A page to put the tables into as well.")
def main(*, rows: int, cases: tuple[str, ...], rounds: int, warm: int, keep: Path | None, as_json: bool, markdown: Path | None) -> None:  # noqa: PLR0913
    """Time Spark on encrypted tables beside Java Iceberg."""
    names = cases or (NAMES if rows <= ALL_UP_TO else LARGE)
    if markdown is not None:
        markers(markdown, rows)
    with tempfile.TemporaryDirectory() as scratch:
        place = (keep or Path(scratch)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        report = measured(place, names, rows=rows, rounds=rounds, warm=warm)
    if markdown is not None:
        report.into_page(markdown)
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        report.show()


if __name__ == "__main__":
    main()
