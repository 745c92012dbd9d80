"""Tables that are created or replaced in one commit, with everything that was staged.

**Created**: nothing is visible until the transaction commits. Data and metadata files are written where the table will be; there is no
metadata.json and no row in the catalog yet. If the commit certainly fails, the files are deleted.

**Replaced** by another schema, partitioning and content: same identity, history and keys (Java's replaceTransaction). The main branch is
removed, so the table is empty until the transaction appends; snapshots, other branches and tags stay, and old snapshots read as before.
Properties are added to the existing ones. The master key stays, since old snapshots need it.

Not here: the first metadata (``catalog.create``), the row (``catalog.commit.store``), ids (``metadata.fresh_ids``), the rules
(``table.guard.rules``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import update as ice
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortOrder, assign_fresh_sort_order_ids

from icelock.errors import PolicyError
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.fresh_ids import fresh_schema, fresh_spec
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.commit.protocol import Stage
from icelock.table.commit.staged import Staged
from icelock.table.table import Table
from icelock.table.transaction import EncryptedTransaction


class UncommittedTable(Table):
    """A table that its catalog does not have yet; only a transaction writes to it."""

    is_new = True

    def refresh(self) -> NoReturn:
        """Refused: there is nothing to load."""
        self._refuse_new()

    def scan(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: there is nothing to read."""
        del args, kwargs
        self._refuse_new()

    def follow(self, fresh: IcebergTable) -> NoReturn:
        """Refused: another table has the name now."""
        raise TableAlreadyExistsError(f"Table {'.'.join(fresh.name())} already exists: another writer created it meanwhile")

    def transaction(self) -> CreateTransaction:
        """Return the transaction that creates the table."""
        return CreateTransaction(self)

    def _autocommit(self) -> NoReturn:
        """Refused: a change beside the transaction that creates the table would create it without the rest."""
        self._refuse_new()

    def _do_commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
        del requirements  # of an existing table
        with self.catalog.turn(self.name()) as turn:  # type: ignore[attr-defined]  # an EncryptedCatalog
            turn.stage = Stage.PREPARING
            if turn.location is not None:
                self.follow(self)
            try:
                super()._do_commit((*initial_updates(self.metadata), *updates), (ice.AssertCreate(),))
            except TableAlreadyExistsError:
                turn.stage = Stage.PREPARING  # the catalog has refused it
                raise

    def _refuse_new(self) -> NoReturn:
        raise PolicyError(
            f"table {'.'.join(self.name())} does not exist yet: commit the transaction that creates it, and use the table that it returns"
        )


class CreateTransaction(EncryptedTransaction):
    """A transaction that creates a table with its first snapshots."""

    _table: UncommittedTable

    def __init__(self, table: UncommittedTable, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        self._first = table.metadata
        # There is always one update: the table is created even if nothing is staged.
        self.staged.updates = (ice.AssignUUIDUpdate(uuid=table.metadata.table_uuid),)

    def staged_metadata(self) -> bytes:
        """Return the first metadata as JSON, without staged updates: for the catalog's ``resume_create_transaction``."""
        return canonical_json(self._first).encode()

    def commit_transaction(self) -> Table:
        """Create the table.

        Raises:
            TableAlreadyExistsError: it exists; the files of this transaction were deleted.
            PolicyError, CommitStateUnknownException: as for other transactions.
        """
        if self.staged.updates:
            super().commit_transaction()
        made = self._table
        return Table(made.name(), made.metadata, made.metadata_location, made.storage, made.catalog, encryption=made.encryption)


def initial_updates(metadata: TableMetadataV3) -> tuple[Any, ...]:
    """Return the updates that create the metadata of an empty table."""
    return (
        ice.UpgradeFormatVersionUpdate(format_version=metadata.format_version),
        ice.AddSchemaUpdate(schema_=metadata.schema()),
        ice.SetCurrentSchemaUpdate(schema_id=-1),
        ice.AddPartitionSpecUpdate(spec=metadata.spec()),
        ice.SetDefaultSpecUpdate(spec_id=-1),
        ice.AddSortOrderUpdate(sort_order=metadata.sort_order()),
        ice.SetDefaultSortOrderUpdate(sort_order_id=-1),
        ice.SetLocationUpdate(location=metadata.location),
        ice.SetPropertiesUpdate(updates=metadata.properties),
    )


def stage_replacement(staged: Staged, schema: Schema, spec: PartitionSpec, order: SortOrder, properties: Mapping[str, str]) -> None:
    """Stage that a table becomes empty, with another schema; conflicts with other writers' changes of schema, spec or order.

    ``spec`` and ``order`` refer to ids of ``schema``. ``properties`` are added to the table's; nothing may be staged before.

    Raises:
        PolicyError: invalid properties; nothing was staged.
        ValueError: a source column does not exist (PyIceberg's error).
    """
    metadata = staged.metadata
    fresh = fresh_schema(schema, metadata.schema(), metadata.last_column_id)
    updates: tuple[Any, ...] = (
        ice.RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH),
        *_schema(metadata, fresh),
        *_spec(metadata, fresh_spec(spec, schema, fresh, metadata.partition_specs, metadata.last_partition_id or 999)),
        *_order(metadata, assign_fresh_sort_order_ids(order, schema, fresh)),
        ice.SetPropertiesUpdate(updates=dict(properties)),
    )
    staged.stage(updates, _form_of(metadata))


def _form_of(metadata: TableMetadataV3) -> tuple[Any, ...]:
    """Return the requirements that nobody changed schemas, specs and orders meanwhile: new ids continue the present ones."""
    return (
        ice.AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        ice.AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        ice.AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
        ice.AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        ice.AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
    )


def _schema(metadata: TableMetadataV3, fresh: Schema) -> tuple[Any, ...]:
    ids = set(fresh.identifier_field_ids)
    for known in metadata.schemas:
        if known.as_struct() == fresh.as_struct() and set(known.identifier_field_ids) == ids:
            return (ice.SetCurrentSchemaUpdate(schema_id=known.schema_id),)
    number = 1 + max(known.schema_id for known in metadata.schemas)
    added = Schema(*fresh.fields, schema_id=number, identifier_field_ids=fresh.identifier_field_ids)
    return ice.AddSchemaUpdate(schema_=added), ice.SetCurrentSchemaUpdate(schema_id=-1)


def _spec(metadata: TableMetadataV3, fresh: PartitionSpec) -> tuple[Any, ...]:
    for known in metadata.partition_specs:
        if known.fields == fresh.fields:
            return (ice.SetDefaultSpecUpdate(spec_id=known.spec_id),)
    number = 1 + max(known.spec_id for known in metadata.partition_specs)
    return ice.AddPartitionSpecUpdate(spec=PartitionSpec(*fresh.fields, spec_id=number)), ice.SetDefaultSpecUpdate(spec_id=-1)


def _order(metadata: TableMetadataV3, fresh: SortOrder) -> tuple[Any, ...]:
    for known in metadata.sort_orders:
        if known.fields == fresh.fields:
            return (ice.SetDefaultSortOrderUpdate(sort_order_id=known.order_id),)
    number = 1 + max((known.order_id for known in metadata.sort_orders), default=0) if fresh.fields else 0
    return ice.AddSortOrderUpdate(sort_order=SortOrder(*fresh.fields, order_id=number)), ice.SetDefaultSortOrderUpdate(sort_order_id=number)
