"""The rows of ``partitions``: files summed up by partition. Sums of some manifests can be merged into those of others.

Source: Java ``PartitionsTable`` (1.12). Not here: files and their partitions (``rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadata

_MICROS: Final = 1000
_SIZE: Final = "total_data_file_size_in_bytes"
_COUNTS: Final[Mapping[DataFileContent, tuple[str, str]]] = {
    DataFileContent.DATA: ("record_count", "file_count"),
    DataFileContent.POSITION_DELETES: ("position_delete_record_count", "position_delete_file_count"),
    DataFileContent.EQUALITY_DELETES: ("equality_delete_record_count", "equality_delete_file_count"),
}
_SUMS: Final = (_SIZE, *(name for names in _COUNTS.values() for name in names))


def commit_times(metadata: TableMetadata) -> dict[int, int]:
    """Return the times of a table's snapshots by their ids, in ms since 1970."""
    return {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}


class PartitionSums:
    """Sums by partition; ``names`` are the table's partition fields, ``times`` as ``commit_times``."""

    def __init__(self, names: Iterable[str], times: Mapping[int, int]) -> None:
        self._names = tuple(names)
        self._times = times
        self._found: dict[tuple[int, str], dict[str, Any]] = {}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, by the names of the columns."""
        return list(self._found.values())

    def add(self, partition: Mapping[str, Any], entry: Any) -> None:
        """Add the file of a manifest entry to its partition, which has the fields of its spec."""
        row, file = self._row(partition), entry.data_file
        committed = self._times.get(entry.snapshot_id)
        if committed is not None:
            _update(row, spec_id=file.spec_id, last_updated_at=committed * _MICROS, last_updated_snapshot_id=entry.snapshot_id)
        records, files = _COUNTS[file.content]
        row[records] += file.record_count
        row[files] += 1
        row[_SIZE] += file.file_size_in_bytes if file.content == DataFileContent.DATA else 0

    def merge(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of other sums."""
        for other in rows:
            row = self._row(other["partition"])
            if other["last_updated_at"] is not None:
                _update(row, **{name: other[name] for name in ("spec_id", "last_updated_at", "last_updated_snapshot_id")})
            for name in _SUMS:
                row[name] += other[name]

    def _row(self, partition: Mapping[str, Any]) -> dict[str, Any]:
        # As Java's PartitionComparator: those with fewer fields, of another spec, are others; 0.0 is not -0.0, and NaN is NaN.
        key = (len(partition), repr([partition.get(name) for name in self._names]))
        if key not in self._found:
            self._found[key] = {
                "partition": dict(partition),
                "spec_id": 0,
                **dict.fromkeys(_SUMS, 0),
                "last_updated_at": None,
                "last_updated_snapshot_id": None,
            }
        return self._found[key]


def _update(row: dict[str, Any], *, last_updated_at: int, **values: int) -> None:
    if row["last_updated_at"] is None or last_updated_at > row["last_updated_at"]:
        row |= {"last_updated_at": last_updated_at, **values}
