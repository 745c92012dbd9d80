"""A plain data file, or file of equality deletes, as one encrypted file of the same rows in the same order, deleted ones too.

What refers to rows by their positions still does, and what the file lacks is lacking in the new one: a column that its table got later
reads as before, from a partition, a default, or as null. So the columns are those of the file that any schema of the table has, each in the
type that the file was written for, under the file's name for it.

Not here: which files (``table.maintenance.conversion.convert_history``), files whose deleted rows go (``arrow.write.combine``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.file_schema import FileField
from icelock.arrow.read.stored_file import StoredFile, check_rows, open_file
from icelock.arrow.read.task import read_open
from icelock.arrow.types import can_read
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.writer import write_data_files
from icelock.errors import PolicyError
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from icelock.plan.task import ScanTask

_LINEAGE: Final = frozenset({ROW_ID.field_id, LAST_UPDATED.field_id})
_UNLIMITED: Final = str(1 << 50)


def write_whole(  # noqa: PLR0913 - what is read, and how it is written
    read: ReadContext, write: WriteContext, task: ScanTask, *, schemas: Sequence[Schema], task_id: int, entropy: Entropy
) -> list[DataFile]:
    """Write one file; return it, or nothing if it has no rows. Its partition is left empty: the caller knows it.

    Args:
        read: of the plain table.
        write: of the encrypted one.
        task: the file, with its deletes left out.
        schemas: all of the table, in the order of their ids.
        task_id: part of the new file's name.
        entropy: where its key comes from.

    Raises:
        PolicyError, FormatError, OSError: the file cannot be read or written.
        IntegrityError: it has not as many rows as its entry says.
    """
    stored = StoredFile.of(task, allow_plaintext=read.allow_plaintext)
    with open_file(stored, read.io, schema=read.table_schema, name_mapping=read.name_mapping) as file:
        schema = schema_of_file(file.fields, schemas)
        if all(field.field_id in _LINEAGE for field in schema.fields):
            raise PolicyError(
                f"{task.path} has none of the columns that the table has or had, so its rows cannot be kept as they are: write it again, "
                "and expire the snapshots that need it; or keep the current state only (history='drop', --history drop)"
            )
        check_rows(file, task.path, task.record_count)
        rows = read_open(replace(read, schema=schema, row_filter=AlwaysTrue()), task, file)
        files = write_data_files(one_file(write, schema), rows, task_id=task_id, entropy=entropy)
    if len(files) > 1:
        raise PolicyError(f"{task.path} has more row groups than a Parquet file can have: write it again with Java first")
    return files


def one_file(write: WriteContext, schema: Schema) -> WriteContext:
    """Return a context that puts all rows into one file, as they come."""
    properties = {**write.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: _UNLIMITED}
    return replace(write, schema=schema, spec=PartitionSpec(), sort_order=UNSORTED_SORT_ORDER, properties=properties)


def schema_of_file(root: FileField, schemas: Sequence[Schema]) -> Schema:
    """Return the columns of a file that any of the schemas has; those of row lineage too, if the file has them."""
    fields = _fields(root, [schema.as_struct() for schema in schemas])
    lineage = [column for column in (ROW_ID, LAST_UPDATED) if root.child(column.field_id) is not None]
    return Schema(*fields, *lineage)


def _fields(stored: FileField, structs: Iterable[StructType]) -> list[NestedField]:
    structs = list(structs)
    found = []
    for child in stored.children:
        known = [field for struct in structs for field in struct.fields if field.field_id == child.field_id]
        if known:
            required = all(field.required for field in known)
            found.append(NestedField(known[0].field_id, child.name, _type(child, [field.field_type for field in known]), required=required))
    return found


def _type(stored: FileField, kinds: Sequence[IcebergType]) -> IcebergType:
    """Return the type of a column: of a primitive one the first, so the narrowest, that the file's values are good for."""
    first: Any = kinds[0]
    if isinstance(first, StructType):
        return StructType(*_fields(stored, (kind for kind in kinds if isinstance(kind, StructType))))
    if isinstance(first, ListType):
        element = _part(stored, 0, kinds, lambda kind: kind.element_field)
        return ListType(element.field_id, element.field_type, element_required=element.required)
    if isinstance(first, MapType):
        key, value = _part(stored, 0, kinds, lambda kind: kind.key_field), _part(stored, 1, kinds, lambda kind: kind.value_field)
        return MapType(key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required)
    made: IcebergType = next((kind for kind in kinds if isinstance(kind, PrimitiveType) and can_read(stored.arrow_type, kind)), first)
    return made


def _part(stored: FileField, number: int, kinds: Sequence[IcebergType], part_of: Callable[[Any], NestedField]) -> NestedField:
    """Return the element, key or value of a column."""
    known = [part_of(kind) for kind in kinds]
    if number >= len(stored.children):
        return known[0]
    kind = _type(stored.children[number], [field.field_type for field in known])
    return NestedField(known[0].field_id, known[0].name, kind, required=all(field.required for field in known))
