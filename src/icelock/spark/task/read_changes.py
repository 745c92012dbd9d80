"""What executors do for a changelog: what files lost and gained in snapshots become rows, with their row ids and what happened to them.

Not here: which files (``table.changes``), which of the rows changed (``spark.columns.changelog``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.imports import forget_folders_in_zips
from icelock.spark.task.read import ExecutorReader
from icelock.spark.task.splits import ChangesSplit

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.arrow.read.context import ReadContext
    from icelock.spark.task.moved_rows import ChangedIds
    from icelock.spark.task.read import ReadPlan
    from icelock.spark.task.splits import ChangeSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRead:
    """What all tasks share: the columns, the two of row lineage last; and the rows that may be changes, if these are known (None: all)."""

    read: ReadPlan
    changed: ChangedIds | None


class ChangesTaskReader(ExecutorReader):
    """The reader of ``load("catalog.namespace.table.changes")`` on executors, which compares what it reads.

    Args:
        plan: of the wanted columns, without those of a changelog.
        how: what ``Wanted`` is made of: identifier fields, updates, net changes.
    """

    def __init__(self, plan: ReadPlan, how: tuple[tuple[str, ...], bool, bool]) -> None:
        self._plan = plan
        self._how = how

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a split; errors as ``Telling.batches``."""
        if not isinstance(partition, ChangesSplit):
            return
        from icelock.spark.columns.batches import spark_batch
        from icelock.spark.columns.types import arrow_schema
        from icelock.table.changes.telling import Telling, Wanted

        forget_folders_in_zips()
        schema = arrow_schema(StructType.fromJson(json.loads(self._plan.spark_schema)))
        identifiers, updates, net = self._how
        how = Wanted(identifier_fields=identifiers, updates=updates, net_changes=net)
        telling = Telling(context=self._plan.context(), how=how)
        for sides in partition.parts():
            for batch in telling.batches(sides):
                yield spark_batch(batch, schema)


def read_changes(plan: ChangeRead, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the sealed splits of one task, with their labels; errors as ``read_live``."""
    import pyarrow as pa

    from icelock.spark.columns.batches import spark_batch
    from icelock.spark.columns.types import arrow_schema

    context = plan.read.context()
    schema = arrow_schema(StructType.fromJson(json.loads(plan.read.spark_schema)))
    for splits in open_splits(key, rows):
        for split in splits:
            for batch in _rows(context, plan.changed, split):
                labels = [pa.repeat(label, len(batch)) for label in split.labels]
                whole = pa.RecordBatch.from_arrays([*batch.columns, *labels], names=[str(place) for place in range(len(schema))])
                yield spark_batch(whole, schema)


def _rows(context: ReadContext, changed: ChangedIds | None, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
    from icelock.arrow.read.task import read_live

    found = read_live(context, split.files.tasks)
    if changed is None:
        yield from found
        return
    _, ordinal, _ = split.labels
    ids = changed.bitmap(ordinal)
    row_id = len(context.schema.fields) - 2
    for batch in found:
        kept = changed.rows(batch, row_id, ordinal, ids)
        if len(kept):
            yield kept
