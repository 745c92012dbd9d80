"""The SQL catalog on sqlite or PostgreSQL; its tables are those of Java's JdbcCatalog and PyIceberg's SqlCatalog.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.sql.SqlCatalog``. PostgreSQL needs the extra ``postgres``
(psycopg) and a ``uri`` like ``postgresql+psycopg://user:password@host/database``.

A table's row is replaced under the database's own lock. A turn is one transaction: it takes the lock (PostgreSQL: ``SELECT ... FOR UPDATE``
of the table's row; sqlite: ``BEGIN IMMEDIATE``, which keeps writers of the whole database waiting, readers not), and a commit ends it with
``UPDATE ... WHERE metadata_location =`` what was read. So every other writer waits, PyIceberg's and Java's too, and a writer without the
lock is not overwritten.

Nothing has happened before the database's COMMIT. If that fails, the row is read under its lock on a new connection: as long as the failed
transaction may still end one way or the other it keeps the lock, so what is read then is final. A new row has no lock to wait for: if it is
not there, the outcome is unknown, and so it is if the database cannot be reached.

Not here: the rules (``catalog.base``), facts of encrypted tables (``catalog.sql.facts``).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, NotInstalledError, TableAlreadyExistsError
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Identifier
from sqlalchemy import Connection, Select, event, insert, select, update
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import IntegrityError as SqlIntegrityError

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.pointer import PointerStore, PointerTurn
from icelock.catalog.sql.facts import TableFacts
from icelock.catalog.trust.facts import check_facts
from icelock.catalog.trust.kept import Kept
from icelock.errors import FormatError, PolicyError

logger = logging.getLogger(__name__)
LOCK_WAIT_MS: Final = 60_000


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
                f"catalog {name} needs {e.name} for its uri, which is not installed: "
                "add icelock's extra, in a clone by pip install '.[postgres]'"
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
            self._init_again()

    def _init_again(self) -> None:
        try:
            super()._init_catalog()
        except SQLAlchemyError as e:
            uri = self.engine.url.render_as_string(hide_password=True)
            raise ConnectionError(
                f"catalog {self.name}: its database {uri} cannot be used: {_first_line(e)}; correct its uri, see that the folder or server "
                "is there, and that this user may read and write there"
            ) from e

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
    connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")


def _check_named(location: object, *, table: str) -> None:
    """Refuse a row whose metadata file is empty or no text; None is nothing to check. SQLite keeps any value in a column of text."""
    if location is not None and not (isinstance(location, str) and location):
        kind = "empty" if location == "" else f"a {type(location).__name__}"
        raise FormatError(
            f"the row of table {table} in the catalog's database is damaged: its metadata_location is {kind}, expected the name of a file; "
            "restore the row, or remove it and register_table the newest metadata file"
        )


class SqlStore(PointerStore[SqlCatalog]):
    """The rows of ``iceberg_tables``, and the facts beside them."""

    server: ClassVar[str] = "the database"

    facts: TableFacts
    """What is kept of encrypted tables; the catalog sets it as soon as there is a database."""

    def names_for_any(self, locations: Iterable[str]) -> bool:
        """Whether the database names one of these metadata files, also for a catalog of another name."""
        named = select(IcebergTables.metadata_location).where(IcebergTables.metadata_location.in_(list(locations))).limit(1)
        with self.catalog.engine.connect() as connection:
            return connection.execute(named).first() is not None

    def before_plain(self, identifier: str | Identifier) -> None:
        """Delete the facts of an encrypted table of this name, which another client dropped."""
        self.forget(self.catalog.free_name(identifier))

    def rename(self, old: Identifier, new: Identifier) -> IcebergTable:
        """Rename a table."""
        self.forget(self.catalog.free_name(new))  # likewise
        return super().rename(old, new)

    def forget(self, name: Identifier) -> None:
        """Delete the facts of a table that is gone."""
        self.facts.drop(name)

    def move(self, old: Identifier, new: Identifier) -> None:
        """Give the facts the table's new name."""
        self.facts.rename(old, new)

    @contextmanager
    def exclusive(self, name: Identifier) -> Iterator[SqlTurn]:
        """Begin a transaction with the row's lock."""
        try:
            self.facts.ensure()
            connection, location = self._locked(name)
        except SQLAlchemyError as e:
            raise CommitFailedException(
                f"the database gave no lock on table {'.'.join(name)}: {_first_line(e)}; nothing was changed"
            ) from e
        try:
            yield SqlTurn(self, connection, name, location)
        finally:
            _end(connection)

    def _locked(self, name: Identifier) -> tuple[Connection, str | None]:
        """Begin a transaction that has the table's lock; return the metadata file that the row names."""
        try:
            return self._lock_on(self.catalog.engine.connect(), name)
        except DBAPIError as e:
            if not e.connection_invalidated:
                raise
            # A connection of the pool had died; the others were thrown away with it.
            return self._lock_on(self.catalog.engine.connect(), name)

    def _lock_on(self, connection: Connection, name: Identifier) -> tuple[Connection, str | None]:
        try:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
            return connection, connection.scalar(self._row_of(name).with_for_update())
        except BaseException:
            _end(connection)
            raise

    def _row_of(self, name: Identifier) -> Select[Any]:
        found = select(IcebergTables.metadata_location).where(*self._key(name))
        kind = self.catalog._iceberg_type_filter()
        return found if kind is None else found.where(kind)

    def _key(self, name: Identifier) -> tuple[Any, ...]:
        return (
            IcebergTables.catalog_name == self.catalog.name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(name[:-1]),
            IcebergTables.table_name == name[-1],
        )

    def change(self, connection: Connection, staged: StagedTable, replaces: str | None, *, digest: str | None) -> None:
        """Replace or insert a row and its facts, within a transaction; ``digest`` is the metadata's hash.

        Raises:
            CommitFailedException: another writer committed first, or there is no table for facts.
        """
        name, location = staged.name(), staged.metadata_location
        if replaces is None:
            row = self.catalog._create_table_row(Catalog.namespace_to_string(name[:-1]), name[-1], location)
            connection.execute(insert(IcebergTables).values(**row))
        else:
            is_there = (*self._key(name), IcebergTables.metadata_location == replaces)
            values = {"metadata_location": location, "previous_metadata_location": replaces}
            if connection.execute(update(IcebergTables).where(*is_there).values(**values)).rowcount < 1:
                raise CommitFailedException("another writer committed first")
        self.facts.write(connection, name, staged.metadata, location, digest=digest)

    def kept(self, name: Identifier) -> Kept:
        """Return what the database has."""
        facts = self.facts.read(name)
        with self.catalog.engine.connect() as connection:
            location = facts.named if facts is not None and facts.named else connection.scalar(self._row_of(name))
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        _check_named(location, table=".".join(name))
        return Kept(location=location, io=self.catalog._load_file_io(location=location), where=self.server, facts=facts)

    def named(self, name: Identifier) -> str | None:
        """Return what the row names once no transaction under way can change it."""
        connection, location = self._locked(name)
        _end(connection)
        return location


class SqlTurn(PointerTurn):
    """A transaction that has the lock of a table's row."""

    _store: SqlStore

    def __init__(self, store: SqlStore, connection: Connection, name: Identifier, location: str | None) -> None:
        super().__init__(store, location)
        self._connection = connection
        self._name = name

    def current(self) -> IcebergTable:
        """Return the table of ``location``, compared with its facts."""
        return self._store.catalog.load_from_metadata(self._name, cast("str", self.location))

    def swap(self, staged: StagedTable) -> None:
        """Replace the row, or insert it, and commit."""
        table = ".".join(self._name)
        try:
            self._store.change(self._connection, staged, self.location, digest=self._digest)
        except (SQLAlchemyError, CommitFailedException) as e:
            if self.location is None and isinstance(e, SqlIntegrityError):
                raise TableAlreadyExistsError(f"Table {table} already exists") from e
            raise CommitFailedException(f"the database refused the change of table {table}: {_first_line(e)}; nothing was changed") from e
        try:
            self._connection.commit()
        except Exception as e:
            _end(self._connection)
            if not self._store.was_made(staged, self.location, e, final=self.location is not None):
                raise CommitFailedException(
                    f"the database did not commit the change of table {table}: {_first_line(e)}; nothing was changed"
                ) from e


def _end(connection: Connection) -> None:
    """Give a connection back without its transaction; one that cannot be used any more is thrown away."""
    try:
        connection.rollback()
    except Exception as e:  # noqa: BLE001 - whatever it was, the transaction ends with the connection
        logger.debug("a connection of the catalog's database is thrown away: %s", e)
        connection.invalidate()
    connection.close()


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
