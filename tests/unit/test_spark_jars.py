"""Executors get the jars of all of icelock's Java classes: those that they run use helpers in another jar (``LiveRows`` uses ``Plans``)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from icelock.spark.jvm import classes


@pytest.fixture
def spark(monkeypatch):
    added = []
    context = SimpleNamespace(_jsc=SimpleNamespace(addJar=added.append), added=added)
    monkeypatch.setattr(classes, "_load", lambda _jvm, name, _sources: f"{name}.jar")
    monkeypatch.setattr(classes, "callbacks_of", lambda _: SimpleNamespace(forget=lambda: None))
    return SimpleNamespace(sparkContext=context, _jvm=SimpleNamespace(icelock=None))


def test_executors_get_every_jar_once(spark):
    for _ in range(2):
        classes.load_native(spark)
    assert sorted(spark.sparkContext.added) == ["native.jar", "rules.jar"]


def test_rules_alone_go_to_no_executor(spark):
    classes.load_rules(spark)
    assert spark.sparkContext.added == []
