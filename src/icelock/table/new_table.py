"""A table that is being created: nothing is visible until its transaction commits everything that was staged, at once.

Data and metadata files are written where the table will be; there is no metadata.json and no row in the catalog yet. If the commit
certainly fails, the files are deleted.

Not here: the first metadata (``catalog.create``), the row (``catalog.commit.store``).
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import update as ice

from icelock.errors import PolicyError
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.table.commit.protocol import Stage
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
