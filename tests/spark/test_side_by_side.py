"""Several catalogs, tables, snapshots and key services in one session: each scan gives the rows of its own.

Both catalogs have a table ``db.people`` with the same columns, and a master key ``keyA`` that is not the other's ``keyA``. What Spark takes
for the same plan (exchanges that it uses again, cached rows, self-joins) must not be another table or snapshot. Expected rows are counted
by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock
import icelock.spark
from icelock.cli.main import main as command
from tests.lakes.sqlite import KEYED, TestLake, people

pytestmark = pytest.mark.spark

ADAPTIVE = "spark.sql.adaptive.enabled"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"


class Lakes:
    """Two catalogs that the session knows, and one way to read their tables."""

    def __init__(self, spark: SparkSession, folder: Path, reader: str) -> None:
        self.spark = spark
        self.reader = reader
        for name in ("one", "two"):
            (folder / name).mkdir()
        one, two = (TestLake(folder / name).properties() for name in ("one", "two"))
        keyring, key_file = str(folder / "keyring.json"), str(folder / "keyring.key")
        CliRunner().invoke(command, ["keyring", "init", keyring, "keyA", "--key-file", key_file], catch_exceptions=False)
        two = {name: value for name, value in two.items() if not name.startswith(("encryption.", "kms."))}
        two |= {"encryption.kms-type": "local", "kms.local.path": keyring, "kms.local.key-file": key_file}
        icelock.spark.register(spark, {"one": one, "two": two})
        self.tables = {"one": self._made("one", one), "two": self._made("two", two)}
        # Ten people each, in two files and snapshots: 0 to 9, and 5 to 14.
        for name, start in (("one", 0), ("two", 5)):
            for first in (start, start + 5):
                self.tables[name].append(people(first, 5))

    def _made(self, name: str, properties: dict[str, str]) -> Any:
        catalog = icelock.load_catalog(name, **properties)
        catalog.create_namespace("db")
        return catalog.create_table("db.people", people().schema, properties=KEYED)

    def load(self, name: str, snapshot: int | None = None) -> DataFrame:
        if self.reader == "format":
            options = {} if snapshot is None else {"snapshot-id": str(snapshot)}
            return self.spark.read.format("icelock").options(**options).load(f"{name}.db.people")
        return icelock.spark.read(self.spark, f"{name}.db.people", snapshot_id=snapshot, engine=self.reader)

    def first(self, name: str) -> DataFrame:
        """The table as it was after five rows."""
        return self.load(name, self.tables[name].metadata.snapshots[0].snapshot_id)


@pytest.fixture
def lakes(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Lakes]:
    yield Lakes(spark, tmp_path, request.param)
    spark.catalog.clearCache()
    for name in (ADAPTIVE, BROADCAST):
        spark.conf.unset(name)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def by_city(frame: DataFrame) -> DataFrame:
    return frame.groupBy("city").agg(F.count("*").alias("n"))


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("lakes", "adaptive"), [("format", "true"), ("python", "false"), ("native", "true"), ("native", "false")], indirect=["lakes"]
)
def test_tables_of_two_catalogs_and_snapshots_are_not_one_plan(lakes: Lakes, adaptive: str) -> None:
    lakes.spark.conf.set(ADAPTIVE, adaptive)
    lakes.spark.conf.set(BROADCAST, "-1")  # every join shuffles, so that exchanges can be used again
    one, two, before = lakes.load("one"), lakes.load("two"), lakes.first("one")
    both = one.alias("a").join(two.alias("b"), "id").select("id", F.col("a.name"), F.col("b.name"))
    assert sorted(map(tuple, both.collect())) == [(i, f"canary-{i:05d}", f"canary-{i:05d}") for i in range(5, 10)]
    # City is id modulo 3: 0 to 9 have 4, 3 and 3 of them, 5 to 14 have 3, 3 and 4, 0 to 4 have 2, 2 and 1.
    counted = by_city(one).alias("a").join(by_city(two).alias("b"), "city").join(by_city(before).alias("c"), "city")
    found = counted.select("city", F.col("a.n"), F.col("b.n"), F.col("c.n")).collect()
    assert sorted(map(tuple, found)) == [("town-0", 4, 3, 2), ("town-1", 3, 3, 2), ("town-2", 3, 4, 1)]
    assert ids(one.join(before, "id", "left_anti")) == [5, 6, 7, 8, 9]
    # town-0 of one is 0, 3, 6, 9; those below 5 are 0 and 3: four times two pairs.
    pairs = one.filter("city = 'town-0'").alias("a").join(one.filter("id < 5").alias("b"), "city").select(F.col("a.id"), F.col("b.id"))
    assert sorted(map(tuple, pairs.collect())) == [(a, b) for a in (0, 3, 6, 9) for b in (0, 3)]


@pytest.mark.parametrize("lakes", ["format", "native"], indirect=True)
def test_rows_in_the_cache_are_of_their_own_snapshot(lakes: Lakes) -> None:
    kept = lakes.load("one").cache()
    assert ids(kept) == list(range(10))
    lakes.tables["one"].append(people(10, 5))
    assert ids(lakes.load("one")) == list(range(15))
    assert ids(lakes.first("one")) == list(range(5))
    assert ids(lakes.load("two")) == list(range(5, 15))
    assert ids(kept.union(lakes.load("two"))) == sorted([*range(10), *range(5, 15)])
    lakes.spark.catalog.clearCache()
    icelock.spark.delete(lakes.spark, "one.db.people", "id < 3")
    assert ids(kept) == list(range(10)), "a DataFrame stays at its snapshot, in the cache or not"
    assert ids(lakes.load("one")) == list(range(3, 15))
