"""The columns that Spark asks for, found in a table's schema.

Spark asks by a schema: ours, a user's ``spark.read.schema(...)`` (the only column pruning that Python data sources have, case C-54), or
ours as of when the DataFrame was made. Names match exactly, else without case if the session ignores it; nested fields may be fewer than
the table's. Types must be the table's. The result has Spark's names and the table's field ids.

Not here: types (``spark.columns.types``), filters (``spark.columns.filters``).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import types as sp

from icelock.errors import PolicyError
from icelock.spark.columns.types import spark_type

_SHOWN: Final = 20


def project(schema: Schema, asked: sp.StructType, *, table: str, case_sensitive: bool) -> Schema:
    """Return the asked columns of a schema, in the asked order and with the asked names.

    An unknown column, another type than the table's, or a nullable column asked for as required is a PolicyError.
    """
    if not asked.fields:
        raise PolicyError(f"no column of table {table} is asked for: name at least one")
    fields = _Projector(table=table, case_sensitive=case_sensitive).fields(schema.fields, asked, "")
    return Schema(*fields, schema_id=schema.schema_id)


def find(fields: tuple[NestedField, ...], name: str, *, case_sensitive: bool) -> NestedField | None:
    """Return the field of that name, or (if case is ignored) the only one that differs by case alone."""
    exact = next((field for field in fields if field.name == name), None)
    if exact is not None or case_sensitive:
        return exact
    found = [field for field in fields if field.name.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projector:
    table: str
    case_sensitive: bool

    def fields(self, known: tuple[NestedField, ...], asked: sp.StructType, path: str) -> tuple[NestedField, ...]:
        return tuple(self._field(known, field, path) for field in asked.fields)

    def _field(self, known: tuple[NestedField, ...], asked: sp.StructField, path: str) -> NestedField:
        field = find(known, asked.name, case_sensitive=self.case_sensitive)
        if field is None:
            raise PolicyError(self._missing(known, asked.name, path))
        if field.optional and not asked.nullable:
            raise PolicyError(f"column {path + asked.name!r} of table {self.table} may have nulls: ask for it as nullable")
        kind = self._type(field.field_type, asked.dataType, path + asked.name)
        # A copy, which keeps the default for rows that are older than the column.
        return field.model_copy(update={"name": asked.name, "field_type": kind})

    def _type(self, kind: IcebergType, asked: sp.DataType, path: str) -> IcebergType:
        if isinstance(kind, StructType) and isinstance(asked, sp.StructType):
            return StructType(*self.fields(kind.fields, asked, f"{path}."))
        if isinstance(kind, ListType) and isinstance(asked, sp.ArrayType):
            element = self._type(kind.element_type, asked.elementType, f"{path}.element")
            self._check_nulls(f"{path}.element", required=kind.element_required, nullable=asked.containsNull)
            return ListType(element_id=kind.element_id, element_type=element, element_required=kind.element_required)
        if isinstance(kind, MapType) and isinstance(asked, sp.MapType):
            self._check_nulls(f"{path}.value", required=kind.value_required, nullable=asked.valueContainsNull)
            return MapType(
                key_id=kind.key_id,
                key_type=self._type(kind.key_type, asked.keyType, f"{path}.key"),
                value_id=kind.value_id,
                value_type=self._type(kind.value_type, asked.valueType, f"{path}.value"),
                value_required=kind.value_required,
            )
        expected = spark_type(kind, path, self.table)
        if expected != asked:
            wrong = f"{expected.simpleString()} in Spark, not {asked.simpleString()}"
            raise PolicyError(f"column {path!r} of table {self.table} is {wrong}: cast it after reading")
        return kind

    def _check_nulls(self, path: str, *, required: bool, nullable: bool) -> None:
        if not required and not nullable:
            raise PolicyError(f"{path!r} of table {self.table} may have nulls: ask for it as nullable")

    def _missing(self, known: tuple[NestedField, ...], name: str, path: str) -> str:
        names = [field.name for field in known]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {path + near[0]!r}?" if near else f"it has {', '.join(names[:_SHOWN])}"
        return f"table {self.table} has no column {path + name!r}; {hint}"
