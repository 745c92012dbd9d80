"""How fast an audit is: every byte beside openssl and a plain read of the same files, and how much memory many files take.

``bytes``: ``audit(depth="bytes")`` of a table of ``--mb`` in ``--files`` files, beside ``openssl speed -evp aes-128-gcm -decrypt`` and a
plain read of the same files, by turns: openssl's rate changes from minute to minute, so each round has its own, and the ratio is the median
of the rounds'. Rates are of stored bytes by wall time. Each round pays for the processes that the audit begins beside its own. With
``--threads 1`` one thread verifies, as in openssl's one thread, and another reads ahead; openssl in two threads stands beside it. With
``--cold`` the files are not in memory before each read, as those of a table that is audited at night are not.
``spark``: the same bytes by ``icelock.spark.audit`` in a session of two tasks at once, with a thread each, beside openssl in two processes
and a read by two threads.
``open``: ``audit(depth="open")`` of a table of ``--many`` small files, its time, and the peak of memory before and after it.

    python benchmarks/audit.py [--case bytes] [--case spark] [--mb 4096] [--files 16] [--threads 8] [--rounds 5] [--cold] [--many 5000]
        [--floor 0]

Exits with 1 if the rate of ``bytes`` or ``spark`` is below the floor, as a part of the slower of its peers, openssl or the read.
"""

# ruff: noqa: PLR0913 - click's signature

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

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


class Round(NamedTuple):
    """MB per second, of the same minute."""

    audited: float
    read: float
    cipher: float
    cipher_twice: float

    def part(self, cores: int = 1) -> float:
        """The audit's rate as a part of the slower peer's, on as many cores."""
        return self.audited / min(self.read, self.cipher if cores == 1 else self.cipher_twice)


def rate(size: int, run: Callable[[], Any]) -> float:
    """MB per second."""
    began = time.perf_counter()
    run()
    return size / MB / (time.perf_counter() - began)


def openssl(threads: int) -> float:
    """MB per second of openssl's own loop over one buffer of 1 MiB."""
    command = ["openssl", "speed", "-mr", "-evp", "aes-128-gcm", "-bytes", str(MIB), "-seconds", "1", "-elapsed", "-decrypt"]
    command += ["-multi", str(threads)] if threads > 1 else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = [line for line in done.stdout.splitlines() if line.startswith("+F:")][-1]
    return float(line.rsplit(":", 1)[1]) / MB


def doubles(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({"id": pa.array(np.arange(count))} | {f"d{number}": pa.array(random.random(count)) for number in range(4)})


def make_bytes(lake: TestLake, *, mb: int, files: int) -> None:
    table = lake.catalog().create_table("db.bytes", doubles(1, 0).schema, properties=KEYED)
    for number in range(files):
        table.append(doubles(mb * MB // files // _ROW_BYTES, number))


def read_whole(path: Path) -> None:
    with path.open("rb", buffering=0) as stream:
        while stream.read(MIB):
            pass


def forget(path: Path) -> None:
    """Have the kernel read a file from the disk again."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def every_byte(lake: TestLake, look: Callable[[], Any], *, rounds: int, cores: int = 1, cold: bool = False) -> list[Round]:
    """Audit the table by ``look``, which returns the report, beside its peers on as many cores."""
    paths = [path for path in (lake.warehouse / "db" / "bytes").rglob("*") if path.is_file() and path.suffix != ".json"]
    size = sum(path.stat().st_size for path in paths)

    def check() -> None:
        (report,) = look().tables
        assert (report.counts, report.unseen_count) == ({}, 0)  # noqa: S101 - a benchmark of nothing else

    def read() -> None:
        with ThreadPoolExecutor(cores) as pool:
            list(pool.map(read_whole, paths))

    def timed(run: Callable[[], None]) -> float:
        for path in paths if cold else ():
            forget(path)
        return rate(size, run)

    check()
    done = []
    for _ in range(rounds):
        before = openssl(1)
        audited, plain = timed(check), timed(read)
        done.append(Round(audited=audited, read=plain, cipher=(before + openssl(1)) / 2, cipher_twice=openssl(2)))
    return done


def by_tasks(lake: TestLake, folder: str, rounds: int, *, cold: bool) -> list[Round]:
    import icelock.spark  # noqa: PLC0415 - a case of its own
    from tests.helpers.spark import session  # noqa: PLC0415

    spark = session({"spark.sql.warehouse.dir": f"{folder}/warehouse"})
    icelock.spark.register(spark, {"test": lake.properties()})
    try:
        look = partial(icelock.spark.audit, spark, "test.db.bytes", depth="bytes", threads=1)
        return every_byte(lake, look, rounds=rounds, cores=2, cold=cold)
    finally:
        spark.stop()


def show(console: Console, done: list[Round], cores: int) -> float:
    """Print rates; return the median of the parts."""
    shown = Table()
    for column in ("work", "MB/s: min", "median", "max"):
        shown.add_column(column, justify="left" if column == "work" else "right")
    peers = {
        "audit of every byte" if cores == 1 else "audit of every byte, two tasks": [one.audited for one in done],
        "plain read" if cores == 1 else "plain read, two threads": [one.read for one in done],
        "openssl, one thread": [one.cipher for one in done],
        "openssl, two threads": [one.cipher_twice for one in done],
    }
    for name, speeds in peers.items():
        shown.add_row(name, f"{min(speeds):.0f}", f"{median(speeds):.0f}", f"{max(speeds):.0f}")
    part, twice = median(one.part(cores) for one in done), median(one.audited / one.cipher_twice for one in done)
    console.print(shown, f"{part:.2f} of the slower peer, {twice:.2f} of openssl in two threads (medians of {len(done)} rounds)")
    return part


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
@click.option("--case", type=click.Choice(["bytes", "spark", "open"]), multiple=True, default=("bytes", "open"))
@click.option("--mb", default=4096, show_default=True, help="Plain bytes of the table, in MB.")
@click.option("--files", default=16, show_default=True)
@click.option("--threads", default=8, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--cold", is_flag=True, help="Read the files of bytes and spark from the disk each time.")
@click.option("--many", default=5_000, show_default=True, help="Files of the case open.")
@click.option("--floor", default=0.0, show_default=True, help="Part of the slower peer's rate that bytes must reach.")
def main(*, case: tuple[str, ...], mb: int, files: int, threads: int, rounds: int, cold: bool, many: int, floor: float) -> None:
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
        if not {"bytes", "spark"}.isdisjoint(case):
            make_bytes(lake, mb=mb, files=files)
        if "bytes" in case:
            catalog = lake.catalog()
            done = every_byte(lake, lambda: audit(catalog, "db.bytes", depth="bytes", threads=threads), rounds=rounds, cold=cold)
            slow = show(console, done, 1) < floor
        if "spark" in case:
            slow = show(console, by_tasks(lake, folder, rounds, cold=cold), 2) < floor or slow
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
