"""What a delete, an upsert and an overwrite by a filter cost in a Spark session: the first, the second and later ones.

Each operation runs in a session of its own (another process, another JVM), on a table of its own: SQLite catalog, local disk, files of
zstd. Wall time, and CPU time of this process, the JVM and all Python processes that Spark starts, which hardly depends on what else the
machine does. A query has run before, so that starting the JVM does not count; ``register`` is a column of its own.

    python benchmarks/changes.py [--rows 1000000] [--files 8] [--runs 6] [--mode copy-on-write] [--case delete ...] [--json]
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
from pathlib import Path
from typing import Any, Final

import click

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks" / "spark"), str(ROOT)]

from bench_runs import Clock  # noqa: E402 - found through the path above

from tests.helpers.spark import session, spark_environment  # noqa: E402
from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402

TABLE: Final = "test.db.t"
_RESULT: Final = "changes: "
_KIND: Final = "id bigint, a double, b double, s string, t string"


def _rows(spark: Any, start: int, count: int, parts: int) -> Any:
    made = "id", "rand(7) a", "rand(8) b", "concat('s', id % 1000) s", "md5(cast(id as string)) t"
    return spark.range(start, start + count, 1, parts).selectExpr(*made)


def _cases(spark: Any, rows: int, files: int) -> dict[str, Callable[[int], Any]]:
    """Return what runs, by name; each takes the number of the run."""
    import icelock.spark  # noqa: PLC0415 - timed elsewhere

    each = rows // files

    def delete(run: int) -> Any:
        """Delete 100 rows of each file."""
        starts = (number * each + run * 100 for number in range(files))
        return icelock.spark.delete(spark, TABLE, " or ".join(f"(id >= {start} and id < {start + 100})" for start in starts))

    def delete_file(run: int) -> Any:
        """Delete one file's rows: by metadata alone."""
        return icelock.spark.delete(spark, TABLE, f"id >= {run * each} and id < {(run + 1) * each}")

    def delete_one(run: int) -> Any:
        """Delete a row of one file."""
        return icelock.spark.delete(spark, TABLE, f"id = {run}")

    def upsert(run: int) -> Any:
        """Change 10,000 rows of two files and add 1,000."""
        changed = _rows(spark, each - 5000, 10_000, 2).unionByName(_rows(spark, rows + run * 1000, 1000, 1))
        return icelock.spark.upsert(changed.selectExpr("id", f"a + {run + 1} a", "b", "s", "t"), TABLE, ["id"])

    def overwrite(run: int) -> Any:
        """Replace some 10,000 rows of two files."""
        where = f"id >= {each - 5000} and id < {each + 5000}"
        return icelock.spark.write_to(_rows(spark, each - 5000, 10_000 - run, 2), TABLE).overwrite(where)

    def append(run: int) -> Any:
        """Append 10,000 rows, to compare."""
        return icelock.spark.write_to(_rows(spark, rows + run * 10_000, 10_000, 2), TABLE).append()

    return {
        "delete": delete,
        "delete, one row": delete_one,
        "delete, whole file": delete_file,
        "upsert": upsert,
        "overwrite": overwrite,
        "append": append,
    }


NAMES: Final = tuple(_cases(None, 8, 8))


def _run_one(case: str, rows: int, files: int, runs: int, mode: str) -> list[tuple[float, float]]:
    """Return wall and CPU seconds of each run, in this process."""
    import icelock.spark  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        lake = TestLake(Path(folder))
        lake.catalog().create_namespace("db")
        modes = dict.fromkeys(("write.delete.mode", "write.update.mode", "write.merge.mode"), mode)
        make = [sys.executable, __file__, "--make", folder, "--rows", str(rows), "--files", str(files), "--mode", json.dumps(modes)]
        made = subprocess.run(make, check=False)
        if made.returncode:
            raise click.ClickException("the table could not be made")
        spark = session({"spark.sql.warehouse.dir": f"{folder}/warehouse"})
        spark.range(10).selectExpr("sum(id)").collect()
        clock = Clock(spark)
        found = []
        before, start = clock.used(), time.perf_counter()
        icelock.spark.register(spark, {"test": lake.properties()})
        found.append((time.perf_counter() - start, clock.used().since(before)))
        work = _cases(spark, rows, files)[case]
        for run in range(runs):
            before, start = clock.used(), time.perf_counter()
            work(run)
            found.append((time.perf_counter() - start, clock.used().since(before)))
        spark.stop()
    return found


def _make(folder: Path, rows: int, files: int, properties: dict[str, str]) -> None:
    import icelock.spark  # noqa: PLC0415

    lake = TestLake(folder)
    spark = session({"spark.sql.warehouse.dir": f"{folder}/warehouse"})
    icelock.spark.register(spark, {"test": lake.properties()})
    writer = icelock.spark.write_to(_rows(spark, 0, rows, files), TABLE)
    for name, value in {**KEYED, **properties}.items():
        writer.tableProperty(name, value)
    writer.create()
    spark.stop()


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--files", default=8, show_default=True)
@click.option("--runs", default=6, show_default=True)
@click.option("--mode", default="copy-on-write", show_default=True)
@click.option("--case", "cases", multiple=True, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True)
@click.option("--one", hidden=True)
@click.option("--make", hidden=True, type=click.Path(path_type=Path))
def main(*, rows: int, files: int, runs: int, mode: str, cases: tuple[str, ...], as_json: bool, one: str | None, make: Path | None) -> None:  # noqa: PLR0913
    """Time changes of rows by Spark."""
    if make is not None:
        _make(make, rows, files, json.loads(mode))
        return
    if one is not None:
        click.echo(_RESULT + json.dumps(_run_one(one, rows, files, runs, mode)))
        return
    environment = {**os.environ, **spark_environment()}
    found = {}
    for case in cases or NAMES:
        command = [sys.executable, __file__, "--one", case, "--rows", str(rows), "--files", str(files), "--runs", str(runs), "--mode", mode]
        told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        found[case] = json.loads(next(line for line in told.splitlines() if line.startswith(_RESULT)).removeprefix(_RESULT))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(f"{rows:,} rows in {files} files, {mode}; load average {os.getloadavg()[0]:.1f}; s, wall / CPU\n")
    click.echo("| | first | second | later, median | register |\n| --- | --- | --- | --- | --- |")
    for case, ((registered, register_cpu), *times) in found.items():
        later = [statistics.median(each) for each in zip(*times[2:], strict=True)] if times[2:] else [0, 0]
        cells = [f"{wall:.2f} / {cpu:.2f}" for wall, cpu in (*times[:2], later, (registered, register_cpu))]
        click.echo(f"| {case} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
