"""The identity of a partition, and sets of partitions: which files and manifests are in one of them.

A partition is a spec and its tuple of values, so a file of an older spec is not in a newer spec's partitions, whatever its rows (Java
PartitionSet).

Not here: what is done to the files (``table.commit.row_delta``), conflicts (``table.commit.conflicts``), rows split by partition
(``arrow.write.partition``).
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from typing import Any, Final

from pyiceberg.manifest import DataFile, ManifestFile, PartitionFieldSummary
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, UUIDType

from icelock.metadata.sound_bounds import decoded_bounds

_NAN: Final = struct.pack("<d", float("nan"))


def identity_of(values: Sequence[Any]) -> Hashable:
    """Return equal keys for equal partitions: NaN equals NaN, and -0.0 is not 0.0, as in Java's ``Double.equals``."""
    return tuple(_float_bits(value) if isinstance(value, float) else value for value in values)


def _float_bits(value: float) -> bytes:
    return struct.pack("<d", value) if value == value else _NAN  # noqa: PLR0124 - NaN


class PartitionSet:
    """Partitions of data files; ``add`` takes a file's."""

    def __init__(self) -> None:
        self._partitions: dict[int, dict[Hashable, Sequence[Any]]] = {}

    def add(self, file: DataFile) -> None:
        """Add the partition that a file is in."""
        values = partition_values(file)
        self._partitions.setdefault(file.spec_id, {})[identity_of(values)] = values

    def __bool__(self) -> bool:
        """Whether there is a partition."""
        return bool(self._partitions)

    def __contains__(self, file: DataFile) -> bool:
        """Whether a data or delete file is in one of the partitions."""
        return identity_of(partition_values(file)) in self._partitions.get(file.spec_id, {})

    def may_hold(self, manifest: ManifestFile, metadata: TableMetadata) -> bool:
        """Whether a manifest may list files of these partitions, by its summaries."""
        wanted = self._partitions.get(manifest.partition_spec_id)
        if wanted is None:
            return False
        kinds = partition_kinds(metadata, manifest.partition_spec_id)
        columns = zip(manifest.partitions or (), kinds, zip(*wanted.values(), strict=True), strict=False)
        return all(_may_hold(summary, kind, values) for summary, kind, values in columns)


def partition_values(file: DataFile) -> tuple[Any, ...]:
    """Return the values of the partition that a file is in."""
    return tuple(file.partition._data)  # noqa: SLF001 - PyIceberg's Record


def partition_kinds(metadata: TableMetadata, spec_id: int) -> list[IcebergType | None]:
    """Return the types of a spec's values; None if no schema of the table has the source column."""
    fields = metadata.specs()[spec_id].fields
    wanted = {field.source_id for field in fields}
    sources = {field_id: schema.find_type(field_id) for schema in metadata.schemas for field_id in wanted.intersection(schema.field_ids)}
    return [field.transform.result_type(sources[field.source_id]) if field.source_id in sources else None for field in fields]


def _may_hold(summary: PartitionFieldSummary, kind: IcebergType | None, values: Sequence[Any]) -> bool:
    """Whether a manifest's partition field may have one of the values."""
    if None in values and summary.contains_null:
        return True
    known = [value for value in values if value is not None]
    ordered = [value for value in known if value == value]  # noqa: PLR0124 - not NaN
    if len(ordered) < len(known) and summary.contains_nan is not False:
        return True
    if not ordered or summary.lower_bound is None or summary.upper_bound is None:
        return bool(ordered)
    # Java orders uuids as pairs of signed numbers; Python does not.
    bounds = None if isinstance(kind, UUIDType) else decoded_bounds(kind, summary.lower_bound, summary.upper_bound)
    return bounds is None or any(bounds[0] <= value <= bounds[1] for value in ordered)
