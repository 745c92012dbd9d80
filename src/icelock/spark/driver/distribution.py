"""How rows are distributed over the tasks of a write, and sorted within them: what Java's Spark writer asks Spark for.

    ``distribution-mode``  option, else ``write.distribution-mode`` of the table, else range for a sorted table, hash for a partitioned one
        none     not distributed
        hash     by partition; Spark may split a large partition over several tasks, and put small ones together
        range    by ranges of partition values and sort order
    ``fanout-enabled``     option, else ``write.spark.fanout.enabled``: rows of an unsorted table are not sorted within tasks
    ``use-table-distribution-and-ordering``  option; false: rows come as they are, whatever else is said

In each mode a task's rows are sorted by partition and sort order, so that it has one file open at a time. Source: Java's
``SparkWriteConf``, ``SparkWriteRequirements`` and ``SortOrderUtil.buildSortOrder`` (1.12).

Python's data source API cannot ask for a distribution, so ``df.write.format("icelock")`` writes rows as they come.

Not here: transforms (``spark.columns.transforms``), files (``arrow.write.fanout``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, VoidTransform
from pyiceberg.types import UUIDType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp

from icelock.arrow.write.context import WriteContext
from icelock.errors import PolicyError
from icelock.metadata.canonical_json import schema_json, spec_json
from icelock.metadata.column_types import schema_from_json
from icelock.metadata.schema_paths import names_to
from icelock.spark.columns.transforms import spark_transform
from icelock.spark.columns.types import quoted
from icelock.spark.settings.options import flag
from icelock.spark.settings.write_options import AS_THE_TABLE_SAYS, DISTRIBUTION_MODE, FANOUT

TABLE_MODE: Final = "write.distribution-mode"
TABLE_FANOUT: Final = "write.spark.fanout.enabled"
_KEY: Final = "icelock key "


class Mode(StrEnum):
    """How rows are distributed over tasks."""

    NONE = "none"
    HASH = "hash"
    RANGE = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What decides a table's distribution."""

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, context: WriteContext) -> Self:
        """Return the layout that a write has."""
        return cls(schema=context.schema, spec=context.spec, sort_order=context.sort_order, properties=context.properties)

    def to_json(self) -> str:
        """Return it as text."""
        named = {name: self.properties[name] for name in (TABLE_MODE, TABLE_FANOUT) if name in self.properties}
        return json.dumps([schema_json(self.schema), spec_json(self.spec), self.sort_order.model_dump_json(), named])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what ``to_json`` was called on."""
        schema, spec, order, properties = json.loads(text)
        return cls(
            schema=schema_from_json(schema),
            spec=PartitionSpec.model_validate_json(spec),
            sort_order=SortOrder.model_validate_json(order),
            properties=properties,
        )


def check_options(options: Mapping[str, str]) -> None:
    """Refuse invalid options of distribution with a PolicyError."""
    _mode(options.get(DISTRIBUTION_MODE), f"option {DISTRIBUTION_MODE}")
    for name in (FANOUT, AS_THE_TABLE_SAYS):
        flag(options.get(name), f"option {name}")


def check_properties(layout: Layout) -> None:
    """Refuse a table's invalid properties of distribution with a PolicyError."""
    _mode(layout.properties.get(TABLE_MODE), f"table property {TABLE_MODE}")
    flag(layout.properties.get(TABLE_FANOUT), f"table property {TABLE_FANOUT}")


def distributed(rows: DataFrame, layout: Layout, options: Mapping[str, str], *, case_sensitive: bool) -> DataFrame:
    """Return the rows, distributed and sorted; the DataFrame itself if nothing asks for it. Invalid table properties are a PolicyError."""
    if flag(options.get(AS_THE_TABLE_SAYS), f"option {AS_THE_TABLE_SAYS}") is False:
        return rows
    mode = _mode(options.get(DISTRIBUTION_MODE), f"option {DISTRIBUTION_MODE}")
    mode = mode or _mode(layout.properties.get(TABLE_MODE), f"table property {TABLE_MODE}")
    fanout = flag(options.get(FANOUT), f"option {FANOUT}")
    if fanout is None:
        fanout = flag(layout.properties.get(TABLE_FANOUT), f"table property {TABLE_FANOUT}") or False
    keys = _Keys(rows, layout, case_sensitive=case_sensitive)
    if not keys.order:
        return rows
    mode = mode or (Mode.HASH if layout.sort_order.is_unsorted else Mode.RANGE)
    return keys.apply(mode, sort=not (fanout and layout.sort_order.is_unsorted))


def in_ranges(rows: DataFrame, layout: Layout, ranges: int, *, sample: DataFrame, last: Sequence[str] = ()) -> DataFrame:
    """Return the rows in so many ranges of partition values and sort order, then the columns ``last``, each a task's, and sorted.

    ``sample`` are some of the rows, with the same columns. Spark computes those that the order compares; for a sample of its own it would
    read all rows whole once more, as it does where its JVM is out of reach.
    """
    from icelock.spark.jvm.native import native_jvm

    keys = _Keys(rows, layout, case_sensitive=True, last=last)
    jvm = None if ranges == 1 else native_jvm(rows.sparkSession)
    if jvm is None:
        return keys.apply(Mode.RANGE, sort=True, partitions=ranges)
    return keys.ranged(lambda found, row: jvm.range_of(found, ranges, row), ranges, _Keys(sample, layout, case_sensitive=True, last=last))


class _Keys:
    """What rows are distributed and sorted by, as columns beside theirs; ``last`` are further columns to sort by."""

    def __init__(self, rows: DataFrame, layout: Layout, *, case_sensitive: bool, last: Sequence[str] = ()) -> None:
        self._rows = rows
        self._schema = layout.schema
        self._case_sensitive = case_sensitive
        self._made: dict[tuple[str, int], Column] = {}
        partition = [(item.transform, item.source_id) for item in layout.spec.fields]
        self.partition = [name for transform, source in partition if (name := self._key(transform, source)) is not None]
        order = [(item, name) for item in _build_order(layout) if (name := self._key(item.transform, item.source_id)) is not None]
        self.order = [*(self._sorted(item, name) for item, name in order), *(F.col(quoted(name)) for name in last)]
        self._compared = list(dict.fromkeys([*(name for _, name in order), *last]))

    def apply(self, mode: Mode, *, sort: bool, partitions: int | None = None) -> DataFrame:
        """Return the rows, distributed and sorted; ``partitions`` is the number of ranges."""
        rows = self._with_keys()
        if mode == Mode.HASH and self.partition:
            rows = rows.hint("rebalance", *(F.col(quoted(name)) for name in self.partition))
        elif mode == Mode.RANGE:
            rows = rows.repartitionByRange(*self.order) if partitions is None else rows.repartitionByRange(partitions, *self.order)
        if sort:
            rows = rows.sortWithinPartitions(*self.order)
        return rows.drop(*(name for name, _ in self._named()))

    def ranged(self, range_of: Callable[[DataFrame, Column], Column], ranges: int, sample: Self) -> DataFrame:
        """Return the rows in ranges, each sorted; ``range_of`` is ``NativeJvm.range_of``, and ``sample`` has the keys of some rows."""
        compared = [F.col(quoted(name)) for name in self._compared]
        found = sample._with_keys().select(*compared).repartition(1).sortWithinPartitions(*sample.order)
        rows = self._with_keys().repartitionById(ranges, range_of(found, F.struct(*compared)))
        return rows.sortWithinPartitions(*self.order).drop(*(name for name, _ in self._named()))

    def _with_keys(self) -> DataFrame:
        return self._rows.select("*", *(column.alias(name) for name, column in self._named()))

    def _named(self) -> list[tuple[str, Column]]:
        return [(f"{_KEY}{number}", column) for number, column in enumerate(self._made.values())]

    def _key(self, transform: Transform[Any, Any], source_id: int) -> str | None:
        """Return the name of a key's column; None if it is the same for all rows."""
        path = None if isinstance(transform, VoidTransform) else self._path(source_id)
        if path is None:
            return None
        source = self._schema.find_field(source_id)
        if isinstance(transform, IdentityTransform) and len(path) == 1 and not isinstance(source.field_type, UUIDType):
            return path[0]
        found = (str(transform), source_id)
        if found not in self._made:
            self._made[found] = spark_transform(F.col(quoted(*path)), transform, source)
        return f"{_KEY}{list(self._made).index(found)}"

    def _path(self, field_id: int) -> list[str] | None:
        """Return the path of a table's column in the rows; None if they lack it."""
        known, path = self._rows.schema, []
        for part in names_to(self._schema.fields, field_id):
            same = [item for item in known.fields if item.name == part or (not self._case_sensitive and item.name.lower() == part.lower())]
            if not same:
                return None
            path.append(same[0].name)
            kind = same[0].dataType
            known = kind if isinstance(kind, sp.StructType) else sp.StructType([])
        return path

    def _sorted(self, item: SortField, name: str) -> Column:
        column = F.col(quoted(name))
        first = item.null_order == NullOrder.NULLS_FIRST
        if item.direction == SortDirection.ASC:
            return column.asc_nulls_first() if first else column.asc_nulls_last()
        return column.desc_nulls_first() if first else column.desc_nulls_last()


def _build_order(layout: Layout) -> list[SortField]:
    """Return the partition fields that the sort order does not begin with, then the sort order (``SortOrderUtil.buildSortOrder``)."""
    wanted = {(str(item.transform), item.source_id): item for item in layout.spec.fields if not isinstance(item.transform, VoidTransform)}
    for given in layout.sort_order.fields:
        if wanted.pop((str(given.transform), given.source_id), None) is None:
            satisfied = [
                key
                for key, item in wanted.items()
                if item.source_id == given.source_id and given.transform.satisfies_order_of(item.transform)
            ]
            for key in satisfied:
                del wanted[key]
            break
    ahead = [
        SortField(source_id=item.source_id, transform=item.transform, direction=SortDirection.ASC, null_order=NullOrder.NULLS_FIRST)
        for item in wanted.values()
    ]
    return [*ahead, *layout.sort_order.fields]


def _mode(text: str | None, what: str) -> Mode | None:
    if text is None:
        return None
    try:
        return Mode(text.strip().lower())
    except ValueError as e:
        raise PolicyError(f"{what} is {text!r}; it must be {', '.join(Mode)}") from e
