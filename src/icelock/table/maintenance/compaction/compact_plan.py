"""Which data files a compaction puts together: groups of one partition, and how many new files each makes.

A group is committed as a whole, or not at all. Its files are packed into as many bins as it will have new files, and a bin is the work of
one task, so that memory depends on a task's files alone.

Source: Java BinPackRewriteFilePlanner (1.12). Not here: reading and writing (``arrow.write.combine``), commits
(``table.maintenance.compaction.compact``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.table import FileScanTask
from pyiceberg.utils.bin_packing import ListPacker

from icelock.plan.delete_index import referenced_data_file
from icelock.plan.partition_set import identity_of, partition_values
from icelock.table.maintenance.compaction.compact_options import CompactOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """Data files to rewrite together, in bins: one task each."""

    bins: tuple[tuple[FileScanTask, ...], ...]

    @property
    def files(self) -> tuple[FileScanTask, ...]:
        """The data files of all bins."""
        return tuple(file for each in self.bins for file in each)

    @property
    def size(self) -> int:
        """Bytes of the data files on storage."""
        return sum(file.file.file_size_in_bytes for file in self.files)


def plan_groups(planned: Iterable[FileScanTask], options: CompactOptions, *, spec_id: int, one_bin: bool = False) -> list[PlannedGroup]:
    """Return the groups to rewrite, the largest first.

    Args:
        planned: the data files of a snapshot, with their delete files.
        options: which of them are rewritten.
        spec_id: of the partition spec that new files have; files of other specs go together.
        one_bin: whether rows of a group must come together, to be sorted.
    """
    by_partition: dict[Hashable, list[FileScanTask]] = defaultdict(list)
    for task in planned:
        if options.every or _is_candidate(task, options):
            file = task.file
            by_partition[identity_of(partition_values(file)) if file.spec_id == spec_id else None].append(task)
    packer: ListPacker[FileScanTask] = ListPacker(target_weight=options.max_group, lookback=1, largest_bin_first=False)
    groups: list[PlannedGroup] = []
    for files in by_partition.values():
        files.sort(key=_age)
        groups += (
            PlannedGroup(bins=(tuple(packed),) if one_bin else _bins(packed, options))
            for packed in packer.pack(files, weight_func=lambda task: task.file.file_size_in_bytes)
            if options.every or options.any_delete or _is_worth_it(packed, options)
        )
    return sorted(groups, key=lambda group: group.size, reverse=True)


def deleted_ratio(task: FileScanTask) -> float:
    """Return which part of a file's rows is deleted by positions of this file alone, as its delete files say."""
    file = task.file
    deleted = sum(delete.record_count for delete in task.delete_files if referenced_data_file(delete) == file.file_path)
    return min(1.0, deleted / file.record_count) if file.record_count else 0.0


def _is_candidate(task: FileScanTask, options: CompactOptions) -> bool:
    if options.any_delete:
        return bool(task.delete_files)
    file = task.file
    if file.file_size_in_bytes > options.largest and file.record_count <= 1:
        return _has_many_deletes(task, options)  # one row cannot be cut
    return not options.smallest <= file.file_size_in_bytes <= options.largest or _has_many_deletes(task, options)


def _has_many_deletes(task: FileScanTask, options: CompactOptions) -> bool:
    return len(task.delete_files) >= options.delete_files or deleted_ratio(task) >= options.delete_ratio


def _is_worth_it(files: Sequence[FileScanTask], options: CompactOptions) -> bool:
    size = sum(task.file.file_size_in_bytes for task in files)
    many = len(files) > 1 and (len(files) >= options.min_files or size > options.target)
    return many or size > options.largest or any(_has_many_deletes(task, options) for task in files)


def _age(task: FileScanTask) -> tuple[int, str]:
    """Order files as they were written, so that rows that came together stay together."""
    return getattr(task.file, "sequence_number", None) or 0, task.file.file_path


def _bins(files: Sequence[FileScanTask], options: CompactOptions) -> tuple[tuple[FileScanTask, ...], ...]:
    """Cut files, in their order, into bins of about equal size, one for each new file."""
    size = sum(task.file.file_size_in_bytes for task in files)
    wanted = size / min(options.output_files(size), len(files))
    bins: list[list[FileScanTask]] = [[]]
    done = 0.0
    for task in files:
        if bins[-1] and done + task.file.file_size_in_bytes / 2 > wanted * len(bins):
            bins.append([])
        bins[-1].append(task)
        done += task.file.file_size_in_bytes
    return tuple(map(tuple, bins))
