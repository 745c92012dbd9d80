"""Who may call the function of a ``foreachBatch``: another user of the machine can, and is not taken for Spark's JVM.

PySpark's port for such functions has no token (``pyspark.java_gateway.ensure_callback_server_started``), and py4j's pinned thread asks
whoever called it for what it wants of the JVM (``py4j.clientserver``).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType

import icelock.spark
from tests.helpers.waiting import wait_until
from tests.spark.native_tables import create, optional
from tests.spark.other_user import as_other_user, play_jvm
from tests.spark.test_callbacks import deks, rows
from tests.spark.test_event_log import forms

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "name", StringType()))


@pytest.mark.spark
@pytest.mark.spark43
def test_another_user_who_calls_the_function_of_a_stream_runs_nothing_of_it(spark, spark_lake, tmp_path):
    """PySpark's port for ``foreachBatch`` has no token, and a thread that the function starts would ask the true JVM, whoever called."""
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    outcomes: dict[int, list[str]] = {}

    def write(_batch: Any, number: int) -> None:
        outcomes.setdefault(number, []).append("begun")
        with ThreadPoolExecutor(1) as other:
            other.submit(icelock.spark.delete, spark, "test.db.t", f"id = {number}").result()
        outcomes[number].append("done")

    read = spark.readStream.format("icelock").option("streaming-skip-delete-snapshots", "true")
    stream = read.load("test.db.t").writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert wait_until(lambda: "done" in outcomes.get(0, []))
        port, proxies = callback_server(spark)
        got = as_other_user(lambda: play_jvm(port, proxies))
    finally:
        query.stop()
    assert outcomes == {0: ["begun", "done"]}, "the JVM is who it is, and nobody else is"
    assert b"not Spark's JVM" in got
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [*range(1, 20)]
    assert not any(form in got for dek in deks(table) for form in forms(dek))


@pytest.mark.spark
@pytest.mark.parametrize("ends_at", [None, b"getProperty"])
def test_no_answer_and_no_closed_connection_makes_a_caller_the_jvm(spark, spark_lake, ends_at):
    """py4j makes a new connection, to the true JVM, in the place of one that its caller closed: a function that tries again has that."""
    table = create(spark_lake, SCHEMA, rows(0))
    outcomes: list[str] = []

    class Called:
        def run(self, _batch: Any, number: int) -> None:
            for _ in range(3):
                try:
                    icelock.spark.delete(spark, "test.db.t", f"id = {number}")
                    outcomes.append("done")
                except Exception as e:  # noqa: BLE001 - whatever it is
                    outcomes.append(str(e))

    gateway = spark.sparkContext._gateway
    query = spark.readStream.format("rate").load().writeStream.foreachBatch(lambda *_: None).start()  # starts PySpark's server
    proxy = gateway.gateway_property.pool.put(Called())
    try:
        port, _ = callback_server(spark)
        got = as_other_user(lambda: play_jvm(port, [proxy], method="run", ends_at=ends_at))
        assert wait_until(lambda: len(outcomes) == 3)
    finally:
        query.stop()
        del gateway.gateway_property.pool[proxy]
    assert all("not Spark's JVM" in text for text in outcomes), outcomes
    assert b"getProperty" in got, "the caller was asked what the JVM knows"
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [*range(10)]
    assert not any(form in got for dek in deks(table) for form in forms(dek))


def callback_server(spark: Any) -> tuple[int, list[str]]:
    gateway = spark.sparkContext._gateway
    return gateway._callback_server.get_listening_port(), list(gateway.gateway_property.pool.dict)
