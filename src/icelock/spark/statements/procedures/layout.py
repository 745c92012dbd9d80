"""Procedures in place of Iceberg's DDL: ``ADD``, ``DROP PARTITION FIELD``, ``WRITE ORDERED BY``, ``SET``, ``DROP IDENTIFIER FIELDS``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection

from icelock.errors import PolicyError
from icelock.metadata.schema_paths import find_column
from icelock.spark.driver.new_table import partition_spec
from icelock.spark.settings.session import settings_of
from icelock.spark.statements.procedures.call import Call, Procedure
from icelock.table.maintenance.compaction.sort_text import BETWEEN, KEY, direction_of
from icelock.table.table import Table

_ORDER: Final = re.compile(KEY, re.IGNORECASE)
_SPEC: Final = "spec_id int not null, partition_field string not null"
_IDENTIFIED: Final = "identifier_fields string not null"


def _transform(call: Call, table: Table, text: str, *, done: str = "partitioned") -> PartitionField:
    return partition_spec(table.schema(), (text.strip(),), table=str(call.name), done=done).fields[0]


def _column(schema: Schema, field: PartitionField) -> str:
    return str(schema.find_column_name(field.source_id))


def _add_partition_field(call: Call) -> Sequence[Sequence[Any]]:
    table = call.table
    field = _transform(call, table, call.required("transform"))
    before = {known.field_id for known in table.spec().fields}
    try:
        table.update_spec().add_field(_column(table.schema(), field), field.transform, call["name"]).commit()
    except ValueError as e:
        raise PolicyError(f"{call.procedure}: table {call.name} cannot be partitioned by {call['transform']!r} too: {e}") from e
    added = [known.name for known in table.spec().fields if known.field_id not in before]
    return [(table.spec().spec_id, ", ".join(added))]


def _drop_partition_field(call: Call) -> Sequence[Sequence[Any]]:
    table, wanted = call.table, call.required("field")
    fields = table.spec().fields
    found = next((field.name for field in fields if field.name == wanted), None)
    if found is None and (wanted in table.schema().column_names or "(" in wanted):
        given = _transform(call, table, wanted)
        same = (field.name for field in fields if (field.source_id, field.transform) == (given.source_id, given.transform))
        found = next(same, None)
    if found is None:
        names = ", ".join(field.name for field in fields) or "none"
        raise PolicyError(f"{call.procedure}: table {call.name} has no partition field {wanted!r}; it has {names}")
    table.update_spec().remove_field(found).commit()
    return [(table.spec().spec_id, found)]


def _set_write_order(call: Call) -> Sequence[Sequence[Any]]:
    table, text = call.table, call["sort_order"] or ""
    update = table.update_sort_order()
    for given in BETWEEN.split(text) if text.strip() else []:
        match = _ORDER.fullmatch(given.strip())
        if match is None:
            raise PolicyError(f"{call.procedure}: {given.strip()!r} is not a sort key: use 'column desc nulls last', or a transform")
        field = _transform(call, table, match["term"], done="sorted")
        direction, null_order = direction_of(match)
        add = update.desc if direction == SortDirection.DESC else update.asc
        add(_column(table.schema(), field), field.transform, null_order)
    update.commit()
    return [(table.sort_order().order_id,)]


def _set_identifier_fields(call: Call) -> Sequence[Sequence[Any]]:
    table = call.table
    return _identified(call, table, _columns(call, table))


def _drop_identifier_fields(call: Call) -> Sequence[Sequence[Any]]:
    table = call.table
    known, dropped = table.schema().identifier_field_names(), _columns(call, table)
    others = sorted(dropped - known)
    if others:
        raise PolicyError(f"{call.procedure}: {others[0]!r} is not an identifier field of table {call.name}; it has {_listed(known)}")
    return _identified(call, table, known - dropped)


def _columns(call: Call, table: Table) -> set[str]:
    """Return the columns that are given, by their names in the schema."""
    schema, case_sensitive = table.schema(), settings_of(call.session.spark).case_sensitive
    fields = [find_column(schema, name or "", case_sensitive=case_sensitive) for name in call.required("fields")]
    return {str(schema.find_column_name(field.field_id)) for field in fields}


def _identified(call: Call, table: Table, columns: set[str]) -> Sequence[Sequence[Any]]:
    update = table.update_schema()
    update.set_identifier_fields(*columns)
    try:
        update.commit()
    except ValueError as e:  # PyIceberg's
        raise PolicyError(
            f"{call.procedure}: table {call.name} cannot be identified by {_listed(columns)}: an identifier field is NOT NULL, as are the "
            "structs that it is in, has a single value, and is neither a float nor a double"
        ) from e
    return [(_listed(table.schema().identifier_field_names()),)]


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(sorted(columns)) or "none"


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "add_partition_field": Procedure(
        description="Partition new rows by a column or a transform too",
        parameters={"table": "string", "transform": "string"},
        optional={"name": "string"},
        result=_SPEC,
        run=_add_partition_field,
    ),
    "drop_partition_field": Procedure(
        description="Partition new rows no longer by a field, which is given by name or transform",
        parameters={"table": "string", "field": "string"},
        optional={},
        result=_SPEC,
        run=_drop_partition_field,
    ),
    "set_write_order": Procedure(
        description="Sort new rows within files by 'column desc nulls last, bucket(4, id)'; without an order, not at all",
        parameters={"table": "string"},
        optional={"sort_order": "string"},
        result="order_id int not null",
        run=_set_write_order,
    ),
    "set_identifier_fields": Procedure(
        description="Say which columns identify a row, in place of those that did",
        parameters={"table": "string", "fields": "array<string>"},
        optional={},
        result=_IDENTIFIED,
        run=_set_identifier_fields,
    ),
    "drop_identifier_fields": Procedure(
        description="Let columns identify a row no longer",
        parameters={"table": "string", "fields": "array<string>"},
        optional={},
        result=_IDENTIFIED,
        run=_drop_identifier_fields,
    ),
}
