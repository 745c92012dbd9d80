"""Spark in tests: sessions, the environment of Spark's processes, and the JVM that PySpark keeps after a session has ended."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.helpers.places import ROOT, python_path

HOST: Final = "127.0.0.1"
# On PYTHONPATH it lets Spark's Python processes start in less time; see the module in it.
WARM: Final = ROOT / "tests" / "spark" / "warm"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.sql.shuffle.partitions": "2",
}


def session(conf: Mapping[str, str], *, log_level: str | None = "OFF") -> SparkSession:
    """Return a session on this machine, of two cores unless ``conf`` names a master; ``conf`` goes over what all tests have.

    ``log_level`` is for the JVM's log on standard error; None leaves Spark's own.
    """
    master = {} if "spark.remote" in conf else {"spark.master": "local[2]"}
    builder = SparkSession.builder
    for name, value in {**master, **SETTINGS, **conf}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    if log_level is not None:
        made.sparkContext.setLogLevel(log_level)
    return made


def spark_environment(*more: Path) -> dict[str, str]:
    """Return the variables with which Spark's processes run this Python, and import icelock, ``tests`` and what is in ``more``."""
    return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST, "PYTHONPATH": python_path(*more)}


def end_jvm(seconds: float = 60) -> None:
    """End the JVM, with the session that may be in it. The next session's JVM has the environment and class path of that moment."""
    if SparkContext._active_spark_context is not None:
        SparkSession.builder.getOrCreate().stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(seconds)
    SparkContext._gateway = SparkContext._jvm = None
