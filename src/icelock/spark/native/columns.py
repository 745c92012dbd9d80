"""The columns of a native scan: those of Spark's Parquet reader, those of the plan, and how both become the rows of a scan.

A scan's column comes from one of three places:

    the files       by field id at every level of structs, in Spark's type, with its default for older rows
    the plan        one value for a file: identity partition values (Java PartitionUtil.constantsMap), and the parts of metadata columns
    nothing         columns of type unknown

Spark's reader cannot return some columns (``reason_against``): a UUID or a default inside a struct, defaults of some types
(docs/adr/0011-native-scan.md, "What Spark's reader is not trusted with"). The data source reads scans with such a column.

Not here: files (``spark.native.plan``), filters (``spark.columns.conditions``).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp

from icelock.arrow.types import output_type
from icelock.metadata.metadata_columns import DELETED, FILE, LAST_UPDATED, PARTITION_FIELDS, PARTITION_ID, POS, ROW_ID, SPEC_ID
from icelock.metadata.schema_paths import schema_paths
from icelock.spark.columns.types import has_spark_type, quoted, spark_schema, spark_type
from icelock.spark.jvm.native import NativeJvm
from icelock.table.read.scan import DataScan

FIELD_ID: Final = "parquet.field.id"
DEFAULT: Final = "EXISTS_DEFAULT"
# Columns of the plan that are not columns of the table.
_OURS: Final = "icelock "
FIRST_ROW_ID: Final = "icelock first row id"
SEQUENCE_NUMBER: Final = "icelock sequence number"
FILE_PATH: Final = "icelock file"
SPEC: Final = "icelock spec id"
PARTITION_VALUE: Final = "icelock partition "
# Files with deletes are not read here if deleted rows are wanted (``spark.native.plan.is_native``).
_AS_THEY_ARE: Final = {FILE.field_id: quoted(FILE_PATH), SPEC_ID.field_id: quoted(SPEC), DELETED.field_id: "false"}
# The positions of rows in Spark's reader.
_SPARKS: Final = "_tmp_metadata_row_index"
_METADATA_IDS: Final = frozenset({PARTITION_ID, *(field.field_id for field in (FILE, POS, DELETED, SPEC_ID, ROW_ID, LAST_UPDATED))})
_LINEAGE: Final = {ROW_ID.field_id: ROW_ID, LAST_UPDATED.field_id: LAST_UPDATED}
_LONG_DIGITS: Final = 18
_YEARS: Final = range(1, 10000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of one group of files (``native.plan.Group``).

    ``wanted`` is the scan's schema with the filter's columns, ``constants`` are field ids of columns whose values the plan has.
    """

    wanted: Schema
    constants: frozenset[int]
    table: str

    @property
    def data(self) -> sp.StructType:
        """The columns to read from files."""
        fields = [_stored(field, self.table) for field in self.wanted.fields if self._from_file(field)]
        lineage = [_LINEAGE[field.field_id] for field in self.wanted.fields if field.field_id in _LINEAGE]
        return sp.StructType([*fields, *(_stored(field, self.table) for field in lineage)])

    @property
    def plain(self) -> list[str] | None:
        """The scan's columns, quoted, if all are columns of ``data`` or constants, unchanged."""
        special = any(not self._as_it_is(field) for field in self.wanted.fields)
        return None if special else [quoted(field.name) for field in self.wanted.fields]

    @property
    def planned(self) -> sp.StructType:
        """The columns of the plan that are not the table's."""
        hidden: dict[str, sp.DataType] = {}
        for field in self.wanted.fields:
            if field.field_id == FILE.field_id:
                hidden[FILE_PATH] = sp.StringType()
            elif field.field_id == SPEC_ID.field_id:
                hidden[SPEC] = sp.IntegerType()
            elif field.field_id == ROW_ID.field_id:
                hidden[FIRST_ROW_ID] = sp.LongType()
            elif field.field_id == LAST_UPDATED.field_id:
                hidden |= {FIRST_ROW_ID: sp.LongType(), SEQUENCE_NUMBER: sp.LongType()}
            elif field.field_id == PARTITION_ID:
                hidden |= {_partition_name(part): spark_type(part.field_type, part.name, self.table) for part in _parts(field)}
        return sp.StructType([sp.StructField(name, kind) for name, kind in hidden.items()])

    @property
    def constant_fields(self) -> list[ice.NestedField]:
        """The table's columns that the plan has."""
        return [field for field in self.wanted.fields if field.field_id in self.constants]

    def select(self, jvm: NativeJvm, rows: DataFrame) -> list[Column]:
        """Return the scan's columns, computed from those of ``data`` and ``planned`` in ``rows``."""
        comments = spark_schema(self.wanted, table=self.table)
        return [
            self._value(field, jvm, rows).alias(field.name, metadata=shown.metadata or {})
            for field, shown in zip(self.wanted.fields, comments.fields, strict=True)
        ]

    def _as_it_is(self, field: ice.NestedField) -> bool:
        made = field.field_id in _METADATA_IDS or isinstance(field.field_type, (ice.UnknownType, ice.UUIDType))
        return field.field_id in self.constants or not made

    def _from_file(self, field: ice.NestedField) -> bool:
        special = field.field_id in _METADATA_IDS or isinstance(field.field_type, ice.UnknownType)
        return not special and field.field_id not in self.constants

    def _value(self, field: ice.NestedField, jvm: NativeJvm, rows: DataFrame) -> Column:
        kind = spark_type(field.field_type, field.name, self.table)
        if field.field_id in _METADATA_IDS:
            return _metadata_value(field, kind, rows)
        if isinstance(field.field_type, ice.UnknownType):
            return F.lit(None).cast(kind)
        column = F.col(quoted(field.name))
        if isinstance(field.field_type, ice.UUIDType) and self._from_file(field):
            return jvm.uuid_text(column)
        return column


def with_filtered(projection: Schema, scan: DataScan) -> Schema | None:
    """Return a scan's columns and its filter's; None if the filter's are nested in columns that the scan has a part of."""
    used = extract_field_ids(bind(scan.full_schema, scan.exact_filter, case_sensitive=True))
    missing = used - projection.field_ids
    if not missing:
        return projection
    top = [field for field in scan.full_schema.fields if missing & ({field.field_id} | Schema(field).field_ids)]
    if any(projection.find_column_name(field.field_id) for field in top):
        return None
    return Schema(*projection.fields, *top, schema_id=projection.schema_id)


def reason_against(wanted: Schema) -> str | None:
    """Return why Spark's reader cannot give these columns, or None when it can."""
    names = [field.name.lower() for field in wanted.fields]
    for field in wanted.fields:
        if names.count(field.name.lower()) > 1:
            return f"column {field.name} differs from another one only by case"
        if field.field_id in _METADATA_IDS:
            continue
        if field.name.lower().startswith(_OURS) or field.name.lower() == _SPARKS:
            return f"column {field.name} has a name that the native scan uses"
        reason = _reason(field, field.name, top=True)
        if reason is not None:
            return reason
    return None


def pushable(wanted: Schema, schemas: Sequence[Schema]) -> tuple[list[str], list[str]]:
    """Return the columns whose names always meant the same field of the same type, as Spark's filters name them; then the floats of them.

    Spark pushes filters into files by name, and cuts a decimal to the file's digits. If schemas were removed from the table, files may have
    names that no schema has: then there are no such columns.
    """
    if {schema.schema_id for schema in schemas} != set(range(len(schemas))):
        return [], []
    meanings: dict[str, set[tuple[int, str]]] = {}
    for path in schema_paths(field for schema in schemas for field in schema.fields):
        meanings.setdefault(".".join(path.names).lower(), set()).add((path.field.field_id, _kind(path.field)))
    found = {
        _in_filters(path.names): path.field
        for path in schema_paths(wanted.fields)
        if meanings.get(".".join(path.names).lower()) == {(path.field.field_id, _kind(path.field))}
    }
    return list(found), [name for name, field in found.items() if isinstance(field.field_type, (ice.FloatType, ice.DoubleType))]


def _kind(field: ice.NestedField) -> str:
    return str(field.field_type) if isinstance(field.field_type, ice.PrimitiveType) else ""


def _in_filters(path: Iterable[str]) -> str:
    """Return a column as ``sources.Filter`` names it: quoted only if necessary."""
    return ".".join(name if _plain(name) else quoted(name) for name in path)


def _plain(name: str) -> bool:
    return name.replace("_", "").isalnum() and name.isascii() and not name[0].isdigit()


def _parts(field: ice.NestedField) -> list[ice.NestedField]:
    struct = field.field_type
    return (
        [part for part in struct.fields if not isinstance(part.field_type, ice.UnknownType)] if isinstance(struct, ice.StructType) else []
    )


def _partition_name(part: ice.NestedField) -> str:
    return f"{PARTITION_VALUE}{part.field_id - PARTITION_FIELDS}"


def _metadata_value(field: ice.NestedField, kind: sp.DataType, rows: DataFrame) -> Column:
    if field.field_id in _AS_THEY_ARE:
        return F.expr(_AS_THEY_ARE[field.field_id])
    if field.field_id == POS.field_id:
        return _row_index(rows)
    first = F.col(quoted(FIRST_ROW_ID))
    if field.field_id == ROW_ID.field_id:
        return F.when(first.isNotNull(), F.coalesce(F.col(quoted(ROW_ID.name)), first + _row_index(rows)))
    if field.field_id == LAST_UPDATED.field_id:
        return F.when(first.isNotNull(), F.coalesce(F.col(quoted(LAST_UPDATED.name)), F.col(quoted(SEQUENCE_NUMBER))))
    struct = field.field_type
    if not isinstance(struct, ice.StructType) or not struct.fields:
        return F.lit(None).cast(kind)
    known = {part.field_id for part in _parts(field)}
    values = [F.col(quoted(_partition_name(part))) if part.field_id in known else F.lit(None) for part in struct.fields]
    return F.struct(*(value.alias(part.name) for value, part in zip(values, struct.fields, strict=True))).cast(kind)


def _row_index(rows: DataFrame) -> Column:
    # By this method, as a column of the table may be called _metadata.
    return rows.metadataColumn("_metadata").getField("row_index")


def shown(data: sp.StructType) -> sp.StructType:
    """Return ``Columns.data`` as users see it: without ids, with the table's comments."""
    return sp.StructType([_shown(field) for field in data.fields])


def _shown(field: sp.StructField) -> sp.StructField:
    comment = field.metadata.get("comment")
    return sp.StructField(field.name, _without_ids(field.dataType), field.nullable, {"comment": comment} if comment else None)


def _without_ids(kind: sp.DataType) -> sp.DataType:
    if isinstance(kind, sp.StructType):
        return shown(kind)
    if isinstance(kind, sp.ArrayType):
        return sp.ArrayType(_without_ids(kind.elementType), kind.containsNull)
    if isinstance(kind, sp.MapType):
        return sp.MapType(_without_ids(kind.keyType), _without_ids(kind.valueType), kind.valueContainsNull)
    return kind


def _stored(field: ice.NestedField, table: str) -> sp.StructField:
    metadata: dict[str, Any] = {FIELD_ID: field.field_id}
    if field.doc:
        metadata["comment"] = field.doc
    if field.initial_default is not None:
        metadata[DEFAULT] = _default(field)
    # Spark's reader takes no file that lacks a required column, before it asks for the default.
    optional = field.optional or field.initial_default is not None or field.field_id in _LINEAGE
    return sp.StructField(field.name, _stored_type(field.field_type, field.name, table), nullable=optional, metadata=metadata)


def _stored_type(kind: ice.IcebergType, path: str, table: str) -> sp.DataType:
    if isinstance(kind, ice.UUIDType):
        return sp.BinaryType()
    if isinstance(kind, ice.StructType):
        return sp.StructType([_stored(field, table) for field in kind.fields])
    if isinstance(kind, ice.ListType):
        return sp.ArrayType(_stored_type(kind.element_type, f"{path}.element", table), containsNull=not kind.element_required)
    if isinstance(kind, ice.MapType):
        key, value = _stored_type(kind.key_type, f"{path}.key", table), _stored_type(kind.value_type, f"{path}.value", table)
        return sp.MapType(key, value, valueContainsNull=not kind.value_required)
    return spark_type(kind, path, table)


def _reason(field: ice.NestedField, path: str, *, top: bool) -> str | None:
    kind = field.field_type
    if field.initial_default is not None and (not top or _default(field) is None):
        return f"column {path} has a default that Spark's reader does not apply"
    # Only a filter's column can have a type that Spark lacks: others were refused before.
    if not has_spark_type(kind) or (not top and isinstance(kind, (ice.UUIDType, ice.UnknownType))):
        return f"column {path} is a {kind}" + ("" if top else " inside another one")
    if isinstance(kind, ice.StructType):
        return next(filter(None, (_reason(child, f"{path}.{child.name}", top=False) for child in kind.fields)), None)
    if isinstance(kind, ice.ListType):
        return _reason(kind.element_field, f"{path}.element", top=False)
    if isinstance(kind, ice.MapType):
        return _reason(kind.key_field, f"{path}.key", top=False) or _reason(kind.value_field, f"{path}.value", top=False)
    return None


def _default(field: ice.NestedField) -> str | None:
    """Return a column's default as a SQL literal for Spark's reader (EXISTS_DEFAULT), or None if there is none."""
    value = pa.scalar(field.initial_default, output_type(field.field_type)).as_py()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if isinstance(field.field_type, (ice.IntegerType, ice.LongType)) else None
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return f"{value:f}BD" if isinstance(field.field_type, ice.DecimalType) and field.field_type.precision <= _LONG_DIGITS else None
    if isinstance(value, str):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"  # whatever spark.sql.parser.escapedStringLiterals is
    return _moment(field.field_type, value)


def _moment(kind: ice.IcebergType, value: Any) -> str | None:
    if not isinstance(value, dt.date) or value.year not in _YEARS:
        return None
    if isinstance(kind, ice.DateType):
        return f"DATE '{value.isoformat()}'"
    if isinstance(kind, ice.TimestamptzType):
        return f"TIMESTAMP '{value}'"
    return f"TIMESTAMP_NTZ '{value}'" if isinstance(kind, ice.TimestampType) else None
