"""The SQL catalog on sqlite or PostgreSQL; its tables are those of Java's JdbcCatalog and PyIceberg's SqlCatalog.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.sql.SqlCatalog``. PostgreSQL needs the extra ``postgres``
(psycopg) and a ``uri`` like ``postgresql+psycopg://user:password@host/database``.

Not here: the rules (``catalog.base``), commits (``catalog.sql.commit``).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, NotInstalledError, TableAlreadyExistsError
from pyiceberg.table import StagedTable
from sqlalchemy.exc import ArgumentError

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.outcome import delete_on_failure
from icelock.catalog.commit.pointer import MetadataForm, PointerTurn
from icelock.catalog.sql.commit import SqlRows, check_named
from icelock.catalog.trust.facts import check_facts
from icelock.errors import PolicyError

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import IcebergTables
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Identifier


class SqlCatalog(EncryptedCatalog, SqlRows):
    """PyIceberg's ``SqlCatalog`` whose tables can be encrypted. Safe to share between threads."""

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
                f"catalog {name}: its uri, which begins with {scheme!r}, is none of SQLAlchemy's: write it as sqlite:////data/catalog.db "
                "or postgresql+psycopg://user:password@host/database"
            ) from None
        # Else connections of a catalog that nobody closed stay open until the database drops them.
        weakref.finalize(self, self.engine.dispose)

    def _make(self, staged: StagedTable) -> IcebergTable:
        """Write a new encrypted table's metadata file, row and facts, and return the table."""
        self._insert(staged)
        return self.load_table(staged.name())

    def _before_plain(self, identifier: str | Identifier) -> None:
        """Drop the facts of an encrypted table of this name, which another client dropped."""
        self.facts.drop(self.free_name(identifier))

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> IcebergTable:
        """Make a table of a metadata file that is there; of an encrypted one every key must resolve and open.

        Raises:
            KeyUnavailableError, IntegrityError: a key is missing, cannot be opened, or was changed.
            PolicyError: ``overwrite``, or the metadata breaks a rule.
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        table = ".".join(Catalog.identifier_to_tuple(identifier))
        if overwrite:
            raise PolicyError(f"table {table}: register_table with overwrite is not supported; drop the table first (its files stay)")
        metadata = self.read_metadata_file(metadata_location)
        self.check_register(metadata, table=table, location=metadata_location)
        name = self.free_name(identifier)
        self.facts.drop(name)  # of a table that another client dropped
        made = super().register_table(identifier, metadata_location)
        self.facts.put(name, metadata, metadata_location)
        return made

    def load_from_metadata(self, identifier: Identifier, metadata_location: str) -> IcebergTable:
        """Read and check the metadata file of a table, and compare it with the facts in the database; a newer one if there is one by now.

        Raises:
            IntegrityError: the file is not the one that was committed.
            FormatError, PolicyError: the row names no file, or see ``EncryptedCatalog``.
        """
        facts = self.facts.read(identifier)
        for location in (metadata_location, None if facts is None else facts.named):
            check_named(location, table=".".join(identifier))
        if facts is None or not facts.named:
            return super().load_from_metadata(identifier, metadata_location)
        table = super().load_from_metadata(identifier, facts.named)
        check_facts(facts, table.metadata, table=".".join(identifier), location=facts.named, hash_of=self._recent.hash_of)
        return table

    def drop_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> None:
        """Drop a table as PyIceberg, and its facts."""
        super().drop_table(identifier, *args, **kwargs)
        self.facts.drop(Catalog.identifier_to_tuple(identifier))

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> IcebergTable:
        """Rename a table as PyIceberg; its facts go with it.

        Raises:
            NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError: as PyIceberg.
        """
        self.facts.drop(self.free_name(to_identifier))  # likewise
        renamed = super().rename_table(from_identifier, to_identifier)
        self.facts.rename(Catalog.identifier_to_tuple(from_identifier), renamed.name())
        return renamed

    def free_name(self, identifier: str | Identifier) -> Identifier:
        """Return the name of a table that is not there, in a namespace that is.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg.
        """
        name = Catalog.identifier_to_tuple(identifier)
        namespace = Catalog.namespace_from(identifier)
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {namespace}")
        if self.table_exists(identifier):
            raise TableAlreadyExistsError(f"Table {'.'.join(name)} already exists")
        return name

    def _insert(self, staged: StagedTable) -> None:
        with self.turn(staged.name()) as turn:
            assert isinstance(turn, PointerTurn)  # noqa: S101 - made by _exclusive
            if turn.location is not None:
                raise TableAlreadyExistsError(f"Table {'.'.join(staged.name())} already exists")
            with delete_on_failure(staged):
                self._write_form(MetadataForm.of(staged.metadata), staged.io, staged.metadata_location)
            turn.swap(staged)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> IcebergTable:
        location = orm_table.metadata_location
        if location is None:
            raise NoSuchTableError(f"Table {orm_table.table_namespace}.{orm_table.table_name} has no metadata location")
        identifier = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return self.load_from_metadata(identifier, location)
