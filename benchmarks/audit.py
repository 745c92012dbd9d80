"""How fast an audit is: every byte beside openssl and a plain read of the same files, and how much memory many files take.

``bytes``: ``audit(depth="bytes")`` of a table of ``--mb`` in ``--files`` files, beside ``openssl speed -evp aes-128-gcm -decrypt`` and a
plain read of the same files. Rates are of stored bytes by wall time, the best of the rounds. openssl's rate is that of one thread, so
``--threads 1`` compares like with like.
``open``: ``audit(depth="open")`` of a table of ``--many`` small files, its time, and the peak of memory before and after it.

    python benchmarks/audit.py [--case bytes] [--mb 512] [--files 8] [--threads 1] [--rounds 3] [--many 5000] [--floor 0]

Exits with 1 if the rate of ``bytes`` is below the floor, as a part of the slower of its peers.
"""

# ruff: noqa: PLR0913 - click's signature

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from icelock.maintenance import audit  # noqa: E402 - found through the path above
from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402

MB = 1_000_000
MIB = 1 << 20
_ROW_BYTES = 5 * 8


def rate(size: int, rounds: int, run: Callable[[], Any]) -> float:
    """MB per second of the best round."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return size / MB / best


def openssl() -> float:
    """MB per second of openssl's own loop over one buffer of 1 MiB, in one thread."""
    command = ["openssl", "speed", "-mr", "-evp", "aes-128-gcm", "-bytes", str(MIB), "-seconds", "3", "-decrypt"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("+F:"))
    return float(line.rsplit(":", 1)[1]) / MB


def doubles(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"id": pa.array(np.arange(count))} | {f"d{number}": pa.array(random.random(count)) for number in range(4)})


def every_byte(lake: TestLake, *, mb: int, files: int, threads: int, rounds: int) -> tuple[float, float, float]:
    catalog = lake.catalog()
    table = catalog.create_table("db.bytes", doubles(1, 0).schema, properties=KEYED)
    for number in range(files):
        table.append(doubles(mb * MB // files // _ROW_BYTES, number))
    paths = [path for path in (lake.warehouse / "db" / "bytes").rglob("*") if path.is_file() and path.suffix != ".json"]
    size = sum(path.stat().st_size for path in paths)

    def check() -> None:
        (report,) = audit(catalog, "db.bytes", depth="bytes", threads=threads).tables
        assert (report.counts, report.unseen_count) == ({}, 0)  # noqa: S101 - a benchmark of nothing else

    def read() -> None:
        for path in paths:
            with path.open("rb", buffering=0) as stream:
                while stream.read(MIB):
                    pass

    return rate(size, rounds, check), rate(size, rounds, read), openssl()


def many_files(lake: TestLake, count: int) -> tuple[float, float, float]:
    """Seconds of an audit of so many files, and the peak of this process's memory before and after, in MB."""
    catalog = lake.catalog()
    table = catalog.create_table("db.many", pa.schema([("id", pa.int64())]), properties=KEYED)
    with table.update_spec() as spec:
        spec.add_identity("id")
    some = 2_000
    for start in range(0, count, some):
        table.append(pa.table({"id": pa.array(range(start, min(count, start + some)))}))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    (report,) = audit(catalog, "db.many", snapshots="current").tables
    assert report.files["data files"][0].files == count  # noqa: S101 - likewise
    return time.perf_counter() - began, before * 1024 / MB, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


@click.command()
@click.option("--case", type=click.Choice(["bytes", "open"]), multiple=True, default=("bytes", "open"))
@click.option("--mb", default=512, show_default=True, help="Plain bytes of the table, in MB.")
@click.option("--files", default=8, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--many", default=5_000, show_default=True, help="Files of the case open.")
@click.option("--floor", default=0.0, show_default=True, help="Part of the slower peer's rate that bytes must reach.")
def main(case: tuple[str, ...], mb: int, files: int, threads: int, rounds: int, many: int, floor: float) -> None:
    """Audit tables, and say how fast it was."""
    console = Console(highlight=False)
    slow = False
    with tempfile.TemporaryDirectory(prefix="icelock-audit-") as folder:
        lake = TestLake(Path(folder))
        lake.catalog().create_namespace("db")
        if "open" in case:
            seconds, before, after = many_files(lake, many)
            console.print(
                f"open: {many} files in {seconds:.1f} s ({many / seconds:.0f} a second); memory {after:.0f} MB, {before:.0f} before"
            )
        if "bytes" in case:
            audited, read, cipher = every_byte(lake, mb=mb, files=files, threads=threads, rounds=rounds)
            shown = Table()
            for column in ("work", "MB/s"):
                shown.add_column(column, justify="right" if column == "MB/s" else "left")
            peers = {"audit of every byte": audited, "plain read": read, "openssl, one thread": cipher}
            for name, speed in peers.items():
                shown.add_row(name, f"{speed:.0f}")
            part = audited / min(read, cipher)
            console.print(shown, f"{part:.2f} of the slower peer")
            slow = part < floor
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
