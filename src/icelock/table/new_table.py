"""A table that is being made: nothing is visible until its transaction commits, with all that was staged, in one go.

Data and metadata files are written where the table will be; there is no metadata.json and no row of the catalog yet. If the commit
certainly fails, the files go.

Not here: the first metadata (``catalog.base``), the row (``catalog``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssignUUIDUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    UpgradeFormatVersionUpdate,
)

from icelock.errors import PolicyError
from icelock.metadata.canonical_json import canonical_json
from icelock.table.commit.protocol import Stage
from icelock.table.table import Table
from icelock.table.transaction import EncryptedTransaction

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

    from icelock.metadata.table_metadata import TableMetadataV3


class NewTable(Table):
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
        """Find that another table has the name now.

        Raises:
            TableAlreadyExistsError: always.
        """
        raise TableAlreadyExistsError(f"Table {'.'.join(fresh.name())} already exists: another writer made it meanwhile")

    def transaction(self) -> CreateTransaction:
        """Return a transaction that makes the table."""
        return CreateTransaction(self)

    def _do_commit(self, updates: tuple[Any, ...], requirements: tuple[Any, ...]) -> None:
        del requirements  # about a table that is there
        with self.catalog.turn(self.name()) as turn:  # type: ignore[attr-defined]  # an EncryptedCatalog
            turn.stage = Stage.PREPARING
            if turn.location is not None:
                self.follow(self)
            try:
                super()._do_commit((*initial_updates(self.metadata), *updates), (AssertCreate(),))
            except TableAlreadyExistsError:
                turn.stage = Stage.PREPARING  # nothing came of it
                raise

    def _refuse_new(self) -> NoReturn:
        raise PolicyError(
            f"table {'.'.join(self.name())} is not there yet: commit the transaction that makes it, and use the table that it returns"
        )


class CreateTransaction(EncryptedTransaction):
    """A transaction that makes a table with its first snapshots."""

    _table: NewTable

    def __init__(self, table: NewTable, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        self._first = table.metadata
        # There is always one update: a table is made even if nothing is staged.
        self.staged.updates = (AssignUUIDUpdate(uuid=table.metadata.table_uuid),)

    def staged_metadata(self) -> bytes:
        """Return the first metadata as JSON, without what was staged: for the catalog's ``resume_create_transaction``."""
        return canonical_json(self._first).encode()

    def commit_transaction(self) -> Table:
        """Make the table.

        Raises:
            TableAlreadyExistsError: it is there; the files of this transaction were deleted.
            PolicyError, CommitStateUnknownException: as for other transactions.
        """
        if self.staged.updates:
            super().commit_transaction()
        made = self._table
        return Table(made.name(), made.metadata, made.metadata_location, made.storage, made.catalog, encryption=made.encryption)


def initial_updates(metadata: TableMetadataV3) -> tuple[Any, ...]:
    """Return the updates that lead from nothing to the metadata of an empty table."""
    return (
        UpgradeFormatVersionUpdate(format_version=metadata.format_version),
        AddSchemaUpdate(schema_=metadata.schema()),
        SetCurrentSchemaUpdate(schema_id=-1),
        AddPartitionSpecUpdate(spec=metadata.spec()),
        SetDefaultSpecUpdate(spec_id=-1),
        AddSortOrderUpdate(sort_order=metadata.sort_order()),
        SetDefaultSortOrderUpdate(sort_order_id=-1),
        SetLocationUpdate(location=metadata.location),
        SetPropertiesUpdate(updates=metadata.properties),
    )
