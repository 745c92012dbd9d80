"""Data sources as Spark's JVM knows them: what ``register`` does besides registering one.

``spare_search`` spares the first ``register`` of a JVM a search that finds nothing.

When a JVM is first asked about Python data sources, Spark (4.1 to 4.3) starts Python processes that look for modules ``pyspark_*``, import
them and take their ``DefaultSource``: two to three seconds of CPU. This process is the Python that Spark would start, as a rule, so it can
tell for nothing that there is no such module. Where it cannot, or there is one, Spark looks as ever.

``register_before`` lets a second session of a JVM have the format: Spark refuses a name of which there is a class (``DefaultSource.java``),
unless the session has a data source of the name already.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

from pyspark.sql import SparkSession

from icelock.spark.jvm.rules import first_line

_PREFIX: Final = "pyspark_"  # pyspark/sql/worker/lookup_data_sources.py
_logger = logging.getLogger(__name__)


def spare_search(spark: SparkSession) -> None:
    """Tell a classic session's JVM that Python has no data sources to be found, if that is so and it has not looked yet."""
    jvm: Any = spark._jvm
    try:
        manager = _object(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager")
        python = _object(jvm.org.apache.spark.api.python, "PythonUtils").defaultPythonExec()
        if manager.dataSourceBuilders().isEmpty() and _is_here(python) and not _found():
            nothing = _object(jvm.scala.collection.immutable, "Map").empty()
            getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(nothing))
    except Exception as e:
        _logger.debug("Spark looks for Python data sources itself: %s", first_line(e))


def register_before(spark: SparkSession, name: str) -> None:
    """Let a classic session of a JVM that has the class have a data source of the name, for another one to take its place."""
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(f"{name}.DefaultSource")
    except Exception:  # no session of this JVM has been registered before
        return
    try:
        manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
        if not manager.dataSourceExists(name):
            python = jvm.org.apache.spark.sql.execution.datasources.v2.python
            manager.registerDataSource(name, python.UserDefinedPythonDataSource(None))
    except Exception as e:
        _logger.debug("Spark may refuse the data source %s in this session: %s", name, first_line(e))


def _object(package: Any, name: str) -> Any:
    """Return an object of Scala."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _is_here(command: str) -> bool:
    """Whether a command is this process's Python, with what is installed there: links to one interpreter are in many environments."""
    path = shutil.which(command)
    return path is not None and Path(path).parent == Path(sys.executable).parent and Path(path).samefile(sys.executable)


def _found() -> bool:
    """Whether Python has a module that Spark would import: in this process's path, or where a process of Spark's would look too."""
    folders = [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return any(module.name.startswith(_PREFIX) for path in (None, folders) for module in iter_modules(path))
