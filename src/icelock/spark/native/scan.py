"""A scan's rows by Spark's own Parquet reader, as far as it can read them.

The files are one relation for each set of constant columns; the relations are united. Those with equality deletes are joined with their
delete files. Spark's reader reads nothing without the Java classes (a Connect session), nor columns that it cannot return
(``spark.native.columns``), nor a storage that the JVM does not reach.

Not here: files (``spark.native.plan``), the Java side (``spark.jvm.native``), who reads the other files (``read_table``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sp

from icelock.io.file_io import storage_of
from icelock.plan.task import ScanTask
from icelock.spark.columns.conditions import condition
from icelock.spark.columns.types import quoted, spark_schema
from icelock.spark.jvm.native import NativeJvm, Scan, native_jvm
from icelock.spark.native.columns import Columns, pushable, reason_against, shown
from icelock.spark.native.equality import EqualityDeletes, with_compared
from icelock.spark.native.plan import Group, Planned, positional_deletes
from icelock.spark.sealed.seen import Seen
from icelock.table.read.scan import DataScan

_LOCAL_SCHEMES: Final = ("", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRead:
    """The rows that Spark's reader reads, and whether there is a ``rest``; ``reason`` says why that is everything."""

    rows: DataFrame | None
    rest: bool
    reason: str | None = None


def native_read(spark: SparkSession, scan: DataScan, table: str, *, require_native: bool = False) -> NativeRead:
    """Return the rows of the files that Spark's reader can read; with ``require_native`` also those of a FileIO of the user's own."""
    _ = spark_schema(scan.projection(), table=table)
    wanted = _wanted(scan)
    reason = "the filter is on a nested column that is not read" if wanted is None else reason_against(wanted)
    jvm = None if reason else native_jvm(spark)
    if wanted is None or jvm is None:
        return NativeRead(rows=None, rest=True, reason=reason or "this session's JVM is out of reach")
    tasks = scan.scan_tasks()
    reason = None if require_native else _foreign_storage(scan)
    reason = reason or _unreachable(spark, tasks)
    if reason is not None:
        return NativeRead(rows=None, rest=True, reason=reason)
    planned = Planned(scan, tasks, wanted)
    parts = [_relation(jvm, planned, group, found, table) for group, found in planned.groups().items()]
    return NativeRead(rows=reduce(lambda left, right: left.unionAll(right), parts) if parts else None, rest=planned.rest())


def _wanted(scan: DataScan) -> Schema | None:
    """Return the scan's columns and its filter's; None if the filter's are nested in columns that the scan has a part of."""
    projection = scan.projection()
    used = extract_field_ids(bind(scan.full_schema, scan.exact_filter, case_sensitive=True))
    missing = used - projection.field_ids
    if not missing:
        return projection
    top = [field for field in scan.full_schema.fields if missing & ({field.field_id} | Schema(field).field_ids)]
    if any(projection.find_column_name(field.field_id) for field in top):
        return None
    return Schema(*projection.fields, *top, schema_id=projection.schema_id)


def _foreign_storage(scan: DataScan) -> str | None:
    """Return why the JVM may see other files than Python at the same paths, or None."""
    named = storage_of(scan.io).properties.get(PY_IO_IMPL)
    return None if named is None else f"its files are read through {named} ({PY_IO_IMPL}), which the JVM does not know"


def _unreachable(spark: SparkSession, tasks: Sequence[ScanTask]) -> str | None:
    """Return why the JVM does not reach a table's storage as Python does, or None."""
    jvm: Any = spark._jvm  # noqa: SLF001
    by_scheme = {task.path.partition("://")[0] if "://" in task.path else task.path.partition(":/")[0]: task for task in tasks}
    for scheme, task in by_scheme.items():
        if scheme in _LOCAL_SCHEMES or scheme == task.path:
            odd = next((task.path for task in tasks if not task.path.isascii()), None)
            reason = None if odd is None else _unnamed(jvm, odd)
            if reason is not None:
                return reason
            continue
        try:
            path = jvm.org.apache.hadoop.fs.Path(task.path)
            found = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).getFileStatus(path).getLen()  # noqa: SLF001
        except Exception as e:  # noqa: BLE001 - no such file system, or none of its credentials
            return f"Hadoop in this session does not reach {scheme} storage ({str(e).partition(chr(10))[0]})"
        if found != task.file_size:
            return f"Hadoop in this session sees {found} bytes in {task.path}, not {task.file_size}"
    return None


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


def _relation(jvm: NativeJvm, planned: Planned, group: Group, tasks: Sequence[ScanTask], table: str) -> DataFrame:
    """Return the rows of a group's files (``tasks``) in the scan's columns."""
    scan, wanted = planned.scan, planned.wanted
    columns = Columns(wanted=with_compared(wanted, tasks), constants=group.constants, table=table)
    equality = planned.equality(group, tasks, table)
    out = replace(columns, wanted=wanted)
    plain = None if equality else out.plain
    names, floats = pushable(wanted, scan.table_metadata.schemas)
    rows = jvm.open(
        Scan(
            data=columns.data.json(),
            shown=shown(columns.data).json(),
            partition=_partition(columns, equality).json(),
            pushable=names,
            floats=floats,
            files=partial(planned.files, group, columns, equality),
            count=len(tasks),
            size=sum(task.file_size for task in tasks),
            rows=planned.rows(tasks),
            seen=Seen.of(scan.table_metadata).to_text(),
            deletes=any(map(positional_deletes, tasks)),
            columns=plain if columns.constant_fields else None,
        )
    )
    for deletes in equality:
        rows = deletes.remove(rows, jvm, columns)
    if plain is None:
        rows = rows.select(*out.select(jvm, rows))
    if not isinstance(scan.row_filter, AlwaysTrue):
        rows = rows.filter(condition(bind(scan.full_schema, scan.exact_filter, case_sensitive=True), wanted))
    asked = scan.projection().fields
    return rows if len(asked) == len(wanted.fields) else rows.select(*(quoted(field.name) for field in asked))


def _partition(columns: Columns, equality: Sequence[EqualityDeletes]) -> sp.StructType:
    names = {field.name for field in columns.constant_fields}
    constants = [field for field in spark_schema(columns.wanted, table=columns.table).fields if field.name in names]
    sets = [sp.StructField(deletes.name, sp.IntegerType(), nullable=False) for deletes in equality]
    return sp.StructType([*constants, *columns.planned.fields, *sets])
