"""Replacing a table's row in a SQL database, under the database's own lock, and finding out what became of it.

The turn is one transaction: it takes the lock (PostgreSQL: ``SELECT ... FOR UPDATE`` of the table's row; sqlite: ``BEGIN IMMEDIATE``,
which keeps writers of the whole database waiting, readers not), and a commit ends it with ``UPDATE ... WHERE metadata_location =``
what was read. So every other writer waits, PyIceberg's and Java's too, and a writer without the lock is not overwritten.

Nothing has happened before the database's COMMIT. If that fails, the row is looked at under its lock on a new connection: as
long as the failed transaction may still end one way or the other it keeps the lock, so what is seen then is final. A new row has no
lock to wait for: if it is not there, nobody knows. A database that cannot be reached: nobody knows.

Not here: creating tables (``catalog.sql.catalog``).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from sqlalchemy import event, insert, select, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import IntegrityError as SqlIntegrityError

from icelock.catalog.commit.outcome import discard, resolve_outcome, unknown
from icelock.catalog.commit.pointer import PointerCommits, PointerTurn
from icelock.catalog.sql.facts import TableFacts
from icelock.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import Identifier
    from sqlalchemy import Connection, Select

    from icelock.catalog.commit.pointer import MetadataForm

logger = logging.getLogger(__name__)

LOCK_WAIT_MS: Final = 60_000


class SqlRows(PointerCommits, IcebergSqlCatalog):
    """PyIceberg's ``SqlCatalog`` with commits that know their outcome; base of ``catalog.sql.SqlCatalog``."""

    if TYPE_CHECKING:

        def load_from_metadata(self, identifier: Identifier, metadata_location: str) -> IcebergTable:
            """See ``EncryptedCatalog``."""

        def read_metadata_file(self, metadata_location: str) -> TableMetadata:
            """See ``EncryptedCatalog``."""

    facts: TableFacts

    def _init_catalog(self) -> None:
        self.facts = TableFacts(self.engine, self.name)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _wait_for_locks)
        try:
            super()._init_catalog()
        except SQLAlchemyError:
            # Another process makes the tables at this moment.
            super()._init_catalog()

    @contextmanager
    def _exclusive(self, identifier: Identifier) -> Iterator[SqlTurn]:
        try:
            self.facts.ensure()
            connection, location = self._locked(identifier)
        except SQLAlchemyError as e:
            raise CommitFailedException(
                f"the database gave no lock on table {'.'.join(identifier)}: {_first_line(e)}; nothing was changed"
            ) from e
        try:
            yield SqlTurn(self, connection, identifier, location)
        finally:
            _end(connection)

    def _locked(self, identifier: Identifier) -> tuple[Connection, str | None]:
        """Begin a transaction that has the table's lock; return the metadata file that the row names."""
        try:
            return self._lock_on(self.engine.connect(), identifier)
        except DBAPIError as e:
            if not e.connection_invalidated:
                raise
            # A connection of the pool had died; the others were thrown away with it.
            return self._lock_on(self.engine.connect(), identifier)

    def _lock_on(self, connection: Connection, identifier: Identifier) -> tuple[Connection, str | None]:
        try:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
            return connection, connection.scalar(self._row_of(identifier).with_for_update())
        except BaseException:
            _end(connection)
            raise

    def _row_of(self, identifier: Identifier) -> Select[Any]:
        found = select(IcebergTables.metadata_location).where(*_row(self.name, identifier))
        kind = self._iceberg_type_filter()
        return found if kind is None else found.where(kind)

    def _finally_named(self, identifier: Identifier) -> str | None:
        """Return what the row names once no transaction under way can change it."""
        connection, location = self._locked(identifier)
        _end(connection)
        return location


class SqlTurn(PointerTurn):
    """A transaction that has the lock of a table's row."""

    def __init__(self, catalog: SqlRows, connection: Connection, identifier: Identifier, location: str | None) -> None:
        super().__init__(location)
        self._catalog = catalog
        self._connection = connection
        self._identifier = identifier
        self._form: MetadataForm | None = None

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Keep the hash that goes beside the row."""
        del current, staged
        self._form = form

    def current(self) -> IcebergTable:
        """Return the table of ``location``."""
        return self._catalog.load_from_metadata(self._identifier, cast("str", self.location))

    def swap(self, staged: StagedTable) -> None:
        """Replace the row, or insert it, and commit.

        Raises:
            TableAlreadyExistsError, CommitFailedException: nothing was changed, and the metadata file is gone.
            CommitStateUnknownException: nobody knows.
        """
        table = ".".join(self._identifier)
        try:
            self._change(staged)
            digest = None if self._form is None else self._form.metadata_hash
            facts = self._catalog.facts
            facts.write(self._connection, self._identifier, staged.metadata, staged.metadata_location, digest=digest)
        except (SQLAlchemyError, CommitFailedException) as e:
            discard(staged)
            if self.location is None and isinstance(e, SqlIntegrityError):
                raise TableAlreadyExistsError(f"Table {table} already exists") from e
            raise CommitFailedException(f"the database refused the change of table {table}: {_first_line(e)}; nothing was changed") from e
        try:
            self._connection.commit()
        except Exception as e:  # noqa: BLE001 - whatever it was, the row tells
            self._resolve(staged, e)

    def _change(self, staged: StagedTable) -> None:
        if self.location is None:
            namespace = Catalog.namespace_to_string(Catalog.namespace_from(self._identifier))
            row = self._catalog._create_table_row(namespace, self._identifier[-1], staged.metadata_location)
            self._connection.execute(insert(IcebergTables).values(**row))
            return
        change = (
            update(IcebergTables)
            .where(*_row(self._catalog.name, self._identifier), IcebergTables.metadata_location == self.location)
            .values(metadata_location=staged.metadata_location, previous_metadata_location=self.location)
        )
        if self._connection.execute(change).rowcount < 1:
            raise CommitFailedException("another writer was first")

    def _resolve(self, staged: StagedTable, cause: Exception) -> None:
        """Find out whether a COMMIT that failed was made; return if it was."""
        _end(self._connection)
        catalog = self._catalog
        made = resolve_outcome(
            staged,
            self.location,
            named=lambda: catalog._finally_named(self._identifier),
            read=catalog.read_metadata_file,
            patient=self.location is None,
        )
        if made:
            logger.debug("the commit of table %s was made though its answer was %s", ".".join(self._identifier), cause)
            return
        if made is None or self.location is None:
            raise unknown(staged, cause, who="the database") from cause
        discard(staged)
        raise CommitFailedException(
            f"the database did not commit the change of table {'.'.join(self._identifier)}: {_first_line(cause)}; nothing was changed"
        ) from cause


def _row(catalog: str, identifier: Identifier) -> tuple[Any, ...]:
    return (
        IcebergTables.catalog_name == catalog,
        IcebergTables.table_namespace == Catalog.namespace_to_string(Catalog.namespace_from(identifier)),
        IcebergTables.table_name == Catalog.table_name_from(identifier),
    )


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


def _wait_for_locks(connection: Any, record: object) -> None:
    """Let a writer of sqlite wait for another one instead of failing after five seconds with "database is locked"."""
    del record
    connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")


def check_named(location: object, *, table: str) -> None:
    """Check what a row names as a table's metadata file; None is nothing to check. SQLite keeps any value in a column of text.

    Raises:
        FormatError: it is no text, or empty.
    """
    if location is not None and not (isinstance(location, str) and location):
        kind = "empty" if location == "" else f"a {type(location).__name__}"
        raise FormatError(
            f"the row of table {table} in the catalog's database is damaged: its metadata_location is {kind}, expected the name of a file; "
            "restore the row, or remove it and register_table the newest metadata file"
        )
