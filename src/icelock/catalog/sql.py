"""The SQL catalog (sqlite; the tables are those of Java's JdbcCatalog and PyIceberg's SqlCatalog).

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.sql.SqlCatalog``.

Not here: the rules (``catalog.base``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from sqlalchemy import event, insert
from sqlalchemy.exc import IntegrityError as SqlIntegrityError
from sqlalchemy.orm import Session

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Identifier

_BUSY_MS: Final = 60_000


class SqlCatalog(EncryptedCatalog, IcebergSqlCatalog):
    """PyIceberg's ``SqlCatalog`` whose tables can be encrypted."""

    def create_table(  # noqa: PLR0913 - PyIceberg's signature
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> IcebergTable:
        """Create a table; it is encrypted when ``encryption.key-id`` is among its properties.

        Raises:
            PolicyError: settings that cannot be; nothing was made.
            KeyUnavailableError: no KMS, or the KMS does not know the key; nothing was made.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        wanted = self.check_create(identifier, properties or {})
        if names.ENCRYPTION_KEY_ID not in wanted:
            return super().create_table(identifier, schema, location, partition_spec, sort_order, wanted)
        namespace_identifier = Catalog.namespace_from(identifier)
        table_name = Catalog.table_name_from(identifier)
        if not self.namespace_exists(namespace_identifier):
            msg = f"Namespace does not exist: {namespace_identifier}"
            raise NoSuchNamespaceError(msg)
        if self.table_exists(identifier):
            msg = f"Table {'.'.join(Catalog.identifier_to_tuple(identifier))} already exists"
            raise TableAlreadyExistsError(msg)
        namespace = Catalog.namespace_to_string(namespace_identifier)
        metadata = self.new_metadata(
            schema=schema,
            location=self._resolve_table_location(location, namespace, table_name),
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=wanted,
        )
        metadata_location = self.first_metadata_location(metadata)
        self._write_metadata(metadata, self._load_file_io(location=metadata_location), metadata_location)
        self._insert_row(namespace, table_name, metadata_location)
        return self.load_table(identifier)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> IcebergTable:  # noqa: FBT001, FBT002
        """Make a table of a metadata file that is there; of an encrypted one every key must resolve and open.

        Raises:
            KeyUnavailableError, IntegrityError: a key is missing, cannot be opened, or was changed.
            PolicyError: the metadata breaks a rule.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        table = ".".join(Catalog.identifier_to_tuple(identifier))
        self.check_register(self.read_metadata_file(metadata_location), table=table, location=metadata_location)
        return super().register_table(identifier, metadata_location, overwrite)

    def _init_catalog(self) -> None:
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _wait_for_locks)
        super()._init_catalog()

    def _insert_row(self, namespace: str, table_name: str, metadata_location: str) -> None:
        row = self._create_table_row(namespace, table_name, metadata_location)
        with Session(self.engine) as session:
            try:
                session.execute(insert(IcebergTables).values(**row))
                session.commit()
            except SqlIntegrityError as e:
                self._load_file_io(location=metadata_location).delete(metadata_location)
                msg = f"Table {namespace}.{table_name} already exists"
                raise TableAlreadyExistsError(msg) from e

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> IcebergTable:
        location = orm_table.metadata_location
        if not location:
            msg = f"Table {orm_table.table_namespace}.{orm_table.table_name} has no metadata location"
            raise NoSuchTableError(msg)
        identifier = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return self.load_from_metadata(identifier, location)


def _wait_for_locks(connection: Any, record: object) -> None:
    """Let a writer of sqlite wait for another one instead of failing after five seconds with "database is locked"."""
    del record
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")


class InMemoryCatalog(SqlCatalog):
    """A catalog in this process's memory, for tests of users; ``warehouse`` is a folder or bucket."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **{**properties, "uri": "sqlite:///:memory:"})
