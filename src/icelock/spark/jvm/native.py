"""The Java side of the native scan: compiled by the Janino among Spark's jars, put into a jar, and added to a running session.

The jar goes to executors as any other that is added (``SparkContext.addJar``), and to the driver through the class loader of its context,
which executors of a local master share. One compilation serves a JVM, also when another SparkContext follows in it.

Not here: what the classes do (``NativeScan.java``), the rule for Python scans (``spark.jvm.rules``).
"""

from __future__ import annotations

import logging
import threading
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from icelock.spark.jvm.callbacks import Target, callbacks_of
from icelock.spark.jvm.rules import has_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

_SCAN: Final = "icelock.NativeScan"
_COUNTED: Final = "icelock.CountedRows"
# Each may use those before it.
_SOURCES: Final = (
    "Failure.java",
    "Callbacks.java",
    "PushedFilters.java",
    "ReadErrors.java",
    "OpenedFile.java",
    "LocalFiles.java",
    "QuietLogs.java",
    "LiveRows.java",
    "NativeScan.java",
    "CountedRows.java",
    "SqlTables.java",
)
# One text for several names: each element of a Java list would be a call of its own.
_SEPARATOR: Final = "\0"
_KNOWN: Final = "_icelock_native"
_LOCK: Final = threading.Lock()
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What ``NativeJvm.open`` takes; schemas are Spark's, in JSON.

    Args:
        data: columns in the files, with field ids.
        shown: the same columns as users see them.
        partition: columns whose values the plan has.
        pushable: columns that filters may be pushed for, dotted.
        floats: those of them that are floating-point numbers.
        files: from Spark's filters, as ``spark.native.filters`` reads them, to the files in an Arrow stream.
        count: of files.
        size: of all files, in bytes.
        rows: of all files, by the manifests; None if deletes leave fewer.
        seen: which version of the table this is (``seen``).
        deletes: whether some of the files have deleted positions.
        columns: what to return, quoted; None: all, as they are in ``shown`` and ``partition``.
    """

    data: str
    shown: str
    partition: str
    pushable: Sequence[str]
    floats: Sequence[str]
    files: Target
    count: int
    size: int
    rows: int | None = None
    seen: str = ""
    deletes: bool = False
    columns: Sequence[str] | None = None


class NativeJvm:
    """The compiled classes in one session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._open = jvm.icelock.NativeScan.open

    def add_rule(self) -> None:
        """Let the session count rows by ``CountedRows``. Calling it again changes nothing."""
        session: Any = self._spark._jsparkSession
        if not has_rule(session, _COUNTED):
            session.extensions().injectOptimizerRule(self._jvm.icelock.CountedRows.builder())

    def open(self, scan: Scan) -> DataFrame:
        """Return the rows of a scan's files, for the user's session, with the settings of one that reads by field id."""
        from pyspark.sql import DataFrame

        user: Any = self._spark._jsparkSession
        rows = self._open(
            user,
            scan.data,
            scan.shown,
            scan.partition,
            _SEPARATOR.join(scan.pushable),
            _SEPARATOR.join(scan.floats),
            callbacks_of(self._spark).target(scan.files),
            scan.count,
            scan.size,
            -1 if scan.rows is None else scan.rows,
            scan.seen,
            scan.deletes,
            None if scan.columns is None else _SEPARATOR.join(scan.columns),
        )
        return DataFrame(rows, self._spark)

    def sql_tables(self, query: str) -> list[str] | None:
        """Return the tables that a query names, as ``SqlTables.names`` has them, or None for another statement."""
        found: Any = self._jvm.icelock.SqlTables.names(self._spark._jsparkSession, query)
        return None if found is None else [str(name) for name in found]

    def sql_rows(self, query: str, tables: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of a query with these tables in it."""
        from pyspark.sql import DataFrame

        given = self._jvm.java.util.HashMap()
        for name, rows in tables.items():
            given.put(name, rows._jdf)
        return DataFrame(self._jvm.icelock.SqlTables.rows(self._spark._jsparkSession, query, given), self._spark)

    def uuid_text(self, column: Column) -> Column:
        """Return UUIDs of 16 bytes as canonical text."""
        from pyspark.sql import Column

        return Column(self._jvm.icelock.NativeScan.uuidText(column._jc))

    def among(self, bits: bytes, width: int, row: Column, bit: Column) -> Column:
        """Return whether a bit is set in a row of a table, whose rows have ``width`` bytes; bit 0 is the lowest of the first byte."""
        from pyspark.sql import Column

        return Column(self._jvm.icelock.NativeScan.among(bits, width, row._jc, bit._jc))


def native_jvm(spark: SparkSession) -> NativeJvm | None:
    """Return the compiled classes, or None where they cannot be had: a Connect session, or a platform that hides its JVM."""
    if getattr(spark, "_jsparkSession", None) is None or getattr(spark, "_jvm", None) is None:
        return None
    with _LOCK:
        found = getattr(spark, _KNOWN, None)
        if isinstance(found, NativeJvm):
            return found
        try:
            _load(spark)
            made = NativeJvm(spark)
            made.add_rule()
        except Exception as e:
            _logger.debug("no native scan in this session: %s", str(e).partition("\n\tat")[0])
            return None
        setattr(spark, _KNOWN, made)
        return made


def _load(spark: SparkSession) -> None:
    """Bring the classes to the class loader of the driver, and to executors of the session's context."""
    context = spark.sparkContext
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jar = _jar_of(loader)
    if jar is None:
        jar = _compile(jvm, loader)
        loader.addURL(jvm.java.io.File(jar).toURI().toURL())
    if getattr(context, _KNOWN, None) is None:
        context._jsc.addJar(jar)
        callbacks_of(spark).forget()  # of a SparkContext that was stopped
        setattr(context, _KNOWN, jar)


def _jar_of(loader: Any) -> str | None:
    """Return the jar that an earlier context's session left in this JVM."""
    try:
        path = loader.loadClass(_SCAN).getProtectionDomain().getCodeSource().getLocation().getPath()
    except Exception:
        return None
    return str(path)


def _compile(jvm: Any, loader: Any) -> str:
    """Compile the classes into a jar in a directory that the JVM removes at its end."""
    directory = Path(jvm.org.apache.spark.util.Utils.createTempDir().getPath())
    path = directory / "icelock-native.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for source in _SOURCES:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(files("icelock.spark.jvm").joinpath("java", source).read_text(encoding="utf-8"))
            loader = compiler.getClassLoader()
            compiled = compiler.getBytecodes()
            for name in compiled:
                jar.writestr(f"{name.replace('.', '/')}.class", compiled[name])
    return str(path)
