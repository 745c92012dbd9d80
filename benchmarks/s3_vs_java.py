"""Scans of encrypted tables on S3 beside Java Iceberg: requests of each data file, and time with 20 ms a request.

moto's S3 behind a server that counts requests of data files and answers each after ``--delay`` ms. icelock writes two tables through a real
Hive metastore: ``--files`` small files, and eight of ``--rows`` rows each. Java's Spark reads them by ``S3FileIO``, icelock in the same
session, and plain Python beside them; all answers are compared.

The metastore makes folders of databases and tables, for which it has no client of S3: they go to a local folder (Hadoop's viewfs).

icelock's scan in Spark is the native one, by Hadoop's S3A, and that of its tasks in Python, which a session without S3A has.

    python benchmarks/s3_vs_java.py [--files 1000] [--rows 400000] [--delay 20] [--rounds 3]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from s3_requests import SCHEMA, SPEC, taken  # noqa: E402

import icelock.spark  # noqa: E402 - found through the path above
from icelock import load_catalog  # noqa: E402
from tests.helpers.spark import WARM, end_jvm, session, spark_environment  # noqa: E402
from tests.interop.session import catalog_properties, java_settings  # noqa: E402
from tests.interop.toolchain import class_path  # noqa: E402
from tests.lakes.sqlite import KEYED  # noqa: E402
from tests.servers.metastore import Metastore  # noqa: E402
from tests.servers.s3 import Counting, Storage, s3_storage  # noqa: E402

LARGE: Final = 8
Answer = tuple[int, float]


@contextmanager
def lake(folder: Path, storage: Storage) -> Iterator[tuple[Any, Any]]:
    """Yield a Spark session with both engines, and icelock's catalog."""
    s3 = storage.properties
    folders = {"fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"}
    folders["fs.viewfs.mounttable.lake.linkFallback"] = (folder / "folders").as_uri()
    (folder / "folders").mkdir()
    environment = {**spark_environment(WARM), "SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, class_path()))}
    with patch.dict(os.environ, environment), Metastore(warehouse=folder, settings=folders) as metastore:
        ours = {**catalog_properties(metastore.uri, folder), **s3, "warehouse": "s3://lake/ours"}
        java = {
            "warehouse": "s3://lake/ours",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.path-style-access": "true",
            "client.region": s3["s3.region"],
            **s3,
        }
        end_jvm()
        settings = {f"spark.sql.catalog.ice.{name}": value for name, value in java.items()}
        settings |= {f"spark.hadoop.{name}": value for name, value in storage.hadoop.items()}
        spark = session({**java_settings(folder, metastore.uri), **settings})
        try:
            icelock.spark.register(spark, {"ours": ours})
            yield spark, load_catalog("ours", **ours)
        finally:
            spark.stop()
            end_jvm()


def rows(files: int, each: int) -> pa.Table:
    """``files`` partitions of ``each`` rows."""
    ids = np.arange(files * each)
    return pa.table({"id": ids, "value": np.random.default_rng(1).random(len(ids)), "part": ids // each})


def ways(spark: Any, catalog: Any, name: str) -> dict[str, Callable[[], Answer]]:
    """Return what is compared: each gives the number of rows and the sum of a column."""
    text, of = "select count(value), sum(value) from {}", ("count(value)", "sum(value)")

    def read(engine: str) -> Answer:
        return tuple(icelock.spark.read(spark, f"ours.{name}", engine=engine).selectExpr(*of).first())

    def arrow() -> Answer:
        found = catalog.load_table(name).scan(selected_fields=("value",)).to_arrow()["value"]
        return len(found), pc.sum(found).as_py()

    return {
        "Java, Spark": lambda: tuple(spark.sql(text.format(f"ice.{name}")).first()),
        "icelock, Spark, native": lambda: read("native"),
        "icelock, Spark, tasks in Python": lambda: read("python"),
        "icelock, Python": arrow,
    }


def measured(counting: Counting, found: dict[str, Callable[[], Answer]], files: int, rounds: int) -> Iterator[tuple[str, ...]]:
    """Run the ways by turns, a round before that does not count; yield a row each."""
    seconds: dict[str, list[float]] = {name: [] for name in found}
    requests: dict[str, tuple[str, str, str]] = {}
    answers: set[tuple[int, float]] = set()
    for number in range(rounds + 1):
        for name, run in found.items():
            taken(counting, files)
            began = time.perf_counter()
            count, total = run()
            lasted = time.perf_counter() - began
            requests[name] = taken(counting, files)
            answers.add((count, round(total, 3)))
            if number:
                seconds[name].append(lasted)
    if len(answers) != 1:
        raise SystemExit(f"the answers differ: {answers}")
    java = min(seconds["Java, Spark"])
    for name, times in seconds.items():
        shown = f"{min(times):.2f}, {statistics.median(times):.2f}"
        yield name, *requests[name], shown, f"{min(times) / java:.2f}"


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--files", default=1000, show_default=True, type=click.IntRange(min=1), help="Of the table of small files.")
@click.option("--rows", "each", default=400_000, show_default=True, type=click.IntRange(min=1), help="Of a file of the other table.")
@click.option("--delay", default=20.0, show_default=True, type=click.FloatRange(min=0), help="Of each answer, in ms.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
def main(*, files: int, each: int, delay: float, rounds: int) -> None:
    """Count, time, and print."""
    out = Table("", "", "requests a data file", "of them", "all others", "s: min, median", "÷ Java", title=f"S3, {delay:.0f} ms a request")
    with tempfile.TemporaryDirectory() as scratch, s3_storage("lake") as storage, lake(Path(scratch), storage) as (spark, catalog):
        counting = storage.counting
        catalog.create_namespace("db", {"location": "s3://lake/db"})
        for name, count, size in (("small", files, 10), ("large", LARGE, each)):
            of_one_row_group = {"write.parquet.row-group-limit": str(each)}  # as Java would write them
            table = catalog.create_table(f"db.{name}", SCHEMA, partition_spec=SPEC, properties=KEYED | of_one_row_group)
            table.append(rows(count, size))
            counting.delay = delay / 1000
            for row in measured(counting, ways(spark, catalog, f"db.{name}"), count, rounds):
                out.add_row(f"{count} files of {size} rows", *row)
            counting.delay = 0.0
    Console(width=140).print(out)


if __name__ == "__main__":
    main()
