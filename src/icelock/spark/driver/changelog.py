"""The changes of a table as a DataFrame: files are planned here, read by tasks, and their rows compared by Spark.

Snapshots that only lost or only gained rows need no comparison. Row ids are read with the rows, in tasks, which get the files' keys sealed
(``spark.sealed.splits``) and ask no KMS.

Not here: what changed (``table.changes``, ``spark.columns.changelog``), who asks (``spark.statements``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sp

from icelock.keys.entropy import SystemEntropy
from icelock.metadata.metadata_columns import CHANGE_COLUMNS, LAST_UPDATED, ChangeType
from icelock.metadata.metadata_columns import ROW_ID as ROW_ID_COLUMN
from icelock.spark.columns.changelog import ROW_ID, UPDATED, Told, changelog
from icelock.spark.columns.types import quoted, spark_schema
from icelock.spark.sealed.splits import KEY_LENGTH, sealed_rows
from icelock.spark.settings.catalogs import bounds_of, executor_properties
from icelock.spark.settings.options import ReadOptions
from icelock.spark.settings.session import settings_of
from icelock.spark.task.read import ReadPlan
from icelock.spark.task.read_changes import ChangeSplit, read_changes
from icelock.spark.task.splits import Split, share_files
from icelock.table.changes.changelog import Changes, Wanted
from icelock.table.changes.sides import Side
from icelock.table.plain import AnyTable, engine_scan


def changes_between(table: AnyTable, options: ReadOptions) -> Changes:
    """Return the changes of a table that options ask for; errors as those of ``Changes``."""
    return Changes(engine_scan(table), bounds_of(options), Wanted())


def changelog_schema(changes: Changes, name: str) -> sp.StructType:
    """Return Spark's schema of changes; a column that Spark has no type for is a PolicyError."""
    return spark_schema(Schema(*changes.columns.fields, *CHANGE_COLUMNS), table=name)


def changelog_rows(spark: SparkSession, table: AnyTable, changes: Changes, name: str, told: Told) -> DataFrame:
    """Return the rows of changes.

    Raises:
        PolicyError: a column that Spark has no type for.
        ExpiredSnapshotError: a snapshot needs files that were expired with another.
        IntegrityError: a manifest or manifest list was changed.
    """
    sides = changes.sides()
    both = {side.commit.ordinal for side in sides.lost} & {side.commit.ordinal for side in sides.gained}
    if told.net and sides.lost and sides.gained:
        both = {side.commit.ordinal for side in (*sides.lost, *sides.gained)}
    compared, alone = ([one for one in (*sides.lost, *sides.gained) if (one.commit.ordinal in both) == wanted] for wanted in (True, False))
    columns = [quoted(field.name) for field in changelog_schema(changes, name).fields]
    parts = [] if compared and not alone else [_rows(spark, table, changes, name, alone).select(*columns)]
    if compared:
        parts.append(changelog(_rows(spark, table, changes, name, compared), told))
    return reduce(DataFrame.unionAll, parts)


def _rows(spark: SparkSession, table: AnyTable, changes: Changes, name: str, sides: Sequence[Side]) -> DataFrame:
    """Return what files lost and gained, with row ids."""
    of_table = changelog_schema(changes, name)
    *columns, kind, ordinal, snapshot = of_table.fields
    hidden = [sp.StructField(hidden_name, sp.LongType()) for hidden_name in (ROW_ID, UPDATED)]
    schema = sp.StructType([*columns, *hidden, kind, ordinal, snapshot])
    if not sides:
        return spark.createDataFrame([], schema)
    storage = executor_properties(table.io.properties, table.catalog.properties)
    context = changes.read_context(Schema(*changes.columns.fields, ROW_ID_COLUMN, LAST_UPDATED))
    read = ReadPlan.of(context, schema, storage, table.metadata.location)
    shares = share_files([side.tasks[0] for side in sides], table.metadata.properties, parallelism=settings_of(spark).parallelism)
    entropy = SystemEntropy()
    key = entropy.random_bytes(KEY_LENGTH)
    sealed = spark.createDataFrame(sealed_rows(key, ([_split(sides[place]) for place in share] for share in shares), entropy))
    return sealed.mapInArrow(partial(read_changes, read, key), schema)


def _split(side: Side) -> ChangeSplit:
    what = ChangeType.INSERT if side.inserted else ChangeType.DELETE
    return ChangeSplit(files=Split(side.tasks), labels=(what.value, side.commit.ordinal, side.commit.snapshot_id))
