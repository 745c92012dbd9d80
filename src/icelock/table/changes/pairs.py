"""Which lost and which gained rows belong together, apart from those that row ids settle.

Rows are compared that no row id has on both sides: their values, in all columns of the table, as 16-byte digests (``arrow.row_texts``).
A lost row that equals a gained one is no change: it was moved by a writer without row lineage, or written again as it was. Java knows this
way only (RemoveCarryoverIterator). With identifier fields all rows are compared, and what is left of them are pairs of equal identifiers
(Java ComputeUpdateIterator); there Java takes neighbours, and here an identifier that is not alone on its side is an error.

Rows are known by number: their place among the loose rows of all lost, or all gained, files. Files never change, so each reading numbers
them alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import among
from icelock.arrow.row_texts import DIGEST_TYPE, digests, matches, row_texts
from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import ROW_ID
from icelock.plan.planner import side_by_side
from icelock.table.changes.sides import Side
from icelock.table.changes.versions import Changed

_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What was found about the loose rows of one side, by number, ascending: those that did not change, and those in pairs.

    ``pairs`` has the number of the gained row for each of ``paired``.
    """

    unchanged: _Numbers = field(default_factory=partial(np.zeros, 0, np.int64))
    paired: _Numbers = field(default_factory=partial(np.zeros, 0, np.int64))
    pairs: _Numbers = field(default_factory=partial(np.zeros, 0, np.int64))

    def changed(self, numbers: _Numbers) -> _Numbers:
        """Return which of these rows changed."""
        return ~_at(self.unchanged, numbers)[0]

    def pair_of(self, numbers: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return which of these rows are in pairs, and the pairs' numbers; for the others any number."""
        found, places = _at(self.paired, numbers)
        return found, self.pairs[places] if len(self.pairs) else numbers


NOTHING: Final = Matching()


def _at(ascending: _Numbers, numbers: _Numbers) -> tuple[_Numbers, _Numbers]:
    if not len(ascending):
        return np.zeros(len(numbers), np.bool_), numbers
    places = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    return ascending[places] == numbers, places


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The changed rows of some sides; of ``changed`` None all rows are. ``by_id`` are the rows that are not loose."""

    sides: Sequence[Side]
    changed: Changed | None
    by_id: BitMap64

    def batches(self, context: ReadContext) -> Iterator[tuple[Side, pa.RecordBatch, pa.Array]]:
        """Yield batches of ``context.schema``, and with each the ids of its rows that are not loose, null for the others."""
        for side in self.sides:
            for batch in self.of(context, side):
                yield side, *batch

    def of(self, context: ReadContext, side: Side) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Yield the batches of one side."""
        if self.changed is None:
            yield from ((batch, pa.nulls(len(batch), pa.int64())) for batch in side.rows(context))
            return
        wanted = self.changed.of(side)
        place = [field.field_id for field in context.schema.fields].index(ROW_ID.field_id)
        for batch in side.rows(context):
            ids = batch.column(place)
            kept = pc.or_(among(ids, wanted), ids.is_null())
            if kept.true_count:
                ids = ids.filter(kept)
                yield batch.filter(kept), pc.if_else(among(ids, self.by_id), ids, pa.scalar(None, pa.int64()))


def matched(context: ReadContext, lost: Rows, gained: Rows, identifiers: Sequence[str]) -> tuple[Matching, Matching]:
    """Compare the loose rows of both sides, and return what was found about the lost and the gained ones.

    ``context`` reads all columns of the table, and the row id as the last.

    Raises:
        PolicyError: an identifier that is on both sides is more than once on one.
        IcelockError: as ``read_task``.
    """
    names = [field.name for field in context.schema.fields[:-1]]
    places = [names.index(name) for name in identifiers]
    lost_values, lost_keys = _digests(context, lost, range(len(names)), places)
    gained_values, gained_keys = _digests(context, gained, range(len(names)), places)
    same_lost, same_gained = matches(lost_values, gained_values)
    if not identifiers:
        return Matching(unchanged=np.sort(same_lost)), Matching(unchanged=np.sort(same_gained))
    left_lost, left_gained = (_others(len(keys), same) for keys, same in ((lost_keys, same_lost), (gained_keys, same_gained)))
    at_lost, at_gained = matches(lost_keys[left_lost], gained_keys[left_gained])
    for keys, at in ((lost_keys[left_lost], at_lost), (gained_keys[left_gained], at_gained)):
        if np.isin(np.delete(keys, at), keys[at]).any():
            raise PolicyError(
                f"identifier_fields ({', '.join(identifiers)}) do not tell rows apart: several rows with one identifier changed at once, "
                "so it is unknown which became which. Give columns that are unique, or none, which takes row ids"
            )
    of_lost, of_gained = left_lost[at_lost], left_gained[at_gained]
    order, numbers = np.argsort(of_lost), np.sort(of_gained)
    return (
        Matching(unchanged=np.sort(same_lost), paired=of_lost[order], pairs=of_gained[order]),
        Matching(unchanged=np.sort(same_gained), paired=numbers, pairs=numbers),
    )


def _others(count: int, without: _Numbers) -> _Numbers:
    return np.delete(np.arange(count), without)


def _digests(context: ReadContext, rows: Rows, columns: Sequence[int], identifiers: Sequence[int]) -> tuple[_Numbers, _Numbers]:
    """Return the digests of the loose rows, in all columns and in those of the identifier."""

    def of(side: Side) -> list[tuple[_Numbers, _Numbers]]:
        found = []
        for batch, ids in rows.of(context, side):
            loose = batch.filter(ids.is_null())
            digest = partial(_batch_digests, loose)
            found.append((digest(columns), digest(identifiers) if identifiers else np.zeros(0, DIGEST_TYPE)))
        return found

    parts = [part for side in side_by_side(of, rows.sides) for part in side]
    empty = np.zeros(0, DIGEST_TYPE)
    values, keys = (np.concatenate([empty, *(part[i] for part in parts)]) for i in range(2))
    return values, keys


def _batch_digests(batch: pa.RecordBatch, columns: Sequence[int]) -> _Numbers:
    return digests(row_texts([batch.column(i) for i in columns], len(batch)))


def has_loose(changed: Changed, by_id: BitMap64) -> bool:
    """Whether there may be loose rows on both sides."""
    lost = changed.unnumbered_lost or any(ids - by_id for ids in changed.lost.values())
    gained = changed.unnumbered_gained or any(ids - by_id for ids in changed.gained.values())
    return lost and gained
