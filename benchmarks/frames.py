"""What Polars, DuckDB and pandas take to read an encrypted table through icelock, beside their own read of the same rows in plain Parquet.

Local disk, SQLite catalog, files of zstd on both sides, with the same rows in each; the tool's own read has column pruning, filters on row
groups and threads of its own. Each run is a process of its own with the libraries loaded before the clock starts. Wall time, and CPU time
of the process with all its threads, which hardly depends on what else the machine does. The smallest of the runs is shown.

    python benchmarks/frames.py [--rows 2000000] [--files 8] [--runs 3] [--case "polars filter" ...] [--json]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402 - found through the path above

_RESULT: Final = "frames: "
Reads = dict[str, Callable[[], int]]


def _make(folder: Path, rows: int, files: int) -> None:
    """Write the same rows as an encrypted table and as plain Parquet files."""
    numbers, each, plain = np.random.default_rng(7), rows // files, folder / "plain"
    plain.mkdir()
    table: Any = None
    for part in range(files):
        ids = np.arange(part * each, (part + 1) * each)
        texts = pa.array([f"s{number % 1000}" for number in ids])
        made = pa.table({"id": ids, "a": numbers.random(each), "b": numbers.random(each), "s": texts})
        if table is None:
            table = TestLake.with_namespace(folder).catalog().create_table("db.t", made.schema, properties=KEYED)
        table.append(made)
        pq.write_table(made, plain / f"{part:03}.parquet", compression="zstd")


def _polars(table: Any, plain: str, last: int) -> Reads:
    import polars as pl  # noqa: PLC0415 - only what is measured is loaded

    import icelock.polars  # noqa: PLC0415

    def reads(lazy: Callable[[], pl.LazyFrame]) -> tuple[Callable[[], int], ...]:
        return (
            lambda: lazy().collect().height,
            lambda: lazy().filter(pl.col("id") >= last).select("id", "a").collect().height,
            lambda: int(lazy().group_by("s").agg(pl.col("a").sum()).collect().height),
        )

    names = "polars all", "polars filter", "polars group"
    encrypted, own = reads(lambda: icelock.polars.scan(table)), reads(lambda: pl.scan_parquet(f"{plain}/*.parquet"))
    return dict(zip(names, encrypted, strict=True)) | {f"{name}, plain": read for name, read in zip(names, own, strict=True)}


def _duckdb(table: Any, plain: str, last: int) -> Reads:
    import duckdb  # noqa: PLC0415

    import icelock.duckdb  # noqa: PLC0415

    connection = duckdb.connect()
    icelock.duckdb.relation(table, connection).create_view("encrypted")
    connection.sql(f"select * from read_parquet('{plain}/*.parquet')").create_view("own")  # noqa: S608 - this file's own names

    def reads(name: str) -> tuple[Callable[[], int], ...]:
        return (
            lambda: connection.sql(f"select * from {name}").to_arrow_table().num_rows,  # noqa: S608 - this file's own names
            lambda: connection.sql(f"select id, a from {name} where id >= {last}").to_arrow_table().num_rows,  # noqa: S608 - this file's own names
            lambda: connection.sql(f"select s, sum(a) from {name} group by s").to_arrow_table().num_rows,  # noqa: S608 - this file's own names
        )

    names = "duckdb all", "duckdb filter", "duckdb group"
    own = {f"{name}, plain": read for name, read in zip(names, reads("own"), strict=True)}
    return dict(zip(names, reads("encrypted"), strict=True)) | own


def _pandas(table: Any, plain: str, _last: int) -> Reads:
    import pandas as pd  # noqa: PLC0415

    return {"pandas all": lambda: len(table.scan().to_pandas()), "pandas all, plain": lambda: len(pd.read_parquet(plain))}


def _run(folder: Path, case: str, last: int) -> None:
    tools = {"polars": _polars, "duckdb": _duckdb, "pandas": _pandas}
    table = TestLake(folder).catalog().load_table("db.t")
    read = tools[case.partition(" ")[0]](table, str(folder / "plain"), last)[case]
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    rows = read()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(_RESULT + json.dumps({"case": case, "rows": rows, "wall_s": round(wall, 3), "cpu_s": round(cpu, 3)}))


def _measured(folder: Path, case: str, last: int, runs: int) -> dict[str, Any]:
    found = []
    for _ in range(runs):
        command = [sys.executable, __file__, "--folder", str(folder), "--last", str(last), "--case", case]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found += [json.loads(line.removeprefix(_RESULT)) for line in printed.splitlines() if line.startswith(_RESULT)]
    return {**found[0], "wall_s": min(one["wall_s"] for one in found), "cpu_s": min(one["cpu_s"] for one in found)}


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--files", default=8, show_default=True)
@click.option("--runs", default=3, show_default=True)
@click.option("--case", "wanted", multiple=True, help="As in the table; all without it.")
@click.option("--json", "as_json", is_flag=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
@click.option("--last", default=0, hidden=True)
def main(rows: int, files: int, runs: int, wanted: tuple[str, ...], as_json: bool, folder: Path | None, last: int) -> None:  # noqa: FBT001, PLR0913 - click's
    """Measure, or run one case in a process of its own."""
    if folder is not None:
        _run(folder, wanted[0], last)
        return
    kinds = "polars all", "polars filter", "polars group", "duckdb all", "duckdb filter", "duckdb group", "pandas all"
    with tempfile.TemporaryDirectory() as made:
        _make(Path(made), rows, files)
        last = rows - rows // files // 10  # a tenth of the last file's rows
        for case in (name for kind in wanted or kinds for name in (kind, f"{kind}, plain")):
            one = _measured(Path(made), case, last, runs)
            print(json.dumps(one) if as_json else f"{case:24} {one['rows']:>10} rows {one['wall_s']:8.3f} s {one['cpu_s']:8.3f} s CPU")


if __name__ == "__main__":
    main()
