"""A Spark job whose driver is killed while it plans, while tasks write, and on both sides of the commit; and a worker that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from icelock.maintenance import leftovers
from tests.crash.operations import BEFORE, OPERATIONS, Operation, Restored
from tests.crash.steps import stepping
from tests.crash.test_killed_writers import check, ids
from tests.helpers.places import ROOT
from tests.helpers.spark import WARM, spark_environment
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import TestLake
from tests.spark.stepped import STATEMENTS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = tuple(range(100, 140))
OPERATION = Operation(OPERATIONS["append"].act, (*BEFORE, *ROWS))


@dataclass(frozen=True, kw_only=True)
class Job:
    """A statement on a lake of its own, or an append without one, and who is killed at the last of some moments."""

    lake: TestLake
    moments: list[str]
    whom: str
    statement: str = ""

    @property
    def killed(self) -> Path:
        return self.lake.folder.with_name(f"{self.whom}-killed")


def run(folder: Path, *jobs: Job) -> int:
    """Run the jobs in one driver to its end or death, wait for all its processes, and return the exit code of the driver's Python."""
    driver = folder / "driver"
    driver.mkdir()
    kills = [{"moments": job.moments, "under": str(job.lake.warehouse), "whom": job.whom, "once": str(job.killed)} for job in jobs]
    environment = {
        **os.environ,
        "ICELOCK_KILL": json.dumps(kills),
        **spark_environment(WARM),
        "TMPDIR": str(driver),
    }
    wanted = [({**stepping(job.lake.properties()), "py-io-impl": "tests.crash.spark_kill.KillingFileIO"}, job.statement) for job in jobs]
    command = [sys.executable, "-m", "tests.crash.spark_kill", json.dumps(wanted)]
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
    assert all(job.killed.exists() for job in jobs), (folder / "log").read_text(errors="replace")[-3000:]
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


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("when", "moments"),
    [
        ("tasks", ["halfway through write data"]),
        ("before the commit", ["after close list", "after close metadata.json"]),
    ],
)
def test_a_driver_that_is_killed(tmp_path: Path, when: str, moments: list[str]) -> None:
    restored = Restored(tmp_path, OPERATION)
    assert run(tmp_path, Job(lake=restored.lake, moments=moments, whom="driver")) == -signal.SIGKILL
    found = leftovers(restored.lake.catalog().load_table("db.t")).files
    assert found
    check(restored.lake, OPERATION, landed=False, where=f"killed: {when}")


def test_a_worker_that_is_killed_in_its_task_and_then_the_driver_in_a_statement(tmp_path: Path) -> None:
    """The worker's task is tried again: its rows are there once, and nothing of the first attempt is left. Then a merge is about to commit.

    Every step of statements is in tests/spark/test_statements_killed.py, without a process.
    """
    merge = STATEMENTS["merge"]
    first, second = Restored(tmp_path / "append", OPERATION).lake, Restored(tmp_path / "merge", merge).lake
    append = Job(lake=first, moments=["halfway through write data"], whom="worker")
    moments = ["after close list", "after close metadata.json"]
    assert run(tmp_path, append, Job(lake=second, moments=moments, whom="driver", statement=merge.text)) == -signal.SIGKILL
    table = first.catalog().load_table("db.t")
    assert ids(table) == OPERATION.after
    assert leftovers(table).files == ()
    check(first, OPERATION, landed=True, where="worker killed")
    check(second, merge, landed=False, where=f"merge, killed {moments[-1]}")
