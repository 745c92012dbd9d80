"""Which rows of a changelog were only moved: found by row ids alone, before any other column is read, compared or shuffled.

A version of a row, its ``_row_id`` with its ``_last_updated_sequence_number``, that files of one snapshot lost and gained is no change
(``table.changes.versions``). Tasks read the versions of each file, as bitmaps of row ids, one for each range of 2^24 ids
(``version_pieces``). Those of a range come together in one task, which takes out what is on both sides (``changed_ids``). What is left is
small where few rows changed, and goes to all tasks that read rows (``ChangedIds``).

What is taken out is taken out for sure; what is left may still be no change, and Spark compares it (``spark.columns.changelog``). Rows
without an id, and versions that one side has twice, are left.

Memory: a task has the ids of one file, or those of one range on both sides, and the ids that are left have a limit: a range that does not
fit is left as a whole.

Not here: jobs (``spark.driver.changelog``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from icelock.metadata.metadata_columns import ChangeType
from icelock.spark.sealed.splits import open_splits

if TYPE_CHECKING:
    from icelock.arrow.read.context import ReadContext
    from icelock.spark.task.read import ReadPlan
    from icelock.spark.task.splits import ChangeSplit

ORDINAL: Final = "ordinal"
RANGE: Final = "range"
PIECES: Final = pa.schema(
    [
        pa.field(ORDINAL, pa.int32()),
        pa.field(RANGE, pa.int64()),
        pa.field("updated", pa.int64()),
        pa.field("inserted", pa.bool_()),
        pa.field("rows", pa.int64()),
        pa.field("ids", pa.binary()),
    ]
)
"""The row ids of one range that a file lost or gained with one last update (-1: null), and how many rows have them."""
LEFT: Final = pa.schema([pa.field(ORDINAL, pa.int32()), pa.field(RANGE, pa.int64()), pa.field("ids", pa.binary())])
"""The row ids of one range that a snapshot changed; null: all of them may be."""
_RANGE_BITS: Final = 24
_NO_UPDATE: Final = -1


@dataclass(frozen=True, slots=True)
class ChangedIds:
    """Ids of the rows that snapshots may have changed, by their ordinals: a serialized bitmap, and ranges of which all ids may be."""

    ids: dict[int, bytes] = field(default_factory=dict)
    whole: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, left: pa.Table) -> Self:
        """Return those of a table of ``LEFT``."""
        ids: defaultdict[int, BitMap64] = defaultdict(BitMap64)
        whole: defaultdict[int, list[int]] = defaultdict(list)
        for ordinal, number, some in zip(*(column.to_pylist() for column in left.columns), strict=True):
            if some is None:
                whole[ordinal].append(number)
            else:
                ids[ordinal] |= BitMap64.deserialize(some)
        return cls({key: some.serialize() for key, some in ids.items()}, {key: tuple(some) for key, some in whole.items()})

    def bitmap(self, ordinal: int) -> BitMap64:
        """Return the ids of a snapshot, without those of whole ranges."""
        return BitMap64.deserialize(self.ids[ordinal]) if ordinal in self.ids else BitMap64()

    def rows(self, batch: pa.RecordBatch, place: int, ordinal: int, some: BitMap64) -> pa.RecordBatch:
        """Return the rows of a batch that may be changes: by their ids, a column, and those of their snapshot (``bitmap``)."""
        from icelock.arrow.read.deletes import among

        ids = batch.column(place)
        kept = among(ids, some)
        if ordinal in self.whole:
            kept = pc.or_(kept, pc.is_in(_ranges(ids), value_set=pa.array(self.whole[ordinal], pa.int64())))
        if ids.null_count:
            kept = pc.or_(kept, ids.is_null())
        return batch.filter(kept)


def version_pieces(context: ReadContext, splits: Iterable[ChangeSplit]) -> Iterator[pa.RecordBatch]:
    """Yield the versions of the rows that files lost or gained, as batches of ``PIECES``; rows without an id are left out.

    ``context`` has the columns ``_row_id`` and ``_last_updated_sequence_number``. Errors are those of ``read_live``.
    """
    from icelock.arrow.read.task import read_live

    for split in splits:
        what, ordinal, _ = split.labels
        found: defaultdict[tuple[int, int], BitMap64] = defaultdict(BitMap64)
        rows: defaultdict[tuple[int, int], int] = defaultdict(int)
        for batch in read_live(context, split.files.tasks):
            for key, ids in _by_version(batch):
                found[key] |= ids[0]
                rows[key] += ids[1]
        keys = list(found)
        columns = [
            pa.repeat(pa.scalar(ordinal, pa.int32()), len(keys)),
            pa.array([number for number, _ in keys], pa.int64()),
            pa.array([updated for _, updated in keys], pa.int64()),
            pa.repeat(pa.scalar(what == ChangeType.INSERT.value), len(keys)),
            pa.array([rows[key] for key in keys], pa.int64()),
            pa.array([found[key].serialize() for key in keys], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=PIECES)


def _by_version(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, int], tuple[BitMap64, int]]]:
    """Yield the ids of a batch and how many rows have them, by range and last update."""
    from icelock.arrow.read.deletes import bitmap_of

    ids, updates = batch.columns
    if ids.null_count:
        ids, updates = (column.filter(batch.column(0).is_valid()) for column in (ids, updates))
    keys = pa.table({"range": _ranges(ids), "updated": updates.fill_null(_NO_UPDATE)})
    distinct = keys.group_by(["range", "updated"]).aggregate([]).to_pylist()
    for one in distinct:
        number, updated = one["range"], one["updated"]
        some = ids
        if len(distinct) > 1:
            some = ids.filter(pc.and_(pc.equal(keys["range"], number), pc.equal(keys["updated"], updated)).combine_chunks())
        yield (number, updated), (bitmap_of(some), len(some))


def _ranges(ids: pa.Array) -> pa.Array:
    return pc.shift_right(ids, pa.scalar(_RANGE_BITS, pa.int64()))


def read_versions(read: ReadPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the pieces of the sealed splits of one task; errors as ``version_pieces``."""
    context = read.context()
    for splits in open_splits(key, rows):
        yield from version_pieces(context, splits)


def changed_ids(limit: int, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield, as batches of ``LEFT``, the ids that are left of pieces which are sorted by snapshot and range.

    After ``limit`` bytes, ranges come without their ids.
    """
    for (ordinal, number), group in _groups(pieces):
        ids = group.left()
        if ids is not None and not ids:
            continue
        told = None if ids is None else ids.serialize()
        if told is not None:
            limit -= len(told)
        columns = [[ordinal], [number], [told if limit >= 0 else None]]
        yield pa.RecordBatch.from_arrays([pa.array(one, kind.type) for one, kind in zip(columns, LEFT, strict=True)], schema=LEFT)


class _Group:
    """The versions of one snapshot and range, by last update and side."""

    def __init__(self) -> None:
        self._ids: defaultdict[tuple[int, bool], BitMap64] = defaultdict(BitMap64)
        self._rows: defaultdict[tuple[int, bool], int] = defaultdict(int)

    def add(self, updated: int, inserted: bool, rows: int, ids: bytes) -> None:  # noqa: FBT001 - a column's value
        self._ids[updated, inserted] |= BitMap64.deserialize(ids)
        self._rows[updated, inserted] += rows

    def left(self) -> BitMap64 | None:
        """Return the ids that are not the same before and after; None: a version is there twice, and nothing is said."""
        if any(len(ids) != self._rows[key] for key, ids in self._ids.items()):
            return None
        left = BitMap64()
        for (updated, inserted), ids in self._ids.items():
            left |= ids - self._ids.get((updated, not inserted), BitMap64())
        return left


def _groups(pieces: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[int, int], _Group]]:
    last, group = (0, 0), _Group()
    for batch in pieces:
        for ordinal, number, *piece in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if (ordinal, number) != last:
                yield last, group
                last, group = (ordinal, number), _Group()
            group.add(*piece)
    yield last, group
