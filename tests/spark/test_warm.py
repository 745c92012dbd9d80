"""Python processes of Spark in these tests start warm; one that could not do so would be slow, and nothing else would say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import icelock
from tests.helpers.spark import WARM
from tests.spark.standalone import SPARK_HOME

ARCHIVES = sorted(map(str, (SPARK_HOME / "python" / "lib").glob("*.zip")))
PLANNERS = [f"pyspark.sql.worker.{step}" for step in ("create_data_source", "plan_data_source_read", "commit_data_source_write")]
IMPORTED = "import sys; print(sys.modules.keys() >= {'icelock.spark.driver.source', 'icelock.io.storage', 'pyarrow'})"
FOUND = """
import sys, pyspark.worker
print(pyspark.__file__)
print({type(found).__name__ for path, found in sys.path_importer_cache.items() if "pyspark" in path or "py4j" in path})
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*ARCHIVES, str(WARM), str(Path(icelock.__file__).parents[1])])}


def started(code: str, *arguments: str) -> list[str]:
    """Start Python with archives of PySpark first, as Spark does, and return what it said."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""  # where Python says what a sitecustomize could not do, and goes on
    return done.stdout.splitlines()


@pytest.mark.parametrize("worker", [pytest.param("pyspark.worker", marks=pytest.mark.spark43), "pyspark.sql.worker.plan_data_source_read"])
def test_a_daemon_imports_what_its_workers_need(worker):
    assert started(IMPORTED, "pyspark.daemon", worker) == ["True"]
    assert started(IMPORTED, "tests.spark.watched_daemon", worker) == ["False"]


def test_pyspark_is_not_imported_from_its_archives():
    assert len(ARCHIVES) == 2
    assert started(FOUND, "pyspark.worker") == [str(SPARK_HOME / "__init__.py"), "{'FileFinder'}"]


def test_planning_daemons_of_a_jvm_are_forked_from_one_process():
    """Each says where it listens, as Spark's do; what waits for the later ones has imported nothing. All end when their input does."""
    begun = []
    for planner in PLANNERS:
        command = [sys.executable, "-m", "pyspark.daemon", planner]
        begun.append(subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert int.from_bytes(begun[-1].stdout.read(4)) > 1024, begun[-1].stderr.read()
    assert ["libarrow" in Path(f"/proc/{process.pid}/maps").read_text() for process in begun] == [True, False, False]
    for process in begun:
        assert process.communicate(timeout=60) == (b"", b"")
    assert len({process.returncode for process in begun}) == 1
