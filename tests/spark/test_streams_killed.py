"""A driver that is killed, with its JVM, at each step of a stream from one table into another: no row is lost, and none comes twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

from tests.helpers.spark import WARM, spark_environment
from tests.helpers.turns import todays
from tests.lakes.sqlite import KEYED
from tests.spark.stream_driver import STEPS

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([pa.field("id", pa.int64())])


def run(lake, checkpoint, step=""):
    """Return how the driver ended."""
    arguments = [sys.executable, "-m", "tests.spark.stream_driver", json.dumps(lake.properties()), str(checkpoint), step]
    environment = {**os.environ, **spark_environment(WARM)}
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
