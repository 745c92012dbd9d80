"""How many requests object storage gets for a table's data files: moto's S3 behind a server that counts, icelock beside PyIceberg plain.

python benchmarks/s3_requests.py [--files 1000] [--rows 10]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402 - found through the path above
from tests.servers.s3 import Counting, s3_storage  # noqa: E402

SCHEMA: Final = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=False),
    ice.NestedField(2, "value", ice.DoubleType(), required=False),
    ice.NestedField(3, "part", ice.LongType(), required=False),
)
SPEC: Final = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))


def taken(counting: Counting, files: int) -> tuple[str, str, str]:
    """Return requests a data file, of which methods, and all others; and begin anew."""
    methods = ", ".join(f"{method} {count / files:.1f}" for method, count in sorted(counting.data.items()))
    shown = f"{sum(counting.data.values()) / files:.1f}", methods, str(counting.others)
    counting.clear()
    return shown


def measured(counting: Counting, catalog: Any, files: int, rows: int, properties: dict[str, str]) -> Iterator[tuple[str, ...]]:
    ids = np.arange(files * rows)
    made = pa.table({"id": ids, "value": np.random.default_rng(1).random(len(ids)), "part": ids // rows})
    table = catalog.create_table("db.t", SCHEMA, partition_spec=SPEC, properties=properties)
    taken(counting, files)
    table.append(made)
    yield "append", *taken(counting, files)
    table = catalog.load_table("db.t")
    taken(counting, files)
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("plan", lambda: list(table.scan().plan_files())),
        ("scan", lambda: table.scan().to_arrow()),
        ("one column", lambda: table.scan(selected_fields=("id",)).to_arrow()),
    ]
    for name, run in cases:
        run()
        yield name, *taken(counting, files)


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--files", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--rows", default=10, show_default=True, type=click.IntRange(min=1), help="Of a file.")
def main(*, files: int, rows: int) -> None:
    """Count, and print."""
    out = Table("", "", "requests a data file", "of them", "all others", title=f"{files} files of {rows} rows on S3")
    with tempfile.TemporaryDirectory() as folder, s3_storage("lake") as storage:
        s3 = storage.properties
        lake = TestLake.with_namespace(Path(folder))
        ours = lake.catalog(**s3, warehouse="s3://lake/ours")
        theirs = load_catalog("plain", type="sql", uri=f"sqlite:///{folder}/plain.db", warehouse="s3://lake/plain", **s3)
        theirs.create_namespace("db")
        for name, catalog, properties in (("icelock", ours, KEYED), ("PyIceberg plain", theirs, {})):
            for row in measured(storage.counting, catalog, files, rows, properties):
                out.add_row(name, *row)
    Console(width=120).print(out)


if __name__ == "__main__":
    main()
