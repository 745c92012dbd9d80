"""The Java side of the native scan, called from Python.

Not here: how the classes get into the JVM (``spark.jvm.classes``), what they do (``NativeScan.java``).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession

from icelock.spark.jvm.callbacks import Target, callbacks_of
from icelock.spark.jvm.classes import load_native
from icelock.spark.jvm.rules import first_line, has_rule
from icelock.spark.settings.session import is_classic

_KNOWN: Final = "_icelock_native"
_LOCK: Final = threading.Lock()
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What ``NativeJvm.open`` takes; schemas are Spark's, in JSON.

    Args:
        data: columns in the files, with field ids and defaults.
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

    def to_json(self) -> str:
        """Return all but ``files``, as ``NativeScan.open`` reads it."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "files"}
        return json.dumps({**fields, "rows": -1 if self.rows is None else self.rows})


class NativeJvm:
    """The compiled classes in one session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._classes = load_native(spark)
        self._open = self._classes.NativeScan.open
        if not has_rule(self._session, "icelock.CountedRows"):
            self._session.extensions().injectOptimizerRule(self._classes.CountedRows.builder())
            self._session.extensions().injectPlannerStrategy(self._classes.MixedFilters.builder())

    def open(self, scan: Scan) -> DataFrame:
        """Return the rows of a scan's files, for the user's session, with the settings of one that reads by field id."""
        return DataFrame(self._open(self._session, scan.to_json(), callbacks_of(self._spark).target(scan.files)), self._spark)

    def sql_tables(self, query: str) -> list[str] | None:
        """Return the tables that a query names, as ``SqlTables.names`` writes them, or None for a statement that is not a query."""
        found: Any = self._classes.SqlTables.names(self._session, query)
        return None if found is None else [str(name) for name in found]

    def sql_rows(self, query: str, tables: Mapping[str, DataFrame]) -> DataFrame:
        """Return the rows of a query with these tables in it."""
        jvm: Any = self._spark._jvm
        given = jvm.java.util.HashMap()
        for name, rows in tables.items():
            given.put(name, rows._jdf)
        return DataFrame(self._classes.SqlTables.rows(self._session, query, given), self._spark)

    def uuid_text(self, column: Column) -> Column:
        """Return UUIDs of 16 bytes as canonical text."""
        return Column(self._classes.ColumnFunctions.uuidText(column._jc))

    def among(self, bits: bytes, width: int, row: Column, bit: Column) -> Column:
        """Return whether a bit is set in a row of a table, whose rows have ``width`` bytes; bit 0 is the lowest of the first byte."""
        return Column(self._classes.ColumnFunctions.among(bits, width, row._jc, bit._jc))

    def range_of(self, sample: DataFrame, ranges: int, row: Column) -> Column:
        """Return the number of a row's range, from 0, in the order of a sample, which is computed.

        Args:
            sample: some rows of the columns that the order compares, sorted by it in one partition.
            ranges: how many; their bounds are the quantiles of the sample.
            row: a struct of the same columns.
        """
        return Column(self._classes.RangeOf.column(sample._jdf, ranges, row._jc))


def native_jvm(spark: SparkSession) -> NativeJvm | None:
    """Return the compiled classes, or None where they cannot be had: a Connect session, or a platform that hides its JVM."""
    if not is_classic(spark):
        return None
    with _LOCK:
        found = getattr(spark, _KNOWN, None)
        if isinstance(found, NativeJvm):
            return found
        try:
            made = NativeJvm(spark)
        except Exception as e:
            _logger.debug("no native scan in this session: %s", first_line(e))
            return None
        setattr(spark, _KNOWN, made)
        return made
