"""Which rows were only moved, by row lineage (spec, "Row Lineage"), without reading another column.

A row's version is its ``_row_id`` with its ``_last_updated_sequence_number``. Who moves a row to another file keeps both, and who changes
it keeps the id alone. So a version that is lost and gained is no change, whether files were rewritten or rows deleted by vectors. Of
several snapshots, a version that one gains and a later one loses is no net change.

Ids are kept as bitmaps, one for each sequence number: neighbours take little space. Rows without an id (files from before row lineage)
are left to the comparison of values (``pairs``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import bitmap_of
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from icelock.plan.planner import side_by_side
from icelock.table.changes.sides import Commit, Side, Sides

LINEAGE = Schema(ROW_ID, LAST_UPDATED)
_Versions = dict[int, BitMap64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The ids of the rows that changed, by snapshot; ``unnumbered`` says whether there are rows without an id on that side."""

    lost: dict[Commit, BitMap64]
    gained: dict[Commit, BitMap64]
    unnumbered_lost: bool
    unnumbered_gained: bool

    def of(self, side: Side) -> BitMap64:
        """Return the ids of the rows of a side that changed."""
        return (self.gained if side.inserted else self.lost).get(side.commit, BitMap64())

    @property
    def updated(self) -> BitMap64:
        """The ids that were lost and gained."""
        return _union(self.lost.values()) & _union(self.gained.values())


def changed_rows(context: ReadContext, sides: Sides) -> Changed:
    """Read row ids of all sides, and leave out those of rows that are the same before and after.

    Args:
        context: of the scan.
        sides: of one snapshot; or of several in their order, for net changes.

    Raises:
        IcelockError: as ``read_task``.
    """
    lost, more_lost = _read(context, sides.lost)
    gained, more_gained = _read(context, sides.gained)
    done: list[Commit] = []
    for commit in sorted({*lost, *gained}, key=lambda one: one.ordinal):
        _cancel(lost[commit], gained[commit])  # moved within the snapshot
        for earlier in done:
            _cancel(lost[commit], gained[earlier])
            _cancel(gained[commit], lost[earlier])
        done.append(commit)
    return Changed(
        lost={commit: _union(lost[commit].values()) for commit in done},
        gained={commit: _union(gained[commit].values()) for commit in done},
        unnumbered_lost=more_lost,
        unnumbered_gained=more_gained,
    )


def _read(context: ReadContext, sides: Sequence[Side]) -> tuple[defaultdict[Commit, _Versions], bool]:
    found: defaultdict[Commit, _Versions] = defaultdict(dict)
    unnumbered = False
    for side, (versions, more) in zip(sides, side_by_side(partial(_versions, context), sides), strict=True):
        unnumbered |= more
        for number, ids in versions.items():
            found[side.commit][number] = ids | found[side.commit].get(number, BitMap64())
    return found, unnumbered


def _versions(context: ReadContext, side: Side) -> tuple[_Versions, bool]:
    found: _Versions = {}
    unnumbered = False
    for batch in side.rows(context):
        ids, numbers = batch.columns
        if ids.null_count:
            unnumbered = True
            ids, numbers = (column.filter(ids.is_valid()) for column in batch.columns)
        for number in pc.unique(numbers).to_pylist():
            of_number = ids.filter(pc.equal(numbers, number)) if number is not None else ids.filter(numbers.is_null())
            key = -1 if number is None else number
            found[key] = bitmap_of(of_number) | found.get(key, BitMap64())
    return found, unnumbered


def _cancel(lost: _Versions, gained: _Versions) -> None:
    """Take out of both what both have."""
    for number in lost.keys() & gained.keys():
        same = lost[number] & gained[number]
        lost[number] -= same
        gained[number] -= same


def _union(bitmaps: Iterable[BitMap64]) -> BitMap64:
    found = BitMap64()
    for bitmap in bitmaps:
        found |= bitmap
    return found
