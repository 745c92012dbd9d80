"""Fields of a schema, and the structs that lead to them.

A field below a list or map has many values a row; no path leads to it. Not here: fields of a file (``arrow.read.file_schema``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


class SchemaPath(NamedTuple):
    """The way to a field: the ``fields`` from the top-level one to the field itself, and the ``positions`` of each in its struct."""

    fields: tuple[NestedField, ...]
    positions: tuple[int, ...]

    @property
    def field(self) -> NestedField:
        """The field at its end."""
        return self.fields[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each field; names may have dots in them."""
        return tuple(field.name for field in self.fields)


_NOWHERE: Final = SchemaPath((), ())


def schema_paths(fields: Iterable[NestedField], above: SchemaPath = _NOWHERE) -> Iterator[SchemaPath]:
    """Yield the path to each field that holds one value a row, a struct before its own fields."""
    for position, field in enumerate(fields):
        path = SchemaPath((*above.fields, field), (*above.positions, position))
        yield path
        if isinstance(field.field_type, StructType):
            yield from schema_paths(field.field_type.fields, path)


def path_to(fields: Iterable[NestedField], field_id: int) -> SchemaPath | None:
    """Return the path to a field, or None if there is none."""
    return next((path for path in schema_paths(fields) if path.field.field_id == field_id), None)


def names_to(fields: Iterable[NestedField], field_id: int) -> tuple[str, ...]:
    """Return the names that lead to a field, empty if no path does."""
    path = path_to(fields, field_id)
    return path.names if path else ()


def child_fields(kind: IcebergType) -> tuple[NestedField, ...]:
    """Return a struct's fields, a list's element, or a map's key and value; nothing for a primitive type."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()
