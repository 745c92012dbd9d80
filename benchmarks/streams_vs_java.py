"""How long streams of encrypted tables take: icelock beside Java Iceberg 1.12.0, in one session on one metastore.

    out        a batch out of a table: 1,000 rows, one file, to Spark's sink that keeps nothing
    into       a batch into a table: 1,000 rows of a Parquet file
    catch-up   all rows of a table of many snapshots, in one batch
    changes    the changelog of a table of which a fifth (a million rows) was changed by three statements, counted by kind

Engines take turns, each round in another order. Of ``out`` and ``into`` a figure is the median batch of one query (Spark's
``triggerExecution``; the first ten are left out), and CPU seconds are those of the whole query divided by its batches. Rows are counted.

    python benchmarks/streams_vs_java.py [--rounds 3] [--warm 1] [--batches 60] [--changed 1000000] [--case out ...] [--json]

Needs what the interop tests need: a JDK and, once, Maven.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

import bench_pairs  # noqa: E402 - found through the path above
from bench_pairs import Line  # noqa: E402
from bench_runs import Clock, Times, Way, by_turns  # noqa: E402

import icelock  # noqa: E402
from tests.interop.session import DATABASE, Session, interop_session  # noqa: E402

ENGINES: Final = {"Java": "ice", "icelock": "ours"}
CASES: Final = ("out", "into", "catch-up", "changes")
_ROWS: Final = 1_000
_SNAPSHOTS: Final = 200
_ROWS_OF_ALL: Final = 5_000_000
_CHANGED: Final = 1_000_000
_COLD: Final = 10
_DIGITS: Final = 3  # batches take less than a second
_PROPERTIES: Final = {"format-version": "3", "encryption.key-id": "keyA", "commit.manifest-merge.enabled": "false"}
_COLUMNS: Final = "id BIGINT, d1 DOUBLE, s1 STRING"


def rows(first: int, number: int) -> pa.Table:
    """Return rows with ids from ``first`` on."""
    ids = range(first, first + number)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "d1": [number / 7 for number in ids], "s1": [f"name {number % 10_000}" for number in ids]}
    )


class Streams:
    """The cases."""

    def __init__(self, session: Session, place: Path, *, rounds: int, warm: int, batches: int, changed: int) -> None:  # noqa: PLR0913
        self._spark = session.spark
        self._catalog = icelock.load_catalog("ours", **session.properties)
        self._place = place
        self._rounds = rounds
        self._warm = warm
        self._batches = batches
        self._changed = changed
        self._clock = Clock(self._spark)
        self._names = count()
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + _SNAPSHOTS))
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")

    def run(self, names: tuple[str, ...]) -> Iterator[Line]:
        cases: dict[str, Callable[[], Line]] = {"out": self._out, "into": self._into, "catch-up": self._caught_up, "changes": self._changes}
        for name in (name for name in CASES if name in names):
            yield cases[name]()

    def _create(self, name: str) -> str:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
        self._spark.sql(f"CREATE TABLE ice.{DATABASE}.{name} ({_COLUMNS}) USING iceberg TBLPROPERTIES ({listed})")
        return name

    def _filled(self, name: str, snapshots: int, each: int) -> str:
        table = self._catalog.load_table(f"{DATABASE}.{self._create(name)}")
        for number in range(snapshots):
            table.append(rows(number * each, each))
        return name

    def _out(self) -> Line:
        table = self._filled("out", self._batches, _ROWS)

        def query(catalog: str) -> Any:
            read = self._spark.readStream.option("streaming-max-files-per-micro-batch", "1").table(f"{catalog}.{DATABASE}.{table}")
            return read.writeStream.format("noop")

        return f"a batch of {_ROWS:,} rows out of a table", self._by_batch(query, lambda _catalog: self._batches * _ROWS)

    def _into(self) -> Line:
        source = self._place / "files"
        source.mkdir()
        for number in range(self._batches):
            pq.write_table(rows(number * _ROWS, _ROWS), source / f"{number:05}.parquet")
        made: dict[str, str] = {}

        def query(catalog: str) -> Any:
            made[catalog] = self._create(f"into_{catalog}_{next(self._names)}")
            return self._spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", "1").parquet(str(source)).writeStream

        def started(writer: Any, catalog: str) -> Any:
            return writer.toTable(f"{catalog}.{DATABASE}.{made[catalog]}")

        def there(catalog: str) -> int:
            return int(self._spark.table(f"ice.{DATABASE}.{made[catalog]}").count())

        return f"a batch of {_ROWS:,} rows into a table", self._by_batch(query, there, started)

    def _by_batch(
        self,
        query: Callable[[str], Any],
        there: Callable[[str], int],
        started: Callable[[Any, str], Any] = lambda writer, _catalog: writer.start(),
    ) -> dict[str, Times]:
        found = {engine: Times() for engine in ENGINES}
        for number in range(self._warm + self._rounds):
            for engine in list(ENGINES) if number % 2 else list(ENGINES)[::-1]:
                catalog = ENGINES[engine]
                writer = query(catalog).option("checkpointLocation", str(self._place / f"checkpoint-{next(self._names)}"))
                self._clock.collect_garbage()
                before = self._clock.used()
                running = started(writer.trigger(availableNow=True), catalog)
                running.awaitTermination()
                cpu = self._clock.used().since(before)
                batches = [one for one in running.recentProgress if one["numInputRows"]]
                if sum(one["numInputRows"] for one in batches) != self._batches * _ROWS or there(catalog) != self._batches * _ROWS:
                    msg = f"{engine} lost rows, or had some twice"
                    raise click.ClickException(msg)
                if number >= self._warm:
                    found[engine].wall.append(statistics.median(one["durationMs"]["triggerExecution"] / 1000 for one in batches[_COLD:]))
                    found[engine].cpu.append(cpu / len(batches))
        return found

    def _caught_up(self) -> Line:
        table = self._filled("caught_up", _SNAPSHOTS, _ROWS_OF_ALL // _SNAPSHOTS)

        def way(engine: str, catalog: str) -> Way:
            def run() -> int:
                checkpoint = str(self._place / f"checkpoint-{next(self._names)}")
                read = self._spark.readStream.table(f"{catalog}.{DATABASE}.{table}")
                running = read.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
                running.awaitTermination()
                return sum(one["numInputRows"] for one in running.recentProgress)

            return Way(name=engine, run=run)

        ways = [way(*item) for item in ENGINES.items()]
        return f"{_ROWS_OF_ALL:,} rows of {_SNAPSHOTS} snapshots", by_turns(self._clock, ways, rounds=self._rounds, warm=self._warm)

    def _changes(self) -> Line:
        table, rows_there = self._create("changes"), 5 * self._changed
        name = f"ice.{DATABASE}.{table}"
        made = self._spark.range(0, rows_there, 1, 4).selectExpr("id", "id / 7 AS d1", "concat('name ', id % 10000) AS s1")
        made.writeTo(name).append()
        first = self._spark.sql(f"SELECT snapshot_id FROM {name}.refs").first()[0]  # noqa: S608
        self._spark.sql(f"UPDATE {name} SET d1 = d1 + 1 WHERE id % 10 = 7")  # noqa: S608
        self._spark.sql(f"DELETE FROM {name} WHERE id % 20 = 3")  # noqa: S608
        made.where(f"id < {rows_there // 20}").selectExpr(f"id + {rows_there} AS id", "d1", "s1").writeTo(name).append()

        def way(engine: str, catalog: str) -> Way:
            view = f"changes_{catalog}"
            call = f"""CALL {catalog}.system.create_changelog_view(table => '{DATABASE}.{table}', changelog_view => '{view}',
                options => map('start-snapshot-id', '{first}'), identifier_columns => array('id'))"""

            def run() -> Any:
                self._spark.sql(call).collect()
                return self._spark.sql(f"SELECT _change_type, count(*), sum(id) FROM {view} GROUP BY 1 ORDER BY 1").collect()  # noqa: S608

            return Way(name=engine, run=run)

        ways = [way(*item) for item in ENGINES.items()]
        found = by_turns(self._clock, ways, rounds=self._rounds, warm=self._warm)
        return f"changelog of {self._changed:,} changed rows of {rows_there:,}", found


def measured(place: Path, names: tuple[str, ...], **how: int) -> list[Line]:
    """Run the cases; progress goes to stderr."""
    start, found = time.monotonic(), []
    with interop_session(place) as session:
        for line in Streams(session, place, **how).run(names):
            found.append(line)
            bench_pairs.told(line, time.monotonic() - start, _DIGITS)
    return found


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds that count.")
@click.option("--warm", default=1, show_default=True, type=click.IntRange(min=0), help="Rounds before, that do not.")
@click.option("--batches", default=60, show_default=True, type=click.IntRange(min=_COLD + 1), help="Batches of a query.")
@click.option("--changed", default=_CHANGED, show_default=True, type=click.IntRange(min=20), help="Rows of the changelog.")
@click.option("--case", "cases", multiple=True, type=click.Choice(CASES), help="Only this case; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(*, cases: tuple[str, ...], as_json: bool, **how: int) -> None:
    """Time streams and changelogs of encrypted tables beside Java Iceberg."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = measured(Path(scratch).resolve(), cases or CASES, **how)
    if as_json:
        click.echo(bench_pairs.as_json(lines))
    else:
        bench_pairs.show(lines, digits=_DIGITS)


if __name__ == "__main__":
    main()
