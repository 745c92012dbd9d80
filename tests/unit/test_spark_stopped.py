"""A Spark session that was stopped is refused in one sentence; PySpark takes its context's Java object away (``SparkContext.stop``)."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest

pyspark = pytest.importorskip("pyspark")

import icelock.spark  # noqa: E402
from icelock.errors import PolicyError  # noqa: E402
from icelock.spark.arguments import is_stopped  # noqa: E402


def session(java: object) -> SimpleNamespace:
    return SimpleNamespace(createDataFrame=None, conf=None, sparkContext=SimpleNamespace(_jsc=java))


class OfConnect:
    """A client of Spark Connect has no context."""

    createDataFrame = conf = None  # noqa: N815 - PySpark's names

    @property
    def sparkContext(self) -> object:
        raise AttributeError


class NeverUsed:
    """A session that was stopped before anything was asked of it: PySpark asks the JVM for ``conf`` then, which has none any more."""

    createDataFrame = None  # noqa: N815 - PySpark's name
    sparkContext = SimpleNamespace(_jsc=None)  # noqa: N815 - likewise

    @property
    def conf(self) -> object:
        raise RuntimeError("Py4JJavaError")


def test_pyspark_takes_the_java_context_of_a_stopped_session_away():
    assert "self._jsc = None" in inspect.getsource(pyspark.SparkContext.stop)


def test_a_stopped_session_and_its_rows_are_refused_with_what_to_do():
    stopped = session(None)
    rows = SimpleNamespace(sparkSession=stopped, schema=None)
    for use in (
        lambda: icelock.spark.read(stopped, "lake.db.t"),
        lambda: icelock.spark.read(NeverUsed(), "lake.db.t"),
        lambda: icelock.spark.write_to(rows, "lake.db.t"),
    ):
        with pytest.raises(PolicyError, match=r"the Spark session was stopped.* icelock\.spark\.register\(spark\)"):
            use()


def test_others_are_not_stopped():
    assert not any(map(is_stopped, (session(object()), OfConnect(), "lake.db.t", None, SimpleNamespace())))
