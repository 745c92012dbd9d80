"""How long compaction of encrypted tables takes: icelock's procedure beside Java Iceberg 1.12.0's, in one session on one metastore.

Each engine on its own copy of the same table, written by Java in many files; after each run the table is rolled back, untimed. Wall time is
min and median; CPU time (JVM, Python workers, this process) is the median. Rows and sums are compared after each run.

    python benchmarks/compact_vs_java.py [--rows 5000000] [--files 400] [--rounds 3] [--warm 1] [--case bin-pack ...] [--json]

Needs what the interop tests need: a JDK and, once, Maven.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

import bench_pairs  # noqa: E402 - found through the path above
from bench_pairs import Line  # noqa: E402
from bench_runs import Clock, Times, Way, by_turns  # noqa: E402
from bench_tables import Tables, base_frame  # noqa: E402

from tests.interop.session import DATABASE, interop_session  # noqa: E402

ENGINES: Final = {"Java": "ice", "icelock": "ours"}
FILES_AFTER: Final = 4
CASES: Final = {
    "bin-pack": ("as they are", "", False),
    "sort": ("sorted by a text and a number", ", strategy => 'sort', sort_order => 's1, id'", False),
    "z-order": ("in Z-order of two numbers", ", strategy => 'sort', sort_order => 'zorder(d1, d2)'", False),
    "deletes": ("a tenth deleted by vectors", "", True),
}


class Compactions:
    """The cases on tables of a number of rows and files."""

    def __init__(self, tables: Tables, files: int, rounds: int, warm: int) -> None:
        self._tables = tables
        self._spark = tables.spark
        self._files = files
        self._rounds = rounds
        self._warm = warm
        self._clock = Clock(self._spark)

    def run(self, names: tuple[str, ...]) -> Iterator[Line]:
        for deleted in (False, True):
            wanted = [name for name in names if CASES[name][2] == deleted]
            if not wanted:
                continue
            made = {engine: self._make(f"{engine.lower()}_{'deleted' if deleted else 'whole'}", deleted=deleted) for engine in ENGINES}
            for name in wanted:
                yield f"{self._files} files to {FILES_AFTER}, {CASES[name][0]}", self._compacted(made, CASES[name][1])
            for table in made.values():
                self._tables.drop(table)

    def _make(self, name: str, *, deleted: bool) -> str:
        frame = base_frame(self._spark, self._tables.rows)
        self._tables.create(name, frame, encrypted=True, more={"write.delete.mode": "merge-on-read", "write.distribution-mode": "none"})
        frame.repartition(self._files).writeTo(f"ice.{DATABASE}.{name}").append()
        if deleted:
            self._spark.sql(f"DELETE FROM ice.{DATABASE}.{name} WHERE pmod(xxhash64(id), 10) = 0")  # noqa: S608
        return name

    def _compacted(self, made: dict[str, str], more: str) -> dict[str, Times]:
        size = self._spark.sql(f"SELECT sum(file_size_in_bytes) FROM ice.{DATABASE}.{next(iter(made.values()))}.data_files").first()[0]  # noqa: S608
        target = int(size * 1.02) // FILES_AFTER
        options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{target}', 'min-file-size-bytes', '{target // 2}')"

        def way(engine: str, table: str) -> Way:
            whole = f"ice.{DATABASE}.{table}"
            base = self._spark.sql(f"SELECT snapshot_id FROM {whole}.refs").first()[0]  # noqa: S608
            call = f"CALL {ENGINES[engine]}.system.rewrite_data_files(table => '{DATABASE}.{table}', options => {options}{more})"

            def check_and_roll_back() -> None:
                files = self._spark.sql(f"SELECT count(*) FROM {whole}.data_files").first()[0]  # noqa: S608
                told.setdefault(engine, (files, *self._spark.sql(f"SELECT count(*), sum(id), count(distinct s1) FROM {whole}").first()))  # noqa: S608
                self._spark.sql(f"CALL ice.system.rollback_to_snapshot('{DATABASE}.{table}', {base})")

            return Way(name=engine, run=lambda: _done(self._spark.sql(call).collect()), after=check_and_roll_back)

        told: dict[str, tuple[Any, ...]] = {}
        found = by_turns(self._clock, [way(*item) for item in made.items()], rounds=self._rounds, warm=self._warm)
        click.echo(f"        files, rows, sum: {told}", err=True)
        if len({answer[1:] for answer in told.values()}) != 1:
            msg = f"the engines leave different rows: {told}"
            raise click.ClickException(msg)
        return found


def _done(_rows: Any) -> None:
    """Have no answer: the engines' counts of bytes differ."""


def measured(  # noqa: PLR0913 - what is asked for
    place: Path, names: tuple[str, ...], *, rows: int, files: int, rounds: int, warm: int
) -> list[Line]:
    """Run the cases; progress goes to stderr."""
    start, found = time.monotonic(), []
    with interop_session(place) as session:
        for line in Compactions(Tables(session, rows), files, rounds, warm).run(names):
            found.append(line)
            click.echo(f"{time.monotonic() - start:4.0f} s  {line[0]}", err=True)
    return found


@click.command()
@click.option("--rows", default=5_000_000, show_default=True, type=click.IntRange(min=1000), help="Rows of the table.")
@click.option("--files", default=400, show_default=True, type=click.IntRange(min=2), help="Files of the table.")
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="Only this case; may be given again.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds that count.")
@click.option("--warm", default=1, show_default=True, type=click.IntRange(min=0), help="Rounds before, that do not.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(*, rows: int, files: int, cases: tuple[str, ...], rounds: int, warm: int, as_json: bool) -> None:  # noqa: PLR0913
    """Time compaction of encrypted tables beside Java Iceberg."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = measured(Path(scratch).resolve(), cases or tuple(CASES), rows=rows, files=files, rounds=rounds, warm=warm)
    if as_json:
        click.echo(bench_pairs.as_json(lines))
    else:
        bench_pairs.show(lines, title=f"{rows:,} rows; ")


if __name__ == "__main__":
    main()
