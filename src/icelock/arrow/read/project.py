"""From the columns of a file to the columns of a scan: the rules of the Iceberg spec, "Column Projection".

A field is found by id at every level. One that the file lacks gets, in this order: the value of an identity partition field,
its initial default, null; a required one with none of these is an error. Only leaf columns that are needed are named for reading;
where a struct has none of the wanted fields, one leaf tells which rows are null. The rules are compiled once for each file
into closures over arrays; columns that need no change are passed on without a copy.

Row lineage (spec, "Row Lineage"): ``_row_id`` and ``_last_updated_sequence_number`` are the stored values where present,
else first_row_id + position, and the file's data sequence number; without first_row_id both are null, whatever is stored (Java
PartitionUtil.constantsMap, ParquetValueReaders.rowIds and lastUpdated).

Not here: reading (``arrow.read.task``), filters (``arrow.read.row_filter``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, PrimitiveType, StructType, UnknownType

from icelock.arrow.nested import converted_list, converted_map, struct_array
from icelock.arrow.read.file_schema import FileField
from icelock.arrow.types import UUID_STORAGE, can_read, plain_array, repeated
from icelock.errors import FormatError
from icelock.metadata.metadata_columns import CONSTANT_IDS, DELETED, OF_POSITION_IDS, POS, ROW_ID

_LIVE: Final = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The file's ``first_row_id`` and data sequence number; None where the table has no row ids yet."""

    first_row_id: int | None
    sequence_number: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """What one file offers: its ``fields``, and by field id the ``constants`` for columns that it lacks.

    ``complete``: it must have every column that is asked for.
    """

    location: str
    fields: FileField
    constants: Mapping[int, Any]
    lineage: Lineage = Lineage(first_row_id=None, sequence_number=None)
    complete: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """How one stored field becomes one output field; ``as_is``: equal Arrow types mean equal columns."""

    leaves: tuple[int, ...]
    read: Callable[[pa.Array], pa.Array]
    as_is: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """An output field: a stored ``column`` under ``name`` in the file, or ``value`` in every row."""

    name: str | None = None
    column: _Column | None = None
    value: Any = None

    def read(self, parent: pa.RecordBatch | pa.StructArray, target: pa.DataType) -> pa.Array:
        if self.column is None:
            return repeated(self.value, target, len(parent))
        stored = parent.column(self.name) if isinstance(parent, pa.RecordBatch) else parent.field(self.name)
        return self.column.read(stored)


class Projection:
    """Turns batches of one file into batches of ``wanted``, whose output schema is ``arrow``; ``leaves`` are the leaf columns it needs."""

    def __init__(self, wanted: Schema, arrow: pa.Schema, source: FileColumns) -> None:
        self.schema = arrow
        self._source = source
        self._ids = [field.field_id for field in wanted.fields]
        compiler = _Compiler(source)
        self._fields = [
            compiler.field(_optional(field), target.type, source.fields, field.name)
            for field, target in zip(wanted.fields, arrow, strict=True)
        ]
        self.leaves = _leaves(self._fields)

    @property
    def needs_positions(self) -> bool:
        """Whether ``apply`` needs each row's position in the file."""
        return any(field_id in OF_POSITION_IDS for field_id in self._ids)

    def apply(self, batch: pa.RecordBatch, positions: pa.Array | None = None, deleted: pa.Array | None = None) -> pa.RecordBatch:
        """Return the same rows in the output schema; ``deleted`` is which of them are (None: none is).

        Raises:
            FormatError: a stored value does not fit its type, or a required column has a null.
        """
        arrays = []
        for field, arrow, field_id in zip(self._fields, self.schema, self._ids, strict=True):
            if field_id in OF_POSITION_IDS and positions is not None:
                array = self._of_position(field_id, field, batch, positions)
            elif field_id == DELETED.field_id:
                array = repeated(_LIVE, arrow.type, len(batch)) if deleted is None else deleted
            else:
                array = field.read(batch, arrow.type)
            if not arrow.nullable and array.null_count:
                raise FormatError(
                    f"{self._source.location}: required field {arrow.name!r} (id {field_id}) has {array.null_count} nulls; rewrite the file"
                )
            arrays.append(array)
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _of_position(self, field_id: int, field: _Field, batch: pa.RecordBatch, positions: pa.Array) -> pa.Array:
        lineage = self._source.lineage
        if field_id == POS.field_id:
            return positions
        if lineage.first_row_id is None:
            return pa.nulls(batch.num_rows, pa.int64())
        stored = field.read(batch, pa.int64())
        if field_id == ROW_ID.field_id:
            return pc.coalesce(stored, pc.add(positions, pa.scalar(lineage.first_row_id, pa.int64())))
        return pc.coalesce(stored, pa.scalar(lineage.sequence_number, pa.int64()))


def _optional(field: NestedField) -> NestedField:
    """Columns of a row's position, and whether it is deleted, are never missing: they are computed."""
    return field.model_copy(update={"required": False}) if field.field_id in (*OF_POSITION_IDS, DELETED.field_id) else field


def _leaves(fields: list[_Field]) -> tuple[int, ...]:
    return tuple(sorted({leaf for field in fields if field.column is not None for leaf in field.column.leaves}))


class _Compiler:
    """Works out, for one file, how each wanted field is read; ``where`` is the field's dotted path, for errors."""

    def __init__(self, source: FileColumns) -> None:
        self._constants = source.constants
        self._location = source.location
        self._complete = source.complete

    def field(self, wanted: NestedField, target: pa.DataType, parent: FileField, where: str) -> _Field:
        stored = None if wanted.field_id in (*CONSTANT_IDS, POS.field_id, DELETED.field_id) else parent.child(wanted.field_id)
        if stored is not None and not isinstance(wanted.field_type, UnknownType):
            return _Field(name=stored.name, column=self._column(wanted, target, stored, where))
        if wanted.field_id in self._constants:
            return _Field(value=self._constants[wanted.field_id])
        if self._complete:
            raise FormatError(f"{self._location} lacks column {where!r} (id {wanted.field_id}), for which it exists; rewrite the file")
        if wanted.initial_default is None and wanted.required:
            raise FormatError(
                f"{self._location} lacks required field {where!r} (id {wanted.field_id}), which has no initial default; rewrite the file"
            )
        return _Field(value=wanted.initial_default)

    def _column(self, wanted: NestedField, target: pa.DataType, stored: FileField, where: str) -> _Column:
        kind = wanted.field_type
        if isinstance(kind, StructType) and pat.is_struct(stored.arrow_type):
            return self._struct(kind, target, stored, where)
        if isinstance(kind, MapType) and pat.is_map(stored.arrow_type):
            return self._map(kind, target, stored, where)
        if isinstance(kind, ListType) and stored.children and not pat.is_struct(stored.arrow_type) and not pat.is_map(stored.arrow_type):
            return self._list(kind, target, stored, where)
        if isinstance(kind, PrimitiveType) and not stored.children and can_read(stored.arrow_type, kind):
            return self._leaf(wanted, target, stored, where)
        raise FormatError(
            f"{self._location}: field {where!r} (id {wanted.field_id}) is stored as {stored.arrow_type}, which cannot be read as "
            f"{wanted.field_type}; rewrite the file"
        )

    def _leaf(self, wanted: NestedField, target: pa.DataType, stored: FileField, where: str) -> _Column:
        values = UUID_STORAGE if target == pa.uuid() else target
        location = self._location

        def read(array: pa.Array) -> pa.Array:
            if array.type == target:
                return array
            array = plain_array(array)
            if array.type != values:
                try:
                    array = array.cast(values)
                except pa.ArrowInvalid as e:
                    raise FormatError(
                        f"{location}: field {where!r} (id {wanted.field_id}, {array.type}) has a value that is no {wanted.field_type}: {e}"
                    ) from e
            return array if values == target else pa.ExtensionArray.from_storage(target, array)

        return _Column(leaves=tuple(stored.leaves), read=read, as_is=True)

    def _struct(self, wanted: StructType, target: pa.StructType, stored: FileField, where: str) -> _Column:
        fields = [self.field(field, target.field(i).type, stored, f"{where}.{field.name}") for i, field in enumerate(wanted.fields)]
        as_is = all(f.column is not None and f.column.as_is and f.name == w.name for f, w in zip(fields, wanted.fields, strict=True))

        def read(array: pa.StructArray) -> pa.Array:
            if as_is and array.type == target:
                return array
            return struct_array(array, [field.read(array, target.field(i).type) for i, field in enumerate(fields)], target)

        return _Column(leaves=_leaves(fields) or (_witness(stored),), read=read, as_is=as_is)

    def _list(self, wanted: ListType, target: pa.ListType, stored: FileField, where: str) -> _Column:
        element = self._part(wanted.element_field, target.value_type, stored, f"{where}.element")

        def read(array: pa.Array) -> pa.Array:
            return array if element.as_is and array.type == target else converted_list(array, target, element.read)

        return _Column(leaves=element.leaves, read=read, as_is=element.as_is)

    def _map(self, wanted: MapType, target: pa.MapType, stored: FileField, where: str) -> _Column:
        key = self._part(wanted.key_field, target.key_type, stored, f"{where}.key")
        value = self._part(wanted.value_field, target.item_type, stored, f"{where}.value")
        # Arrow reads a map only together with its whole key.
        leaves = tuple(sorted({*stored.children[0].leaves, *value.leaves}))
        as_is = key.as_is and value.as_is

        def read(array: pa.MapArray) -> pa.Array:
            return array if as_is and array.type == target else converted_map(array, target, key.read, value.read)

        return _Column(leaves=leaves, read=read, as_is=as_is)

    def _part(self, wanted: NestedField, target: pa.DataType, stored: FileField, where: str) -> _Column:
        """An element, key or value; unlike a struct's field it cannot be missing."""
        found = stored.child(wanted.field_id)
        if found is None:
            ids = [child.field_id for child in stored.children]
            raise FormatError(
                f"{self._location}: {where!r} has id {wanted.field_id}, but in the file {ids}: field ids are missing or wrong; rewrite it"
            )
        return self._column(wanted, target, found, where)


def _witness(stored: FileField) -> int:
    """A leaf from which Arrow tells null structs: the first below structs only, else the first."""
    for child in stored.children:
        if not child.children:
            return child.leaves.start
        if pat.is_struct(child.arrow_type):
            return _witness(child)
    return stored.leaves.start
