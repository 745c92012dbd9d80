"""Metadata columns: reserved field ids and names (spec, "Reserved Field IDs"; Java MetadataColumns), and their values for a file.

    _file  _pos  _spec_id  _partition               of the row's file
    _deleted                                        whether the row is deleted; a scan that names it has the deleted rows too
    _row_id  _last_updated_sequence_number          stored in the file, or inherited where null (spec, "Row Lineage")
    _change_type  _change_ordinal  _commit_snapshot_id   of the rows of a changelog only (``table.changes``)

The spec leaves the ids inside ``_partition`` open, since partition fields share a range of numbers with columns; here they are
``PARTITION_FIELDS`` + the partition field's id.

Not here: how the values come into batches (``project``), which rows are deleted (``arrow.read.deletes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType, StructType, UnknownType

FILE: Final = NestedField(2147483646, "_file", StringType(), required=True)
POS: Final = NestedField(2147483645, "_pos", LongType(), required=True)
DELETED: Final = NestedField(2147483644, "_deleted", BooleanType(), required=True)
SPEC_ID: Final = NestedField(2147483643, "_spec_id", IntegerType(), required=True)
PARTITION_ID: Final = 2147483642
PARTITION_NAME: Final = "_partition"
PARTITION_FIELDS: Final = 2_000_000_000
ROW_ID: Final = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED: Final = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
CHANGE_TYPE: Final = NestedField(2147483543, "_change_type", StringType(), required=True)
CHANGE_ORDINAL: Final = NestedField(2147483542, "_change_ordinal", IntegerType(), required=False)
COMMIT_SNAPSHOT_ID: Final = NestedField(2147483541, "_commit_snapshot_id", LongType(), required=False)
CHANGE_COLUMNS: Final = (CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)


class ChangeType(StrEnum):
    """The values of ``_change_type``: Java's ChangelogOperation."""

    INSERT = "INSERT"
    DELETE = "DELETE"
    UPDATE_BEFORE = "UPDATE_BEFORE"
    UPDATE_AFTER = "UPDATE_AFTER"


OF_POSITION_IDS: Final = (ROW_ID.field_id, LAST_UPDATED.field_id, POS.field_id)
CONSTANT_IDS: Final = (FILE.field_id, SPEC_ID.field_id, PARTITION_ID)
_FIXED: Final = {field.name: field for field in (FILE, POS, DELETED, SPEC_ID, ROW_ID, LAST_UPDATED)}


def metadata_column(
    name: str, specs: Iterable[PartitionSpec], schemas: Iterable[Schema], *, case_sensitive: bool = True
) -> NestedField | None:
    """Return the metadata column with a name, or None; ``specs`` and ``schemas`` are the table's, for ``_partition``."""
    if not case_sensitive:
        name = name.lower()
    return partition_column(specs, schemas) if name == PARTITION_NAME else _FIXED.get(name)


def shows_deleted(wanted: Schema) -> bool:
    """Whether a scan of these columns has the deleted rows too."""
    return any(field.field_id == DELETED.field_id for field in wanted.fields)


def is_metadata_column(name: str) -> bool:
    """Whether a scan may select this name beside the table's columns."""
    return name.lower() in {*_FIXED, PARTITION_NAME}


def partition_column(specs: Iterable[PartitionSpec], schemas: Iterable[Schema]) -> NestedField:
    """Return ``_partition``: a struct of all fields of the table's partition specs, old ones included."""
    sources = {field_id: schema.find_type(field_id) for schema in schemas for field_id in schema.field_ids}
    fields: dict[int, NestedField] = {}
    for spec in specs:
        for field in spec.fields:
            source = sources.get(field.source_id)
            known = field.field_id in fields and not isinstance(fields[field.field_id].field_type, UnknownType)
            if known:
                continue
            void = source is None or isinstance(field.transform, VoidTransform)
            kind = UnknownType() if source is None or void else field.transform.result_type(source)
            fields[field.field_id] = NestedField(PARTITION_FIELDS + field.field_id, field.name, kind, required=False)
    children = [fields[field_id] for field_id in sorted(fields)]
    return NestedField(PARTITION_ID, PARTITION_NAME, StructType(*children), required=False)


def file_constants(wanted: Schema, *, path: str, spec: PartitionSpec | None, spec_id: int, partition: tuple[Any, ...]) -> dict[int, Any]:
    """Return the values that all rows of a file share, by field id, of the metadata columns in ``wanted``."""
    constants: dict[int, Any] = {}
    for field in wanted.fields:
        if field.field_id == FILE.field_id:
            constants[field.field_id] = path
        elif field.field_id == SPEC_ID.field_id:
            constants[field.field_id] = spec_id
        elif field.field_id == PARTITION_ID:
            constants[field.field_id] = _partition_value(field.field_type, spec, partition)
    return constants


def _partition_value(kind: Any, spec: PartitionSpec | None, partition: tuple[Any, ...]) -> Mapping[str, Any] | None:
    """A struct's fields by name; null for a table without partition fields, as Java has it."""
    if not kind.fields:
        return None
    fields = () if spec is None else spec.fields
    values = {PARTITION_FIELDS + field.field_id: value for field, value in zip(fields, partition, strict=False)}
    return {field.name: None if isinstance(field.field_type, UnknownType) else values.get(field.field_id) for field in kind.fields}
