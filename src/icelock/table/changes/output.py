"""Changed rows with the three columns of a changelog: rows of pairs one after the other, before the update and after it.

Lost rows of pairs wait in memory for the gained ones, up to about ``_WAITING_BYTES``. Where more are to wait, files are read once for each
part of the pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg.schema import Schema

from icelock.arrow.nested import converted_list, converted_map, struct_array
from icelock.arrow.read.context import ReadContext
from icelock.arrow.row_texts import row_texts
from icelock.arrow.types import output_schema
from icelock.errors import IntegrityError
from icelock.metadata.metadata_columns import CHANGE_COLUMNS, ROW_ID, ChangeType
from icelock.table.changes.pairs import Matching, Rows
from icelock.table.changes.sides import Commit

_WAITING_BYTES: Final = 256 << 20
_MOST_WAITING: Final = 1 << 20
_LEAST_WAITING: Final = 1 << 12
_UNPACKED: Final = 4  # bytes in memory for one in a file, roughly
_CHANGE_SCHEMA: Final = output_schema(Schema(*CHANGE_COLUMNS))


class Columns:
    """What is read of changed rows, and what comes out.

    Attributes:
        compared: whether rows are compared, to see if an update changed anything.
        read: the columns to read: if they are, all of the table; and the row id.
        schema: of what comes out.
    """

    def __init__(self, wanted: Schema, table: Schema, *, compared: bool) -> None:
        self.compared = compared
        fields = {field.field_id: field for field in wanted.fields}
        if compared:
            fields |= {field.field_id: field for field in table.fields}  # whole, where a part is wanted
        self.read = Schema(*(fields | {ROW_ID.field_id: ROW_ID}).values())
        self.schema = changelog_schema(wanted)
        ids = list(fields)
        self._out = [(ids.index(field.field_id), arrow.type) for field, arrow in zip(wanted.fields, self.schema, strict=False)]
        self._compared = [ids.index(field.field_id) for field in table.fields] if compared else []

    def texts(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a text of each row's values in the table's columns; of all rows the same if they are not compared."""
        return row_texts([batch.column(i) for i in self._compared], len(batch))

    def labelled(self, batch: pa.RecordBatch, change: ChangeType, commit: Commit) -> pa.RecordBatch:
        """Return what comes out of rows that one snapshot changed."""
        labels = zip((change.value, commit.ordinal, commit.snapshot_id), _CHANGE_SCHEMA, strict=True)
        columns = [_narrowed(batch.column(i), kind) for i, kind in self._out]
        columns += [pa.repeat(pa.scalar(value, field.type), len(batch)) for value, field in labels]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def changelog_schema(wanted: Schema) -> pa.Schema:
    """Return the schema of a changelog's batches: the wanted columns, and those that say what changed."""
    return pa.schema([*output_schema(wanted), *_CHANGE_SCHEMA])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Rows of pairs: as they come out, their texts, and the pairs' numbers."""

    rows: pa.RecordBatch
    texts: pa.Array
    numbers: pa.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelog:
    """The changes of one snapshot, or of several together; the two in ``matching`` are about the lost and the gained rows.

    Without ``updates`` pairs are a DELETE and an INSERT.
    """

    context: ReadContext
    columns: Columns
    lost: Rows
    gained: Rows
    matching: tuple[Matching, Matching]
    updates: bool

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield lost rows, then gained ones, each of a pair after the lost one.

        Raises:
            IcelockError: as ``read_task``.
        """
        before, after = (ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER) if self.updates else (ChangeType.DELETE, ChangeType.INSERT)
        for number, part in enumerate(self._parts()):
            waiting = []
            for commit, batch, pairs in self._rows(self.lost, self.matching[0]):
                if not number:
                    yield from self._alone(commit, ChangeType.DELETE, batch, pairs)
                waiting += self._paired(commit, before, batch, pairs, part)
            known = _together(waiting)
            for commit, batch, pairs in self._rows(self.gained, self.matching[1]):
                if not number:
                    yield from self._alone(commit, ChangeType.INSERT, batch, pairs)
                for found in self._paired(commit, after, batch, pairs, part):
                    yield from self._joined(known, found)

    def _parts(self) -> list[tuple[int, int]]:
        """Return ranges of pair numbers, each with as many pairs as may wait at once."""
        by_id, numbers = self.lost.by_id, self.matching[1].pairs
        tasks = [side.change.task for side in self.lost.sides]
        width = _UNPACKED * sum(task.file_size for task in tasks) // max(1, sum(task.record_count for task in tasks))
        step = max(_LEAST_WAITING, min(_MOST_WAITING, _WAITING_BYTES // max(1, width)))
        starts = [by_id[i] for i in range(0, len(by_id), step)] if by_id else numbers[::step].tolist()
        bounds = [0, *starts[1:], np.iinfo(np.int64).max]
        return list(itertools.pairwise(bounds))

    def _rows(self, rows: Rows, matching: Matching) -> Iterator[tuple[Commit, pa.RecordBatch, pa.Array]]:
        """Yield the rows that changed, and the numbers of their pairs: null for rows in none."""
        first = 0
        for side, batch, ids in rows.batches(self.context):
            loose = np.asarray(ids.is_null())
            numbers = np.arange(first, first + int(loose.sum()))
            first += len(numbers)
            kept, pairs = np.ones(len(batch), np.bool_), np.asarray(pc.fill_null(ids, -1)).copy()
            kept[loose] = matching.changed(numbers)
            paired, of_loose = matching.pair_of(numbers)
            pairs[loose] = np.where(paired, of_loose, -1)
            yield side.commit, batch.filter(pa.array(kept)), pa.array(pairs[kept], mask=pairs[kept] < 0)

    def _alone(self, commit: Commit, change: ChangeType, batch: pa.RecordBatch, pairs: pa.Array) -> Iterator[pa.RecordBatch]:
        alone = batch.filter(pairs.is_null()) if pairs.null_count < len(pairs) else batch
        if len(alone):
            yield self.columns.labelled(alone, change, commit)

    def _paired(self, commit: Commit, change: ChangeType, batch: pa.RecordBatch, pairs: pa.Array, part: tuple[int, int]) -> list[_Pairs]:
        wanted = pc.fill_null(pc.and_(pc.greater_equal(pairs, part[0]), pc.less(pairs, part[1])), fill_value=False)
        if not wanted.true_count:
            return []
        rows = batch.filter(wanted)
        return [_Pairs(rows=self.columns.labelled(rows, change, commit), texts=self.columns.texts(rows), numbers=pairs.filter(wanted))]

    def _joined(self, known: _Pairs | None, gained: _Pairs) -> Iterator[pa.RecordBatch]:
        places = pc.index_in(gained.numbers, value_set=known.numbers) if known is not None else pa.nulls(1)
        if known is None or places.null_count:
            raise IntegrityError("files gave other rows when they were read again: something replaces them; read the changes anew")
        rows = gained.rows
        if self.columns.compared:
            changed = pc.not_equal(gained.texts, known.texts.take(places))
            rows, places = rows.filter(changed), places.filter(changed)
        if len(rows):
            both = pa.concat_batches([known.rows.take(places), rows])
            yield both.take(pa.array(np.arange(len(both)).reshape(2, -1).T.ravel()))


def _together(parts: Sequence[_Pairs]) -> _Pairs | None:
    if not parts:
        return None
    rows = pa.concat_batches([part.rows for part in parts])
    texts, numbers = (pa.concat_arrays(arrays) for arrays in zip(*((part.texts, part.numbers) for part in parts), strict=True))
    return _Pairs(rows=rows, texts=texts, numbers=numbers)


def _narrowed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with those fields of its structs that ``kind`` has."""
    if array.type == kind:
        return array
    if pat.is_struct(kind):
        children = [array.field(field.name) for field in kind]
        return struct_array(array, [_narrowed(child, field.type) for child, field in zip(children, kind, strict=True)], kind)
    if pat.is_map(kind):
        return converted_map(array, kind, lambda keys: _narrowed(keys, kind.key_type), lambda items: _narrowed(items, kind.item_type))
    return converted_list(array, kind, lambda values: _narrowed(values, kind.value_type))
