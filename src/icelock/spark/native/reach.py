"""Whether the JVM sees a table's files as Python does: the same storage, the same bytes, names that it can spell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyiceberg.io import PY_IO_IMPL
from pyspark.sql import SparkSession

from icelock.io.file_io import storage_of
from icelock.plan.task import ScanTask
from icelock.table.read.scan import DataScan

_LOCAL: Final = "file"


def foreign_storage(scan: DataScan) -> str | None:
    """Return why the JVM may see other files than Python at the same paths, or None."""
    named = storage_of(scan.io).properties.get(PY_IO_IMPL)
    return None if named is None else f"its files are read through {named} ({PY_IO_IMPL}), which the JVM does not know"


def unreachable(spark: SparkSession, tasks: Sequence[ScanTask]) -> str | None:
    """Return why the JVM does not reach a table's storage as Python does, or None."""
    jvm: Any = spark._jvm  # noqa: SLF001
    by_scheme = {_scheme(task.path): task for task in tasks}
    for scheme, task in by_scheme.items():
        if scheme == _LOCAL:
            odd = next((one.path for one in tasks if not one.path.isascii() and _scheme(one.path) == _LOCAL), None)
            reason = None if odd is None else _unnamed(jvm, odd)
            if reason is not None:
                return reason
            continue
        try:
            path = jvm.org.apache.hadoop.fs.Path(task.path)
            found = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).getFileStatus(path).getLen()  # noqa: SLF001
        except Exception as e:  # noqa: BLE001 - no such file system, or none of its credentials
            return f"Hadoop in this session does not reach {scheme} storage ({_reason(e)})"
        if found != task.file_size:
            return f"Hadoop in this session sees {found} bytes in {task.path}, not {task.file_size}"
    return None


def _reason(error: Exception) -> str:
    """Return the first line of what the JVM says; py4j's own first line names its method only."""
    thrown = getattr(error, "java_exception", None)  # Py4JJavaError's
    said = str(error) if thrown is None else str(thrown.toString())
    return said.partition("\n")[0]


def _scheme(path: str) -> str:
    """Return the scheme of a file's location, as ``split_location``; it is asked of each file, and this takes a seventh of the time."""
    before, mark, _ = path.partition(":/")
    return before if mark and "/" not in before else _LOCAL


def _unnamed(jvm: Any, path: str) -> str | None:
    """Return why the JVM cannot name a local file, or None: in a container without a locale it knows ASCII only."""
    encoding = str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))
    try:
        path.encode(encoding)
    except UnicodeEncodeError:
        return f"Spark's JVM has {encoding} for file names, which lacks letters of {path}: start it with LC_ALL=C.UTF-8"
    except LookupError:
        return None
    return None
