"""Partition fields whose source column was dropped: Java forbids it for the default spec only, so tables have such older specs.

A dropped column's type is that of the newest schema of the table that had it. Without a type no manifest of the spec can be written
again, which deletes, overwrites and merges do.

Not here: the default spec's and sort order's columns, which cannot be dropped (``metadata.updates``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.partitioning import PartitionSpec


def with_sources(schema: Schema, specs: Iterable[PartitionSpec], schemas: Iterable[Schema]) -> Schema:
    """Return a schema that has the source columns of specs, those that were dropped at its end.

    Args:
        schema: the table's present one; returned as it is if it has all of them.
        specs: partition specs of the table.
        schemas: all of the table that there are.
    """
    missing = {field.source_id for spec in specs for field in spec.fields} - set(schema.field_ids)
    if not missing:
        return schema
    ordered = sorted(schemas, key=lambda known: known.schema_id)
    dropped = {field_id: known.find_type(field_id) for known in ordered for field_id in missing.intersection(known.field_ids)}
    added = (NestedField(field_id, f"dropped column {field_id}", dropped[field_id], required=False) for field_id in sorted(dropped))
    return Schema(*schema.fields, *added, schema_id=schema.schema_id)
