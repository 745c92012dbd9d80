"""A scan's rows by Spark's own Parquet reader, as far as it can read them.

The files are one relation for each set of constant columns; the relations are united. Those with equality deletes are joined with their
delete files. Spark's reader reads nothing without the Java classes (a Connect session), nor columns that it cannot return
(``spark.native.columns``), nor a storage that the JVM does not reach.

Not here: files (``spark.native.plan``), the Java side (``spark.jvm.native``), who reads the other files (``spark.driver.scan_rows``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sp

from icelock.plan.task import ScanTask
from icelock.spark.columns.conditions import condition
from icelock.spark.columns.types import quoted, spark_schema
from icelock.spark.jvm.native import NativeJvm, Scan, native_jvm
from icelock.spark.native.columns import Columns, pushable, reason_against, shown, with_filtered
from icelock.spark.native.equality import EqualityDeletes, with_compared
from icelock.spark.native.plan import Group, Planned, positional_deletes
from icelock.spark.native.reach import foreign_storage, unreachable
from icelock.spark.sealed.seen import Seen
from icelock.table.read.scan import DataScan


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRead:
    """The rows that Spark's reader reads, and whether there is a ``rest``; ``reason`` says why that is everything."""

    rows: DataFrame | None
    rest: bool
    reason: str | None = None


def native_read(spark: SparkSession, scan: DataScan, table: str, *, require_native: bool = False) -> NativeRead:
    """Return the rows of the files that Spark's reader can read; with ``require_native`` also those of a FileIO of the user's own."""
    projection = scan.projection()
    _ = spark_schema(projection, table=table)
    wanted = with_filtered(projection, scan)
    reason = "the filter is on a nested column that is not read" if wanted is None else reason_against(wanted)
    jvm = None if reason else native_jvm(spark)
    if wanted is None or jvm is None:
        return NativeRead(rows=None, rest=True, reason=reason or "this session's JVM is out of reach")
    tasks = scan.scan_tasks()
    reason = None if require_native else foreign_storage(scan)
    reason = reason or unreachable(spark, tasks)
    if reason is not None:
        return NativeRead(rows=None, rest=True, reason=reason)
    planned = Planned(scan, tasks, wanted)
    parts = [_relation(jvm, planned, group, found, table) for group, found in planned.groups().items()]
    return NativeRead(rows=reduce(lambda left, right: left.unionAll(right), parts) if parts else None, rest=planned.rest())


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
