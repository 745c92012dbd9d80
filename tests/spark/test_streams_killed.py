"""A driver that is killed, with its JVM, at each step of a stream from one table into another, and at any moment: no row is lost or twice.

And one that hangs while another one takes its checkpoint over, and two that use one checkpoint by mistake.

The moments of all restarts come from ``ICELOCK_SEED``, or from a number that is printed; ``ICELOCK_KILLS`` says how many there are.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.spark import WARM, spark_environment
from tests.helpers.turns import WHOLE, todays
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED
from tests.spark.stream_driver import BEGINS, ENDLESS, HANGS, REST, STEPS

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([pa.field("id", pa.int64())])
RESTARTS = int(os.environ.get("ICELOCK_KILLS") or (100 if WHOLE else 2))
SLOW = 600.0  # seconds that a driver may take where others use the machine
# Not in the commit: a driver that stops there holds the catalog's lock, and nobody else commits.
HANG_AT = ("batch begun", "files written", "batch committed")
TWO_DRIVERS = pytest.mark.turns(7, sweep="two drivers of one checkpoint")
START, BATCH = 6.0, 2.0  # seconds: within so long after the beginning of a query, or of a batch, its driver is killed


def driver(lake, checkpoint, step):
    """Return the command and the environment of a driver."""
    arguments = [sys.executable, "-m", "tests.spark.stream_driver", json.dumps(lake.properties()), str(checkpoint), step]
    return arguments, {**os.environ, **spark_environment(WARM)}


def run(lake, checkpoint, step=""):
    """Return how the driver ended."""
    arguments, environment = driver(lake, checkpoint, step)
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False, start_new_session=True)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode


def test_a_driver_that_is_killed_at_each_step(lake, tmp_path):
    """Each day at the step behind the table's commit, and at another one, one after the other on one checkpoint."""
    catalog = lake.catalog()
    for name in ("db.t", "db.copy"):
        catalog.create_table(name, SCHEMA, properties=KEYED)
    wanted = []
    for number, step in enumerate(todays("stream, killed", STEPS, 4, always=[STEPS.index("batch committed")])):
        for one in (2 * number, 2 * number + 1):
            catalog.load_table("db.t").append(pa.table({"id": [one]}, schema=SCHEMA))
            wanted.append(one)
        assert run(lake, tmp_path / "checkpoint", step) == -signal.SIGKILL, step
    assert run(lake, tmp_path / "checkpoint") == 0
    copy = catalog.load_table("db.copy")
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == wanted
    epochs = [int(one.summary.additional_properties["spark.sql.streaming.epochId"]) for one in copy.snapshots()]
    assert epochs == sorted(set(epochs))


def begun(checkpoint):
    """Return how many batches have begun."""
    return numbered(checkpoint / "offsets")


def committed(checkpoint):
    """Return how many batches Spark has noted as done."""
    return numbered(checkpoint / "commits")


def numbered(folder):
    return sum(path.name.isdecimal() for path in folder.glob("*"))


def killed_after(lake, checkpoint, batches, seconds, meanwhile):
    """Start a stream that does not end by itself, do something meanwhile, and kill its driver so long after so many batches began."""
    arguments, environment = driver(lake, checkpoint, ENDLESS)
    errors, wanted = checkpoint.with_name("errors"), begun(checkpoint) + batches
    with (
        errors.open("wb") as log,
        subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True) as running,
    ):
        try:
            assert BEGINS in running.stdout.readline(), errors.read_text()
            meanwhile()
            assert wait_until(lambda: begun(checkpoint) >= wanted or running.poll() is not None, SLOW)
            meanwhile()
            time.sleep(seconds)
            assert running.poll() is None, errors.read_text()
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)


@contextmanager
def started(lake, checkpoint, step):
    """Start a driver; yield its process, and a function that returns what it has said of errors. It is killed at the end."""
    arguments, environment = driver(lake, checkpoint, step)
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as running,
    ):

        def said():
            errors.seek(0)
            return errors.read()

        try:
            assert BEGINS in running.stdout.readline(), said()
            yield running, said
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def hangs(running):
    return Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def two_tables(lake, rows):
    """Make both tables, and fill the first with so many snapshots of one row; return a function that returns the copied ids, sorted."""
    catalog = lake.catalog()
    for name in ("db.t", "db.copy"):
        catalog.create_table(name, SCHEMA, properties=KEYED)
    for one in range(rows):
        catalog.load_table("db.t").append(pa.table({"id": [one]}, schema=SCHEMA))
    return lambda: sorted(catalog.load_table("db.copy").scan().to_arrow()["id"].to_pylist())


@TWO_DRIVERS
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("step", HANG_AT)
def test_a_driver_that_hangs_while_its_successor_goes_on(lake, tmp_path, step, batches):
    """It wakes up with a batch that the table has, and writes nothing: Spark's log ends it, or, if there are later batches, the mark."""
    copied = two_tables(lake, batches)
    with started(lake, tmp_path / "checkpoint", HANGS + step) as (running, said):
        assert wait_until(lambda: hangs(running) or running.poll() is not None, SLOW)
        assert run(lake, tmp_path / "checkpoint") == 0
        os.killpg(running.pid, signal.SIGCONT)
        assert wait_until(lambda: running.poll() is not None, SLOW)
        assert running.returncode == 1
        by_mark = batches > 1 and step != "batch committed"
        assert ("another process runs this query" if by_mark else "CONCURRENT_STREAM_LOG_UPDATE") in said()
    assert copied() == list(range(batches))
    assert len(lake.catalog().load_table("db.copy").snapshots()) == batches


@TWO_DRIVERS
def test_two_drivers_of_one_checkpoint(lake, tmp_path):
    """Two processes: rows come in, one of the two is ended by Spark, and the other one copies each row once."""
    copied = two_tables(lake, 1)
    more = count(1)
    with started(lake, tmp_path / "c", ENDLESS) as one, started(lake, tmp_path / "c", ENDLESS) as other:
        while not (ended := [said for running, said in (one, other) if running.poll() is not None]):
            lake.catalog().load_table("db.t").append(pa.table({"id": [next(more)]}, schema=SCHEMA))
            time.sleep(1)
        assert any(text in ended[0]() for text in ("CONCURRENT_STREAM_LOG_UPDATE", "another process runs this query"))
    assert run(lake, tmp_path / "c", REST) == 0
    assert copied() == list(range(next(more)))


def test_a_driver_that_is_killed_at_any_moment(lake, tmp_path):
    """Rows come in while it runs, one snapshot after the other. After each kill the copy has the first of them, each once; at the end all.

    Each kill is printed with what was there then, so a run that is ended before its last kill has proved what it printed.
    """
    seed = int(os.environ.get("ICELOCK_SEED") or random.randrange(1 << 32))
    print(f"ICELOCK_SEED={seed}")
    moments, numbers, wanted = random.Random(seed), count(), []
    catalog, checkpoint = lake.catalog(), tmp_path / "checkpoint"
    for name in ("db.t", "db.copy"):
        catalog.create_table(name, SCHEMA, properties=KEYED)
    table = catalog.load_table("db.t")

    def append():
        for _ in range(3):
            some = [next(numbers), next(numbers)]
            table.append(pa.table({"id": some}, schema=SCHEMA))
            wanted.extend(some)

    def copied():
        return sorted(catalog.load_table("db.copy").scan().to_arrow()["id"].to_pylist())

    in_a_batch = 0
    for kill in range(1, RESTARTS + 1):
        batches = moments.randrange(4)
        killed_after(lake, checkpoint, batches, moments.uniform(0, BATCH if batches else START), append)
        ids = copied()
        assert ids == wanted[: len(ids)], f"after {kill} kills"
        in_a_batch += begun(checkpoint) > committed(checkpoint)
        print(f"{kill} kills, {in_a_batch} of them in a batch: {len(ids)} of {len(wanted)} rows are there, each once", flush=True)
    assert run(lake, checkpoint, REST) == 0
    assert copied() == wanted
