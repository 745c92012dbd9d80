"""How many requests object storage gets for a table's data files: moto's S3 behind a server that counts, icelock beside PyIceberg plain.

python benchmarks/s3_requests.py [--files 1000] [--rows 10]
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3
import click
import numpy as np
import pyarrow as pa
from moto.server import DomainDispatcherApplication, create_backend_app
from pyiceberg import types as ice
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from rich.console import Console
from rich.table import Table
from werkzeug.serving import make_server

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.lakes.sqlite import KEYED, TestLake  # noqa: E402 - found through the path above

SCHEMA: Final = Schema(
    ice.NestedField(1, "id", ice.LongType(), required=False),
    ice.NestedField(2, "value", ice.DoubleType(), required=False),
    ice.NestedField(3, "part", ice.LongType(), required=False),
)
SPEC: Final = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))


class Counting:
    """Moto as a WSGI application that counts requests of data files by method, and answers each after ``delay`` seconds."""

    def __init__(self) -> None:
        self._inner = DomainDispatcherApplication(create_backend_app)
        self.data: Counter[str] = Counter()
        self.others = 0
        self.delay = 0.0

    def __call__(self, environment: dict[str, Any], start: Any) -> Any:
        if ".parquet" in environment["PATH_INFO"] + environment["QUERY_STRING"]:
            self.data[environment["REQUEST_METHOD"]] += 1
        else:
            self.others += 1
        time.sleep(self.delay)
        return self._inner(environment, start)

    def taken(self, files: int) -> tuple[str, str, str]:
        """Return requests a data file, of which methods, and all others; and begin anew."""
        methods = ", ".join(f"{method} {count / files:.1f}" for method, count in sorted(self.data.items()))
        shown = f"{sum(self.data.values()) / files:.1f}", methods, str(self.others)
        self.data.clear()
        self.others = 0
        return shown


@contextmanager
def storage() -> Iterator[tuple[Counting, dict[str, str]]]:
    """Serve an S3 with a bucket ``lake``; yields the counter and the properties of a catalog."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    counting = Counting()
    server = make_server("127.0.0.1", 0, counting, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        session = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="eu-west-1")  # noqa: S106 - moto takes any
        session.client("s3", endpoint_url=endpoint).create_bucket(
            Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        yield counting, {"s3.endpoint": endpoint, "s3.access-key-id": "any", "s3.secret-access-key": "any", "s3.region": "eu-west-1"}
    finally:
        server.shutdown()


def measured(counting: Counting, catalog: Any, files: int, rows: int, properties: dict[str, str]) -> Iterator[tuple[str, ...]]:
    ids = np.arange(files * rows)
    made = pa.table({"id": ids, "value": np.random.default_rng(1).random(len(ids)), "part": ids // rows})
    table = catalog.create_table("db.t", SCHEMA, partition_spec=SPEC, properties=properties)
    counting.taken(files)
    table.append(made)
    yield "append", *counting.taken(files)
    table = catalog.load_table("db.t")
    counting.taken(files)
    cases: list[tuple[str, Callable[[], Any]]] = [
        ("plan", lambda: list(table.scan().plan_files())),
        ("scan", lambda: table.scan().to_arrow()),
        ("one column", lambda: table.scan(selected_fields=("id",)).to_arrow()),
    ]
    for name, run in cases:
        run()
        yield name, *counting.taken(files)


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--files", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--rows", default=10, show_default=True, type=click.IntRange(min=1), help="Of a file.")
def main(*, files: int, rows: int) -> None:
    """Count, and print."""
    out = Table("", "", "requests a data file", "of them", "all others", title=f"{files} files of {rows} rows on S3")
    with tempfile.TemporaryDirectory() as folder, storage() as (counting, s3):
        lake = TestLake.with_namespace(Path(folder))
        ours = lake.catalog(**s3, warehouse="s3://lake/ours")
        theirs = load_catalog("plain", type="sql", uri=f"sqlite:///{folder}/plain.db", warehouse="s3://lake/plain", **s3)
        theirs.create_namespace("db")
        for name, catalog, properties in (("icelock", ours, KEYED), ("PyIceberg plain", theirs, {})):
            for row in measured(counting, catalog, files, rows, properties):
                out.add_row(name, *row)
    Console(width=120).print(out)


if __name__ == "__main__":
    main()
