"""The SQL catalog on sqlite or PostgreSQL; its tables are those of Java's JdbcCatalog and PyIceberg's SqlCatalog.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.sql.SqlCatalog``. PostgreSQL needs the extra ``postgres``
(psycopg) and a ``uri`` like ``postgresql+psycopg://user:password@host/database``.

Not here: the rules (``catalog.base``), rows and commits (``catalog.sql.store``).
"""

from __future__ import annotations

import weakref
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import NoSuchTableError, NotInstalledError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Identifier
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.sql import store
from icelock.catalog.sql.facts import TableFacts
from icelock.catalog.sql.store import SqlStore
from icelock.catalog.trust.facts import check_facts
from icelock.errors import FormatError, PolicyError


class SqlCatalog(EncryptedCatalog, IcebergSqlCatalog):
    """PyIceberg's ``SqlCatalog`` whose tables can be encrypted. Safe to share between threads."""

    _store: SqlStore

    def __init__(self, name: str, **properties: str) -> None:
        if not str(properties.get("uri", "")).startswith("sqlite"):
            # After a restart of the server, a connection of the pool is tried before it is used.
            properties = {"pool_pre_ping": "true", **properties}
        try:
            super().__init__(name, **properties)
        except ModuleNotFoundError as e:
            raise NotInstalledError(
                f"catalog {name} needs {e.name} for its uri, which is not installed: pip install 'icelock[postgres]'"
            ) from e
        except ArgumentError:
            # Its text may have the password of the uri in it.
            scheme = str(properties.get("uri", "")).partition(":")[0][:20]
            raise PolicyError(
                f"catalog {name}: its uri, which begins with {scheme!r}, is unknown to SQLAlchemy: write it as "
                "sqlite:////data/catalog.db or postgresql+psycopg://user:password@host/database"
            ) from None
        # Else connections of a catalog that nobody closed stay open until the database drops them.
        weakref.finalize(self, self.engine.dispose)

    def _make_store(self) -> SqlStore:
        return SqlStore(self)

    def _init_catalog(self) -> None:
        self._store.facts = TableFacts(self.engine, self.name)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _wait_for_locks)
        try:
            super()._init_catalog()
        except SQLAlchemyError:
            # Another process makes the tables at this moment.
            super()._init_catalog()

    def load_from_metadata(self, identifier: Identifier, metadata_location: str) -> IcebergTable:
        """Read and check the metadata file of a table, and compare it with the facts in the database; a newer one if there is one by now.

        Raises:
            IntegrityError: the file is not the one that was committed.
            FormatError, PolicyError: the row names no file, or see ``EncryptedCatalog``.
        """
        facts = self._store.facts.read(identifier)
        for location in (metadata_location, None if facts is None else facts.named):
            _check_named(location, table=".".join(identifier))
        if facts is None or not facts.named:
            return super().load_from_metadata(identifier, metadata_location)
        table = super().load_from_metadata(identifier, facts.named)
        check_facts(facts, table.metadata, table=".".join(identifier), location=facts.named, hash_of=self.metadata_cache.hash_of)
        return table

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> IcebergTable:
        location = orm_table.metadata_location
        if location is None:
            raise NoSuchTableError(f"Table {orm_table.table_namespace}.{orm_table.table_name} has no metadata location")
        identifier = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return self.load_from_metadata(identifier, location)


def _wait_for_locks(connection: Any, record: object) -> None:
    """Let a writer of sqlite wait for another one instead of failing after five seconds with "database is locked"."""
    del record
    connection.execute(f"PRAGMA busy_timeout = {store.LOCK_WAIT_MS}")


def _check_named(location: object, *, table: str) -> None:
    """Check what a row names as a table's metadata file; None is nothing to check. SQLite keeps any value in a column of text.

    Raises:
        FormatError: it is not text, or empty.
    """
    if location is not None and not (isinstance(location, str) and location):
        kind = "empty" if location == "" else f"a {type(location).__name__}"
        raise FormatError(
            f"the row of table {table} in the catalog's database is damaged: its metadata_location is {kind}, expected the name of a file; "
            "restore the row, or remove it and register_table the newest metadata file"
        )
