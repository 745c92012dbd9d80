"""A Spark driver of its own, whose output is kept: writes, reads, changes rows, explains, and fails on a damaged file.

Then it does the like by statements, with all that the JVM and Python log at DEBUG in files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import icelock
import icelock.spark
from icelock.maintenance import remove_plain
from icelock.spark.driver import compact_here, convert_here, copy_here, rewrite_here, write_here
from icelock.spark.settings.session import attached
from tests.helpers.spark import session
from tests.leak.canary import LITERAL


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
    (folder / "gateway-token").write_text(spark.sparkContext._gateway.gateway_parameters.auth_token)
    source = spark.read.format("icelock").load("test.db.source")
    writer = icelock.spark.write_to(source.repartition(2), "test.db.spark")
    writer.tableProperty("encryption.key-id", "keyA").tableProperty("write.merge.mode", "merge-on-read").create()
    source.write.format("icelock").mode("append").save("test.db.spark")
    rewrite_here.SMALL = write_here._FEW_CHANGES = -1  # splits and rows go to tasks, through Spark's plan
    icelock.spark.delete(spark, "test.db.spark", f"id = {settings['number'] + 3}")
    icelock.spark.upsert(source.limit(7).selectExpr("id", "'x' name", "part", "tags", "blob"), "test.db.other", ["id"])
    compact_here.SMALL = -1
    [done] = icelock.spark.optimize(spark, "test.db.spark", options={"min-input-files": "2", "leftovers": "false"})
    assert done.steps[0].result.rewritten_files > 1, done
    converted(spark, settings["properties"])
    rows = spark.read.format("icelock").load("test.db.spark")
    rows.filter("id > 5").groupBy("name").count().explain(mode="extended")
    rows.filter("id > 5").explain(mode="formatted")
    assert rows.repartition(2).cache().count() > 0
    fails(rows, settings["damaged"])
    with logged(spark, "INFO", folder / "spark.log"):
        queries(spark)
    with logged(spark, "DEBUG", folder / "spark-debug.log"), logged_here(folder):
        statements(spark)
    (folder / "processes").write_bytes(processes())
    shutil.copytree(folder / "local", folder / "local-kept", ignore_dangling_symlinks=True)
    spark.stop()


def converted(spark: SparkSession, properties: dict[str, str]) -> None:
    """Let tasks encrypt a plain table with its history, and copy all of it under other keys; its plain files go."""
    convert_here.SMALL = copy_here.SMALL = -1
    done = icelock.spark.convert(spark, "test.db.plain", key_id="keyA", history="keep")
    assert done.added_files > 1, done
    assert remove_plain(icelock.load_catalog("test", **properties).load_table("db.plain")).files
    rotated = icelock.spark.rotate(spark, "test.db.plain", "all")
    assert rotated.rewritten_files > 1, rotated


@contextmanager
def logged(spark: SparkSession, level: str, log: Path) -> Iterator[None]:
    """Have all that the JVM logs at a level in a file."""
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    level = getattr(log4j.Level, level)
    context = log4j.LogManager.getContext(False)  # noqa: FBT003 - Java's
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%p %c %m%n").build()
    appender = log4j.core.appender.FileAppender.newBuilder().withFileName(str(log)).setName("searched").setLayout(layout).build()
    appender.start()
    root = context.getConfiguration().getRootLogger()
    root.setLevel(level)
    root.addAppender(appender, level, None)
    context.updateLoggers()
    yield
    root.removeAppender("searched")
    root.setLevel(log4j.Level.WARN)
    context.updateLoggers()


@contextmanager
def logged_here(folder: Path) -> Iterator[None]:
    """Have all that this process logs at DEBUG in files; what py4j logs of its own connections, their token too, is apart."""
    handlers = {"": logging.FileHandler(folder / "python-debug.log"), "py4j": logging.FileHandler(folder / "py4j-debug.log")}
    logging.getLogger("py4j").propagate = False
    for name, handler in handlers.items():
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger(__name__).debug("here is logged what is logged at DEBUG")
    yield
    for name, handler in handlers.items():
        logging.getLogger(name).removeHandler(handler)
        logging.getLogger(name).setLevel(logging.WARNING)


def queries(spark: SparkSession) -> None:
    """Let the native scan look for what only rows have."""
    assert icelock.spark.sql(spark, "select 1 from test.db.spark where name = (select max(name) from test.db.spark)").collect()
    assert icelock.spark.sql(spark, "select 1 from test.db.spark where part >= (select min(part) from test.db.spark)").collect()


def statements(spark: SparkSession) -> None:
    """Spark's own statements of all kinds, one of which fails in a task; their only literal of a row is ``LITERAL``.

    The last one that changes rows has few, which this process collects.
    """
    keyed = "tblproperties ('encryption.key-id' = 'keyA', 'write.update.mode' = 'merge-on-read')"
    for text in (
        "create table test.db.stated {keyed} as select * from test.db.source",
        "insert into test.db.stated (id, name) values (1, {literal})",
        "update test.db.stated set name = {literal} where id in (select min(id) from test.db.source)",
        "delete from test.db.stated where name = {literal} and id > 1",
        """
        merge into test.db.stated t using test.db.other s on t.id = s.id when matched then update set name = s.name
        when not matched then insert * when not matched by source and t.id = 1 then delete
        """,
        "cache table test.db.stated",
        "select name, count(*) from test.db.stated group by name",
        "uncache table test.db.stated",
        "select file_path, readable_metrics from test.db.stated.files",
        "select summary from test.db.stated.snapshots",
        "call test.system.create_tag('db.stated', 'kept')",
        "call test.system.expire_snapshots('db.stated', timestamp'2100-01-01 00:00:00', 1)",
    ):
        spark.sql(text.format(keyed=keyed, literal=f"'{LITERAL}'")).collect()
    try:
        spark.sql("update test.db.stated t set id = raise_error('at fault') where id > 1").collect()
    except PySparkException as e:
        print(e, repr(e), sep="\n")
    else:
        raise AssertionError("a statement that has to fail did not")
    write_here._FEW_CHANGES = 1 << 40
    spark.sql("update test.db.stated set name = :name where id > 1", {"name": LITERAL}).collect()


def processes() -> bytes:
    """Return the arguments and the environment of the processes that this one started."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, check=True, text=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found: list[bytes] = []
    for pid, parent in parents.items():
        above = parent
        while above not in (0, 1, os.getpid()):
            above = parents.get(above, 0)
        if above == os.getpid():
            for part in ("cmdline", "environ"):
                with contextlib.suppress(OSError):  # it has ended
                    found.append(f"\n{part} of {pid}: ".encode() + Path(f"/proc/{pid}/{part}").read_bytes())
    return b"".join(found)


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
