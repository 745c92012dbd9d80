"""From what files lost and gained to changes: the work of one snapshot, or of several together, by whoever reads the files.

Memory: row ids as bitmaps, 16 bytes for each row that is compared by its values, the pairs that wait (``output``), and a batch.

Not here: which snapshots and files (``changelog``), moved rows (``versions``), pairs (``pairs``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from icelock.arrow.read.context import ReadContext
from icelock.metadata.metadata_columns import ROW_ID
from icelock.table.changes.output import Changelog, Columns
from icelock.table.changes.pairs import NOTHING, Matching, Rows, has_loose, matched
from icelock.table.changes.sides import Sides
from icelock.table.changes.versions import LINEAGE, changed_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How changes are told: by which columns a row is known (none: by its row id), as updates or not, as one change or by snapshot."""

    identifier_fields: tuple[str, ...] = ()
    updates: bool = True
    net_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Tells changes: ``context`` is of the scan, with the columns that are wanted."""

    context: ReadContext
    how: Wanted

    def batches(self, sides: Sides) -> Iterator[pa.RecordBatch]:
        """Yield what changed, with the columns of ``output.changelog_schema``.

        Args:
            sides: of one snapshot, or for net changes of all.

        Raises:
            PolicyError: several changed rows have one identifier.
            IcelockError: as ``read_task``.
        """
        changed, by_id = None, BitMap64()
        matching = (NOTHING, NOTHING)
        if sides.lost and sides.gained:
            changed = changed_rows(self._reading(LINEAGE), sides)
            by_id = BitMap64() if self.how.identifier_fields else changed.updated
        lost, gained = (Rows(sides=some, changed=changed, by_id=by_id) for some in (sides.lost, sides.gained))
        if changed is not None and has_loose(changed, by_id):
            matching = self._matched(lost, gained)
        columns = Columns(self.context.schema, self.context.table_schema, compared=bool(by_id))
        yield from Changelog(
            context=self._reading(columns.read),
            columns=columns,
            lost=lost,
            gained=gained,
            matching=matching,
            updates=self.how.updates,
        ).batches()

    def _matched(self, lost: Rows, gained: Rows) -> tuple[Matching, Matching]:
        everything = Schema(*self.context.table_schema.fields, ROW_ID)
        return matched(self._reading(everything), lost, gained, self.how.identifier_fields)

    def _reading(self, schema: Schema) -> ReadContext:
        return replace(self.context, schema=schema)
