"""How long Spark's statements take on encrypted tables: icelock beside Java Iceberg 1.12.0, in one session on one metastore.

Changes of rows (UPDATE, MERGE, DELETE, INSERT, CREATE TABLE AS), each engine on its own copy of the same table, copy-on-write and
merge-on-read; after each run the table is rolled back, untimed. Reads by ``spark.sql`` beside ``icelock.spark.read`` on one table. And what
the first statement of a session takes, each time in a session of its own: until the session is there, ``register`` (icelock), the first
count, the first INSERT and the first UPDATE.

Engines take turns, each round in another order. Wall time is min and median; CPU time (JVM, Python workers, this process) is the median
and hardly depends on what else the machine does. Answers and the numbers of rows after each statement are compared.

    python benchmarks/sql_vs_java.py [--rows 5000000] [--rounds 5] [--warm 1] [--case update ...] [--json]

Needs what the interop tests need: a JDK and, once, Maven.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

import bench_pairs  # noqa: E402 - found through the path above
from bench_pairs import Line, figures  # noqa: E402
from bench_runs import Clock, Times, Way, by_turns  # noqa: E402
from bench_tables import Tables, base_frame  # noqa: E402

import icelock.spark  # noqa: E402
from tests.helpers.spark import session as spark_session  # noqa: E402
from tests.interop.session import DATABASE, catalog_properties, interop_session, java_settings  # noqa: E402

JAVA, OURS = "Java", "icelock"
ENGINES: Final = {JAVA: "ice", OURS: "ours"}
MODES: Final = ("copy-on-write", "merge-on-read")
_SOURCE: Final = "changes"
_RESULT: Final = "first statements: "
CHANGES: Final = {
    "update": ("UPDATE of 1 %", "UPDATE {t} SET d1 = d1 + 1 WHERE id % 100 = 7"),
    "merge": (
        "MERGE of 50,000 rows, a tenth new",
        "MERGE INTO {t} t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET d1 = s.d1 WHEN NOT MATCHED THEN INSERT *",
    ),
    "delete": ("DELETE by a filter, 1 %", "DELETE FROM {t} WHERE d1 < 0.01"),
    "delete-subquery": ("DELETE by a subquery, 45,000 rows", "DELETE FROM {t} WHERE id IN (SELECT id FROM changes)"),
}
ONCE: Final = {
    "insert": ("INSERT of one row", "INSERT INTO {t} SELECT * FROM changes LIMIT 1"),
    "ctas": ("CREATE TABLE AS SELECT, all rows", "CREATE TABLE {new} USING iceberg TBLPROPERTIES ({key}) AS SELECT * FROM {t}"),
}
READS: Final = {"read-sum": "sum of one column", "read-group": "filter, group by", "read-all": "sums and greatest of all columns"}
_READ_ROUNDS: Final = 8  # for each round of changes: the difference is a few ms
FIRST: Final = "first"
NAMES: Final = (*CHANGES, *ONCE, *READS, FIRST)
_KEY: Final = "'encryption.key-id' = 'keyA', 'format-version' = '3'"


class Statements:
    """The cases on tables of a number of rows."""

    def __init__(self, tables: Tables, rounds: int, warm: int) -> None:
        self._tables = tables
        self._spark = tables.spark
        self._rounds = rounds
        self._warm = warm
        self._clock = Clock(self._spark)
        rows = tables.rows
        changed = self._spark.range(0, min(45_000, rows), 1, 1).selectExpr(f"id * {max(1, rows // 45_000)} AS id")
        ids = changed.unionAll(self._spark.range(rows, rows + 5_000, 1, 1))
        made = base_frame(self._spark, 1).drop("id").limit(1)
        ids.crossJoin(made).coalesce(1).cache().createOrReplaceTempView(_SOURCE)
        self._spark.table(_SOURCE).count()

    def run(self, names: tuple[str, ...]) -> Iterator[Line]:
        for mode in MODES:
            if not set(names) & {*CHANGES, *ONCE, *READS}:
                return
            made = {engine: self._make(engine, mode) for engine in ENGINES}
            for name in (name for name in names if name in CHANGES):
                what, statement = CHANGES[name]
                yield f"{what}, {mode}", self._changed(made, statement)
            if mode == MODES[0]:
                yield from self._of_any_mode(made, names)
            for table in made.values():
                self._tables.drop(table)

    def _of_any_mode(self, made: dict[str, str], names: tuple[str, ...]) -> Iterator[Line]:
        if "insert" in names:
            yield ONCE["insert"][0], self._changed(made, ONCE["insert"][1])
        if "ctas" in names:
            yield ONCE["ctas"][0], self._created(made)
        for name in (name for name in names if name in READS):
            yield READS[name], self._read(made[OURS], name)

    def _make(self, engine: str, mode: str) -> str:
        """Return a table with the rows of ``base_frame``, written by Java, which both engines can change."""
        name = f"{engine.lower()}_{mode.replace('-', '_')}"
        modes = dict.fromkeys(("write.delete.mode", "write.update.mode", "write.merge.mode"), mode)
        frame = base_frame(self._spark, self._tables.rows)
        self._tables.create(name, frame, encrypted=True, more=modes)
        frame.writeTo(f"ice.{DATABASE}.{name}").append()
        return name

    def _changed(self, made: dict[str, str], statement: str) -> dict[str, Times]:
        def way(engine: str, table: str) -> Way:
            name = f"{ENGINES[engine]}.{DATABASE}.{table}"
            base = self._spark.sql(f"SELECT snapshot_id FROM ice.{DATABASE}.{table}.refs").first()[0]  # noqa: S608

            def check_and_roll_back() -> None:
                counts.setdefault(engine, self._spark.table(f"ice.{DATABASE}.{table}").count())
                self._spark.sql(f"CALL ice.system.rollback_to_snapshot('{DATABASE}.{table}', {base})")

            return Way(name=engine, run=lambda: _done(self._spark.sql(statement.format(t=name))), after=check_and_roll_back)

        counts: dict[str, int] = {}
        found = by_turns(self._clock, [way(*item) for item in made.items()], rounds=self._rounds, warm=self._warm)
        if len(set(counts.values())) != 1:
            msg = f"{statement}: the engines leave different numbers of rows: {counts}"
            raise click.ClickException(msg)
        return found

    def _created(self, made: dict[str, str]) -> dict[str, Times]:
        def way(engine: str, table: str) -> Way:
            catalog = f"{ENGINES[engine]}.{DATABASE}"
            statement = ONCE["ctas"][1].format(new=f"{catalog}.made", key=_KEY, t=f"{catalog}.{table}")
            return Way(name=engine, run=lambda: _done(self._spark.sql(statement)), after=lambda: self._tables.drop("made"))

        return by_turns(self._clock, [way(*item) for item in made.items()], rounds=self._rounds, warm=self._warm)

    def _read(self, table: str, name: str) -> dict[str, Times]:
        full = f"ours.{DATABASE}.{table}"
        queries: dict[str, Callable[[Any], Any]] = {
            "read-sum": lambda rows: rows.selectExpr("sum(d1)"),
            "read-group": lambda rows: rows.where("d1 < 0.25").groupBy("s1").agg({"d2": "sum"}).orderBy("s1"),
            "read-all": lambda rows: rows.selectExpr(*(f"sum({name})" for name in ("id", "d1", "d2", "d3", "d4")), "max(s1)", "max(s2)"),
        }
        query = queries[name]
        ways = [
            Way(name="read", run=lambda: query(icelock.spark.read(self._spark, full)).collect()),
            Way(name="spark.table", run=lambda: query(self._spark.table(full)).collect()),
        ]
        return by_turns(self._clock, ways, rounds=_READ_ROUNDS * self._rounds, warm=_READ_ROUNDS * self._warm)


def _done(_rows: Any) -> None:
    """Have no answer: Spark's statements that change rows return nothing, and some of Java's count."""


def first_statements(folder: Path, uri: str, engine: str, table: str) -> dict[str, tuple[float, float]]:
    """Return seconds and CPU seconds until each step of a new session was done, in a new process."""
    start, found = time.perf_counter(), {}
    spark = spark_session({"spark.sql.warehouse.dir": f"{folder}/spark", **(java_settings(folder, uri) if engine == JAVA else {})})
    clock = Clock(spark)

    def step(name: str, run: Callable[[], Any]) -> None:
        run()
        used = clock.used()
        ticks = sum(used.own.values()) + sum(used.children.values())
        found[name] = (time.perf_counter() - start, ticks / os.sysconf("SC_CLK_TCK") + used.here)

    name = f"{ENGINES[engine]}.{DATABASE}.{table}"
    step("session", lambda: None)
    if engine == OURS:
        step("register", lambda: icelock.spark.register(spark, {"ours": catalog_properties(uri, folder)}))
    step("count", lambda: spark.sql(f"SELECT count(*), sum(d1) FROM {name}").collect())  # noqa: S608
    step("insert", lambda: spark.sql(f"INSERT INTO {name} SELECT * FROM {name} LIMIT 1"))  # noqa: S608
    step("update", lambda: spark.sql(f"UPDATE {name} SET d1 = 0 WHERE id = 7"))  # noqa: S608
    spark.stop()
    return found


def _first(place: Path, uri: str, rounds: int) -> dict[str, dict[str, Times]]:
    """Return the times of first statements by step and engine; each round is a process of its own."""
    found: dict[str, dict[str, Times]] = {}
    for number in range(rounds + 1):  # the first round puts files into the system's cache, and does not count
        for engine in list(ENGINES) if number % 2 else list(ENGINES)[::-1]:
            command = [sys.executable, __file__, "--one", json.dumps([str(place), uri, engine, f"first_{engine.lower()}"])]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            line = next(line for line in told.splitlines() if line.startswith(_RESULT))
            for step, (wall, cpu) in json.loads(line.removeprefix(_RESULT)).items() if number else ():
                times = found.setdefault(step, {}).setdefault(engine, Times())
                times.wall.append(wall)
                times.cpu.append(cpu)
    return found


def measured(place: Path, names: tuple[str, ...], *, rows: int, rounds: int, warm: int) -> list[Line]:
    """Run the cases; progress goes to stderr."""
    start, found = time.monotonic(), []
    with interop_session(place) as session:
        tables = Tables(session, rows)

        def told(line: Line) -> None:
            found.append(line)
            click.echo(f"{time.monotonic() - start:4.0f} s  {line[0]}", err=True)

        for line in Statements(tables, rounds, warm).run(names):
            told(line)
        if FIRST in names:
            for engine in ENGINES:
                frame = base_frame(session.spark, 10_000)
                tables.create(f"first_{engine.lower()}", frame, encrypted=True)
                frame.coalesce(1).writeTo(f"ice.{DATABASE}.first_{engine.lower()}").append()
            for step, times in _first(place, session.uri, rounds).items():
                told((f"a new session, until: {step}", times))
    return found


def _line(what: str, times: dict[str, Times]) -> list[str]:
    names = list(times)
    if len(names) < 2:
        return [what, *(f"{name}: {figures(times[name])}" for name in names), "", ""]
    one, other = names
    ratios = (f"{figure(times[other]) / max(figure(times[one]), 1e-9):.2f}" for figure in (Times.best, Times.median, Times.median_cpu))
    return [what, f"{one}: {figures(times[one])}", f"{other}: {figures(times[other])}", " / ".join(ratios)]


@click.command()
@click.option("--rows", default=5_000_000, show_default=True, type=click.IntRange(min=1000), help="Rows of the table that is changed.")
@click.option("--case", "cases", multiple=True, type=click.Choice(NAMES), help="Only this case; may be given again.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Rounds that count.")
@click.option("--warm", default=1, show_default=True, type=click.IntRange(min=0), help="Rounds before, that do not.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--one", hidden=True)
def main(*, rows: int, cases: tuple[str, ...], rounds: int, warm: int, as_json: bool, one: str | None) -> None:  # noqa: PLR0913
    """Time Spark's statements on encrypted tables beside Java Iceberg."""
    if one is not None:
        folder, uri, engine, table = json.loads(one)
        click.echo(_RESULT + json.dumps(first_statements(Path(folder), uri, engine, table)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        lines = measured(Path(scratch).resolve(), cases or NAMES, rows=rows, rounds=rounds, warm=warm)
    if as_json:
        click.echo(bench_pairs.as_json(lines))
        return
    table = Table(title=f"{rows:,} rows; s: min / median, CPU; ratio: min / median / CPU")
    for head in ("", "", "", "second ÷ first"):
        table.add_column(head)
    for line in lines:
        table.add_row(*_line(*line))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
