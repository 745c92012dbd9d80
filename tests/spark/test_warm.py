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
IMPORTED = "import sys; print(sys.modules.keys() >= {'icelock.spark.driver.source', 'icelock.io.storage', 'pyarrow'})"
FOUND = """
import sys, pyspark.worker
print(pyspark.__file__)
print({type(found).__name__ for path, found in sys.path_importer_cache.items() if "pyspark" in path or "py4j" in path})
"""


def started(code: str, *arguments: str) -> list[str]:
    """Start Python with archives of PySpark first, as Spark does, and return what it said."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*ARCHIVES, str(WARM), str(Path(icelock.__file__).parents[1])])}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""  # where Python says what a sitecustomize could not do, and goes on
    return done.stdout.splitlines()


@pytest.mark.parametrize("worker", [pytest.param("pyspark.worker", marks=pytest.mark.spark43), "pyspark.sql.worker.plan_data_source_read"])
def test_a_daemon_imports_what_its_workers_need(worker):
    assert started(IMPORTED, "pyspark.daemon", worker) == ["True"]
    assert started(IMPORTED, "tests.spark.watched_daemon", worker) == ["False"]


def test_pyspark_is_not_imported_from_its_archives():
    assert len(ARCHIVES) == 2
    assert started(FOUND, "pyspark.worker") == [str(SPARK_HOME / "__init__.py"), "{'FileFinder'}"]
