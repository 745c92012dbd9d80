"""The changes of a table as a DataFrame: files are planned here, read by tasks, and their rows compared by Spark.

Snapshots that only lost or only gained rows need no comparison. Of the others, rows that were only moved are found first, by their ids
(``spark.task.moved_rows``), when the DataFrame is made: copy-on-write moves many rows to change a few, and only the few are shuffled. Tasks
read files with keys that come sealed (``spark.sealed.splits``), and ask no KMS. Few rows are looked at in this process, without a job.

Not here: what changed (``table.changes``, ``spark.columns.changelog``), who asks (``spark.statements``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sp

from icelock.arrow.read.context import ReadContext
from icelock.keys.entropy import SystemEntropy
from icelock.metadata.metadata_columns import LAST_UPDATED, ChangeType
from icelock.metadata.metadata_columns import ROW_ID as ROW_ID_COLUMN
from icelock.spark.columns.changelog import ROW_ID, UPDATED, changelog
from icelock.spark.columns.types import quoted
from icelock.spark.driver.plan_changes import changelog_schema
from icelock.spark.sealed.splits import KEY_LENGTH, sealed_rows
from icelock.spark.settings.catalogs import executor_properties
from icelock.spark.settings.session import settings_of
from icelock.spark.task import moved_rows
from icelock.spark.task.moved_rows import ChangedIds
from icelock.spark.task.read import ReadPlan
from icelock.spark.task.read_changes import ChangeRead, read_changes
from icelock.spark.task.splits import ChangeSplit, Split, share_files
from icelock.table.changes.changelog import Changes
from icelock.table.changes.sides import Side
from icelock.table.changes.telling import Wanted
from icelock.table.changes.versions import LINEAGE
from icelock.table.plain import AnyTable

_FEW_ROWS: Final = 500_000  # their ids are read here in less time than a job takes to start
_LEFT_BYTES: Final = 64 << 20  # of ids that go to all tasks: half a billion of neighbours, or some thirty million that are far apart
_SPARK_TYPES: Final = {pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean", pa.binary(): "binary"}


def changelog_rows(spark: SparkSession, table: AnyTable, changes: Changes, name: str, how: Wanted) -> DataFrame:
    """Return the rows of changes.

    Raises:
        PolicyError: a column that Spark has no type for.
        ExpiredSnapshotError: a snapshot needs files that were expired with another.
        IntegrityError: a manifest or manifest list was changed.
    """
    sides = changes.sides()
    both = {side.commit.ordinal for side in sides.lost} & {side.commit.ordinal for side in sides.gained}
    if how.net_changes and sides.lost and sides.gained:
        both = {side.commit.ordinal for side in (*sides.lost, *sides.gained)}
    compared, alone = ([one for one in (*sides.lost, *sides.gained) if (one.commit.ordinal in both) == wanted] for wanted in (True, False))
    columns = [quoted(field.name) for field in changelog_schema(changes, name).fields]
    reader = _Reader(spark, table, changes, name)
    parts = [] if compared and not alone else [reader.rows(alone).select(*columns)]
    if compared:
        changed = reader.changed(compared)
        parts.append(changelog(reader.rows(compared, changed), how, numbered=changed is not None))
    return reduce(DataFrame.unionAll, parts)


class _Reader:
    """What files lost and gained, as rows of a DataFrame."""

    def __init__(self, spark: SparkSession, table: AnyTable, changes: Changes, name: str) -> None:
        self._spark = spark
        self._table = table
        self._changes = changes
        *columns, kind, ordinal, snapshot = changelog_schema(changes, name).fields
        hidden = [sp.StructField(hidden_name, sp.LongType()) for hidden_name in (ROW_ID, UPDATED)]
        self._schema = sp.StructType([*columns, *hidden, kind, ordinal, snapshot])

    def rows(self, sides: Sequence[Side], changed: ChangedIds | None = None) -> DataFrame:
        """Return what files lost and gained, with row ids; of snapshots that ``changed`` rows, only these."""
        if not sides:
            return self._spark.createDataFrame([], self._schema)
        context = self._changes.read_context(Schema(*self._changes.columns.fields, ROW_ID_COLUMN, LAST_UPDATED))
        read = ChangeRead(read=self._plan(context), changed=changed)
        sealed, key = self._sealed(sides)
        return sealed.mapInArrow(partial(read_changes, read, key), self._schema)

    def changed(self, sides: Sequence[Side]) -> ChangedIds | None:
        """Return the ids of the rows that were not only moved; None: the table has no row ids. Errors are those of reading files."""
        if all(side.change.task.first_row_id is None for side in sides):
            return None
        context = self._changes.read_context(LINEAGE)
        if sum(side.change.task.record_count for side in sides) <= _FEW_ROWS:
            pieces = pa.Table.from_batches(moved_rows.version_pieces(context, map(_split, sides)), schema=moved_rows.PIECES)
            ordered = pieces.sort_by([(moved_rows.ORDINAL, "ascending"), (moved_rows.RANGE, "ascending")])
            left = moved_rows.changed_ids(_LEFT_BYTES, iter(ordered.to_batches()))
            return ChangedIds.of(pa.Table.from_batches(left, schema=moved_rows.LEFT))
        return self._changed_by_tasks(sides, self._plan(context))

    def _changed_by_tasks(self, sides: Sequence[Side], read: ReadPlan) -> ChangedIds:
        sealed, key = self._sealed(sides)
        tasks = settings_of(self._spark).parallelism
        place = (moved_rows.ORDINAL, moved_rows.RANGE)
        pieces = sealed.mapInArrow(partial(moved_rows.read_versions, read, key), _spark_names(moved_rows.PIECES))
        together = pieces.repartition(tasks, *place).sortWithinPartitions(*place)
        left = together.mapInArrow(partial(moved_rows.changed_ids, _LEFT_BYTES // tasks), _spark_names(moved_rows.LEFT))
        return ChangedIds.of(left.toArrow())

    def _plan(self, context: ReadContext) -> ReadPlan:
        storage = executor_properties(self._table.io.properties, self._table.catalog.properties)
        return ReadPlan.of(context, self._schema, storage, self._table.metadata.location)

    def _sealed(self, sides: Sequence[Side]) -> tuple[DataFrame, bytes]:
        """Return the files as a DataFrame of sealed splits, and the key that opens these."""
        properties, parallelism = self._table.metadata.properties, settings_of(self._spark).parallelism
        shares = share_files([side.tasks[0] for side in sides], properties, parallelism=parallelism)
        entropy = SystemEntropy()
        key = entropy.random_bytes(KEY_LENGTH)
        splits = ([_split(sides[place]) for place in share] for share in shares)
        return self._spark.createDataFrame(sealed_rows(key, splits, entropy)), key


def _split(side: Side) -> ChangeSplit:
    what = ChangeType.INSERT if side.inserted else ChangeType.DELETE
    return ChangeSplit(files=Split(side.tasks), labels=(what.value, side.commit.ordinal, side.commit.snapshot_id))


def _spark_names(schema: pa.Schema) -> str:
    """Return Spark's text of a schema."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)
