"""Ctrl-C while statements write: none of them commits afterwards, no file is left, and the session goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest

import icelock.spark
from icelock.spark.driver import interrupts, jobs_here, write_here
from tests.helpers.spark import session, spark_environment
from tests.lakes.sqlite import KEYED, TestLake

pytestmark = pytest.mark.spark
# 150,000 rows that take seconds of CPU.
_SLOW: Final = "select id, sha2(repeat(cast(id as string), 300), 512) as s from range(0, 1200000, 1, 8)"


def _interrupted(folder: Path) -> None:
    """Run in a process of its own, whose main thread gets the signals."""
    lake = TestLake(folder)
    lake.catalog().create_namespace("db")
    spark = session({"spark.sql.warehouse.dir": str(folder / "spark")})
    icelock.spark.register(spark, {"test": lake.properties()})
    spark.sql(f"create table test.db.t (id bigint, s string) tblproperties ('encryption.key-id' = '{KEYED['encryption.key-id']}')")
    spark.sql("insert into test.db.t values (0, 'x')")
    outcomes = []
    for seconds in (0.3, 1.5):
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            spark.sql(f"insert into test.db.t {_SLOW}")
            outcomes.append("done")
        except BaseException as e:  # noqa: BLE001 - KeyboardInterrupt, or what PySpark makes of it
            outcomes.append(type(e).__name__)
    # What a cancelled job left is deleted in the background; what commits late would commit by then.
    deadline, quiet = time.monotonic() + 120, 0
    while quiet < 4 and time.monotonic() < deadline:
        time.sleep(1)
        busy = spark.sparkContext.statusTracker().getActiveJobsIds() or _data_files(folder) != 1
        quiet = 0 if busy else quiet + 1
    print(outcomes, lake.catalog().load_table("db.t").scan().count(), spark.sql("select count(*) from test.db.t").collect()[0][0])
    print(len(lake.catalog().load_table("db.t").snapshots()), _data_files(folder))


def _data_files(folder: Path) -> int:
    return len(list((folder / "warehouse").rglob("*.parquet")))


def test_an_interrupted_statement_commits_nothing_and_leaves_nothing(tmp_path):
    environment = {**os.environ, **spark_environment()}
    code = f"from pathlib import Path; from tests.spark.test_interrupts import _interrupted; _interrupted(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes, counts = done.stdout.splitlines()[-2:]
    assert "done" not in outcomes
    assert outcomes.endswith("] 1 1")
    assert counts == "1 1"


def test_an_interrupt_before_the_job_starts_stops_it(spark, spark_lake, monkeypatch):
    """Cancelling jobs finds none as long as the statement is planned: the job must not start then."""
    spark.sql(f"create table test.db.t (id bigint, s string) tblproperties ('encryption.key-id' = '{KEYED['encryption.key-id']}')")
    spark.sql("insert into test.db.t select id, 'a' from range(200)")
    started: list[str] = []
    monkeypatch.setattr(interrupts, "_last", interrupts._last)
    plan = jobs_here.planned_write

    def interrupted(*args, **kwargs):
        interrupts._last = next(interrupts._COUNT)
        return plan(*args, **kwargs)

    monkeypatch.setattr(jobs_here, "planned_write", interrupted)
    monkeypatch.setattr(write_here, "_in_own_session", lambda *_: started.append("write"))
    for rows in ("select id, 'b' from range(200)", "values (7, 'b')"):
        with pytest.raises(Exception, match="the statement was interrupted: nothing is committed"):
            spark.sql(f"insert into test.db.t {rows}")
    assert not started
    assert spark.sql("select count(*) from test.db.t").collect()[0][0] == 200
    assert len(spark_lake.catalog().load_table("db.t").snapshots()) == 1
