"""Replacing a table by another schema, partitioning and content: same identity, history and keys (Java's replaceTransaction).

The main branch ends, so the table is empty until the transaction appends; snapshots, other branches and tags stay, and old snapshots read
as before. Properties are added to those that are there. The master key stays, since old snapshots need it.

Not here: ids (``metadata.fresh_ids``), the rules (``table.guard``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortOrder, assign_fresh_sort_order_ids
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
)

from icelock.metadata.fresh_ids import fresh_schema, fresh_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icelock.metadata.table_metadata import TableMetadataV3
    from icelock.table.commit.staged import Staged


def stage_replacement(staged: Staged, schema: Schema, spec: PartitionSpec, order: SortOrder, properties: Mapping[str, str]) -> None:
    """Stage that a table becomes an empty one of another form; conflicts with other writers' changes of its form.

    Args:
        staged: of a transaction with nothing staged.
        schema: the new columns; ``spec`` and ``order`` are about its ids.
        spec: the new partitioning.
        order: the new sort order.
        properties: added to the table's.

    Raises:
        PolicyError: properties that cannot be; nothing was staged.
        ValueError: a source column that is not there (PyIceberg's error).
    """
    metadata = staged.metadata
    fresh = fresh_schema(schema, metadata.schema(), metadata.last_column_id)
    updates: tuple[Any, ...] = (
        RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH),
        *_schema(metadata, fresh),
        *_spec(metadata, fresh_spec(spec, schema, fresh, metadata.partition_specs, metadata.last_partition_id or 999)),
        *_order(metadata, assign_fresh_sort_order_ids(order, schema, fresh)),
        SetPropertiesUpdate(updates=dict(properties)),
    )
    staged.stage(updates, _form_of(metadata))


def _form_of(metadata: TableMetadataV3) -> tuple[Any, ...]:
    """Return the requirements that nobody else changed schemas, specs and orders: new ids count from the present ones."""
    return (
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
    )


def _schema(metadata: TableMetadataV3, fresh: Schema) -> tuple[Any, ...]:
    ids = set(fresh.identifier_field_ids)
    for known in metadata.schemas:
        if known.as_struct() == fresh.as_struct() and set(known.identifier_field_ids) == ids:
            return (SetCurrentSchemaUpdate(schema_id=known.schema_id),)
    number = 1 + max(known.schema_id for known in metadata.schemas)
    added = Schema(*fresh.fields, schema_id=number, identifier_field_ids=fresh.identifier_field_ids)
    return AddSchemaUpdate(schema_=added), SetCurrentSchemaUpdate(schema_id=-1)


def _spec(metadata: TableMetadataV3, fresh: PartitionSpec) -> tuple[Any, ...]:
    for known in metadata.partition_specs:
        if known.fields == fresh.fields:
            return (SetDefaultSpecUpdate(spec_id=known.spec_id),)
    number = 1 + max(known.spec_id for known in metadata.partition_specs)
    return AddPartitionSpecUpdate(spec=PartitionSpec(*fresh.fields, spec_id=number)), SetDefaultSpecUpdate(spec_id=-1)


def _order(metadata: TableMetadataV3, fresh: SortOrder) -> tuple[Any, ...]:
    for known in metadata.sort_orders:
        if known.fields == fresh.fields:
            return (SetDefaultSortOrderUpdate(sort_order_id=known.order_id),)
    number = 1 + max((known.order_id for known in metadata.sort_orders), default=0) if fresh.fields else 0
    return AddSortOrderUpdate(sort_order=SortOrder(*fresh.fields, order_id=number)), SetDefaultSortOrderUpdate(sort_order_id=number)
