"""What executors do for the large metadata tables ``partitions`` and ``position_deletes``, in two steps with a shuffle between them.

    partitions         sum_partitions    the manifests of a task become sums by partition
                       merge_partitions  one task adds up all sums
    position_deletes   list_deletes      the manifests of a task become delete files
                       read_deletes      each delete file becomes a row for each position in it

What goes from step to step is sealed, as manifests are: it has partition values, and keys of delete files.

Not here: when this is done (``spark.statements.metadata_tables``), columns and rows (``table.metadata_tables``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from icelock.spark.sealed.splits import open_splits, sealed_rows
from icelock.spark.task.list_files import ListPlan, chunks, open_manifests
from icelock.spark.task.splits import delete_of, plain_delete

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.spark.task.read import ReadPlan

SEALED: Final = "split binary"
PLACE: Final = "place"
DELETES: Final = f"{SEALED}, {PLACE} int"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsPlan:
    """What the tasks of ``partitions`` share; ``times`` are those of the snapshots, which the plan's metadata lacks."""

    listed: ListPlan
    times: Mapping[int, int]


def sum_partitions(plan: PartitionsPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the sums of the sealed manifests of one task, sealed; errors as ``rows_of_manifests``."""
    from icelock.keys.entropy import SystemEntropy
    from icelock.table.metadata_tables.rows import partition_sums

    metadata, io = plan.listed.open()
    sums = partition_sums(metadata, io, open_manifests(key, rows), plan.times)
    yield from sealed_rows(key, chunks(sums.rows), SystemEntropy()).to_batches()


def merge_partitions(plan: PartitionsPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``partitions``; sums that were changed are an IntegrityError."""
    from icelock.table.metadata_tables.columns import partition_type
    from icelock.table.metadata_tables.partitions import PartitionSums

    metadata, _ = plan.listed.open()
    sums = PartitionSums((field.name for field in partition_type(metadata).fields), plan.times)
    for some in open_splits(key, rows):
        sums.merge(some)
    return plan.listed.batches(sums.rows)


def list_deletes(plan: ListPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the position delete files of the sealed manifests of one task, sealed; errors as ``position_delete_files``.

    ``place`` is the same for the same path, whenever a task is repeated: so no file is read twice or not at all, and one that holds many
    vectors is read by one task.
    """
    import pyarrow as pa

    from icelock.keys.entropy import SystemEntropy
    from icelock.table.metadata_tables.position_deletes import position_delete_files

    metadata, io = plan.open()
    entropy = SystemEntropy()
    for row, delete in position_delete_files(metadata, io, open_manifests(key, rows)):
        (sealed,) = sealed_rows(key, [(row, plain_delete(delete))], entropy).to_batches()
        place = zlib.crc32(delete.path.encode()) >> 1
        yield sealed.append_column(PLACE, pa.array([place], pa.int32()))


def read_deletes(plan: ListPlan, read: ReadPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the sealed delete files of one task; errors as ``position_delete_rows``."""
    from icelock.table.metadata_tables.position_deletes import position_delete_rows

    context, schema = read.context(), plan.arrow_schema
    for row, plain in open_splits(key, rows):
        yield from position_delete_rows(context, row, delete_of(plain), schema)
