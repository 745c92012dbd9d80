"""``Changes``: what changed between two snapshots, as Arrow rows.

    _change_type         INSERT, DELETE, UPDATE_BEFORE, UPDATE_AFTER
    _change_ordinal      the number of the snapshot in the range, from 0, without those that change no row
    _commit_snapshot_id  the snapshot

These are Java's columns, after those of the table. Snapshots follow each other; in each, rows that were deleted come first, and the two
rows of an update stand together. ``replace`` snapshots (compaction, rewrites) change no row. A row that a writer only moved is no change,
nor is one that was written again as it was.

With net changes the snapshots count as one: a row's first state before and last state after, each with its own snapshot.

Not here: which snapshots (``bounds``), files (``plan.changes``), what is told of one snapshot's (``telling``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.deletes import deleted_positions
from icelock.errors import ExpiredSnapshotError, PolicyError
from icelock.metadata.metadata_columns import CHANGE_COLUMNS, shows_deleted
from icelock.plan.changes import ChangePlanner, FileChange, FileChangeKind
from icelock.plan.task import DeleteFile
from icelock.shown import Described, Facts
from icelock.table.changes.bounds import Bounds
from icelock.table.changes.output import changelog_schema
from icelock.table.changes.sides import Commit, Sides
from icelock.table.changes.telling import Telling, Wanted
from icelock.table.changes.versions import LINEAGE
from icelock.table.described import columns, rows_of
from icelock.table.read.scan import DataScan
from icelock.table.read.streamed import ArrowStream


class Changes(Described, ArrowStream):
    """The changes of a table between two snapshots; made by ``Table.changes``.

    Raises:
        PolicyError: bounds, columns or identifiers that the table does not have.
        ExpiredSnapshotError: see ``Bounds.snapshots``.
    """

    _inside: ClassVar[frozenset[str]] = frozenset({"columns", "commits", "end", "read_context", "sides", "together"})

    def __init__(self, scan: DataScan, bounds: Bounds, wanted: Wanted) -> None:
        names = [field.name for field in CHANGE_COLUMNS]
        self._snapshots = bounds.snapshots(scan.table_metadata)
        if self._snapshots and (bounds.end is not None or bounds.until is not None):
            scan = scan.update(snapshot_id=self._snapshots[-1].snapshot_id)
        self._scan = scan.update(selected_fields=tuple(name for name in scan.selected_fields if name not in names) or ("*",))
        self._how = wanted
        self._projection = self._scan.projection()
        if shows_deleted(self._projection):
            raise PolicyError("_deleted says nothing about changed rows; _change_type says what became of each")
        self._check_identifiers()

    def _title(self) -> str:
        return f"Changes of {'.'.join(self._scan.table_identifier or ())}"

    def _facts(self) -> Facts:
        yield "snapshots", rows_of(self._snapshots)
        yield "columns", columns(self._projection)
        yield "rows known by", ", ".join(self._how.identifier_fields)
        yield "net changes", "yes" if self._how.net_changes else ""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows: columns as at the end of the range, then the three columns of a changelog."""
        return changelog_schema(self._projection)

    @property
    def end(self) -> int | None:
        """The id of the last snapshot of the range; None if there is none."""
        return self._snapshots[-1].snapshot_id if self._snapshots else None

    @cached_property
    def commits(self) -> tuple[tuple[int, Snapshot], ...]:
        """The snapshots that may have changed rows, with their ordinals."""
        changing = [one for one in self._snapshots if one.summary is None or one.summary.operation != Operation.REPLACE]
        return tuple(enumerate(changing))

    def to_arrow(self) -> pa.Table:
        """Return all changes as one table; raises as ``read_task``, or ``ExpiredSnapshotError``."""
        return pa.Table.from_batches(self._batches(), schema=self.schema)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the changes, whose errors are those of ``to_arrow``."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_pandas(self) -> Any:
        """Return all changes as a pandas data frame."""
        return self.to_arrow().to_pandas()

    def _check_identifiers(self) -> None:
        columns = self._scan.full_schema
        top = {field.name for field in columns.fields}
        for name in self._how.identifier_fields:
            if name not in top:
                raise PolicyError(f"identifier field {name!r} is no column of the table; it has {', '.join(sorted(top))}")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        shared = self._scan.read_context()  # of all files of all snapshots, for decoded delete files
        telling = Telling(context=shared, how=self._how)
        for sides in self._together(shared):
            yield from telling.batches(sides)

    def together(self) -> Iterator[Sides]:
        """Yield what each snapshot's files lost and gained, or for net changes those of all as one, for who tells it (``telling.Telling``).

        Raises as ``to_arrow``.
        """
        return self._together(self._scan.read_context())

    def _together(self, shared: ReadContext) -> Iterator[Sides]:
        together = (self.commits,) if self._how.net_changes else ((commit,) for commit in self.commits)
        return (self._sides(shared, commits) for commits in together)

    def sides(self) -> Sides:
        """Return what files lost and gained in all snapshots, for engines that read them; raises as ``to_arrow``."""
        return self._sides(self._scan.read_context(), self.commits)

    def _sides(self, shared: ReadContext, commits: Iterable[tuple[int, Snapshot]]) -> Sides:
        found = Sides()
        for ordinal, snapshot in commits:
            found.add(replace(shared, schema=LINEAGE), *self._of(shared, ordinal, snapshot))
        return found

    @property
    def columns(self) -> Schema:
        """The columns of the table that are told, without those of the changelog."""
        return self._projection

    def read_context(self, schema: Schema) -> ReadContext:
        """Return what a reader of the files needs for columns of the table, and metadata columns."""
        return self._scan.read_context(schema)

    def _of(self, shared: ReadContext, ordinal: int, snapshot: Snapshot) -> tuple[Commit, list[FileChange]]:
        manifests: Sequence[Any] = snapshot.manifests(self._scan.io)
        sequence_number = snapshot.sequence_number or 0
        paths = partial(_paths_of, shared)
        found = self._planner.file_changes(snapshot.snapshot_id, sequence_number, manifests, paths)
        self._check_there(snapshot, found)
        return Commit(snapshot_id=snapshot.snapshot_id, ordinal=ordinal), found

    @cached_property
    def _planner(self) -> ChangePlanner:
        return self._scan.planner(ChangePlanner)

    def _check_there(self, snapshot: Snapshot, found: Iterable[FileChange]) -> None:
        """Refuse files that only an expired snapshot had: they were deleted with it."""
        parent = snapshot.parent_snapshot_id
        if parent is not None and self._scan.table_metadata.snapshot_by_id(parent) is not None:
            return
        # Of one without a parent too: some writers forget parents that they expire, and a first snapshot takes nothing away.
        gone = [one.task.path for one in found if one.kind is FileChangeKind.REMOVED or one.loses_deletes]
        if gone:
            raise ExpiredSnapshotError(
                f"snapshot {snapshot.snapshot_id} took away files of the snapshot before it, which was expired, and they "
                f"with it: {gone[0]}{f' and {len(gone) - 1} more' if gone[1:] else ''}. What it changed can no longer be read: give "
                f"start_snapshot_id={snapshot.snapshot_id}, or read the whole table once and its changes from there"
            )


def _paths_of(context: ReadContext, delete: DeleteFile) -> Iterable[str]:
    return deleted_positions(context, delete).keys()
