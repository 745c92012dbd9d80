"""Fields of a schema: the structs that lead to them, and those that users name in filters, selections and keys.

A field below a list or map has many values a row; no path leads to it. Not here: fields of a file (``arrow.read.file_schema``), names that
Spark asks for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from icelock.errors import PolicyError


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
_SHOWN: Final = 60


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


def find_column(schema: Schema, name: str, *, case_sensitive: bool) -> NestedField:
    """Return the field with a name; dots lead to fields of structs.

    Raises:
        PolicyError: no such column, with the nearest name; or two whose names differ in case only.
    """
    names = schema.column_names
    if not case_sensitive:
        same = [known for known in names if known.lower() == name.lower()]
        if len(same) > 1:
            raise PolicyError(
                f"column {shortened(name)!r} may be {' or '.join(map(repr, same[:3]))}, which differ in case only: use case-sensitive names"
            )
        name = same[0] if same else name
    if name not in names:
        raise PolicyError(unknown_column(name, names))
    return schema.find_field(name)


def column_list(given: Iterable[str], *, argument: str) -> tuple[str, ...]:
    """Return names of columns; one name as text, whose letters would be names, is a PolicyError about the ``argument``."""
    if isinstance(given, str):
        raise PolicyError(f"{argument} is {given!r}; it must be a list of names, such as {argument}={[given]!r}")
    return tuple(given)


def near_columns(names: Iterable[str], known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the first of some names that is near one of the ``known``, else nothing."""
    have = list(known)
    near = next((found for name in names for found in difflib.get_close_matches(name, have, n=1)), None)
    return f"; did you mean {near!r}?" if near is not None else ""


def unknown_column(name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not a column."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1) or [one for one in names if one.lower() == name.lower()]
    hint = f"did you mean {shortened(near[0])!r}?" if near else f"the table has {shortened(', '.join(names))}"
    return f"column {shortened(name)!r} does not exist; {hint}"


def shortened(text: str) -> str:
    """Return text for a message, cut if it is long."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
