"""What a session's JVM does ahead of its first statement: a plan that nobody is told of."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from icelock.spark.jvm import ahead


@pytest.mark.spark
@pytest.mark.spark43
def test_a_plan_is_made_and_nothing_is_run(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    spark.range(3).collect()
    listed: Any = spark._jsparkSession.sharedState().statusStore()  # type: ignore[operator]
    jobs = spark.sparkContext._jsc.sc().statusStore()  # type: ignore[union-attr]
    before = listed.executionsCount(), jobs.jobsList(None).size()
    assert min(before) > 0
    with caplog.at_level(logging.DEBUG, ahead.__name__):
        ahead.plan(spark)
    assert not caplog.records
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
    assert (listed.executionsCount(), jobs.jobsList(None).size()) == before


def test_only_the_first_session_of_a_context_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = list[Any](), threading.Event()
    monkeypatch.setattr(ahead, "plan", lambda spark: (begun.append(spark), done.set()))
    known: Any = SimpleNamespace(sparkContext=SimpleNamespace(_icelock_jars=["a.jar"]))
    ahead.begin(known)
    new: Any = SimpleNamespace(sparkContext=SimpleNamespace())
    ahead.begin(new)
    assert done.wait(60)
    assert begun == [new]


def test_what_cannot_be_planned_is_left_to_statements(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_query: str) -> None:
        raise RuntimeError("stopped\n\tat java")

    other: Any = SimpleNamespace(_jsparkSession=SimpleNamespace(sql=refuse))
    with caplog.at_level(logging.DEBUG, ahead.__name__):
        ahead.plan(other)
    assert [record.getMessage() for record in caplog.records] == ["Spark's planner is loaded when a statement needs it: stopped"]
