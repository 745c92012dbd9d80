"""The data files of one manifest that a scan needs, without an object for each, and their tasks.

1. the entries' columns are read, without deleted entries, and inherited values filled in (``plan.manifest_columns``);
2. PyIceberg's evaluator checks each partition once;
3. metrics are read only from blocks that still have entries, and checked for all entries at once (``plan.metrics_mask``);
4. tasks are made on demand. Until then an entry costs its path, its key and some numbers. PyIceberg's entries (``plan.planned_file``)
   cost an object each, and decode their metrics on demand.

A manifest that the columnar reader cannot read is read row by row, by the same rules; so is one of few entries, and so are all when there
are few entries in sum and polars is not loaded.

Not here: which manifests (``plan.planner``), which delete files apply to which data file (``plan.delete_index``).
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.typedef import Record

from icelock import telemetry
from icelock.io.avro.columns import NotColumnarError
from icelock.metadata.manifest import ManifestFile, checked_entries
from icelock.plan.manifest_columns import METRICS, ManifestColumns, file_formats, kept
from icelock.plan.metrics_mask import FileMetrics, ManifestMetrics, may_match
from icelock.plan.plan_deletes import PUFFIN, VECTOR_COLUMNS, FilesOfSpec, PlanDeletes, VectorsOfManifest
from icelock.plan.planned_file import planned_entries
from icelock.plan.task import POSITION_DELETES, DeleteFile, ScanTask, TaskBuilder, make_tasks, secret

if TYPE_CHECKING:
    import polars as pl


_NO_DELETES: Final[tuple[DeleteFile, ...]] = ()
_MANY_ENTRIES: Final = 200
_FEW_OF_ONE: Final = 50
"""Entries of one manifest that are faster read row by row: polars takes 7 ms of CPU for a manifest of any size."""
_TASKS_AT_ONCE: Final = 256
"""Few enough that tasks which are used one after the other do not trigger Python's cycle collector."""
_STORED: Final[Mapping[str, str]] = {
    "path": "file_path",
    "file_format": "file_format",
    "key_metadata": "key_metadata",
    "file_size": "file_size_in_bytes",
    "record_count": "record_count",
    "sequence_number": "sequence_number",
    "first_row_id": "first_row_id",
}
"""Fields of a task, and the columns that they come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries a scan needs; used by several threads.

    ``partition`` and ``file`` are PyIceberg's evaluators for the entry's spec: both take a data file; ``partition`` checks its partition
    only, and is None if every partition may match. ``metrics`` is the filter, bound and without ``not``; ``field_ids`` are its columns.
    """

    partition: Callable[[Any], bool] | None
    file: Callable[[DataFile], bool]
    metrics: BooleanExpression
    field_ids: frozenset[int]
    empty_files: bool


def columns_pay(manifests: Iterable[ManifestFile]) -> bool:
    """Whether to read manifests as columns, those that are large enough: importing polars takes longer than reading a few entries."""
    return sum(map(_entries, manifests)) >= _MANY_ENTRIES or sys.modules.get("polars") is not None


def _entries(manifest: ManifestFile) -> int:
    """Return how many entries a manifest has, as its list says."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0) + (manifest.deleted_files_count or 0)


def _is_large(manifest: ManifestFile) -> bool:
    return _entries(manifest) >= _FEW_OF_ONE


def plan_manifest(io: FileIO, manifest: ManifestFile, entry_filter: EntryFilter, deletes: PlanDeletes, *, as_columns: bool) -> PlannedFiles:
    """Return the needed files of a manifest of data files.

    Raises:
        IntegrityError, PolicyError, FormatError: see ``ManifestFile.fetch_manifest_entry``; or it holds delete files.
    """
    if as_columns and _is_large(manifest):
        try:
            columns, frame, metrics = _needed(io, manifest, entry_filter, deletes.field_ids)
            return _ByColumn(columns, frame, metrics)
        except NotColumnarError as e:
            _tell(manifest, e)
    return _ByRow(data_entries(io, manifest, entry_filter))


def plan_entries(io: FileIO, manifest: ManifestFile, entry_filter: EntryFilter, *, as_columns: bool) -> list[ManifestEntry]:
    """Return the needed entries of a manifest of data files; those read as columns have files that decode the rest when asked for it."""
    if as_columns and _is_large(manifest):
        try:
            columns, frame, _ = _needed(io, manifest, entry_filter, (), ("snapshot_id",))
            return list(planned_entries(columns, frame))
        except NotColumnarError as e:
            _tell(manifest, e)
    return data_entries(io, manifest, entry_filter)


def plan_deletes(
    io: FileIO, manifest: ManifestFile, partition: Callable[[Any], bool] | None, *, as_columns: bool
) -> tuple[list[ManifestEntry], VectorsOfManifest | None]:
    """Return the needed entries of a manifest of delete files, and its vectors, as far as they were read as columns.

    ``partition`` is that of ``EntryFilter``.

    Raises:
        IntegrityError, PolicyError, FormatError: see ``ManifestFile.fetch_manifest_entry``; or it holds data files.
    """
    if as_columns and _is_large(manifest):
        try:
            return _needed_deletes(io, manifest, partition)
        except NotColumnarError as e:
            _tell(manifest, e)
    return [entry for entry in checked_entries(manifest, io) if partition is None or partition(entry.data_file)], None


def _needed_deletes(
    io: FileIO, manifest: ManifestFile, partition: Callable[[Any], bool] | None
) -> tuple[list[ManifestEntry], VectorsOfManifest]:
    columns = _columns_of(io, manifest)
    frame = columns.live(VECTOR_COLUMNS)
    if (frame.get_column("content") == 0).any():
        raise NotColumnarError("it holds data files")
    _check_formats(frame)
    if partition is not None:
        frame = kept(frame, _partition_mask(columns, frame, partition))
    is_vector = (frame.get_column("content") == POSITION_DELETES) & (frame.get_column("file_format").str.to_uppercase() == PUFFIN)
    others: list[ManifestEntry] = [] if is_vector.all() else list(columns.entries(frame.filter(~is_vector)))
    vectors = kept(frame, is_vector)
    partitions = columns.partitions.of(vectors)
    identities = columns.partitions.identities(vectors, partitions)
    return others, VectorsOfManifest.of(vectors, manifest.partition_spec_id, partitions, identities)


def _tell(manifest: ManifestFile, why: NotColumnarError) -> None:
    telemetry.fallback("plan", logging.DEBUG, what="manifest-by-columns", path=manifest.manifest_path, why=str(why))


def data_entries(io: FileIO, manifest: ManifestFile, entry_filter: EntryFilter) -> list[ManifestEntry]:
    """Return the needed entries of a manifest of data files, read row by row."""
    needed: list[ManifestEntry] = []
    for entry in checked_entries(manifest, io):
        file = entry.data_file
        if (entry_filter.partition is None or entry_filter.partition(file)) and entry_filter.file(file):
            needed.append(entry)
    return needed


def entries_at(io: FileIO, manifest: ManifestFile, paths: Collection[str], *, as_columns: bool) -> list[ManifestEntry]:
    """Return the live entries of a manifest of data files whose file is one of ``paths``; errors are those of ``plan_manifest``."""
    if as_columns and isinstance(manifest, ManifestFile) and _is_large(manifest):
        try:
            columns = ManifestColumns(io, manifest)
            live = columns.live()
            import polars as pl

            return list(
                columns.entries(kept(live, live.get_column("file_path").is_in(pl.Series(sorted(paths), dtype=pl.String).implode())))
            )
        except NotColumnarError as e:
            _tell(manifest, e)
    return [entry for entry in manifest.fetch_manifest_entry(io) if entry.data_file.file_path in paths]


class _ByRow:
    """The needed data files of one manifest, in its order; ``record_count`` is the number of their rows, including deleted ones."""

    def __init__(self, entries: list[ManifestEntry]) -> None:
        self._entries = entries

    @property
    def record_count(self) -> int:
        return sum(entry.data_file.record_count for entry in self._entries)

    def tasks(self, deletes: PlanDeletes) -> Iterator[ScanTask]:
        """Yield their tasks, made a few at a time."""
        for start in range(0, len(self._entries), _TASKS_AT_ONCE):
            some = self._entries[start : start + _TASKS_AT_ONCE]
            vectors = [None] * len(some) if deletes.empty else deletes.vectors_of(FilesOfSpec.of(some))
            yield from (TaskBuilder.of_file(entry.data_file, deletes.of(entry, own)) for entry, own in zip(some, vectors, strict=True))


def _needed(
    io: FileIO, manifest: ManifestFile, entry_filter: EntryFilter, more_field_ids: Iterable[int], more: Sequence[str] = ()
) -> tuple[ManifestColumns, pl.DataFrame, list[FileMetrics] | None]:
    """Return the columns of the needed entries, ``more`` among them, and their metrics of some columns if any are named."""
    columns = _columns_of(io, manifest)
    field_ids = entry_filter.field_ids.union(more_field_ids)
    # With a filter on partitions, metrics are read later, for what is left.
    at_once = METRICS if field_ids and entry_filter.partition is None else ()
    frame = columns.live((*at_once, *more))
    if (frame.get_column("content") != 0).any():
        raise NotColumnarError("it holds delete files")
    _check_formats(frame)
    if entry_filter.partition is not None:
        frame = kept(frame, _partition_mask(columns, frame, entry_filter.partition))
    metrics = _no_metrics(frame)
    if field_ids and len(frame):
        stored = frame if at_once else columns.some(frame.get_column("row"), METRICS)
        metrics = ManifestMetrics(stored.select_seq(METRICS))
    mask = may_match(entry_filter.metrics, metrics, frame.get_column("record_count"), empty_files=entry_filter.empty_files)
    files: list[FileMetrics] | None = None
    if more_field_ids:
        files = [found for found, needed in zip(metrics.of_files(more_field_ids), mask, strict=True) if needed]
    return columns, kept(frame, mask), files


def _columns_of(io: FileIO, manifest: ManifestFile) -> ManifestColumns:
    if not isinstance(manifest, ManifestFile):
        raise NotColumnarError("its table is of version 1 or 2")
    return ManifestColumns(io, manifest)


def _check_formats(frame: pl.DataFrame) -> None:
    """Leave unknown formats to the row-wise reader, which refuses them."""
    file_formats(frame.get_column("file_format").unique().to_list())


def _no_metrics(frame: pl.DataFrame) -> ManifestMetrics:
    import polars as pl

    return ManifestMetrics(frame.with_columns_seq(pl.lit(None).alias(name) for name in METRICS).select_seq(METRICS))


def _partition_mask(columns: ManifestColumns, frame: pl.DataFrame, evaluate: Callable[[Any], bool]) -> pl.Series:
    import polars as pl

    known: dict[tuple[Any, ...], bool] = {}
    mask = []
    for values in columns.partitions.of(frame):
        found = known.get(values)
        if found is None:
            found = known[values] = evaluate(_OfPartition(Record(*values)))
        mask.append(found)
    return pl.Series(mask, dtype=pl.Boolean)


@dataclass(slots=True)
class _OfPartition:
    partition: Record


class _ByColumn:
    """The same as ``_ByRow``."""

    def __init__(self, columns: ManifestColumns, frame: pl.DataFrame, metrics: list[FileMetrics] | None) -> None:
        self._partitions = columns.partitions
        self._spec_id = columns.manifest.partition_spec_id
        self._frame = frame.select_seq([*_STORED.values(), *columns.partitions.columns])
        self._metrics = metrics

    @property
    def record_count(self) -> int:
        return int(self._frame.get_column("record_count").sum())

    def tasks(self, deletes: PlanDeletes) -> Iterator[ScanTask]:
        for number, frame in enumerate(self._frame.iter_slices(_TASKS_AT_ONCE)):
            yield from self._tasks(frame, deletes, number * _TASKS_AT_ONCE)

    def _tasks(self, frame: pl.DataFrame, deletes: PlanDeletes, first: int) -> list[ScanTask]:
        stored = {name: frame.get_column(name).to_list() for name in _STORED.values()}
        partitions = self._partitions.of(frame)
        found = itertools.repeat(_NO_DELETES) if deletes.empty else self._deletes(frame, stored, partitions, deletes, first)
        columns: dict[str, Iterable[Any]] = {name: stored[column] for name, column in _STORED.items()}
        columns["file_format"] = file_formats(stored["file_format"])
        columns["key_metadata"] = map(secret, stored["key_metadata"])
        columns |= {"spec_id": itertools.repeat(self._spec_id), "partition": partitions, "deletes": found}
        return make_tasks(len(frame), columns)

    def _deletes(
        self, frame: pl.DataFrame, stored: Mapping[str, list[Any]], partitions: list[tuple[Any, ...]], deletes: PlanDeletes, first: int
    ) -> Iterable[tuple[DeleteFile, ...]]:
        paths, sequences = stored["file_path"], stored["sequence_number"]
        identities = self._partitions.identities(frame, partitions)
        vectors = deletes.vectors_of(
            FilesOfSpec(paths=paths, spec_id=self._spec_id, partitions=partitions, identities=identities, sequences=sequences)
        )
        if deletes.only_vectors:
            return [_NO_DELETES if own is None else (own,) for own in vectors]
        metrics = itertools.repeat(FileMetrics()) if self._metrics is None else self._metrics[first : first + len(frame)]
        entries = map(self._entry, paths, partitions, sequences, metrics)
        return list(map(deletes.of, entries, vectors))

    def _entry(self, path: str, partition: tuple[Any, ...], sequence_number: int | None, metrics: FileMetrics) -> _Entry:
        return _Entry(data_file=_File(path, self._spec_id, Record(*partition), metrics), sequence_number=sequence_number)


PlannedFiles = _ByRow | _ByColumn


class _File:
    """What the delete index reads of a data file."""

    __slots__ = ("_metrics", "file_path", "partition", "spec_id")

    def __init__(self, path: str, spec_id: int, partition: Record, metrics: FileMetrics) -> None:
        self.file_path = path
        self.spec_id = spec_id
        self.partition = partition
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metrics, name)


@dataclass(slots=True, kw_only=True)
class _Entry:
    data_file: _File
    sequence_number: int | None
