"""The Arrow schema of a new data file: field ids at every level, names and types as Java writes them.

Field id = field metadata ``PARQUET:field_id`` on every field, struct member, list ``element``, map ``key`` and ``value``
(format.md, "Parquet from pyarrow"). Names are made Avro-compatible as in Java (``a b`` becomes ``a_x20b``): readers use ids. Offsets
are 32-bit. Columns of type ``unknown`` are empty and left out of the file (spec, "Primitive Types").

Leaf columns are counted depth first, which is their order in the Parquet file.

Not here: input in other Arrow forms (``arrow.write.conform``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema, make_compatible_name

from icelock.arrow.read.file_schema import FIELD_ID
from icelock.arrow.types import output_type
from icelock.arrow.write.options import MAX_PARTS
from icelock.errors import PolicyError
from icelock.metadata.column_types import UnreadType

_UNWRITABLE: Final = (ice.GeometryType, ice.GeographyType, ice.UnknownType, UnreadType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A leaf column: ``column`` is its index in the file; ``path`` leads to it by child index, empty below a list or map."""

    field_id: int
    name: str
    iceberg_type: ice.PrimitiveType
    column: int
    path: tuple[int, ...]

    @property
    def repeated(self) -> bool:
        """Whether a row can have several values of it."""
        return not self.path

    def column_of(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the column's values in a table of the stored schema; the nulls of a parent are nulls."""
        return _child(table.column(self.path[0]), self.path[1:])

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column's values in a batch of the stored schema."""
        return _child(batch.column(self.path[0]), self.path[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSchema:
    """A table schema as it is stored: ``fields`` are the stored top-level columns, one for each of ``arrow``."""

    schema: Schema
    fields: tuple[ice.NestedField, ...]
    arrow: pa.Schema
    leaves: tuple[Leaf, ...]

    def leaf(self, field_id: int) -> Leaf | None:
        """Return a leaf that has one value a row, or None for another field."""
        return next((leaf for leaf in self.leaves if leaf.field_id == field_id and not leaf.repeated), None)


def write_schema(schema: Schema) -> WriteSchema:
    """Return how a table's rows are stored in a Parquet file.

    Raises:
        PolicyError: a type that is not written, a struct without fields, or more than 32767 leaf columns.
    """
    fields = tuple(field for field in schema.fields if not isinstance(field.field_type, ice.UnknownType))
    arrow = pa.schema([_field(field, field.name) for field in fields])
    leaves = tuple(
        Leaf(field_id=field.field_id, name=_name(schema, field), iceberg_type=primitive, column=column, path=path)
        for column, (field, primitive, path) in enumerate(
            leaf for index, field in enumerate(fields) for leaf in _leaves(field, (index,), repeated=False)
        )
    )
    if len(leaves) > MAX_PARTS:
        raise PolicyError(f"the table has {len(leaves)} leaf columns; an encrypted Parquet file can have {MAX_PARTS}: split the table")
    if not leaves:
        raise PolicyError("the table has no column that is stored; add one before writing")
    return WriteSchema(schema=schema, fields=fields, arrow=arrow, leaves=leaves)


def _child(array: Any, path: tuple[int, ...]) -> Any:
    return pc.struct_field(array, list(path)) if path else array


def _name(schema: Schema, field: ice.NestedField) -> str:
    return schema.find_column_name(field.field_id) or field.name


def _field(field: ice.NestedField, path: str) -> pa.Field:
    return pa.field(
        make_compatible_name(field.name),
        _type(field.field_type, path),
        nullable=field.optional,
        metadata={FIELD_ID: str(field.field_id).encode()},
    )


def _type(iceberg_type: ice.IcebergType, path: str) -> pa.DataType:
    if isinstance(iceberg_type, ice.StructType):
        if not iceberg_type.fields:
            raise PolicyError(f"column {path!r} is a struct without fields, which Parquet cannot store: drop it or add a field")
        return pa.struct([_field(field, f"{path}.{field.name}") for field in iceberg_type.fields])
    if isinstance(iceberg_type, ice.ListType):
        return pa.list_(_field(iceberg_type.element_field, f"{path}.element"))
    if isinstance(iceberg_type, ice.MapType):
        return pa.map_(_field(iceberg_type.key_field, f"{path}.key"), _field(iceberg_type.value_field, f"{path}.value"))
    if isinstance(iceberg_type, _UNWRITABLE) or not isinstance(iceberg_type, ice.PrimitiveType):
        raise PolicyError(f"column {path!r} is of type {iceberg_type}, which is not written: drop the column or write with another engine")
    return output_type(iceberg_type)


def _leaves(
    field: ice.NestedField, path: tuple[int, ...], *, repeated: bool
) -> Iterator[tuple[ice.NestedField, ice.PrimitiveType, tuple[int, ...]]]:
    kind = field.field_type
    if isinstance(kind, ice.StructType):
        for index, child in enumerate(kind.fields):
            yield from _leaves(child, (*path, index), repeated=repeated)
    elif isinstance(kind, ice.ListType):
        yield from _leaves(kind.element_field, path, repeated=True)
    elif isinstance(kind, ice.MapType):
        yield from _leaves(kind.key_field, path, repeated=True)
        yield from _leaves(kind.value_field, path, repeated=True)
    elif isinstance(kind, ice.PrimitiveType):
        yield field, kind, () if repeated else path
