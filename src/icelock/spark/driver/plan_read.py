"""A read in the driver: its columns, filters and files. One planning makes one reader, and unwraps each KEK once.

Spark pickles the reader for executors before it asks for partitions. Its pickle is a ``TaskReader`` with the plan as plain data: the scan
with its KMS client stays here.

Not here: what executors do (``spark.task.read``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from icelock.errors import PolicyError
from icelock.metadata.column_types import schema_from_json
from icelock.metadata.given import name_mapping_of
from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.columns.projection import project
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.target import check_same_table
from icelock.spark.native.plan import is_native
from icelock.spark.sealed.job import Job, PlannedOn
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.catalogs import executor_properties, open_table, scan_of
from icelock.spark.settings.options import ReadOptions
from icelock.spark.settings.session import Settings
from icelock.spark.task.read import ReadPlan, TaskReader
from icelock.spark.task.splits import plan_splits
from icelock.table.scan import DataScan
from icelock.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a DataFrame was made from: all its queries read this snapshot (None: the table had none) with these columns."""

    snapshot_id: int | None
    schema: str
    seen: str = ""
    """The table's versions, to be found in the pickle of this object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What ``icelock.spark.read`` adds to the options of a read; ``base`` fixes the snapshot."""

    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    rest: bool = False
    base: PlannedOn | None = None
    seen: tuple[Seen, ...] = ()

    @classmethod
    def of(cls, job: Job) -> Given:
        """Return what a job asks for."""
        return cls(row_filter=job.row_filter, rest=job.rest, base=job.base, seen=job.seen)


def _scan(table: Table, options: ReadOptions, given: Given) -> DataScan:
    scan = scan_of(table, options).filter(given.row_filter)
    if given.base is None:
        return scan
    check_same_table(table, given.base.table_uuid, options.table)
    return scan if given.base.snapshot_id is None else scan.pinned(given.base.snapshot_id)


def load(settings: Settings, options: ReadOptions, given: Given | None = None) -> tuple[StructType, Loaded]:
    """Return the Spark schema that the options ask for, and what later plannings must agree with."""
    given = given or Given()
    scan = _scan(open_table(settings, options.table), options, given)
    seen = given.seen[0] if given.seen else Seen.of(scan.table_metadata)
    snapshot, projection = scan.snapshot(), scan.projection()
    loaded = Loaded(snapshot_id=None if snapshot is None else snapshot.snapshot_id, schema=projection.model_dump_json(), seen=seen.marked())
    return spark_schema(projection, table=str(options.table)), loaded


def plan_read(
    settings: Settings, options: ReadOptions, schema: StructType, loaded: Loaded | None, given: Given | None = None
) -> PlanningReader:
    """Return the reader of one scan.

    Args:
        settings: from ``register``.
        options: of the read.
        schema: the columns that Spark wants.
        loaded: what ``load`` returned when the DataFrame was made; None for a user's schema, which reads the newest snapshot.
        given: what ``icelock.spark.read`` adds.

    Raises:
        PolicyError: the table's columns changed since the DataFrame was made, or its snapshot was expired.
    """
    table = open_table(settings, options.table)
    given = given or Given()
    scan = _scan(table, options, given)
    if loaded is not None:
        if loaded.snapshot_id is not None:
            scan = scan.pinned(loaded.snapshot_id)
        if schema_from_json(loaded.schema).as_struct() != scan.projection().as_struct():
            raise PolicyError(f"the columns of table {options.table} changed since the DataFrame was made: load it again")
    kind = PushDownReader if settings.push_down else PlanningReader
    empty = loaded is not None and loaded.snapshot_id is None
    return kind(settings, options, table, scan, schema, empty=empty, rest=given.rest)


class PlanningReader(DataSourceReader):
    """The driver's reader; its pickle is the executors' reader."""

    def __init__(  # noqa: PLR0913 - the parts of one planning
        self,
        settings: Settings,
        options: ReadOptions,
        table: Table,
        scan: DataScan,
        schema: StructType,
        *,
        empty: bool = False,
        rest: bool = False,
    ) -> None:
        self._settings = settings
        self._empty = empty
        self._rest = rest
        self._table = table
        self._scan = scan
        self._spark_schema = schema
        self._projected = project(scan.projection(), schema, table=str(options.table), case_sensitive=settings.case_sensitive)
        self._filters: list[BooleanExpression] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan."""
        tasks = [] if self._empty else self._scan.filter(self._row_filter()).scan_tasks()
        if self._rest:
            mapped = name_mapping_of(self._table.metadata) is not None
            tasks = [task for task in tasks if not is_native(task, name_mapping=mapped)]
        return plan_splits(tasks, self._table.metadata.properties, parallelism=self._settings.parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read as an executor does."""
        return TaskReader(self._read_plan()).read(partition)

    def __reduce__(self) -> Any:
        return TaskReader, (self._read_plan(),)

    def _row_filter(self) -> BooleanExpression:
        return reduce(And, self._filters) if self._filters else AlwaysTrue()

    def _read_plan(self) -> ReadPlan:
        context = self._scan.filter(self._row_filter()).read_context(self._projected)
        catalog = self._table.catalog.properties
        storage = executor_properties(context.io.properties, catalog)
        return ReadPlan.of(context, self._spark_schema, storage, self._table.metadata.location)


class PushDownReader(PlanningReader):
    """The reader if Spark may push filters: otherwise Spark refuses one with this method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that can be applied exactly, and return the others."""
        translator = FilterTranslator(self._projected, self._scan.full_schema)
        left = []
        for pushed in filters:
            expression = translator.translate(pushed)
            if expression is None:
                left.append(pushed)
            else:
                self._filters.append(expression)
        return left
