"""The schema of one Parquet file as a tree of field ids, with the leaf columns below each field.

Ids come from the file (``PARQUET:field_id``), else from the table's name mapping. If any field has an id, fields
without one are not the table's and are ignored, as in Java; a file without ids and without a mapping is refused rather than
read by position. Leaf columns are counted depth first, which is their order in a Parquet file.

Not here: what is read as what (``arrow.read.project``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyarrow import types as pat
from pyiceberg.table.name_mapping import MappedField, NameMapping

from icelock.arrow.types import is_list_like, storage
from icelock.errors import FormatError

FIELD_ID: Final = b"PARQUET:field_id"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileField:
    """A field of a file: ``field_id`` None when it is not the table's; ``leaves`` are its leaf columns' indices.

    ``children`` are a struct's fields, a list's element, or a map's key and value; empty for a leaf.
    """

    name: str
    field_id: int | None
    arrow_type: pa.DataType
    leaves: range
    children: tuple[FileField, ...] = ()

    def child(self, field_id: int) -> FileField | None:
        """Return the child that has an id."""
        return next((child for child in self.children if child.field_id == field_id), None)


def file_fields(schema: pa.Schema, name_mapping: NameMapping | None, *, location: str) -> FileField:
    """Return the file's fields as children of a root.

    Raises:
        FormatError: no ids in the file and no name mapping of the table, or an id that two fields share.
    """
    fields = tuple(_fields(schema, 0))
    root = FileField(
        name="", field_id=None, arrow_type=pa.struct(schema), leaves=range(fields[-1].leaves.stop if fields else 0), children=fields
    )
    if not any(field.field_id is not None for _, field, _ in walk(root)):
        if name_mapping is None:
            raise FormatError(
                f"{location} has no field ids, and its table has no name mapping: set the table property schema.name-mapping.default, "
                "or rewrite the file with field ids"
            )
        return with_names(root, name_mapping, location=location)
    _check_unique(root, location)
    return root


def with_names(root: FileField, mapping: NameMapping, *, location: str) -> FileField:
    """Return the fields with the ids of a name mapping instead of the file's own.

    Raises:
        FormatError: two fields of the same name.
    """
    named = dataclasses.replace(root, children=tuple(_with_mapping(field, list(mapping)) for field in root.children))
    _check_unique(named, location)
    return named


def walk(
    field: FileField, above: tuple[str, ...] = (), parent: FileField | None = None
) -> Iterator[tuple[tuple[str, ...], FileField, FileField | None]]:
    """Yield the fields below one, each with its names and the field that it is part of, None at the top."""
    for child in field.children:
        names = (*above, child.name)
        yield names, child, parent
        yield from walk(child, names, child)


def fields_by_id(root: FileField) -> dict[int, FileField]:
    """Return the fields that hold at most one value a row (not below a list or map), by id."""
    found: dict[int, FileField] = {}
    for field in root.children:
        if field.field_id is not None:
            found[field.field_id] = field
        if pat.is_struct(field.arrow_type):
            found.update(fields_by_id(field))
    return found


def _fields(fields: Iterable[pa.Field], first: int) -> Iterator[FileField]:
    for field in fields:
        made = _field(field, first)
        first = made.leaves.stop
        yield made


def _field(field: pa.Field, first: int) -> FileField:
    arrow_type = storage(field.type)
    children = tuple(_fields(_child_fields(arrow_type), first))
    stop = children[-1].leaves.stop if children else first + 1
    written = (field.metadata or {}).get(FIELD_ID)
    return FileField(
        name=field.name,
        field_id=None if written is None else int(written),
        arrow_type=arrow_type,
        leaves=range(first, stop),
        children=children,
    )


def _child_fields(arrow_type: pa.DataType) -> list[pa.Field]:
    if pat.is_struct(arrow_type):
        return list(arrow_type)
    if pat.is_map(arrow_type):
        return [arrow_type.key_field, arrow_type.item_field]
    if is_list_like(arrow_type):
        return [arrow_type.value_field]
    return []


def _with_mapping(field: FileField, mapping: list[MappedField]) -> FileField:
    """Give a field and all below it the ids of a name mapping; lists and maps have the fixed names of the spec."""
    found = next((mapped for mapped in mapping if field.name in mapped.names), None)
    below = [] if found is None else found.fields
    names: tuple[str, ...] = tuple(child.name for child in field.children)
    if pat.is_map(field.arrow_type):
        names = ("key", "value")
    elif field.children and not pat.is_struct(field.arrow_type):
        names = ("element",)
    children = tuple(
        dataclasses.replace(_with_mapping(dataclasses.replace(child, name=name), below), name=child.name)
        for child, name in zip(field.children, names, strict=True)
    )
    return dataclasses.replace(field, field_id=None if found is None else found.field_id, children=children)


def _check_unique(root: FileField, location: str) -> None:
    seen: dict[int, str] = {}
    for _, field, _ in walk(root):
        if field.field_id is None:
            continue
        if field.field_id in seen:
            raise FormatError(f"{location} has field id {field.field_id} twice ({seen[field.field_id]!r}, {field.name!r}): rewrite it")
        seen[field.field_id] = field.name
