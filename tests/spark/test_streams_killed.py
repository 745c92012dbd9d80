"""A driver that is killed, with its JVM, at each step of a stream from one table into another, and at any moment: no row is lost or twice.

The moments of all restarts come from ``ICELOCK_SEED``, or from a number that is printed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import count

import pyarrow as pa
import pytest

from tests.helpers.spark import WARM, spark_environment
from tests.helpers.turns import WHOLE, todays
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED
from tests.spark.stream_driver import BEGINS, ENDLESS, REST, STEPS

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([pa.field("id", pa.int64())])
RESTARTS = 100 if WHOLE else 2
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
    return sum(path.name.isdecimal() for path in (checkpoint / "offsets").glob("*"))


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
            assert wait_until(lambda: begun(checkpoint) >= wanted or running.poll() is not None)
            meanwhile()
            time.sleep(seconds)
            assert running.poll() is None, errors.read_text()
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)


def test_a_driver_that_is_killed_at_any_moment(lake, tmp_path):
    """Rows come in while it runs, one snapshot after the other; at the end each of them is in the copy once."""
    seed = int(os.environ.get("ICELOCK_SEED") or random.randrange(1 << 32))
    print(f"ICELOCK_SEED={seed}")
    moments, numbers, wanted = random.Random(seed), count(), Counter()
    catalog = lake.catalog()
    for name in ("db.t", "db.copy"):
        catalog.create_table(name, SCHEMA, properties=KEYED)
    table = catalog.load_table("db.t")

    def append():
        for _ in range(3):
            some = [next(numbers), next(numbers)]
            table.append(pa.table({"id": some}, schema=SCHEMA))
            wanted.update(some)

    for _ in range(RESTARTS):
        batches = moments.randrange(4)
        seconds = moments.uniform(0, BATCH if batches else START)
        killed_after(lake, tmp_path / "checkpoint", batches, seconds, append)
    assert run(lake, tmp_path / "checkpoint", REST) == 0
    copy = catalog.load_table("db.copy")
    found = Counter(copy.scan().to_arrow()["id"].to_pylist())
    assert found == wanted, f"lost: {wanted - found}, twice: {found - wanted}"
    print(f"{found.total()} rows in {len(copy.snapshots())} batches after {RESTARTS} kills")
