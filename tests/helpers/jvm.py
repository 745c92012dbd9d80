"""The JVM that PySpark keeps for a process after its session has ended: tests that need one of their own end it."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.helpers.places import ROOT

# On PYTHONPATH it lets Spark's Python processes start in less time; see the module in it.
WARM = ROOT / "tests" / "spark" / "warm"


def end_jvm() -> None:
    """End it, with the session that may be in it. The next session's JVM has the environment and class path of that moment."""
    if SparkContext._active_spark_context is not None:
        SparkSession.builder.getOrCreate().stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None
