"""A Spark job whose driver is killed while it plans, while tasks write, and on both sides of the commit; and a worker that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from icelock.maintenance import leftovers
from tests.crash.operations import BEFORE, OPERATIONS, Operation, Restored
from tests.crash.steps import stepping
from tests.crash.test_killed_writers import check, ids
from tests.helpers.places import ROOT
from tests.helpers.spark import WARM, spark_environment
from tests.helpers.waiting import wait_until
from tests.spark.stepped import STATEMENTS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = tuple(range(100, 140))
OPERATION = Operation(OPERATIONS["append"].act, (*BEFORE, *ROWS))


def run(folder: Path, properties: dict[str, str], moments: list[str], whom: str, statement: str = "") -> int:
    """Run the job to its end or death, wait for all its processes, and return the exit code of the driver's Python."""
    driver = folder / "driver"
    driver.mkdir()
    kill = {"moments": moments, "whom": whom, "once": str(folder / "killed")}
    environment = {
        **os.environ,
        "ICELOCK_KILL": json.dumps(kill),
        **spark_environment(WARM),
        "TMPDIR": str(driver),
    }
    command = [
        sys.executable,
        "-m",
        "tests.crash.spark_kill",
        json.dumps({**properties, "py-io-impl": "tests.crash.spark_kill.KillingFileIO"}),
        statement,
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            end_session(process.pid)
    assert (folder / "killed").exists(), (folder / "log").read_text(errors="replace")[-3000:]
    return code


def end_session(leader: int) -> None:
    """Wait until the processes of a session are gone; those that stay are killed and make the test fail."""
    if wait_until(lambda: not processes(leader), 10):
        return
    left = processes(leader)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    pytest.fail(f"processes of a killed job stayed: {left}")


def processes(leader: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "-s", str(leader)], capture_output=True, check=False).stdout
    return [int(pid) for pid in listed.split()]


@pytest.mark.parametrize(
    ("when", "moments"),
    [
        ("tasks", ["halfway through write data"]),
        ("before the commit", ["after close list", "after close metadata.json"]),
    ],
)
def test_a_driver_that_is_killed(tmp_path: Path, when: str, moments: list[str]) -> None:
    restored = Restored(tmp_path, OPERATION)
    assert run(tmp_path, stepping(restored.lake.properties()), moments, "driver") == -signal.SIGKILL
    found = leftovers(restored.lake.catalog().load_table("db.t")).files
    assert bool(found) == (when in {"tasks", "before the commit"})
    check(restored.lake, OPERATION, landed=False, where=f"killed: {when}")


@pytest.mark.parametrize(
    ("name", "moments", "landed"),
    [
        ("merge", ["after close list", "after close metadata.json"], False),
    ],
)
def test_a_driver_that_is_killed_in_a_statement(tmp_path: Path, name: str, moments: list[str], landed: bool) -> None:  # noqa: FBT001
    """Every step of statements is in tests/spark/test_statements_killed.py, without a process."""
    operation = STATEMENTS[name]
    restored = Restored(tmp_path, operation)
    assert run(tmp_path, stepping(restored.lake.properties()), moments, "driver", operation.text) == -signal.SIGKILL
    check(restored.lake, operation, landed=landed, where=f"{name}, killed {moments[-1]}")


def test_a_worker_that_is_killed_in_its_task(tmp_path: Path) -> None:
    """The task is tried again: its rows are there once, and nothing of the first attempt is left."""
    restored = Restored(tmp_path, OPERATION)
    assert run(tmp_path, stepping(restored.lake.properties()), ["halfway through write data"], "worker") == 0
    table = restored.lake.catalog().load_table("db.t")
    assert ids(table) == OPERATION.after
    assert leftovers(table).files == ()
    check(restored.lake, OPERATION, landed=True, where="worker killed")
