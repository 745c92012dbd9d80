"""Facts of encrypted tables in a SQL database, beside their rows, so that another metadata.json is noticed.

    icelock_table_facts: catalog_name, table_namespace, table_name | metadata_location, key_id, data_key_length, metadata_hash

The row is written in the transaction that makes the table's own row name the metadata file; other clients (Java's JdbcCatalog, PyIceberg's
SqlCatalog) do not know it. Key id and key length are the table's. The hash (``metadata.canonical_json``) is that of the file named
beside it: after a commit of another client it proves nothing, until icelock commits again. Both rows are read in one
statement, so a reader never compares a file with the facts of another one. The first writer creates ``icelock_table_facts``.

Not here: what is compared (``catalog.trust.facts``), when they are written (``catalog.sql.catalog``).
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, and_, delete, insert, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError

from icelock import properties as names
from icelock.catalog.trust.facts import Facts
from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import as_encrypted

NAME: Final = "icelock_table_facts"
_FACTS: Final = Table(
    NAME,
    MetaData(),
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("metadata_location", String(1000), nullable=False),
    Column("key_id", String(2056), nullable=False),
    Column("data_key_length", String(8)),
    Column("metadata_hash", String(64), nullable=False),
)
_SAME_TABLE: Final = and_(
    _FACTS.c.catalog_name == IcebergTables.catalog_name,
    _FACTS.c.table_namespace == IcebergTables.table_namespace,
    _FACTS.c.table_name == IcebergTables.table_name,
)


class TableFacts:
    """The facts of one catalog's tables. Safe to share between threads."""

    def __init__(self, engine: Engine, catalog: str) -> None:
        self._engine = engine
        self._catalog = catalog
        self._there = False

    def ensure(self) -> None:
        """Create the table of facts if it can be created; outside any transaction."""
        if self._is_there():
            return
        try:
            _FACTS.create(self._engine, checkfirst=True)
            self._there = True
        except SQLAlchemyError:
            # Another process created it at this moment, or the user may not; then the first writer gets an error.
            self._is_there()

    def write(
        self, connection: Connection, identifier: Identifier, metadata: TableMetadata, location: str, *, digest: str | None = None
    ) -> None:
        """Write the facts of a metadata file within a transaction; a plain table has none. ``digest`` is its hash, if that is known.

        A table that has facts becomes plain only when its conversion is undone: any other commit on one whose metadata is plain is refused
        when the turn loads it.

        Raises:
            CommitFailedException: there is no table for them.
        """
        encrypted = as_encrypted(metadata)
        if encrypted is None:
            if self._there:
                connection.execute(delete(_FACTS).where(*self._row(identifier)))
            return
        if not self._there:
            raise CommitFailedException(
                f"the database has no table {NAME} for facts of encrypted tables, and its user may not create it: grant that once"
            )
        values = {
            "metadata_location": location,
            "key_id": metadata.properties[names.ENCRYPTION_KEY_ID],
            "data_key_length": metadata.properties.get(names.DATA_KEY_LENGTH),
            "metadata_hash": digest or metadata_hash(encrypted),
        }
        if connection.execute(update(_FACTS).where(*self._row(identifier)).values(**values)).rowcount < 1:
            connection.execute(insert(_FACTS).values(**self._key(identifier), **values))

    def read(self, identifier: Identifier) -> Facts | None:
        """Return a table's facts; None if there is no table of facts, or the table has no row."""
        if not self._is_there():
            return None
        key = self._key(identifier)
        facts = (_FACTS.c.metadata_location, _FACTS.c.key_id, _FACTS.c.data_key_length, _FACTS.c.metadata_hash)
        found = (
            select(IcebergTables.metadata_location, *facts)
            .outerjoin(_FACTS, _SAME_TABLE)
            .where(*(getattr(IcebergTables, name) == value for name, value in key.items()))
        )
        with self._engine.connect() as connection:
            row = connection.execute(found).first()
        if row is None:
            return None
        named, location, key_id, length, digest = row
        return Facts(
            named=named,
            metadata_location=location,
            key_id=key_id,
            data_key_length=length,
            metadata_hash=digest,
            where="the database",
            anew=f"delete its row in {NAME}",
        )

    def drop(self, identifier: Identifier) -> None:
        """Delete the facts of a table that is gone."""
        if self._is_there():
            with self._engine.begin() as connection:
                connection.execute(delete(_FACTS).where(*self._row(identifier)))

    def rename(self, old: Identifier, new: Identifier) -> None:
        """Give the facts the table's new name."""
        if self._is_there():
            with self._engine.begin() as connection:
                connection.execute(delete(_FACTS).where(*self._row(new)))
                connection.execute(update(_FACTS).where(*self._row(old)).values(**self._key(new)))

    def _is_there(self) -> bool:
        self._there = self._there or inspect(self._engine).has_table(NAME)
        return self._there

    def _key(self, identifier: Identifier) -> dict[str, str]:
        return {
            "catalog_name": self._catalog,
            "table_namespace": Catalog.namespace_to_string(Catalog.namespace_from(identifier)),
            "table_name": Catalog.table_name_from(identifier),
        }

    def _row(self, identifier: Identifier) -> tuple[Any, ...]:
        return tuple(_FACTS.c[name] == value for name, value in self._key(identifier).items())
