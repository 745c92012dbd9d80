"""Files on S3 by Spark's own reader, without S3A: a mount of a local folder stands for it (Hadoop's viewfs), in each Spark version.

Not here: S3A, and how often it asks (``interop.test_s3a``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import icelock.spark
from icelock.errors import IntegrityError
from tests.helpers.tables import hashed_rows
from tests.lakes.sqlite import KEYED, TestLake
from tests.servers.s3 import Storage, s3_storage

pytestmark = [pytest.mark.spark, pytest.mark.spark43]
LARGE = 200_000  # rows, some MB
BUCKET = "mounted"


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """A catalog on S3, and the folder in which Hadoop finds its files."""

    spark: Any
    storage: Storage
    folder: Path
    catalog: Any

    def make(self, name: str, rows: pa.Table, **properties: str) -> Any:
        table = self.catalog.create_table(f"db.{name}", rows.schema, properties=KEYED | properties)
        table.append(rows)
        return table

    def read(self, table: Any) -> Any:
        path = self.file(table)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.storage.client.download_file(BUCKET, str(path.relative_to(self.folder)), str(path))
        return icelock.spark.read(self.spark, table.scan(), engine="native")

    def file(self, table: Any) -> Path:
        """Return where Hadoop has a table's only data file."""
        return self.folder / table.scan().scan_tasks()[0].path.removeprefix(f"s3://{BUCKET}/")


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory) -> Iterator[Mounted]:
    folder = tmp_path_factory.mktemp("mounted")
    settings = {
        "fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"fs.viewfs.mounttable.{BUCKET}.linkFallback": folder.as_uri(),
    }
    with s3_storage(BUCKET) as storage:
        for name, value in settings.items():
            spark.conf.set(name, value)
        icelock.spark.register(spark, {})
        catalog = TestLake.with_namespace(tmp_path_factory.mktemp("lake")).catalog(**storage.properties, warehouse=f"s3://{BUCKET}/lake")
        yield Mounted(spark=spark, storage=storage, folder=folder, catalog=catalog)
        for name in settings:
            spark.conf.unset(name)


@pytest.mark.parametrize("size", [10, LARGE])
def test_rows_of_small_and_large_files(lake, size):
    made = hashed_rows(0, size)
    table = lake.make(f"rows_{size}", made)
    frame = lake.read(table)
    assert (lake.file(table).stat().st_size > 1 << 20) == (size == LARGE)
    names = made["name"].to_pylist()
    wanted = (size * (size - 1) // 2, size, min(names), max(names))
    assert frame.selectExpr("sum(id)", "count(distinct name)", "min(name)", "max(name)").first() == wanted
    assert frame.filter(f"id = {size - 1}").collect() == [(size - 1, names[-1])]


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("change", ["a byte more", "a byte fewer", "nothing"])
def test_another_length_is_noticed(lake, size, change):
    table = lake.make(f"length_{size}_{change.replace(' ', '_')}", hashed_rows(0, size))
    frame = lake.read(table)
    file = lake.file(table)
    body = file.read_bytes()
    file.write_bytes({"a byte more": body + b"x", "a byte fewer": body[:-1], "nothing": b""}[change])
    more = "more" if change == "a byte more" else "fewer"
    with pytest.raises(IntegrityError, match=rf"{file.name} failed authentication: it has {more} than the {len(body)} bytes on storage"):
        frame.collect()
