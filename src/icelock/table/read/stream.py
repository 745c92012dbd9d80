"""A table as a stream of appended rows: offsets, where a stream begins, and which files lie between two offsets.

An offset is a snapshot and a number of files: those of its added files that were read, in the order of ``table.read.added_files``. Its JSON
is that of Java's ``StreamingOffset``. With ``scan_all_files`` the number counts all live files of the snapshot instead: a stream that
begins where older snapshots were expired reads what they left.

    append              its added files
    replace             nothing: compaction and rewrites move rows
    delete, overwrite   an error that names the snapshot, unless they are to be skipped

A snapshot that gives nothing is passed, and then its position is 1: so a checkpoint moves on with the table, and what is expired behind it
is no loss.

Not here: Spark (``spark.statements.streams``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from icelock.errors import FormatError, PolicyError
from icelock.plan.task import ScanTask
from icelock.table.read.added_files import added_files
from icelock.table.read.scan import DataScan

SKIP_OVERWRITES: Final = "streaming-skip-overwrite-snapshots"
SKIP_DELETES: Final = "streaming-skip-delete-snapshots"
START_SNAPSHOT: Final = "start-snapshot-id"
FROM_TIMESTAMP: Final = "stream-from-timestamp"
_VERSION: Final = 1
_PASSED: Final = 1
# More files than a snapshot has.
_WHOLE: Final = (1 << 31) - 1
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Up to where a stream has read."""

    snapshot_id: int
    position: int
    scan_all_files: bool = False

    def to_json(self) -> str:
        """Return the offset as Java writes it; equal offsets have equal texts."""
        fields = {
            "version": _VERSION,
            "snapshot_id": self.snapshot_id,
            "position": self.position,
            "scan_all_files": self.scan_all_files,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the offset of a checkpoint; another form, or a newer version, is a FormatError."""
        try:
            found = json.loads(text)
            version, made = found["version"], cls(found["snapshot_id"], found["position"], found["scan_all_files"])
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise FormatError(f"{text[:200]!r} is no offset of a table's stream: the checkpoint is of another source, or damaged") from e
        kinds = [type(value) for value in (version, made.snapshot_id, made.position, made.scan_all_files)]
        if version != _VERSION or kinds != [int, int, int, bool] or (made.position < 0 and made != BEGINNING):
            raise FormatError(f"the offset {text[:200]!r} of a checkpoint is not of version {_VERSION}")
        return made


BEGINNING: Final = StreamOffset(-1, -1)
"""Java's START_OFFSET: nothing was there to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """Where a stream begins, and what it passes over.

    Args:
        branch: whose history is read.
        after: a snapshot: what was committed after it is read.
        from_ms: a time in ms since 1970: what was committed then or later is read.
        now: what is committed from now on is read.
        skip_overwrites: pass over snapshots that replaced rows, with the rows that they added.
        skip_deletes: pass over snapshots that deleted rows.
    """

    branch: str = MAIN_BRANCH
    after: int | None = None
    from_ms: int | None = None
    now: bool = False
    skip_overwrites: bool = False
    skip_deletes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """How much a batch takes at most (None: all), but one file at least; ``last`` is the snapshot that the stream ends with (``head``)."""

    files: int | None = None
    rows: int | None = None
    last: int | None = None


class BatchFiles(DataScan):
    """A scan of files of a stream: ``chosen``, which lie between the offsets ``begin`` and ``end`` of ``stream``."""

    chosen: tuple[ScanTask, ...]
    span: tuple[TableStream, StreamOffset, StreamOffset]

    def update(self, **overrides: Any) -> Self:
        """Return a copy of this scan, of the same files, with other arguments."""
        changed = super().update(**overrides)
        changed.chosen, changed.span = self.chosen, self.span
        return changed

    def iter_tasks(self) -> Iterator[ScanTask]:
        """Return the files that may hold matching rows."""
        if isinstance(self.exact_filter, AlwaysTrue):
            return iter(self.chosen)
        stream, begin, end = self.span
        kept = stream.matching(begin, end, self.exact_filter)
        return (task for task in self.chosen if task.path in kept)


class TableStream:
    """The stream of one version of a table, in the columns of its current schema; ``name`` is for messages."""

    def __init__(self, metadata: TableMetadata, io: FileIO, rules: StreamRules, name: str) -> None:
        self._metadata = metadata
        self._io = io
        self._rules = rules
        self._name = name
        self._files: dict[StreamOffset, list[ScanTask]] = {}
        self._history = _history(metadata, rules.branch)

    @property
    def head(self) -> int:
        """The newest snapshot; that of ``BEGINNING`` if there is none."""
        return self._history[-1].snapshot_id if self._history else BEGINNING.snapshot_id

    def initial(self) -> StreamOffset:
        """Return where a new stream begins.

        Raises:
            PolicyError: the snapshot or time that it is to begin with is not in the table's history.
        """
        rules = self._rules
        if rules.after is not None:
            return self._after(self._history[self._option_place(rules.after)])
        if not self._history:
            return BEGINNING
        if rules.now:
            return self._after(self._history[-1])
        return self._first()

    def end(self) -> StreamOffset:
        """Return the end of all there is now, whatever a batch begins with; what cannot be read is an error of the batch."""
        return StreamOffset(self._history[-1].snapshot_id, _WHOLE) if self._history else BEGINNING

    def is_after(self, offset: StreamOffset, other: StreamOffset) -> bool:
        """Whether an offset comes after another one; not if a snapshot of theirs is no longer in the history."""
        places = {snapshot.snapshot_id: place for place, snapshot in enumerate(self._history)}
        if offset.snapshot_id not in places or other.snapshot_id not in places:
            return False
        return (places[offset.snapshot_id], offset.position) > (places[other.snapshot_id], other.position)

    def latest(self, start: StreamOffset, limits: StreamLimits) -> StreamOffset | None:
        """Return the end of the batch that begins at ``start``; None: there is nothing new.

        Raises:
            PolicyError: ``start`` is no longer in the table's history, or a snapshot replaced or deleted rows.
            IntegrityError, KeyUnavailableError: as ``added_files``.
        """
        if start == BEGINNING:
            start = self._first() if self._history else BEGINNING
        if start == BEGINNING:
            return None
        end, files, rows, last = start, 0, 0, self._last_place(limits)
        for place, snapshot, begin in self._from(start):
            if place > last or (end != start and self._refusal(snapshot, begin)):
                break  # what came before a snapshot that is refused is read first
            found = self._of(snapshot, begin)
            position = begin.position
            for task in found[position:]:
                if files and (files == limits.files or (limits.rows is not None and rows + task.record_count > limits.rows)):
                    return StreamOffset(snapshot.snapshot_id, position, begin.scan_all_files)
                files, rows, position = files + 1, rows + task.record_count, position + 1
            end = StreamOffset(snapshot.snapshot_id, max(position, _PASSED), begin.scan_all_files)
        return None if end == start else end

    def _last_place(self, limits: StreamLimits) -> int:
        """Return the place in the history that the stream ends with: -1 if there was no snapshot when it began."""
        if limits.last == BEGINNING.snapshot_id:
            return -1
        return next((place for place, one in enumerate(self._history) if one.snapshot_id == limits.last), len(self._history))

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[ScanTask]:
        """Return the files between two offsets; errors as ``latest``."""
        tasks: list[ScanTask] = []
        for snapshot, begin in self._between(start, end):
            stop = end.position if snapshot.snapshot_id == end.snapshot_id else None
            tasks += self._of(snapshot, begin)[begin.position : stop]
        return tasks

    def matching(self, start: StreamOffset, end: StreamOffset, row_filter: BooleanExpression) -> set[str]:
        """Return the paths of files, those between two offsets and others, that may hold matching rows; errors as ``latest``."""
        return {
            task.path
            for snapshot, begin in self._between(start, end)
            for task in self._planned(snapshot, scan_all=begin.scan_all_files, row_filter=row_filter)
        }

    def _between(self, start: StreamOffset, end: StreamOffset) -> Iterator[tuple[Snapshot, StreamOffset]]:
        """Yield the snapshots between two offsets, each with where to begin in it."""
        last = self._place(end.snapshot_id, "a batch of the checkpoint ends with")
        for place, snapshot, begin in self._from(self._first() if start == BEGINNING else start):
            if place > last or (place == last and end.position < begin.position):
                raise FormatError(f"table {self._name}: a batch of the checkpoint ends with {end.to_json()}, before it begins")
            yield snapshot, begin
            if place == last:
                return

    def batch(self, start: StreamOffset, end: StreamOffset, columns: Sequence[str]) -> BatchFiles:
        """Return the scan of the files between two offsets; errors as ``latest``."""
        scan = BatchFiles(table_metadata=self._metadata, io=self._io, selected_fields=tuple(columns))
        scan.chosen, scan.span = tuple(self.tasks(start, end)), (self, start, end)
        return scan.pinned(end.snapshot_id)

    def _first(self) -> StreamOffset:
        """Return where a stream of a table with snapshots begins; ``BEGINNING`` if the time for that is still to come."""
        since = self._rules.from_ms
        oldest = self._history[0]
        if since is None:
            return StreamOffset(oldest.snapshot_id, 0, not _has_only_its_own(oldest))
        if oldest.timestamp_ms > since and not _has_only_its_own(oldest):
            raise PolicyError(
                f"table {self._name}: option {FROM_TIMESTAMP} is {since}, and the oldest snapshot that was not expired is of "
                f"{oldest.timestamp_ms}: what was appended in between cannot be determined. Begin at {oldest.timestamp_ms}; "
                "or without the option, with all rows that the table had then"
            )
        found = next((snapshot for snapshot in self._history if snapshot.timestamp_ms >= since), None)
        return BEGINNING if found is None else StreamOffset(found.snapshot_id, 0)

    def _after(self, snapshot: Snapshot) -> StreamOffset:
        appended = _operation(snapshot) == Operation.APPEND
        return StreamOffset(snapshot.snapshot_id, max(_PASSED, len(self._added(snapshot, scan_all=False)) if appended else 0))

    def _from(self, start: StreamOffset) -> Iterator[tuple[int, Snapshot, StreamOffset]]:
        """Yield the snapshots from an offset on, with their places in the history, and with where to begin in each."""
        first = self._place(start.snapshot_id, "the checkpoint has read up to")
        for place in range(first, len(self._history)):
            snapshot = self._history[place]
            yield place, snapshot, start if place == first else StreamOffset(snapshot.snapshot_id, 0)

    def _option_place(self, snapshot_id: int) -> int:
        """Return the place of the snapshot that an option names."""
        found = self._found(snapshot_id)
        if found is None:
            raise PolicyError(
                f"table {self._name}: option {START_SNAPSHOT} is {snapshot_id}, which is not in the history of branch {self._rules.branch} "
                f"({self._begins()}): the id is wrong, or the snapshot was expired or rolled back. {self._name}.snapshots has the "
                "ids of those that there are; without the option a stream begins with all rows"
            )
        return found

    def _place(self, snapshot_id: int, who: str) -> int:
        """Return the place of a snapshot of the checkpoint."""
        found = self._found(snapshot_id)
        if found is None:
            known = self._metadata.snapshot_by_id(snapshot_id)
            why = "it was expired, or the checkpoint is of another table" if known is None else "the branch was rolled back to before it"
            raise PolicyError(
                f"table {self._name}: {who} snapshot {snapshot_id}, which is not in the history of branch {self._rules.branch} "
                f"({self._begins()}): {why}. What came after it may be missing in the stream: begin with a new checkpoint, and "
                f"{START_SNAPSHOT}, {FROM_TIMESTAMP} or all rows (neither of them). Keep snapshots longer than a stream may be stopped: "
                "history.expire.max-snapshot-age-ms"
            )
        return found

    def _found(self, snapshot_id: int) -> int | None:
        return next((place for place, snapshot in enumerate(self._history) if snapshot.snapshot_id == snapshot_id), None)

    def _begins(self) -> str:
        if not self._history:
            return "it is empty"
        return f"it begins with {self._history[0].snapshot_id}, of {self._history[0].timestamp_ms} ms"

    def _of(self, snapshot: Snapshot, begin: StreamOffset) -> list[ScanTask]:
        """Return the files that a snapshot gives to the stream."""
        refusal = self._refusal(snapshot, begin)
        if refusal:
            raise PolicyError(f"table {self._name}: {refusal}")
        if begin.scan_all_files or _operation(snapshot) == Operation.APPEND:
            return self._added(snapshot, scan_all=begin.scan_all_files)
        return []

    def _refusal(self, snapshot: Snapshot, begin: StreamOffset) -> str:
        """Return why a snapshot cannot be a part of the stream, or nothing."""
        operation = _operation(snapshot)
        if begin.scan_all_files or begin.position >= _PASSED or operation in {Operation.APPEND, Operation.REPLACE}:
            return ""
        skip, option = False, ""
        if operation == Operation.DELETE:
            skip, option = self._rules.skip_deletes, SKIP_DELETES
        elif operation == Operation.OVERWRITE:
            skip, option = self._rules.skip_overwrites, SKIP_OVERWRITES
        if skip:
            return ""
        return (
            f"snapshot {snapshot.snapshot_id} is of operation {'unknown' if operation is None else operation.value}, and a stream has "
            f"appended rows only. {f'To pass over such snapshots, set {option}=true; or begin' if option else 'Begin'} after it, "
            f"with a new checkpoint and {START_SNAPSHOT}={snapshot.snapshot_id}"
        )

    def _added(self, snapshot: Snapshot, *, scan_all: bool) -> list[ScanTask]:
        key = StreamOffset(snapshot.snapshot_id, 0, scan_all)
        if key not in self._files:
            if len(self._files) >= _KEPT:
                del self._files[next(iter(self._files))]
            self._files[key] = self._planned(snapshot, scan_all=scan_all, row_filter=AlwaysTrue())
        return self._files[key]

    def _planned(self, snapshot: Snapshot, *, scan_all: bool, row_filter: BooleanExpression) -> list[ScanTask]:
        if not scan_all:
            return added_files(self._metadata, self._io, snapshot.snapshot_id, row_filter)
        scan = DataScan(table_metadata=self._metadata, io=self._io, row_filter=row_filter).pinned(snapshot.snapshot_id)
        return scan.scan_tasks()


def _history(metadata: TableMetadata, branch: str) -> Sequence[Snapshot]:
    """Return the snapshots of a branch that are there without a gap, the oldest first."""
    return list(ancestors_of(metadata.snapshot_by_name(branch), metadata))[::-1]


def _operation(snapshot: Snapshot) -> Operation | None:
    return None if snapshot.summary is None else snapshot.summary.operation


def _has_only_its_own(snapshot: Snapshot) -> bool:
    """Whether the table was empty before a snapshot (an expiry takes away which one that was), as it never was before a compaction."""
    if _operation(snapshot) == Operation.REPLACE:
        return False
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return "total-data-files" in summary and summary["total-data-files"] == summary.get("added-data-files", "0")
