"""Letters that mean something to Hadoop, URLs or shells, in locations and partition values: written and read by both engines."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType
from pyspark.sql import functions as F  # noqa: N812

import icelock.spark
from tests.spark.native_tables import TABLE, create, native, optional

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "part", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
PLACES = (
    "*",
    "[a-z]",
    "{x,y}",
    "h#sh",
    "que?stion=1&b=2",
    "100%",
    "a%2Fb%20c",
    "two  spaces ",
    "ünï-日本-\U0001f512",
    unicodedata.normalize("NFD", "é"),
    "back\\slash",
    "co:lon",
    "quo'te\"",
    "semi;colon+plus",
    "line\nfeed\ttab",
    "\u2028\u00a0",
    "^~`|<>$!@,",
)
VALUES = (*PLACES, "a/b", "..", ".", "", None, "x=y", "%00")


def rows(start: int) -> list[dict[str, Any]]:
    return [{"id": start + i, "part": part} for i, part in enumerate(VALUES)]


def read(spark: Any, engine: str) -> list[tuple[int, str | None]]:
    return sorted((row.id, row.part) for row in icelock.spark.read(spark, TABLE, engine=engine).collect())


def expected(start: int) -> list[tuple[int, str | None]]:
    return [(row["id"], row["part"]) for row in rows(start)]


@pytest.mark.spark43
def test_partition_values_in_paths(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0), partition_spec=BY_PART)
    frame = spark.createDataFrame([(row["id"], row["part"]) for row in rows(100)], "id long, part string").coalesce(1)
    icelock.spark.write_to(frame, TABLE).append()
    both = expected(0) + expected(100)
    assert read(spark, "native") == both
    assert read(spark, "python") == both
    table = spark_lake.catalog().load_table("db.t")
    assert sorted((row["id"], row["part"]) for row in table.scan().to_arrow().to_pylist()) == both
    files = native(spark, columns=["id", "_file"]).collect()
    assert {row._file for row in files} == {task.path for task in table.scan().scan_tasks()}
    for value in ("*", "100%", "a/b", "", "\u2028\u00a0"):
        assert native(spark).filter(F.col("part") == value).count() == 2, value


@pytest.mark.turns(3)
@pytest.mark.parametrize("uri", [pytest.param("file://", marks=pytest.mark.spark43), "file:", ""])
def test_places_of_tables(spark, spark_lake, tmp_path, uri):
    place = tmp_path / "/".join(PLACES) / "t"
    create(spark_lake, SCHEMA, [{"id": 1, "part": "a"}, {"id": 2, "part": "b"}], location=f"{uri}{place}", partition_spec=BY_PART)
    icelock.spark.write_to(spark.createDataFrame([(3, "a")], "id long, part string").coalesce(1), TABLE).append()
    wanted = [(1, "a"), (2, "b"), (3, "a")]
    assert read(spark, "native") == wanted
    assert read(spark, "python") == wanted
    icelock.spark.delete(spark, TABLE, "id = 1")
    assert read(spark, "native") == wanted[1:]
    assert len(list(place.rglob("*.parquet"))) >= 3
