"""A Spark driver of its own, whose output is kept: writes, reads, changes rows, explains, and fails on a damaged file."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import icelock.spark
from icelock.spark.driver import rewrite_here
from icelock.spark.settings.session import attached
from tests.helpers.spark import session


def main(settings: dict[str, Any]) -> None:
    folder = Path(settings["folder"])
    conf = {
        "spark.master": "local[2,2]",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.io.encryption.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "event-log").as_uri(),
        "spark.eventLog.compress": "false",
    }
    spark = session(conf, log_level=None)
    icelock.spark.register(spark, {"test": settings["properties"]})
    (folder / "session-key").write_text(attached(spark).session_key.hex())  # type: ignore[union-attr]  # it is registered
    source = spark.read.format("icelock").load("test.db.source")
    writer = icelock.spark.write_to(source.repartition(2), "test.db.spark")
    writer.tableProperty("encryption.key-id", "keyA").tableProperty("write.merge.mode", "merge-on-read").create()
    source.write.format("icelock").mode("append").save("test.db.spark")
    rewrite_here.SMALL = -1  # splits go to tasks, through Spark's plan
    icelock.spark.delete(spark, "test.db.spark", f"id = {settings['number'] + 3}")
    icelock.spark.upsert(source.limit(7).selectExpr("id", "'x' name", "part", "tags", "blob"), "test.db.other", ["id"])
    rows = spark.read.format("icelock").load("test.db.spark")
    rows.filter("id > 5").groupBy("name").count().explain(mode="extended")
    rows.filter("id > 5").explain(mode="formatted")
    assert rows.repartition(2).cache().count() > 0
    fails(rows, settings["damaged"])
    queries(spark, folder / "spark.log")
    shutil.copytree(folder / "local", folder / "local-kept", ignore_dangling_symlinks=True)
    spark.stop()


def queries(spark: SparkSession, log: Path) -> None:
    """Let the native scan look for what only rows have, with all that the JVM logs at INFO in a file."""
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    context = log4j.LogManager.getContext(False)  # noqa: FBT003 - Java's
    appender = log4j.core.appender.FileAppender.newBuilder().withFileName(str(log)).setName("searched").build()
    appender.start()
    root = context.getConfiguration().getRootLogger()
    root.setLevel(log4j.Level.INFO)
    root.addAppender(appender, log4j.Level.INFO, None)
    context.updateLoggers()
    assert icelock.spark.sql(spark, "select 1 from test.db.spark where name = (select max(name) from test.db.spark)").collect()
    assert icelock.spark.sql(spark, "select 1 from test.db.spark where part >= (select min(part) from test.db.spark)").collect()
    root.setLevel(log4j.Level.WARN)
    context.updateLoggers()


def fails(rows: DataFrame, path: str) -> None:
    """Let tasks meet a damaged file."""
    file = Path(path)
    good = file.read_bytes()
    file.write_bytes(good[:8] + bytes(byte ^ (i % 7 == 0) for i, byte in enumerate(good[8:-8])) + good[-8:])
    attempt: Callable[[], Any] = rows.sparkSession.read.format("icelock").load("test.db.source").collect
    try:
        attempt()
    except PySparkException as e:
        print(e, repr(e), sep="\n")
    else:
        msg = "the damaged file was read"
        raise AssertionError(msg)
    file.write_bytes(good)


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
