"""``table.maintenance.compact()``: data files of bad sizes, or with many deleted rows, become files of the target size.

1. what to rewrite is planned on one snapshot of the branch: groups of files of a partition (``table.maintenance.compaction.compact_plan``);
2. the live rows of each group are written to new files, with their row ids, under new keys: by this process, a few files at once, or by
   an engine's tasks (``CombineFiles``);
3. one commit puts them in the place of the old ones; with partial progress each batch of groups has its own. Groups whose files other
   writers touched meanwhile are left out (``table.commit.rewrite``), and their new files deleted;
4. these groups are planned again, on the present rows, up to ``_ROUNDS`` times.

Killed at any time, the table has the rows that it had: committed groups are done, and what was written for others are leftovers
(``icelock.maintenance.leftovers``). A second call finds what is left to do. Old files stay for older snapshots, until these expire.

Source: Java RewriteDataFilesSparkAction (1.12). Not here: Spark (``spark.driver.compact_here``).
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Protocol, Self

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import FileScanTask
from pyiceberg.table.sorting import SortOrder

from icelock.arrow.write.combine import Arrange, combine_files, sorted_by
from icelock.arrow.write.options import TARGET_FILE_BYTES
from icelock.arrow.write.row_rewrite import with_lineage
from icelock.arrow.write.writer import WriteContext
from icelock.arrow.write.z_order import z_ordered
from icelock.errors import PolicyError
from icelock.io.listing import delete_files
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile
from icelock.metadata.schema_paths import find_column
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.plan.filters.text import parse_filter
from icelock.plan.partition_set import PartitionSet
from icelock.shown import Shown
from icelock.table.commit.rewrite import FileGroup
from icelock.table.commit.staged import Staged
from icelock.table.maintenance.compaction.compact_options import CompactOptions
from icelock.table.maintenance.compaction.compact_plan import PlannedGroup, plan_groups
from icelock.table.maintenance.compaction.dangling import commit_deletes
from icelock.table.maintenance.compaction.sort_text import parse_sort_order
from icelock.table.read.scan import DataScan
from icelock.table.refs import check_branch
from icelock.table.state import OpenTable

_ROUNDS: Final = 5
_AT_ONCE: Final = 4
_logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Told after each group: bytes of files that were read so far, and of all."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compacted(Shown):
    """What a compaction did, or with ``dry_run`` would do.

    Args:
        groups: groups of files that were committed.
        rewritten_files: data files that were replaced.
        rewritten_bytes: their size on storage.
        added_files: data files that were written for them; of a dry run an estimate.
        added_bytes: their size on storage; of a dry run not known, 0.
        removed_delete_files: deletion vectors, and position deletes of one file, that went with their data files; with
            ``remove-dangling-deletes`` all that applied to no data file any more.
        failed_files: data files of groups that could not be rewritten, with partial progress.
        conflicted_files: data files of groups that other writers touched in each round, so that they stay as they are.
        snapshots: ids of the snapshots that were committed.
        dry_run: whether nothing was done.
    """

    groups: int = 0
    rewritten_files: int = 0
    rewritten_bytes: int = 0
    added_files: int = 0
    added_bytes: int = 0
    removed_delete_files: int = 0
    failed_files: int = 0
    conflicted_files: int = 0
    snapshots: tuple[int, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactWork:
    """What all groups of a round share: the scan that found their files, how rows are written, and what was asked for.

    ``arrange`` makes the order from the write context; None: files are put together as they are.
    """

    scan: DataScan
    write: WriteContext
    entropy: Entropy
    request: CompactRequest

    @property
    def arrange(self) -> Arrange | None:
        """The order of the rows of a bin."""
        request = self.request
        if request.z_order:
            return z_ordered(self.write, request.z_order)
        return None if request.sort_order is None else sorted_by(replace(self.write, sort_order=request.sort_order))


class CombineFiles(Protocol):
    """Writes the rows of groups to new files: ``combine_here``, or an engine."""

    def __call__(self, work: CompactWork, groups: Sequence[PlannedGroup]) -> Iterator[list[DataFile] | Exception]:
        """Yield the new files of each group, in order; or the error that kept it from being rewritten, without a file left of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """What to compact: the files that may have rows of ``where``, in the order of ``sort_order`` or ``z_order``, or as they are.

    ``only`` says of a version of the table which of them: each round asks it anew.
    """

    where: BooleanExpression
    branch: str
    options: CompactOptions
    sort_order: SortOrder | None = None
    z_order: tuple[str, ...] = ()
    only: Callable[[TableMetadataV3], Callable[[FileScanTask], bool]] = lambda _metadata: lambda _task: True

    @classmethod
    def of(
        cls,
        table: OpenTable,
        *,
        where: BooleanExpression | str,
        sort_by: SortOrder | str | None,
        z_order_by: Sequence[str],
        options: Mapping[str, str] | None,
        branch: str,
    ) -> Self:
        """Return what a user asked for; a PolicyError if it cannot be."""
        table.io_for(table.metadata)  # refuses a plain table
        if sort_by is not None and z_order_by:
            raise PolicyError("compact takes sort_by or z_order_by, not both")
        return cls(
            where=parse_filter(where),
            branch=branch,
            options=CompactOptions.parse(options or {}, table.metadata.properties),
            sort_order=parse_sort_order(sort_by, table.metadata, table=".".join(table.name())),
            z_order=_z_columns(z_order_by, table),
        )

    @property
    def arranges(self) -> bool:
        """Whether rows get an order over files."""
        return self.sort_order is not None or bool(self.z_order)


class Compaction:
    """One compaction of a branch."""

    def __init__(self, table: OpenTable, request: CompactRequest, combine: CombineFiles, progress: Progress | None = None) -> None:
        """Check what can be checked before a byte is written; ``table`` is moved on.

        Raises:
            PolicyError: the table cannot be written to, or an order names what cannot be ordered by.
        """
        self._table = table
        self._request = request
        self._combine = combine
        self._progress = progress or (lambda _done, _all: None)
        self._result = Compacted()
        self._own: set[str] = set()
        self._read_bytes = 0
        check_branch(table.metadata.refs, request.branch, table=".".join(table.name()))
        _ = self._work(table, None).arrange

    def plan(self, seen: Callable[[FileScanTask], None] = lambda _task: None) -> Compacted:
        """Return what would be done; ``seen`` is told of each file."""
        groups = self._groups(self._work(self._table, None), None)
        for task in (task for group in groups for task in group.files):
            seen(task)
        options = self._request.options
        return Compacted(
            groups=len(groups),
            rewritten_files=sum(len(group.files) for group in groups),
            rewritten_bytes=sum(group.size for group in groups),
            added_files=sum(options.output_files(group.size) for group in groups),
            dry_run=True,
        )

    def run(self) -> Compacted:
        """Compact; errors are those of ``MaintenanceTable.compact``."""
        result = self._run()
        if not self._request.options.remove_dangling:
            return result
        done = commit_deletes(self._table, self._request.branch, vectors=False, written_later=self._own)
        made = () if done.snapshot_id is None else (done.snapshot_id,)
        return _plus(result, removed_delete_files=done.removed_delete_files, snapshots=made)

    def _run(self) -> Compacted:
        again: PartitionSet | None = None
        dropped: list[FileGroup] = []
        for _ in range(_ROUNDS):
            self._table.refresh()
            dropped = self._round(again)
            if not dropped:
                return self._result
            again = PartitionSet()
            for file in (file for group in dropped for file in group.removed):
                again.add(file)
            _logger.info("%d groups of files were changed by other writers meanwhile; they are planned again", len(dropped))
        return replace(self._result, conflicted_files=sum(len(group.removed) for group in dropped))

    def _round(self, places: PartitionSet | None) -> list[FileGroup]:
        """Compact what is planned on the table as it is now; return the groups that other writers' commits kept from it."""
        planned_on = self._table.metadata
        work = self._work(self._table, self._table.transaction())
        groups = self._groups(work, places)
        whole = self._read_bytes + sum(group.size for group in groups)
        dropped: list[FileGroup] = []
        failures = 0
        for batch in _batches(groups, self._request.options.max_commits):
            done: list[FileGroup] = []
            try:
                for group, files in zip(batch, self._combine(work, batch), strict=True):
                    self._read_bytes += group.size
                    self._progress(self._read_bytes, whole)
                    if isinstance(files, Exception):
                        self._failed(group, files)
                    else:
                        done.append(FileGroup(removed=[task.file for task in group.files], added=files))
            except BaseException:
                self._discard(done)
                raise
            try:
                dropped += self._commit(done, planned_on)
            except ValidationException as e:
                # Columns, the spec or the branch are others now, or the snapshot has expired: all is planned again.
                _logger.info("%s", e)
                dropped += done
            except CommitFailedException:
                failures += 1
                if failures > self._request.options.max_failed_commits:
                    raise
                self._result = _plus(self._result, failed_files=sum(len(group.removed) for group in done))
        return dropped

    def _work(self, table: OpenTable, transaction: Any) -> CompactWork:
        request, metadata = self._request, table.metadata
        opened: Any = transaction or table.transaction()
        staged: Staged = opened.staged
        if transaction is not None:
            staged.prepare_kek()
        context = with_lineage(staged.write_context())
        properties = {**context.properties, TARGET_FILE_BYTES: str(request.options.most_written)}
        own = request.sort_order if request.sort_order in metadata.sort_orders else None
        order = own or (SortOrder(order_id=0) if request.arranges else context.sort_order)
        scan = staged.branch_scan(request.where, case_sensitive=True, branch=request.branch)
        if scan is None:
            raise PolicyError(f"table {staged.name} has no branch {request.branch!r} any more: nothing more was compacted")
        return CompactWork(
            scan=scan,
            write=replace(context, properties=properties, sort_order=order),
            entropy=staged.entropy,
            request=request,
        )

    def _groups(self, work: CompactWork, places: PartitionSet | None) -> list[PlannedGroup]:
        wanted = self._request.only(self._table.metadata)
        planned = (
            task
            for task in work.scan.plan_files()
            if task.file.file_path not in self._own and (places is None or task.file in places) and wanted(task)
        )
        return plan_groups(planned, self._request.options, spec_id=work.write.spec.spec_id, one_bin=self._request.arranges)

    def _commit(self, groups: Sequence[FileGroup], planned_on: TableMetadataV3) -> list[FileGroup]:
        """Commit groups; return those that were left out, whose files are deleted."""
        if not groups:
            return []
        transaction: Any = self._table.transaction()
        change = transaction.rewrite_data_files(groups, planned_on, branch=self._request.branch)
        made = [producer.snapshot_id for producer in transaction.staged.producers]
        metadata = transaction.commit_transaction().metadata
        self._discard(change.dropped)
        self._count(change.kept, next(filter(None, map(metadata.snapshot_by_id, made)), None))
        return list(change.dropped)

    def _count(self, groups: Sequence[FileGroup], snapshot: Any) -> None:
        added = [file for group in groups for file in group.added]
        removed = [file for group in groups for file in group.removed]
        summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        self._own.update(file.file_path for file in added)
        self._result = _plus(
            self._result,
            groups=len(groups),
            rewritten_files=len(removed),
            rewritten_bytes=sum(file.file_size_in_bytes for file in removed),
            added_files=len(added),
            added_bytes=sum(file.file_size_in_bytes for file in added),
            removed_delete_files=int(summary.get("removed-delete-files", 0)),
            snapshots=() if snapshot is None else (snapshot.snapshot_id,),
        )

    def _failed(self, group: PlannedGroup, error: Exception) -> None:
        if self._request.options.max_commits == 1:
            raise error
        _logger.warning("%d files could not be rewritten and stay as they are: %s", len(group.files), error)
        self._result = _plus(self._result, failed_files=len(group.files))

    def _discard(self, groups: Iterable[FileGroup]) -> None:
        left = delete_files(self._table.storage, [file.file_path for group in groups for file in group.added])
        if left:
            _logger.debug("files of a compaction are left, they belong to no snapshot: %s", ", ".join(left))


def combine_here(work: CompactWork, groups: Sequence[PlannedGroup]) -> Iterator[list[DataFile] | Exception]:
    """Write the rows of groups by threads of this process, a bin each; see ``CombineFiles``."""
    read, numbers, arrange = work.scan.read_context(), count(), work.arrange
    task_of = work.scan._task_builder.build  # noqa: SLF001 - of the same layer

    def combined(files: Sequence[FileScanTask]) -> list[DataFile]:
        tasks = [task_of(file) for file in files]
        return combine_files(read, work.write, tasks, task_id=next(numbers), entropy=work.entropy, arrange=arrange)

    def remove(running: Iterable[Future[list[DataFile]]]) -> None:
        done = [future for future in running if not future.cancel() and future.exception() is None]
        delete_files(work.write.io, [file.file_path for future in done for file in future.result()])

    # Rows that are put in order are held in memory.
    with ThreadPoolExecutor(1 if arrange is not None else min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        waiting = deque([pool.submit(combined, files) for files in group.bins] for group in groups)
        try:
            while waiting:
                error = next(filter(None, (future.exception() for future in waiting[0])), None)
                if error is None:
                    yield [file for future in waiting.popleft() for file in future.result()]
                elif isinstance(error, Exception):
                    remove(waiting.popleft())
                    yield error
                else:
                    raise error
        finally:
            remove(future for running in waiting for future in running)


def _z_columns(given: Sequence[str], table: OpenTable) -> tuple[str, ...]:
    """Return the columns of a Z-order, which are the table's; text has them with commas between."""
    named = tuple(name.strip() for name in (given.split(",") if isinstance(given, str) else given))
    for name in named:
        find_column(table.metadata.schema(), name, case_sensitive=True)
    return named


def _batches(groups: Sequence[PlannedGroup], commits: int) -> Iterator[Sequence[PlannedGroup]]:
    size = max(1, math.ceil(len(groups) / commits))
    for start in range(0, len(groups), size):
        yield groups[start : start + size]


def _plus(result: Compacted, **more: Any) -> Compacted:
    return replace(result, **{name: getattr(result, name) + value for name, value in more.items()})
