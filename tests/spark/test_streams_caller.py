"""Who may call the function of a ``foreachBatch``: another user of the machine can, and is not taken for Spark's JVM.

PySpark's port for such functions has no token (``pyspark.java_gateway.ensure_callback_server_started``), and py4j's pinned thread asks
whoever called it for what it wants of the JVM (``py4j.clientserver``).
"""

from __future__ import annotations

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
def test_another_user_who_calls_the_function_of_a_stream_is_not_taken_for_the_jvm(spark, spark_lake, tmp_path):
    """PySpark's port for ``foreachBatch`` has no token, and the thread that is called takes the caller for the JVM."""
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    outcomes: dict[int, list[str]] = {}

    def write(_batch: Any, number: int) -> None:
        try:
            icelock.spark.delete(spark, "test.db.t", f"id = {number}")
            outcomes.setdefault(number, []).append("done")
        except Exception as e:
            outcomes.setdefault(number, []).append(str(e))
            raise

    read = spark.readStream.format("icelock").option("streaming-skip-delete-snapshots", "true")
    stream = read.load("test.db.t").writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert wait_until(lambda: bool(outcomes))
        gateway = spark.sparkContext._gateway
        port, proxies = gateway._callback_server.get_listening_port(), list(gateway.gateway_property.pool.dict)
        got = as_other_user(lambda: play_jvm(port, proxies))
    finally:
        query.stop()
    assert outcomes[0] == ["done"], "the JVM is who it is"
    assert all("not Spark's JVM" in text for text in outcomes[7]), outcomes[7]
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [*range(1, 20)]
    assert not any(form in got for dek in deks(table) for form in forms(dek))
