"""How long a rotation of keys takes in plain Python, and how often it asks the KMS; beside a conversion where rows are written.

``wrap``, ``kek`` and ``lists``: a table of 200 snapshots of a small file each. ``data`` and ``all``: 5 million rows in 20 files and
snapshots, beside ``convert`` of a plain table of the same files. Each round has a table of its own, loaded anew, so that no KEK is known.

    python benchmarks/rotate.py [--snapshots 200] [--rows 5000000] [--files 20] [--rounds 3]

Wall time is min and median of rounds; the first round warms up, and is not counted.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from icelock.maintenance import convert  # noqa: E402 - found through the path above
from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402

PLAIN = {"icelock.plain": "true", "format-version": "2"}


def rows(first: int, count: int) -> pa.Table:
    """Return rows of a number, a double and a text."""
    numbers = range(first, first + count)
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": [n * 0.5 for n in numbers], "name": [f"name {n % 1000}" for n in numbers]})


def make(lake: TestLake, name: str, files: int, a_file: int, properties: dict[str, str]) -> None:
    """Make a table of a snapshot for each file."""
    table = lake.catalog().create_table(name, rows(0, 1).schema, properties=properties)
    for number in range(files):
        table.append(rows(number * a_file, a_file))


def timed(prepare: Callable[[str], None], act: Callable[[str], Any], lake: TestLake, label: str, rounds: int) -> None:
    """Print the seconds of an act on a table of its own each time, and its KMS calls."""
    seconds: list[float] = []
    calls: list[str] = []
    for number in range(1 + rounds):
        name = f"db.{label}_{number}"
        prepare(name)
        lake.calls.take()
        begun = time.perf_counter()
        act(name)
        seconds.append(time.perf_counter() - begun)
        calls = lake.calls.take()
    shown = f"{label:8} min {min(seconds[1:]):8.3f} s   median {statistics.median(seconds[1:]):8.3f} s   KMS: {', '.join(calls) or 'none'}"
    print(shown, flush=True)


@click.command()
@click.option("--snapshots", default=200, show_default=True)
@click.option("--rows", "count", default=5_000_000, show_default=True)
@click.option("--files", default=20, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(snapshots: int, count: int, files: int, rounds: int) -> None:
    """Measure; see the module."""
    with tempfile.TemporaryDirectory() as folder:
        lake = TestLake(Path(folder))
        lake.catalog().create_namespace("db")

        def small(name: str) -> None:
            make(lake, name, snapshots, 10, {**KEYED})

        def large(name: str) -> None:
            make(lake, name, files, count // files, {**KEYED})

        def plain(name: str) -> None:
            make(lake, name, files, count // files, PLAIN)

        def rotated(level: Any) -> Callable[[str], Any]:
            return lambda name: lake.catalog().load_table(name).maintenance.rotate(level)

        for level in ("wrap", "kek", "lists"):
            timed(small, rotated(level), lake, level, rounds)
        for level in ("data", "all"):
            timed(large, rotated(level), lake, level, rounds)
        timed(plain, lambda name: convert(lake.catalog().load_table(name), key_id="keyA"), lake, "convert", rounds)


if __name__ == "__main__":
    main()
