"""The Hive catalog: encrypted tables that Java Iceberg's Hive catalog shares, both ways.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.hive.HiveCatalog``. Needs the extra ``catalog.hive.catalog`` (thrift).

The row in the metastore has the table's key id, key length and the hash of its metadata file; they are written on every
create, register and commit and compared on every load, so a metadata file that was edited, exchanged or rolled back is
refused (``catalog.hive.parameters``).

Not here: rules (``catalog.base``), commits (``catalog.hive.commit``), locks (``catalog.hive.lock``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyiceberg.catalog.hive import DEFAULT_PROPERTIES
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import StagedTable

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.outcome import delete_on_failure, discard
from icelock.catalog.commit.pointer import MetadataForm
from icelock.catalog.hive.commit import HiveRows, metadata_location
from icelock.catalog.hive.parameters import check_row, warn_beyond_bmp
from icelock.errors import CommitError, PolicyError
from icelock.table.guard import check_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier


class HiveCatalog(EncryptedCatalog, HiveRows):
    """PyIceberg's ``HiveCatalog`` whose tables can be encrypted. Safe to share between threads."""

    table_defaults: ClassVar[Mapping[str, str]] = DEFAULT_PROPERTIES

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._require_hash = names.flag(properties, names.HIVE_REQUIRE_HASH, default=True)

    def _make(self, staged: StagedTable) -> IcebergTable:
        """Write a new encrypted table's metadata file and its row, and return the table."""
        row = self._convert_iceberg_into_hive(staged)
        with delete_on_failure(staged):
            form = MetadataForm.of(staged.metadata)
            warn_beyond_bmp(staged.metadata, table=".".join(staged.name()), text=form.text)
            self._write_form(form, staged.io, staged.metadata_location)
        return self._insert(row, staged, ours=True)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> IcebergTable:
        """Make a table of a metadata file that is there; of an encrypted one every key must resolve, and its hash is kept.

        Raises:
            PolicyError: ``overwrite``, or the metadata breaks a rule.
            KeyUnavailableError, IntegrityError: a key is missing, cannot be opened, or was changed.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        if overwrite:
            raise PolicyError(f"table {identifier}: register_table with overwrite is not supported; drop the table first (its files stay)")
        database, name = self.free_name(identifier)
        metadata = self.read_metadata_file(metadata_location)
        self.check_register(metadata, table=f"{database}.{name}", location=metadata_location)
        staged = self._staged(database, name, metadata, metadata_location)
        return self._insert(self._convert_iceberg_into_hive(staged), staged, ours=False)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> IcebergTable:
        """Rename a table under its lock, so that no commit is lost; all parameters stay.

        Raises:
            NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: as PyIceberg.
            CommitFailedException: another writer holds the lock.
        """
        self.free_name(to_identifier)
        database, name = self.identifier_to_database_and_table(from_identifier, NoSuchTableError)
        with self._connected() as client, self.table_lock(client, database, name):
            return super().rename_table(from_identifier, to_identifier)

    def _convert_hive_into_iceberg(self, table: Any) -> IcebergTable:
        identifier = (table.dbName, table.tableName)
        location = metadata_location(table)
        metadata, digest = self._read(location)
        # The row first: what a file says that was exchanged does not matter.
        name = ".".join(identifier)
        check_row(table.parameters, metadata, table=name, location=location, file_digest=digest, require_hash=self._require_hash)
        check_metadata(metadata, location=location)
        return self.table_of(identifier, metadata, location)

    def _insert(self, row: Any, staged: StagedTable, *, ours: bool) -> IcebergTable:
        try:
            with self._connected() as client:
                self.persist(client, row, staged, replaces=None, ours=ours)
        except CommitFailedException as e:
            if ours:
                discard(staged)
            raise CommitError(f"table {'.'.join(staged.name())} was not made: {e}") from e
        return self.load_table(staged.name())

    def free_name(self, identifier: str | Identifier) -> tuple[str, str]:
        """Return database and table of a name that is free, in a namespace that is there.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        database, name = self.identifier_to_database_and_table(identifier)
        if not self.namespace_exists(database):
            raise NoSuchNamespaceError(f"Namespace does not exist: {database}")
        try:
            with self._client as client:
                self._get_hive_table(client, database, name)
        except NoSuchTableError:
            self.pins.gone((database, name))
            return database, name
        raise TableAlreadyExistsError(f"Table {database}.{name} already exists")

    def _staged(self, database: str, name: str, metadata: TableMetadata, location: str) -> StagedTable:
        io = self._load_file_io(location=location)
        return StagedTable(identifier=(database, name), metadata=metadata, metadata_location=location, io=io, catalog=self)
