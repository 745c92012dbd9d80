"""``table.inspect`` without raw data keys.

Java's metadata tables show ``key_metadata``, which holds raw data keys, to anyone who may query (case J-05). Here the column is kept, so
that the schema is PyIceberg's, and is null.

Not here: the other columns (PyIceberg's ``InspectTable``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.schema import Schema
from pyiceberg.table.inspect import InspectTable as IcebergInspectTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import BinaryType, FixedType, IcebergType, ListType, MapType, NestedField, StructType, UUIDType

from icelock.metadata.column_types import UnreadType
from icelock.metadata.sound_bounds import SoundBounds, TypeOf, is_sound, types_of
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.arguments import check_snapshot
from icelock.table.state import OpenTable

_KEYS = "key_metadata"
_UUID_LENGTH = 16
_COLUMN_SIZES = 6  # positions in the data_file record
_BOUNDS = (10, 11)


class InspectTable(IcebergInspectTable):
    """PyIceberg's ``InspectTable`` without key metadata. UUIDs are 16 bytes."""

    def __init__(self, tbl: OpenTable) -> None:
        one_version: Any = tbl.at_one_version()  # which nobody else moves on
        super().__init__(one_version)
        self._type_of = types_of(tbl.metadata.schema())
        self._metadata = tbl.metadata
        self.tbl.metadata = _with_bytes(tbl.metadata)

    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the entries of a snapshot's manifests."""
        return _without_keys(super().entries(snapshot_id))

    def _get_snapshot(self, snapshot_id: int | None = None) -> Any:
        if snapshot_id is not None:
            check_snapshot(self._metadata, snapshot_id)
        return _Snapshot(super()._get_snapshot(snapshot_id), self._manifest)

    def _manifest(self, manifest: ManifestFile) -> _Manifest:
        return _Manifest(manifest, self._type_of, self._metadata)

    def _get_files_from_manifest(self, manifest_list: ManifestFile, data_file_filter: Any = None) -> pa.Table:
        manifest: Any = self._manifest(manifest_list)
        return _without_keys(super()._get_files_from_manifest(manifest, data_file_filter))

    def _generate_manifests_table(self, snapshot: Snapshot | None, is_all_manifests_table: bool = False) -> pa.Table:
        found: Any = None if snapshot is None else _Snapshot(snapshot, self._manifest)
        return _without_keys(super()._generate_manifests_table(found, is_all_manifests_table))


class _Snapshot:
    """A snapshot whose entries all have column sizes: without them PyIceberg's ``entries`` fails on Avro files and deletion vectors."""

    def __init__(self, inner: Snapshot, manifest_of: Callable[[ManifestFile], _Manifest]) -> None:
        self._inner = inner
        self._manifest_of = manifest_of

    def manifests(self, io: FileIO) -> list[Any]:
        return [self._manifest_of(manifest) for manifest in self._inner.manifests(io)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Manifest:
    """A manifest whose readable bounds are shown if they are valid for their columns, and left out otherwise."""

    def __init__(self, inner: ManifestFile, type_of: TypeOf, metadata: TableMetadataV3) -> None:
        self._inner = inner
        self._type_of = type_of
        self._metadata = metadata

    @property
    def partitions(self) -> list[PartitionFieldSummary]:
        """The summaries, without invalid bounds."""
        found = self._inner.partitions or []
        spec = self._metadata.specs()[self._inner.partition_spec_id]
        kinds = [field.field_type for field in spec.partition_type(self._metadata.schema()).fields]
        return [_sound_summary(summary, kind) for summary, kind in zip(found, kinds, strict=False)]

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[Any]:
        entries = self._inner.fetch_manifest_entry(io, discard_deleted)
        for entry in entries:
            if entry.data_file.column_sizes is None:
                entry.data_file._data[_COLUMN_SIZES] = {}  # noqa: SLF001 - PyIceberg's Record
            for position in _BOUNDS:
                bounds = entry.data_file._data[position]  # noqa: SLF001 - likewise
                if bounds:
                    entry.data_file._data[position] = _ReadableBounds(bounds, self._type_of)  # noqa: SLF001 - likewise
        return list(entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _ReadableBounds(SoundBounds):
    """Bounds that also fit into Arrow's types: a writer may have truncated those of fixed-length bytes."""

    def get(self, field_id: int, default: Any = None, /) -> Any:
        kind, bound = self._type_of(field_id), super().get(field_id)
        return default if bound is None or (isinstance(kind, FixedType) and len(bound) != len(kind)) else bound


def _sound_summary(summary: PartitionFieldSummary, kind: IcebergType) -> PartitionFieldSummary:
    bounds = [bound if bound is None or is_sound(kind, bound) else None for bound in (summary.lower_bound, summary.upper_bound)]
    return PartitionFieldSummary(summary.contains_null, summary.contains_nan, *bounds)


def _with_bytes(metadata: TableMetadataV3) -> TableMetadataV3:
    """Replace UUIDs in schemas by 16 bytes, as Arrow cannot build them in structs from Python values, and types that cannot be read."""
    schemas = [Schema(*_fields(schema.fields), schema_id=schema.schema_id) for schema in metadata.schemas]
    return metadata.model_copy(update={"schemas": schemas})


def _fields(fields: Iterable[NestedField]) -> list[NestedField]:
    return [NestedField(field.field_id, field.name, _plain_type(field.field_type), required=field.required) for field in fields]


def _plain_type(kind: IcebergType) -> IcebergType:
    if isinstance(kind, UUIDType):
        return FixedType(_UUID_LENGTH)
    if isinstance(kind, UnreadType):
        return BinaryType()
    if isinstance(kind, StructType):
        return StructType(*_fields(kind.fields))
    if isinstance(kind, ListType):
        return ListType(kind.element_id, _plain_type(kind.element_type), element_required=kind.element_required)
    if isinstance(kind, MapType):
        key, value = _plain_type(kind.key_type), _plain_type(kind.value_type)
        return MapType(kind.key_id, key, kind.value_id, value, value_required=kind.value_required)
    return kind


def _without_keys(table: pa.Table) -> pa.Table:
    for index, field in enumerate(table.schema):
        if field.name == _KEYS:
            table = table.set_column(index, field, pa.chunked_array([pa.nulls(len(table), field.type)]))
        elif pa.types.is_struct(field.type) and field.type.get_field_index(_KEYS) >= 0:
            chunks = [_struct_without_keys(chunk) for chunk in table.column(index).chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


def _struct_without_keys(array: pa.StructArray) -> pa.StructArray:
    fields = [array.type.field(i) for i in range(array.type.num_fields)]
    children = [pa.nulls(len(array), field.type) if field.name == _KEYS else array.field(i) for i, field in enumerate(fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
