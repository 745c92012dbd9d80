"""One Spark session for all modules here, and a lake that it knows.

Master ``local[2,3]``: two tasks at once, three attempts each. Planning processes and executors import this folder's helpers by
PYTHONPATH. The event log is on, so that what is searched for keys is what all tests did.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

import icelock
import icelock.spark
from tests.golden.relocate import catalog_properties, metadata_location
from tests.helpers.spark import WARM, end_jvm, session, spark_environment
from tests.lakes.sqlite import TestLake
from tests.spark.stepped import in_this_process

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("event-log")


@pytest.fixture(scope="session")
def spark(event_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    end_jvm()
    conf = {
        "spark.master": "local[2,3]",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "UTC",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with patch.dict(os.environ, {**spark_environment(WARM), "TMPDIR": str(tmp_path_factory.mktemp("driver"))}):
        with contextlib.chdir(tmp_path_factory.mktemp("here")):  # where the JVM and all that it starts are
            made = session(conf)
        yield made
        end_jvm()


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    """A lake whose catalog is called ``test`` and has the namespace ``db``."""
    return TestLake.with_namespace(tmp_path)


@pytest.fixture
def spark_lake(spark: SparkSession, lake: TestLake) -> Iterator[TestLake]:
    """The same, known to Spark."""
    icelock.spark.register(spark, {"test": lake.properties()})
    yield lake
    spark.conf.unset(PUSH_DOWN)


@pytest.fixture
def golden(spark: SparkSession, tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes a golden table known to Spark and returns its name."""

    def register(name: str) -> str:
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/{name}.db", "warehouse": str(tmp_path), **catalog_properties(name)}
        catalog = icelock.load_catalog("golden", **properties, **{"icelock.require-encryption": "false"})  # one table is plain
        catalog.create_namespace("g")
        catalog.register_table(f"g.{name}", metadata_location(name))
        icelock.spark.register(spark, {"golden": properties})
        return f"golden.g.{name}"

    return register


@pytest.fixture
def tasks_here(spark: SparkSession) -> Iterator[None]:
    """Statements do what their tasks do in this process."""
    with in_this_process(spark):
        yield


@pytest.fixture
def sql(spark: SparkSession, spark_lake: TestLake) -> Callable[[str], list[tuple[object, ...]]]:  # noqa: ARG001 - known to the session
    """Run a statement of Spark's own; return its rows as tuples."""
    return lambda text: [tuple(row) for row in spark.sql(text).collect()]
