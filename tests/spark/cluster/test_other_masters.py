"""The native scan on ``local-cluster``, and where executors come and go (dynamic allocation).

PySpark has one JVM a process, so this comes before the modules that share a session: pytest collects this folder first.
"""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock.spark
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED, people
from tests.spark.standalone import SPARK_HOME, Cluster, connected

pytestmark = pytest.mark.spark

TABLE = "test.db.t"
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
}


def check(spark, lake):
    """Read two files, each with a vector."""
    icelock.spark.register(spark, {"test": lake.properties()})
    found = icelock.spark.read(spark, TABLE, engine="native")
    assert sorted(row.id for row in found.select("id").collect()) == [number for number in range(200) if number not in (7, 107)]
    assert found.filter("id < 10").groupBy("city").agg(F.count("*").alias("n")).agg(F.sum("n")).first()[0] == 9


def make(lake):
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    for start in (0, 100):
        table.append(people(start, 100))
    table.delete("id in (7, 107)")


def test_local_cluster(tmp_path, lake, monkeypatch):
    """Its executors are processes of their own, and work under SPARK_HOME, which is a folder of links here."""
    home = tmp_path / "spark"
    home.mkdir()
    for entry in SPARK_HOME.iterdir():
        (home / entry.name).symlink_to(entry)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("SPARK_SCALA_VERSION", "2.13")
    make(lake)
    with connected(Cluster(tmp_path), {"spark.master": "local-cluster[2,1,1024]"}) as spark:
        check(spark, lake)
        spark.conf.set("spark.sql.codegen.maxFields", "1")  # more columns than that are read row by row
        check(spark, lake)
        spark.conf.unset("spark.sql.codegen.maxFields")
        icelock.spark.write_to(spark.range(200, 500, 1, 2).selectExpr("id", "'n' name", "'x' city"), TABLE).append()
        assert icelock.spark.read(spark, TABLE).filter("id >= 200").agg(F.sum("id")).first()[0] == sum(range(200, 500))
        assert len(list((home / "work").glob("*/*/stderr"))) >= 2, "executors of their own"


def test_dynamic_allocation(cluster, lake):
    """Executors that come after others went have the classes of the scan too."""
    make(lake)
    with connected(cluster, DYNAMIC) as spark:
        check(spark, lake)
        first = set(cluster.executors())
        assert first
        assert wait_until(lambda: not cluster.executors(), 120)
        check(spark, lake)
        assert set(cluster.executors()).isdisjoint(first)
