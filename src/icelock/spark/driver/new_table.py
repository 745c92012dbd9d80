"""Tables that a write creates or replaces: schema and partitioning from Spark, staged until the write commits.

    schema         names, types and comments of the DataFrame; all columns are optional, as in Spark's own CTAS; ids are new
    partitioning   transforms as text, with the field names that Java's Spark gives them:
                   col  years(ts)  months(ts)  days(ts)  hours(ts)  bucket(16, id)  truncate(4, name)
                   names with other characters in backticks: `total (usd)`  bucket(4, `a,b`)  days(place.`the day`)

Not here: the catalogs' side (``catalog``), the rows (``spark.task.write``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import IcebergType, NestedField, StructType
from pyspark.sql import types as sp

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import PolicyError
from icelock.spark.columns.types import arrow_schema
from icelock.spark.driver.distribution import Layout
from icelock.spark.sealed.job import Action, Job, NewTable
from icelock.table.transaction import EncryptedTransaction

CREATES: Final = frozenset({Action.CREATE, Action.REPLACE, Action.CREATE_OR_REPLACE})
NO_CLUSTERING: Final = (
    "Iceberg has no CLUSTER BY: the procedure set_write_order gives new rows an order, and rewrite_data_files sorts those that are there, "
    "by a sort_order such as 'zorder(a, b)'"
)
_CLUSTERED: Final = "cluster_by"  # Spark has it among the transforms
_BINARY: Final = "UTF8_BINARY"
_UNITS: Final = ("year", "month", "day", "hour")
_CALL: Final = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")


def resolved(catalog: EncryptedCatalog, job: Job) -> Job:
    """Return the job with ``create or replace`` decided; a new table that would be plain is a PolicyError."""
    there = catalog.table_exists(job.table.identifier)
    if job.action != Action.CREATE:
        job = replace(job, new_table=replace(_new(job), replaces=True))
    if job.action == Action.CREATE_OR_REPLACE:
        job = replace(job, action=Action.REPLACE if there else Action.CREATE)
    wanted = catalog.new_tables.of_new(_new(job).properties, table=str(job.table)) if job.action == Action.CREATE else None
    if wanted is not None and names.ENCRYPTION_KEY_ID not in wanted:
        raise PolicyError(
            f"table {job.table} would be plain, and icelock creates encrypted tables only: name its master key by "
            f".tableProperty({names.ENCRYPTION_KEY_ID!r}, ...) or, in SQL, TBLPROPERTIES ({names.ENCRYPTION_KEY_ID!r} = ...), "
            f"or by the catalog's {names.TABLE_DEFAULT_PREFIX}{names.ENCRYPTION_KEY_ID}"
        )
    return job


def new_table_transaction(catalog: EncryptedCatalog, job: Job, given: sp.StructType) -> EncryptedTransaction:
    """Return a transaction that creates or replaces a table; nothing is visible before its commit.

    What an encrypted table cannot have is a PolicyError; a table that is there or not, and a missing namespace, are PyIceberg's errors.
    """
    new = _new(job)
    schema = iceberg_schema(given)
    make = catalog.create_table_transaction if job.action == Action.CREATE else catalog.replace_table_transaction
    transaction = make(
        job.table.identifier,
        schema,
        location=new.location,
        partition_spec=partition_spec(schema, new.partitioned_by, table=str(job.table)),
        properties=dict(new.properties),
    )
    if not isinstance(transaction, EncryptedTransaction):
        raise PolicyError(
            f"table {job.table} is plain (format version 2 or below), and icelock writes encrypted tables only: replace it with Java"
        )
    return transaction


def new_layout(job: Job, given: sp.StructType, catalog: Mapping[str, str]) -> Layout:
    """Return the layout of a new table, which has no sort order; ``catalog`` are the catalog's properties. Errors as the transaction's."""
    new = _new(job)
    schema = iceberg_schema(given)
    spec = partition_spec(schema, new.partitioned_by, table=str(job.table))
    defaults, overrides = (names.below(catalog, prefix) for prefix in (names.TABLE_DEFAULT_PREFIX, names.TABLE_OVERRIDE_PREFIX))
    return Layout(schema=schema, spec=spec, sort_order=UNSORTED_SORT_ORDER, properties={**defaults, **new.properties, **overrides})


def iceberg_schema(given: sp.StructType, *, required: bool = False) -> Schema:
    """Return the schema of a new table; a type that no Iceberg column has is a PolicyError. ``required``: columns may be NOT NULL."""
    for field in given.fields:
        _check_type(field.dataType, field.name, inside=False)
    fields = []
    for field, source in zip(arrow_schema(given if required else _optional(given)), given.fields, strict=True):
        fields.append(_documented(field, source))
    try:
        converted = MetastoreCatalog._convert_schema_if_needed(pa.schema(fields), names.ENCRYPTED_VERSION)
    except ValueError as e:  # PyIceberg's, which finds columns by their names joined by dots
        if "multiple fields" not in str(e):
            raise
        raise PolicyError(f"{e}: two columns, or one and a field of another, are called the same to Iceberg: rename one") from e
    return assign_fresh_schema_ids(converted)


def _check_type(kind: sp.DataType, path: str, *, inside: bool) -> None:
    """Refuse what an Iceberg column would take without keeping its meaning, or cannot store; ``inside``: it is part of a column."""
    if isinstance(kind, sp.StructType):
        for field in kind.fields:
            _check_type(field.dataType, f"{path}.{field.name}", inside=True)
    elif isinstance(kind, sp.ArrayType):
        _check_type(kind.elementType, f"{path}.element", inside=True)
    elif isinstance(kind, sp.MapType):
        _check_type(kind.keyType, f"{path}.key", inside=True)
        _check_type(kind.valueType, f"{path}.value", inside=True)
    elif isinstance(kind, sp.NullType) and inside:
        raise PolicyError(
            f"column {path!r} has no type (void), which only a whole column can be: cast it, as in CAST(array() AS array<int>)"
        )
    elif isinstance(kind, sp.StringType) and getattr(kind, "collation", _BINARY) != _BINARY:
        raise PolicyError(
            f"column {path!r} has the collation {kind.collation}, and Iceberg has none: filters and joins would compare its bytes. Leave "
            f"COLLATE out (in a query: COLLATE {_BINARY}), and write it where you compare: s COLLATE {kind.collation} = 'a'"
        )


def _documented(field: pa.Field, source: sp.StructField) -> pa.Field:
    """Return the field of a new table with the comments that Spark has of it, at every level."""
    comment = (source.metadata or {}).get("comment")
    documented = field.with_type(_with_comments(field.type, source.dataType))
    return documented.with_metadata({"doc": comment}) if comment else documented


def _with_comments(kind: pa.DataType, source: sp.DataType) -> pa.DataType:
    if isinstance(source, sp.StructType):
        return pa.struct([_documented(field, inner) for field, inner in zip(kind, source.fields, strict=True)])
    if isinstance(source, sp.ArrayType):
        return pa.list_(kind.value_field.with_type(_with_comments(kind.value_type, source.elementType)))
    if isinstance(source, sp.MapType):
        key, item = kind.key_field, kind.item_field
        key = key.with_type(_with_comments(key.type, source.keyType))
        return pa.map_(key, item.with_type(_with_comments(item.type, source.valueType)))
    return kind


def column_type(given: sp.DataType, path: tuple[str, ...]) -> IcebergType:
    """Return the Iceberg type of a column or field, with ids that mean nothing; a type that no Iceberg column has is a PolicyError."""
    _check_type(given, ".".join(path), inside=len(path) > 1)
    return iceberg_schema(sp.StructType([sp.StructField("column", given)]), required=True).fields[0].field_type


def _optional(kind: Any) -> Any:
    """Return a Spark type that is nullable at every level: a DataFrame without nulls says nothing of the next one."""
    if isinstance(kind, sp.StructType):
        fields = [sp.StructField(field.name, _optional(field.dataType), nullable=True, metadata=field.metadata) for field in kind.fields]
        return sp.StructType(fields)
    if isinstance(kind, sp.ArrayType):
        return sp.ArrayType(_optional(kind.elementType), containsNull=True)
    if isinstance(kind, sp.MapType):
        return sp.MapType(_optional(kind.keyType), _optional(kind.valueType), valueContainsNull=True)
    return kind


def partition_spec(schema: Schema, transforms: tuple[str, ...], *, table: str, done: str = "partitioned") -> PartitionSpec:
    """Return the spec of transforms that are given as text; an unknown transform or column is a PolicyError."""
    fields = []
    for number, text in enumerate(transforms):
        given, transform, suffix = _parsed(text.strip())
        source = _column(schema, given)
        if source is None:
            raise PolicyError(
                f"table {table} cannot be {done} by {text!r}: it has no column {given!r}; it has {', '.join(schema.column_names)}"
            )
        column = str(schema.find_column_name(source.field_id))
        if not transform.can_transform(source.field_type):
            raise PolicyError(f"table {table} cannot be {done} by {text!r}: column {column!r} is {source.field_type}")
        name = column if suffix is None else f"{column}_{suffix}"
        fields.append(PartitionField(source.field_id, PARTITION_FIELD_ID_START + number, transform, name))
    return PartitionSpec(*fields)


def _parsed(text: str) -> tuple[str, Transform[Any, Any], str | None]:
    """Return the column, the transform and the suffix of the partition field's name."""
    call = _CALL.fullmatch(text)
    if call is None or text.startswith("`"):
        return text, IdentityTransform(), None
    name, arguments = call[1].lower(), call[2].strip()
    unit = "day" if name == "date" else name.removesuffix("s")
    if unit in _UNITS and _is_name(arguments):
        return arguments, parse_transform(unit), unit
    number, _, column = (part.strip() for part in arguments.partition(","))
    if name in {"bucket", "truncate"} and names.is_number(number) and int(number) and _is_name(column):
        return column, parse_transform(f"{name}[{int(number)}]"), "bucket" if name == "bucket" else "trunc"
    if name == _CLUSTERED:
        raise PolicyError(NO_CLUSTERING)
    raise PolicyError(
        f"{text!r} is not a partition transform: use a column, years, months, days or hours (column), bucket or truncate (number, column)"
    )


def _is_name(text: str) -> bool:
    """Whether a text may be a column's name, which has a comma only in backticks; nothing is one that no table has."""
    return not text or (_NAME.fullmatch(text) is not None and not any("," in plain for _, plain in _PART.findall(text)))


def _column(schema: Schema, given: str) -> NestedField | None:
    """Return the column of a name; parts in backticks are names as they are."""
    if "`" not in given:
        try:
            return schema.find_field(given)
        except ValueError:
            return None
    if _NAME.fullmatch(given) is None:
        return None
    fields, field = schema.fields, None
    for quoted, plain in _PART.findall(given):
        name = quoted.replace("``", "`") if quoted else plain.strip()
        field = next((each for each in fields if each.name == name), None)
        if field is None:
            return None
        fields = field.field_type.fields if isinstance(field.field_type, StructType) else ()
    return field


def _new(job: Job) -> NewTable:
    if job.new_table is None:
        raise PolicyError(f"a job to {job.action} needs a table's properties")
    return job.new_table
