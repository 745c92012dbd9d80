"""The rows of metadata tables, as dicts by the names of ``columns``. Times are in µs since 1970, maps are lists of pairs.

Source: Java's metadata tables (``columns`` names them). Bounds that are not values of their columns are null, where Java may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.types import IcebergType, PrimitiveType, UUIDType
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.arrow.write.partition import partition_text
from icelock.metadata.sound_bounds import is_sound
from icelock.table.metadata_tables.columns import COUNTS, DELETE_COUNTS, ENTRIES, FILES, partition_type, readable_columns
from icelock.table.metadata_tables.partitions import PartitionSums, commit_times

if TYPE_CHECKING:
    from icelock.table.plain import AnyTable

Row = dict[str, Any]
Rows = Callable[["AnyTable", Snapshot | None], Iterable[Row]]
_MICROS: Final = 1000
_MAPS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
_PLAIN: Final = ("split_offsets", "equality_ids", "sort_order_id")
_OF_V3: Final = ("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
_CONTENTS: Final[Mapping[str, frozenset[DataFileContent]]] = {
    "files": frozenset(DataFileContent),
    "data_files": frozenset({DataFileContent.DATA}),
    "delete_files": frozenset({DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES}),
}


def rows_of(kind: str, table: AnyTable, snapshot: Snapshot | None) -> Iterable[Row]:
    """Return the rows of a metadata table but ``position_deletes``; those of one snapshot are of ``snapshot``, if there is one.

    Raises:
        KeyUnavailableError, IntegrityError, PolicyError, FormatError, OSError: a manifest list or manifest cannot be read.
    """
    if kind in _FIXED:
        return _FIXED[kind](table, snapshot)
    return rows_of_manifests(kind, table.metadata, table.io, manifests_of(kind, table, snapshot))


def manifests_of(kind: str, table: AnyTable, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the manifests that hold what a table of files, entries or partitions shows; errors as ``rows_of``."""
    if kind.startswith("all_"):
        return list(_all_manifest_files(table))
    return [] if snapshot is None else snapshot.manifests(table.io)


def rows_of_manifests(kind: str, metadata: TableMetadata, io: FileIO, manifests: Iterable[ManifestFile]) -> Iterable[Row]:
    """Return the rows of a table of files, entries or partitions that manifests make; errors as ``rows_of``."""
    if kind in FILES:
        return _files(metadata, io, manifests, _CONTENTS[kind.removeprefix("all_")])
    if kind in ENTRIES:
        return _entries(metadata, io, manifests)
    return partition_sums(metadata, io, manifests, commit_times(metadata)).rows


def _snapshots(table: AnyTable, _snapshot: Snapshot | None) -> Iterator[Row]:
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary
        yield {
            "committed_at": snapshot.timestamp_ms * _MICROS,
            "snapshot_id": snapshot.snapshot_id,
            "parent_id": snapshot.parent_snapshot_id,
            "operation": None if summary is None else summary.operation.value,
            "manifest_list": snapshot.manifest_list,
            "summary": None if summary is None else list(summary.additional_properties.items()),
        }


def _history(table: AnyTable, _snapshot: Snapshot | None) -> Iterator[Row]:
    metadata = table.metadata
    ancestors = {snapshot.snapshot_id for snapshot in ancestors_of(metadata.current_snapshot(), metadata)}
    for entry in metadata.snapshot_log:
        snapshot = metadata.snapshot_by_id(entry.snapshot_id)
        yield {
            "made_current_at": entry.timestamp_ms * _MICROS,
            "snapshot_id": entry.snapshot_id,
            "parent_id": None if snapshot is None else snapshot.parent_snapshot_id,
            "is_current_ancestor": entry.snapshot_id in ancestors,
        }


def _refs(table: AnyTable, _snapshot: Snapshot | None) -> Iterator[Row]:
    for name, ref in table.metadata.refs.items():
        yield {
            "name": name,
            "type": ref.snapshot_ref_type.upper(),
            "snapshot_id": ref.snapshot_id,
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
        }


def _metadata_log_entries(table: AnyTable, _snapshot: Snapshot | None) -> Iterator[Row]:
    metadata = table.metadata
    log = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    for time_ms, file in (*log, (metadata.last_updated_ms, table.metadata_location)):
        ids = [entry.snapshot_id for entry in metadata.snapshot_log if entry.timestamp_ms <= time_ms]
        snapshot = metadata.snapshot_by_id(ids[-1]) if ids else None
        yield {
            "timestamp": time_ms * _MICROS,
            "file": file,
            "latest_snapshot_id": ids[-1] if ids else None,
            "latest_schema_id": None if snapshot is None else snapshot.schema_id,
            "latest_sequence_number": None if snapshot is None else snapshot.sequence_number,
        }


def _manifests(table: AnyTable, snapshot: Snapshot | None) -> Iterator[Row]:
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        yield _manifest(table.metadata, manifest)


def _all_manifests(table: AnyTable, _snapshot: Snapshot | None) -> Iterator[Row]:
    for snapshot, manifests in _lists(table):
        for manifest in manifests:
            yield {**_manifest(table.metadata, manifest), "reference_snapshot_id": snapshot.snapshot_id, "key_metadata": None}


_FIXED: Final[Mapping[str, Rows]] = {
    "snapshots": _snapshots,
    "history": _history,
    "refs": _refs,
    "metadata_log_entries": _metadata_log_entries,
    "manifests": _manifests,
    "all_manifests": _all_manifests,
}


def _manifest(metadata: TableMetadata, manifest: ManifestFile) -> Row:
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    data, deletes = (counts, (0, 0, 0)) if manifest.content == ManifestContent.DATA else ((0, 0, 0), counts)
    return {
        "content": int(manifest.content),
        "path": manifest.manifest_path,
        "length": manifest.manifest_length,
        "partition_spec_id": manifest.partition_spec_id,
        "added_snapshot_id": manifest.added_snapshot_id,
        **dict(zip(COUNTS, data, strict=True)),
        **dict(zip(DELETE_COUNTS, deletes, strict=True)),
        "partition_summaries": _summaries(metadata, manifest),
    }


def _summaries(metadata: TableMetadata, manifest: ManifestFile) -> list[Row]:
    spec, schema = metadata.specs()[manifest.partition_spec_id], metadata.schema()
    found = []
    for summary, field in zip(manifest.partitions or [], spec.fields, strict=False):
        kind = field.transform.result_type(schema.find_type(field.source_id)) if field.source_id in schema.field_ids else None
        bounds = [_value(kind, bound) for bound in (summary.lower_bound, summary.upper_bound)]
        lower, upper = ("null" if kind is None or bound is None else _human(field, kind, bound) for bound in bounds)
        found.append(
            {"contains_null": summary.contains_null, "contains_nan": summary.contains_nan, "lower_bound": lower, "upper_bound": upper}
        )
    return found


def _human(field: PartitionField, kind: IcebergType, bound: Any) -> str:
    try:
        return field.transform.to_human_string(kind, bound)
    except OverflowError:  # of Python's calendar, which ends with the year 9999
        return partition_text(field, kind, bound)


def _lists(table: AnyTable) -> Iterable[tuple[Snapshot, list[ManifestFile]]]:
    return ExecutorFactory.get_or_create().map(lambda snapshot: (snapshot, snapshot.manifests(table.io)), table.metadata.snapshots)


def _all_manifest_files(table: AnyTable) -> Iterable[ManifestFile]:
    """Return the manifests of all snapshots, each once."""
    return {manifest.manifest_path: manifest for _, manifests in _lists(table) for manifest in manifests}.values()


def read_entries(io: FileIO, manifests: Iterable[ManifestFile], *, live: bool) -> Iterator[Any]:
    """Return the entries of manifests, which are read at the same time."""
    pool = ExecutorFactory.get_or_create()
    for entries in pool.map(lambda manifest: manifest.fetch_manifest_entry(io, discard_deleted=live), manifests):
        yield from entries


def _files(metadata: TableMetadata, io: FileIO, manifests: Iterable[ManifestFile], contents: frozenset[DataFileContent]) -> Iterator[Row]:
    shown = FileRows(metadata)
    for entry in read_entries(io, manifests, live=True):
        if entry.data_file.content in contents:
            yield {**shown.file(entry.data_file), "readable_metrics": shown.metrics(entry.data_file)}


def _entries(metadata: TableMetadata, io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[Row]:
    shown = FileRows(metadata)
    for entry in read_entries(io, manifests, live=False):
        yield {
            "status": entry.status.value,
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.sequence_number,
            "file_sequence_number": entry.file_sequence_number,
            "data_file": shown.file(entry.data_file),
            "readable_metrics": shown.metrics(entry.data_file),
        }


class FileRows:
    """Data and delete files of a table as rows."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._columns = readable_columns(metadata)
        self._specs = metadata.specs()
        self._partition = {field.field_id: (field.name, field.field_type) for field in partition_type(metadata).fields}

    def partition(self, file: Any) -> Row:
        """Return the values of a file's partition by the table's names; a field that its spec lacks is missing."""
        values = zip(self._specs[file.spec_id].fields, file.partition._data, strict=False)  # noqa: SLF001 - PyIceberg's Record
        known = ((self._partition.get(field.field_id), value) for field, value in values)
        return {found[0]: _shown(found[1], value) for found, value in known if found is not None}

    def file(self, file: Any) -> Row:
        """Return a file's columns; its key metadata is null."""
        maps = {name: getattr(file, name) for name in _MAPS}
        return {
            "content": int(file.content),
            "file_path": file.file_path,
            "file_format": file.file_format.value.upper(),
            "spec_id": file.spec_id,
            "partition": self.partition(file),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            **{name: None if value is None else list(value.items()) for name, value in maps.items()},
            "key_metadata": None,
            **{name: getattr(file, name) for name in _PLAIN},
            **{name: getattr(file, name, None) for name in _OF_V3},
        }

    def metrics(self, file: Any) -> Row:
        """Return a file's metrics by the names of the columns."""
        sizes, values, nulls, nans, lower, upper = (getattr(file, name) or {} for name in _MAPS)
        return {
            name: {
                "column_size": sizes.get(field_id),
                "value_count": values.get(field_id),
                "null_value_count": nulls.get(field_id),
                "nan_value_count": nans.get(field_id),
                "lower_bound": _shown(kind, _value(kind, lower.get(field_id))),
                "upper_bound": _shown(kind, _value(kind, upper.get(field_id))),
            }
            for name, field_id, kind in self._columns
        }


def _value(kind: IcebergType | None, bound: bytes | None) -> Any:
    if bound is None or not isinstance(kind, PrimitiveType) or not is_sound(kind, bound):
        return None
    return from_bytes(kind, bound)


def _shown(kind: IcebergType, value: Any) -> Any:
    """Return a value as Spark's column has it: a UUID is text."""
    if not isinstance(kind, UUIDType) or value is None:
        return value
    return str(value if isinstance(value, UUID) else UUID(bytes=value))


def partition_sums(metadata: TableMetadata, io: FileIO, manifests: Iterable[ManifestFile], times: Mapping[int, int]) -> PartitionSums:
    """Return the files of manifests summed up by partition; ``times`` as ``commit_times``, errors as ``rows_of``."""
    shown = FileRows(metadata)
    sums = PartitionSums((field.name for field in partition_type(metadata).fields), times)
    for entry in read_entries(io, manifests, live=True):
        sums.add(shown.partition(entry.data_file), entry)
    return sums
