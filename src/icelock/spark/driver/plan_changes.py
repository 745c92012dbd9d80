"""Reads of what changed, ``load("catalog.namespace.table.changes")``, by the data source: over Spark Connect too.

A task tells what one snapshot changed, as plain Python does (``table.changes.telling``): what files lost and gained is compared where they
are read, and nothing is shuffled. Snapshots that only lost or only gained rows need no comparison, and their files are shared out like
those of any read. For net changes all snapshots count as one: one task, unless rows only came or only went.

The end of the range is that of when the DataFrame was made, for all its queries.

Not here: statements of a classic session, whose rows Spark compares (``spark.driver.changelog``), what tasks do
(``spark.task.read_changes``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from icelock.errors import PolicyError
from icelock.metadata.canonical_json import schema_json
from icelock.metadata.metadata_columns import CHANGE_COLUMNS
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.loaded import Loaded
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.catalogs import bounds_of, executor_properties
from icelock.spark.settings.options import AS_OF_TIMESTAMP, SNAPSHOT_ID, TAG, ReadOptions
from icelock.spark.settings.session import Settings
from icelock.spark.task.read import ReadPlan
from icelock.spark.task.read_changes import ChangesTaskReader
from icelock.spark.task.splits import ChangesSplit, share_parts
from icelock.table.changes.changelog import Changes
from icelock.table.changes.sides import Sides
from icelock.table.changes.telling import Wanted
from icelock.table.plain import AnyTable


def wanted_of(table: AnyTable, options: ReadOptions) -> Wanted:
    """Return how options tell changes: updates are known by the given columns, or by the table's identifier fields, or by row ids."""
    updates = options.identifiers is not None if options.updates is None else options.updates
    identifiers = options.identifiers
    if identifiers is None:
        identifiers = tuple(sorted(table.schema().identifier_field_names())) if updates else ()
    return Wanted(identifier_fields=identifiers, updates=updates, net_changes=options.net)


def changes_of(table: AnyTable, options: ReadOptions) -> Changes:
    """Return the changes that options ask for.

    Raises:
        PolicyError: one version is asked for; or as ``Changes``.
        ExpiredSnapshotError: see ``Bounds.snapshots``.
    """
    at = ((SNAPSHOT_ID, options.snapshot_id), (AS_OF_TIMESTAMP, options.as_of_ms), (TAG, options.tag))
    for name, given in at:
        if given is not None:
            raise PolicyError(
                f"{options.table} has what lies between snapshots: give start-snapshot-id and end-snapshot-id, not the option {name}"
            )
    return Changes(table.scan(selected_fields=options.columns or ("*",)), bounds_of(options), wanted_of(table, options))


def changelog_schema(changes: Changes, name: str) -> StructType:
    """Return Spark's schema of changes; a column that Spark has no type for is a PolicyError."""
    return spark_schema(Schema(*changes.columns.fields, *CHANGE_COLUMNS), table=name)


def changes_schema(table: AnyTable, options: ReadOptions) -> tuple[StructType, Loaded]:
    """Return the columns of changes, and what later plannings must agree with; errors as ``changes_of``."""
    changes = changes_of(table, options)
    loaded = Loaded(snapshot_id=changes.end, schema=schema_json(changes.columns), seen=Seen.of(table.metadata).marked())
    return changelog_schema(changes, str(options.table)), loaded


class ChangesPlanning(DataSourceReader):
    """The reader in the driver; its pickle is the executors' reader."""

    def __init__(self, settings: Settings, table: AnyTable, options: ReadOptions, schema: StructType, loaded: Loaded | None) -> None:
        self._settings = settings
        self._table = table
        self._empty = loaded is not None and loaded.snapshot_id is None
        if loaded is not None and not self._empty:
            options = replace(options, end_snapshot_id=loaded.snapshot_id, end_ms=None)
        self._changes = changes_of(table, options)
        self._how = wanted_of(table, options)
        self._schema = schema
        if changelog_schema(self._changes, str(options.table)) != schema:
            raise PolicyError(
                f"the columns of {options.table} are others than the DataFrame has: load it again, without a schema of your own, and "
                "choose columns by .select(...) or the option columns"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Plan what tasks tell.

        Raises:
            ExpiredSnapshotError: a snapshot needs files that were expired with another.
            KeyUnavailableError: no KMS, or it refused.
            IntegrityError: a manifest or manifest list was changed.
        """
        parts = [] if self._empty else [part for sides in self._changes.together() for part in _parts(sides)]
        if not parts:
            return [ChangesSplit([])]
        tasks = [[task for side in (*part.lost, *part.gained) for task in side.tasks[:1]] for part in parts]
        shared = share_parts(tasks, self._table.metadata.properties, parallelism=self._settings.parallelism)
        return [ChangesSplit([parts[place] for place in places]) for places in shared]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read as an executor does."""
        planned: Any = self.__reduce__()
        rows: Iterator[pa.RecordBatch] = planned[0](*planned[1]).read(partition)
        return rows

    def __reduce__(self) -> Any:
        storage = executor_properties(self._table.io.properties, self._table.catalog.properties)
        context = self._changes.read_context(self._changes.columns)
        plan = ReadPlan.of(context, self._schema, storage, self._table.metadata.location)
        how = self._how
        return ChangesTaskReader, (plan, (how.identifier_fields, how.updates, how.net_changes))


def _parts(sides: Sides) -> Iterator[Sides]:
    """Yield what a task has to have together: both sides, or one file of what was only lost or only gained."""
    if sides.lost and sides.gained:
        yield sides
        return
    for side in sides.lost:
        yield Sides(lost=[side])
    for side in sides.gained:
        yield Sides(gained=[side])
