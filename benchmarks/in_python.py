"""What Python takes to read and write an encrypted table, beside PyIceberg, PyArrow, Polars and DuckDB on plain files of the same rows.

Local disk, SQLite catalogs, zstd on all sides; rows of an id, four doubles and two strings of 16 characters. All run in this process by
turns, each round in another order, and their answers are compared. Wall time, CPU time of the process with all its threads and what it
starts, and how far its memory rose over what it had (Linux; what the tools hand back to none but themselves is in it). ``first`` is a
process of its own from the start of Python to the last row.

    python benchmarks/in_python.py [--rows 5000000] [--rounds 5] [--warm 1] [--case "point filter"]... [--tiny 20000] [--json]
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "spark")]

from bench_runs import Times, Way, check_equal  # noqa: E402 - found through the path above

from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402

ICELOCK, PYICEBERG, PYARROW, POLARS, DUCKDB = "icelock", "PyIceberg plain", "PyArrow plain", "Polars plain", "DuckDB plain"
FILES: Final = 8
MIB: Final = 1 << 20
_FORGET_PEAK: Final = "5"  # proc(5), clear_refs
# From the start of Python to the last row.
_SCAN: Final = "(sys.argv[1], **json.loads(sys.argv[2])).load_table('db.t').scan(selected_fields=('id',)).to_arrow().num_rows)"
_FIRST: Final = {
    ICELOCK: f"import json, sys; import icelock; print(icelock.load_catalog{_SCAN}",
    PYICEBERG: f"import json, sys; from pyiceberg.catalog import load_catalog; print(load_catalog{_SCAN}",
}


@dataclass(kw_only=True)
class Cost(Times):
    """Seconds of each run, and MiB that the resident memory of this process rose above what it was before."""

    rise: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Lake:
    """The same rows three times: encrypted, PyIceberg's plain table, plain Parquet files."""

    folder: Path
    encrypted: Any
    plain: Any
    files: str
    rows: int
    made: pa.Table


def _rows(first: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(first)
    columns: dict[str, Any] = {"id": np.arange(first, first + count)}
    columns |= {f"d{k}": numbers.random(count) for k in range(1, 5)}
    for name, different in (("s1", 10_000), ("s2", 200_000)):
        texts = pa.array([f"{number:016x}" for number in np.random.default_rng(different).integers(0, 1 << 60, different)])
        columns[name] = texts.take(pa.array(numbers.integers(0, different, count)))
    return pa.table(columns)


def _plain_properties(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder / 'plain.db'}", "warehouse": f"file://{folder / 'plain-warehouse'}"}


def _make(folder: Path, rows: int, files: int, *, tiny: bool = False) -> Lake:
    """Write ``files`` of the same number of rows, each by an append; or tiny ones, which are one partition each, by a few appends."""
    schema, of_append = _rows(0, 1).schema, files // 10 if tiny else 1
    spec = {}
    if tiny:
        schema = schema.append(pa.field("part", pa.int64()))
        spec = {"partition_spec": PartitionSpec(PartitionField(len(schema), 1000, IdentityTransform(), "part"))}
    encrypted = TestLake.with_namespace(folder).catalog().create_table("db.t", schema, properties=KEYED, **spec)
    catalog = load_catalog("plain", **_plain_properties(folder))
    catalog.create_namespace("db")
    plain = catalog.create_table("db.t", encrypted.schema(), partition_spec=encrypted.spec())
    (folder / "files").mkdir()
    parts, each = [], rows // files
    for first in range(0, files, of_append):
        made = _rows(first * each, each * of_append)
        if tiny:
            made = made.append_column("part", pc.divide(made["id"], each))
        encrypted.append(made)
        plain.append(made)
        for part in range(of_append):
            pq.write_table(made.slice(part * each, each), folder / "files" / f"{first + part:05}.parquet", compression="zstd")
        parts.append(made)
    return Lake(
        folder=folder,
        encrypted=encrypted,
        plain=plain,
        files=str(folder / "files" / "*.parquet"),
        rows=rows // files * files,
        made=pa.concat_tables(parts),
    )


def _reads(lake: Lake) -> Iterator[tuple[str, list[Way]]]:
    """Yield what is asked of tables of any size, and who answers."""
    folder, last, middle = str(lake.folder / "files"), lake.rows - lake.rows // 100, lake.rows // 2

    def iceberg(**scan: Any) -> list[Way]:
        both = ((ICELOCK, lake.encrypted), (PYICEBERG, lake.plain))
        return [Way(name=name, run=lambda table=table: table.scan(**scan).to_arrow().num_rows) for name, table in both]

    def polars(ask: Callable[[pl.LazyFrame], pl.LazyFrame]) -> Way:
        return Way(name=POLARS, run=lambda: ask(pl.scan_parquet(lake.files)).collect().height)

    def duck(columns: str, rest: str = "") -> Way:
        sql = f"select {columns} from read_parquet('{lake.files}') {rest}"  # noqa: S608 - this file's own names
        return Way(name=DUCKDB, run=lambda: duckdb.sql(sql).to_arrow_table().num_rows)

    arrow = Way(name=PYARROW, run=lambda: pq.read_table(folder).num_rows)
    yield "full scan", [*iceberg(), arrow, polars(lambda rows: rows), duck("*")]
    yield "one column", [*iceberg(selected_fields=("d1",)), polars(lambda rows: rows.select("d1")), duck("d1")]
    one_percent = polars(lambda rows: rows.filter(pl.col("id") >= last))
    yield "filter, 1 %", [*iceberg(row_filter=f"id >= {last}"), one_percent, duck("*", f"where id >= {last}")]
    point = polars(lambda rows: rows.filter(pl.col("id") == middle))
    yield "point filter", [*iceberg(row_filter=f"id = {middle}"), point, duck("*", f"where id = {middle}")]
    yield "limit 10", [*iceberg(limit=10), polars(lambda rows: rows.limit(10)), duck("*", "limit 10")]
    yield "count", _counts(lake)
    yield "count of a filter", _counts(lake, "d1 < 0.25", pl.col("d1") < 0.25)


def _counts(lake: Lake, condition: str = "true", polars: Any = True) -> list[Way]:  # noqa: FBT002 - Polars' condition
    def ours(table: Any) -> Callable[[], int]:
        return lambda: table.scan(**({} if condition == "true" else {"row_filter": condition})).count()

    sql = f"select count(*) from read_parquet('{lake.files}') where {condition}"  # noqa: S608 - this file's own names
    return [
        Way(name=ICELOCK, run=ours(lake.encrypted)),
        Way(name=PYICEBERG, run=ours(lake.plain)),
        Way(name=POLARS, run=lambda: pl.scan_parquet(lake.files).filter(polars).select(pl.len()).collect().item()),
        Way(name=DUCKDB, run=lambda: duckdb.sql(sql).fetchall()[0][0]),
    ]


def _writes(lake: Lake) -> Iterator[tuple[str, list[Way]]]:
    """Yield appends of all rows to a new table."""
    number = iter(range(1_000_000))

    def append(rows: Callable[[], Any], table: Any, properties: dict[str, str]) -> Way:
        def run() -> None:
            made = table.catalog.create_table(f"db.w{next(number)}", lake.made.schema, properties=properties)
            made.append(rows())

        return Way(name=ICELOCK if properties else PYICEBERG, run=run, after=lambda: _purge(table.catalog))

    def write() -> None:
        pq.write_table(lake.made, lake.folder / "w.parquet", compression="zstd")

    for case, rows in (("append", lambda: lake.made), ("append of batches", lambda: lake.made.to_reader(max_chunksize=100_000))):
        yield case, [append(rows, lake.encrypted, KEYED), append(rows, lake.plain, {}), Way(name=PYARROW, run=write)]


def _purge(catalog: Any) -> None:
    for name in catalog.list_tables("db"):
        if name[-1].startswith("w"):
            catalog.purge_table(name)


def _first(lake: Lake) -> list[Way]:
    """A process from its start to the rows of one column."""
    properties = {ICELOCK: TestLake(lake.folder).properties(), PYICEBERG: _plain_properties(lake.folder)}

    catalogs = {ICELOCK: "test", PYICEBERG: "plain"}

    def run(name: str) -> int:
        command = [sys.executable, "-c", _FIRST[name], catalogs[name], json.dumps(properties[name])]
        return int(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)

    return [Way(name=name, run=lambda name=name: run(name)) for name in _FIRST]


def _tiny(lake: Lake) -> Iterator[tuple[str, list[Way]]]:
    both = ((ICELOCK, lake.encrypted), (PYICEBERG, lake.plain))
    yield "tiny files: plan_files", [Way(name=name, run=lambda table=table: len(list(table.scan().plan_files()))) for name, table in both]
    read = [Way(name=name, run=lambda table=table: table.scan().to_arrow().num_rows) for name, table in both]
    yield "tiny files: read", [*read, Way(name=POLARS, run=lambda: pl.scan_parquet(lake.files).collect().height)]


def _cpu() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _memory(field_of: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field_of))


def _once(way: Way) -> tuple[float, float, float, Any]:
    """Return seconds, CPU seconds and the rise of memory in MiB of one run, and its answer."""
    way.before()
    gc.collect()
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")
    memory, cpu, start = _memory("VmRSS"), _cpu(), time.perf_counter()
    answer = way.run()
    wall, used, rise = time.perf_counter() - start, _cpu() - cpu, _memory("VmHWM") - memory
    way.after()
    return wall, used, rise, answer


def _measured(ways: list[Way], rounds: int, warm: int) -> dict[str, Cost]:
    costs = {way.name: Cost() for way in ways}
    answers: dict[str, Any] = {}
    for number in range(warm + rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            wall, cpu, rise, answer = _once(way)
            answers[way.name] = answer
            check_equal(answers)
            if number >= warm:
                cost = costs[way.name]
                cost.wall.append(wall)
                cost.cpu.append(cpu)
                cost.rise.append(rise)
    return costs


def _show(found: dict[str, dict[str, Cost]]) -> None:
    table = Table(title="ms: min / median, CPU; MiB of memory more; icelock ÷ the other: min / median / CPU")
    for head in ("", "", "ms", "CPU", "MiB", "icelock ÷ it"):
        table.add_column(head)
    for case, costs in found.items():
        own = costs[ICELOCK]
        for name, cost in costs.items():
            ratios = (f"{figure(own) / max(figure(cost), 1e-9):.2f}" for figure in (Times.best, Times.median, Times.median_cpu))
            shown = f"{cost.best() * 1000:.1f} / {cost.median() * 1000:.1f}", f"{cost.median_cpu() * 1000:.1f}", f"{max(cost.rise):.0f}"
            table.add_row(case if name == ICELOCK else "", name, *shown, "" if name == ICELOCK else " / ".join(ratios))
        table.add_section()
    Console(width=140).print(table)


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--rows", default=5_000_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--warm", default=1, show_default=True)
@click.option("--case", "wanted", multiple=True, help="As in the table; all without it.")
@click.option("--tiny", default=0, show_default=True, help="Measure a table of so many files of ten rows instead.")
@click.option("--json", "as_json", is_flag=True)
def main(*, rows: int, rounds: int, warm: int, wanted: tuple[str, ...], tiny: int, as_json: bool) -> None:  # noqa: PLR0913 - click's
    """Make the tables, measure, print."""
    found: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = _make(Path(folder), tiny * 10, tiny, tiny=True) if tiny else _make(Path(folder), rows, FILES)
        cases = dict(_tiny(lake)) if tiny else {**dict(_reads(lake)), **dict(_writes(lake)), "first": _first(lake)}
        for case, ways in cases.items():
            if not wanted or case in wanted:
                found[case] = _measured(ways, rounds, warm)
                click.echo(f"{case}: {', '.join(f'{name} {cost.best() * 1000:.1f} ms' for name, cost in found[case].items())}", err=True)
    if as_json:
        print(json.dumps({case: {name: vars(cost) for name, cost in costs.items()} for case, costs in found.items()}))
    else:
        _show(found)


if __name__ == "__main__":
    main()
