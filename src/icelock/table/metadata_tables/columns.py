"""The columns of metadata tables: Java's names, types, order and docs. Nothing refers to them by id, so all ids are 0.

Source: Java ``SnapshotsTable``, ``HistoryTable``, ``RefsTable``, ``MetadataLogEntriesTable``, ``ManifestsTable``, ``AllManifestsTable``,
``PartitionsTable``, ``PositionDeletesTable``, ``DataFile.getType``, ``ManifestEntry.getSchema``, ``MetricsUtil.readableMetricsSchema``,
``Partitioning.partitionType`` (1.12). Not here: the rows (``rows``).
"""

from __future__ import annotations

from typing import Final

from pyiceberg import types as ice
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

FILES: Final = frozenset({"files", "data_files", "delete_files", "all_files", "all_data_files", "all_delete_files"})
ENTRIES: Final = frozenset({"entries", "all_entries"})
POSITION_DELETES: Final = "position_deletes"
PARTITIONS: Final = "partitions"
_V3: Final = 3


def _required(name: str, kind: ice.IcebergType, doc: str | None = None) -> ice.NestedField:
    return ice.NestedField(0, name, kind, required=True, doc=doc)


def _optional(name: str, kind: ice.IcebergType, doc: str | None = None) -> ice.NestedField:
    return ice.NestedField(0, name, kind, required=False, doc=doc)


def _list(kind: ice.IcebergType) -> ice.ListType:
    return ice.ListType(element_id=0, element_type=kind, element_required=True)


def _map(key: ice.IcebergType, value: ice.IcebergType) -> ice.MapType:
    return ice.MapType(key_id=0, key_type=key, value_id=0, value_type=value, value_required=True)


_BOOLEAN: Final = ice.BooleanType()
_INT: Final = ice.IntegerType()
_LONG: Final = ice.LongType()
_TEXT: Final = ice.StringType()
_BINARY: Final = ice.BinaryType()
_TIME: Final = ice.TimestamptzType()


def _summaries(*, nan_required: bool) -> ice.ListType:
    nan = _required if nan_required else _optional
    return _list(
        ice.StructType(
            _required("contains_null", _BOOLEAN),
            nan("contains_nan", _BOOLEAN),
            _optional("lower_bound", _TEXT),
            _optional("upper_bound", _TEXT),
        )
    )


COUNTS: Final = ("added_data_files_count", "existing_data_files_count", "deleted_data_files_count")
DELETE_COUNTS: Final = ("added_delete_files_count", "existing_delete_files_count", "deleted_delete_files_count")
_FIXED: Final[dict[str, ice.StructType]] = {
    "snapshots": ice.StructType(
        _required("committed_at", _TIME),
        _required("snapshot_id", _LONG),
        _optional("parent_id", _LONG),
        _optional("operation", _TEXT),
        _optional("manifest_list", _TEXT),
        _optional("summary", _map(_TEXT, _TEXT)),
    ),
    "history": ice.StructType(
        _required("made_current_at", _TIME),
        _required("snapshot_id", _LONG),
        _optional("parent_id", _LONG),
        _required("is_current_ancestor", _BOOLEAN),
    ),
    "refs": ice.StructType(
        _required("name", _TEXT),
        _required("type", _TEXT),
        _required("snapshot_id", _LONG),
        _optional("max_reference_age_in_ms", _LONG),
        _optional("min_snapshots_to_keep", _INT),
        _optional("max_snapshot_age_in_ms", _LONG),
    ),
    "metadata_log_entries": ice.StructType(
        _required("timestamp", _TIME),
        _required("file", _TEXT),
        _optional("latest_snapshot_id", _LONG),
        _optional("latest_schema_id", _INT),
        _optional("latest_sequence_number", _LONG),
    ),
    "manifests": ice.StructType(
        _required("content", _INT),
        _required("path", _TEXT),
        _required("length", _LONG),
        _required("partition_spec_id", _INT),
        _required("added_snapshot_id", _LONG),
        *(_required(name, _INT) for name in (*COUNTS, *DELETE_COUNTS)),
        _required("partition_summaries", _summaries(nan_required=False)),
    ),
    "all_manifests": ice.StructType(
        _required("content", _INT),
        _required("path", _TEXT),
        _required("length", _LONG),
        _optional("partition_spec_id", _INT),
        _optional("added_snapshot_id", _LONG),
        *(_optional(name, _INT) for name in COUNTS),
        *(_required(name, _INT) for name in DELETE_COUNTS),
        _optional("partition_summaries", _summaries(nan_required=True)),
        _required("reference_snapshot_id", _LONG),
        _optional("key_metadata", _BINARY),
    ),
}
METADATA_TABLES: Final = frozenset({*_FIXED, *FILES, *ENTRIES, PARTITIONS, POSITION_DELETES})


def columns_of(kind: str, metadata: TableMetadata) -> ice.StructType:
    """Return the columns of the metadata table ``kind``, one of ``METADATA_TABLES``."""
    if kind in _FIXED:
        return _FIXED[kind]
    partition = partition_type(metadata)
    if kind == PARTITIONS:
        return _partitions(partition)
    if kind == POSITION_DELETES:
        return _position_deletes(partition, metadata)
    metrics = _optional("readable_metrics", _readable_metrics(metadata), "Column metrics in readable form")
    if kind in FILES:
        return ice.StructType(*_data_file(partition), metrics)
    return ice.StructType(
        _required("status", _INT),
        _optional("snapshot_id", _LONG),
        _optional("sequence_number", _LONG),
        _optional("file_sequence_number", _LONG),
        _required("data_file", ice.StructType(*_data_file(partition))),
        metrics,
    )


def partition_type(metadata: TableMetadata) -> ice.StructType:
    """Return all partition fields that the table ever had and whose columns it has, under their last names; they keep their ids."""
    schema = metadata.schema()
    found: dict[int, ice.NestedField] = {}
    void: set[int] = set()
    for _, spec in sorted(metadata.specs().items(), reverse=True):
        for field in spec.fields:
            if field.source_id not in schema.field_ids:
                continue
            if field.field_id in found and field.field_id not in void:
                continue
            (void.add if isinstance(field.transform, VoidTransform) else void.discard)(field.field_id)
            name = found[field.field_id].name if field.field_id in found else field.name
            kind = field.transform.result_type(schema.find_type(field.source_id))
            found[field.field_id] = ice.NestedField(field.field_id, name, kind, required=False)
    return ice.StructType(*(found[field_id] for field_id in sorted(found)))


def readable_columns(metadata: TableMetadata) -> list[tuple[str, int, ice.PrimitiveType]]:
    """Return full name, id and type of the columns that have metrics: those with single values, by name."""
    schema = metadata.schema()
    columns = [(str(schema.find_column_name(field_id)), field_id, schema.find_type(field_id)) for field_id in schema.field_ids]
    return sorted((name, field_id, kind) for name, field_id, kind in columns if isinstance(kind, ice.PrimitiveType))


def _readable_metrics(metadata: TableMetadata) -> ice.StructType:
    return ice.StructType(
        *(
            _optional(
                name,
                ice.StructType(
                    _optional("column_size", _LONG, "Total size on disk"),
                    _optional("value_count", _LONG, "Total count, including null and NaN"),
                    _optional("null_value_count", _LONG, "Null value count"),
                    _optional("nan_value_count", _LONG, "NaN value count"),
                    _optional("lower_bound", kind, "Lower bound"),
                    _optional("upper_bound", kind, "Upper bound"),
                ),
                f"Metrics for column {name}",
            )
            for name, _, kind in readable_columns(metadata)
        )
    )


def _data_file(partition: ice.StructType) -> list[ice.NestedField]:
    """Return the columns of a data file; a table without partition fields has no column for them, as in Java."""
    return [
        _optional("content", _INT, "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
        _required("file_path", _TEXT, "Location URI with FS scheme"),
        _required("file_format", _TEXT, "File format name: avro, orc, or parquet"),
        _optional("spec_id", _INT, "Partition spec ID"),
        *([_required("partition", partition, "Partition data tuple, schema based on the partition spec")] if partition.fields else []),
        _required("record_count", _LONG, "Number of records in the file"),
        _required("file_size_in_bytes", _LONG, "Total file size in bytes"),
        _optional("column_sizes", _map(_INT, _LONG), "Map of column id to total size on disk"),
        _optional("value_counts", _map(_INT, _LONG), "Map of column id to total count, including null and NaN"),
        _optional("null_value_counts", _map(_INT, _LONG), "Map of column id to null value count"),
        _optional("nan_value_counts", _map(_INT, _LONG), "Map of column id to number of NaN values in the column"),
        _optional("lower_bounds", _map(_INT, _BINARY), "Map of column id to lower bound"),
        _optional("upper_bounds", _map(_INT, _BINARY), "Map of column id to upper bound"),
        _optional("key_metadata", _BINARY, "Encryption key metadata blob"),
        _optional("split_offsets", _list(_LONG), "Splittable offsets"),
        _optional("equality_ids", _list(_INT), "Equality comparison field IDs"),
        _optional("sort_order_id", _INT, "Sort order ID"),
        _optional("first_row_id", _LONG, "The first row ID assigned to the first row in the data file"),
        _optional("referenced_data_file", _TEXT, "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"),
        _optional("content_offset", _LONG, "The offset in the file where the content starts"),
        _optional("content_size_in_bytes", _LONG, "The length of referenced content stored in the file"),
    ]


def _partitions(partition: ice.StructType) -> ice.StructType:
    return ice.StructType(
        *([_required("partition", partition), _required("spec_id", _INT)] if partition.fields else []),
        _required("record_count", _LONG, "Count of records in data files"),
        _required("file_count", _INT, "Count of data files"),
        _required("total_data_file_size_in_bytes", _LONG, "Total size in bytes of data files"),
        _required("position_delete_record_count", _LONG, "Count of records in position delete files"),
        _required("position_delete_file_count", _INT, "Count of position delete files"),
        _required("equality_delete_record_count", _LONG, "Count of records in equality delete files"),
        _required("equality_delete_file_count", _INT, "Count of equality delete files"),
        _optional("last_updated_at", _TIME, "Commit time of snapshot that last updated this partition"),
        _optional("last_updated_snapshot_id", _LONG, "Id of snapshot that last updated this partition"),
    )


def _position_deletes(partition: ice.StructType, metadata: TableMetadata) -> ice.StructType:
    vector = [
        _optional("content_offset", _LONG, "The offset in the DV where the content starts"),
        _optional("content_size_in_bytes", _LONG, "The length in bytes of the DV blob"),
    ]
    return ice.StructType(
        _required("file_path", _TEXT, "Path of a file in which a deleted row is stored"),
        _required("pos", _LONG, "Ordinal position of a deleted row in the data file"),
        _optional("row", metadata.schema().as_struct(), "Deleted row values"),
        *([_required("partition", partition, "Partition that position delete row belongs to")] if partition.fields else []),
        _required("spec_id", _INT, "Spec ID used to track the file containing a row"),
        _required("delete_file_path", _TEXT, "Path of the file in which a row is stored"),
        *(vector if metadata.format_version >= _V3 else []),
    )
