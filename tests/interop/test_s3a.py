"""The native scan on S3, by Hadoop's S3A: no more requests than a file needs, and lengths that storage states are not believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import icelock.spark
from icelock.errors import FormatError, IntegrityError
from tests.helpers.tables import hashed_rows as rows
from tests.lakes.sqlite import KEYED, TestLake
from tests.servers.s3 import Storage, s3_storage

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
LARGE = 200_000  # rows, some MB


@dataclass(frozen=True, kw_only=True)
class Lake:
    spark: Any
    storage: Storage
    catalog: Any

    def read(self, name: str) -> Any:
        return icelock.spark.read(self.spark, self.catalog.load_table(name).scan(), engine="native")

    def object_of(self, name: str) -> tuple[str, bytes]:
        """Return the key and the bytes of a table's only data file."""
        path = self.catalog.load_table(name).scan().scan_tasks()[0].path
        key = path.removeprefix(f"s3://{self.storage.bucket}/")
        return key, self.storage.client.get_object(Bucket=self.storage.bucket, Key=key)["Body"].read()

    def put(self, key: str, body: bytes) -> None:
        self.storage.client.put_object(Bucket=self.storage.bucket, Key=key, Body=body)


@pytest.fixture(scope="module")
def lake(engines, tmp_path_factory) -> Iterator[Lake]:
    spark = engines.session.spark
    with s3_storage("sized") as storage:
        for name, value in storage.hadoop.items():
            spark.conf.set(name, value)
        catalog = TestLake.with_namespace(tmp_path_factory.mktemp("s3")).catalog(**storage.properties, warehouse="s3://sized/lake")
        yield Lake(spark=spark, storage=storage, catalog=catalog)
        for name in storage.hadoop:
            spark.conf.unset(name)


def make(lake: Lake, name: str, *parts: pa.Table, **properties: str) -> Any:
    table = lake.catalog.create_table(f"db.{name}", parts[0].schema, properties=KEYED | properties)
    for part in parts:
        table.append(part)
    return table


def test_a_small_file_is_one_request(lake):
    make(lake, "small", rows(0, 10), rows(10, 10), rows(20, 10))
    frame = lake.read("db.small")
    assert sorted(row.id for row in frame.collect()) == list(range(30))
    lake.storage.counting.clear()
    assert frame.selectExpr("sum(id)", "count(name)").first() == (435, 30)  # 29 * 30 / 2
    assert dict(lake.storage.counting.data) == {"GET": 3}


def test_of_a_large_file_the_end_and_the_columns(lake):
    made = rows(0, LARGE)
    make(lake, "large", made, **{"write.parquet.row-group-limit": str(LARGE)})
    assert len(lake.object_of("db.large")[1]) > 1 << 20
    frame = lake.read("db.large")
    lake.storage.counting.clear()
    assert frame.selectExpr("sum(id)").first() == (LARGE * (LARGE - 1) // 2,)
    assert dict(lake.storage.counting.data) == {"GET": 2}
    names = made["name"].to_pylist()
    assert frame.selectExpr("count(distinct name)", "min(name)", "max(name)").first() == (LARGE, min(names), max(names))


def test_deleted_rows_are_left_out(lake):
    table = make(lake, "deleted", rows(0, LARGE), **{"write.delete.mode": "merge-on-read"})
    table.delete("id >= 100 and id < 199900")
    assert lake.read("db.deleted").selectExpr("count(1)", "min(id)", "max(id)").first() == (200, 0, LARGE - 1)


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("change", ["a byte more", "a byte fewer", "nothing", "half"])
def test_another_length_is_noticed(lake, size, change):
    name = f"length_{size}_{change.replace(' ', '_')}"
    make(lake, name, rows(0, size))
    key, body = lake.object_of(f"db.{name}")
    frame = lake.read(f"db.{name}")
    lake.put(key, {"a byte more": body + b"x", "a byte fewer": body[:-1], "nothing": b"", "half": body[: len(body) // 2]}[change])
    more = "more" if change == "a byte more" else "fewer"
    with pytest.raises(IntegrityError, match=rf"{key} failed authentication: it has {more} than the {len(body)} bytes on storage"):
        frame.collect()


@pytest.mark.parametrize("size", [10, LARGE])
def test_changed_bytes_are_noticed(lake, size):
    name = f"changed_{size}"
    make(lake, name, rows(0, size))
    key, body = lake.object_of(f"db.{name}")
    frame = lake.read(f"db.{name}")
    for at in (len(body) // 3, len(body) - 100, len(body) - 6):
        lake.put(key, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        with pytest.raises(IntegrityError, match=key):
            frame.collect()
    lake.put(key, body)
    assert frame.count() == size


def test_a_file_that_is_gone(lake):
    make(lake, "gone", rows(0, 10))
    key, _ = lake.object_of("db.gone")
    frame = lake.read("db.gone")
    lake.storage.client.delete_object(Bucket=lake.storage.bucket, Key=key)
    with pytest.raises(FileNotFoundError, match=f"{key} is not there"):
        frame.collect()


def test_storage_that_fails_is_no_damage(lake, monkeypatch):
    make(lake, "down", rows(0, 10))
    key, _ = lake.object_of("db.down")
    frame = lake.read("db.down")
    answer = lake.storage.counting._inner

    def refused(environment: dict[str, Any], start: Any) -> Any:
        if key not in environment["PATH_INFO"]:
            return answer(environment, start)
        start("400 Bad Request", [("Content-Type", "application/xml")])
        return [b"<Error><Code>InvalidRequest</Code><Message>not today</Message></Error>"]

    monkeypatch.setattr(lake.storage.counting, "_inner", refused)
    with pytest.raises(OSError, match=f"{key} could not be read"):
        frame.collect()


def test_plain_files_are_read(lake):
    """The length in a plain table's manifest is not relied on: other engines do not ask for it to be true."""
    make_plain = {"format-version": "2", "icelock.plain": "true"}
    lake.catalog.create_table("db.plain", rows(0, 1).schema, properties=make_plain).append(rows(0, 10))
    key, body = lake.object_of("db.plain")
    frame = lake.read("db.plain")
    assert frame.selectExpr("sum(id)").first() == (45,)
    lake.put(key, body[:-1])
    with pytest.raises(FormatError, match=f"{key} is a damaged plain Parquet file"):
        frame.collect()
