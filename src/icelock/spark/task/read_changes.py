"""What executors do for a changelog: what files lost and gained in snapshots become rows, with their row ids and what happened to them.

Not here: which files (``table.changes``), which of the rows changed (``spark.columns.changelog``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.spark.task.read import ReadPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSplit:
    """What one file lost or gained (``read_live`` of ``files``), and what all of its rows say in the columns of a changelog."""

    files: Split
    labels: tuple[str, int, int]


def read_changes(read: ReadPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the sealed splits of one task, with their labels; errors as ``read_live``."""
    import pyarrow as pa

    from icelock.arrow.read.task import read_live
    from icelock.spark.columns.batches import spark_batch
    from icelock.spark.columns.types import arrow_schema

    context = read.context()
    schema = arrow_schema(StructType.fromJson(json.loads(read.spark_schema)))
    for splits in open_splits(key, rows):
        for split in splits:
            for batch in read_live(context, split.files.tasks):
                labels = [pa.repeat(label, len(batch)) for label in split.labels]
                whole = pa.RecordBatch.from_arrays([*batch.columns, *labels], names=[str(place) for place in range(len(schema))])
                yield spark_batch(whole, schema)
