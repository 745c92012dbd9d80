"""What Python does when it starts, for Spark's Python daemons in tests: it imports what their workers would import each for itself.

A daemon forks a worker for a task or a step of planning, and again after each error: a worker that imports icelock, PyIceberg and pandas
for itself takes a second for it, and the tests of errors start hundreds. PySpark is imported from where it is installed: Spark's PYTHONPATH
names archives of it first, which are compiled by each daemon, and whose directories are read again by each task (0.1 to 0.3 s).

Only processes whose PYTHONPATH names this folder do so, and none of a cluster, where a first task that waits for its daemon is taken for
a slow one and runs elsewhere (speculation). ``watched_daemon`` imports nothing beforehand: it says what a worker reaches for;
what a task imports is for tests/unit/test_executor_imports.py.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path

TASKS = (
    "icelock.arrow.read.task",
    "icelock.arrow.write.writer",
    "icelock.io.storage",
    "icelock.spark.columns.batches",
    "icelock.spark.task.row_rewrite",
    "icelock.spark.driver.source",
    "icelock.spark.task.read",
    "icelock.spark.columns.types",
    "icelock.spark.task.write",
    "pyspark.sql.worker.plan_data_source_read",
)
PLANNING = (
    "icelock.spark.driver.commit",
    "icelock.spark.driver.plan_read",
    "icelock.spark.driver.source",
    "icelock.spark.driver.plan_write",
    "pyiceberg.catalog.sql",
)
WARM = {
    "pyspark.worker": TASKS,
    "pyspark.sql.worker.create_data_source": PLANNING,
    "pyspark.sql.worker.plan_data_source_read": PLANNING,
    "pyspark.sql.worker.data_source_pushdown_filters": PLANNING,
    "pyspark.sql.worker.write_into_data_source": PLANNING,
    "pyspark.sql.worker.commit_data_source_write": PLANNING,
    "pyspark.sql.worker.lookup_data_sources": (),
}


def leave_archives() -> None:
    for path in [path for path in sys.path if path.endswith((".jar", ".zip")) and Path(path).is_file()]:
        sys.path.remove(path)
        sys.path_importer_cache.pop(path, None)


if sys.orig_argv[-1] in WARM:
    leave_archives()
    if sys.orig_argv[-2] == "pyspark.daemon":
        # Forks copy no threads: OpenBLAS starts none, and the one of Arrow's jemalloc is ready for it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        if sys.platform == "linux" and WARM[sys.orig_argv[-1]] is PLANNING and sys.orig_argv[-3] == "-m":
            importlib.import_module("one_planner").plan_in_one(PLANNING)
        for module in WARM[sys.orig_argv[-1]]:
            importlib.import_module(module)
