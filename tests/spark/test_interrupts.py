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

from tests.helpers.spark import session, spark_environment
from tests.lakes.sqlite import KEYED, TestLake

pytestmark = pytest.mark.spark
# 150,000 rows that take seconds of CPU.
_SLOW: Final = "select id, sha2(repeat(cast(id as string), 300), 512) as s from range(0, 1200000, 1, 8)"


def _interrupted(folder: Path) -> None:
    """Run in a process of its own, whose main thread gets the signals."""
    import icelock.spark  # noqa: PLC0415 - not for the test's own process

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
    deadline = time.monotonic() + 60
    while threading.active_count() > 1 and spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(8)  # longer than the sweeps after a job that was cancelled; what commits late commits by then
    print(outcomes, lake.catalog().load_table("db.t").scan().count(), spark.sql("select count(*) from test.db.t").collect()[0][0])
    print(len(lake.catalog().load_table("db.t").snapshots()), len(list((folder / "warehouse").rglob("*.parquet"))))


def test_an_interrupted_statement_commits_nothing_and_leaves_nothing(tmp_path):
    environment = {**os.environ, **spark_environment()}
    code = f"from pathlib import Path; from tests.spark.test_interrupts import _interrupted; _interrupted(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes, counts = done.stdout.splitlines()[-2:]
    assert "done" not in outcomes
    assert outcomes.endswith("] 1 1")
    assert counts == "1 1"
