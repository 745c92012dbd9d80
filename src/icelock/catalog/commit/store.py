"""``Store``: what a service does for its catalog. The catalog (``catalog.base``) has the public methods and every rule, once.

    SqlCatalog(EncryptedCatalog, pyiceberg's SqlCatalog)   has a   SqlStore(Store)

A commit runs in a turn: ``exclusive`` gives one, and the turn makes the commit. Services that keep only which metadata file of a table is
current need a turn that can replace it (``catalog.commit.pointer``); a REST server does more by itself (``catalog.rest.catalog``).
Decision: docs/adr/0016.

Not here: how turns are taken in order (``catalog.commit.queue``), looking at what became of a commit (``catalog.commit.outcome``).
"""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Identifier

from icelock.catalog.commit.outcome import check_new
from icelock.catalog.commit.told import tell_commit
from icelock.catalog.trust.kept import Kept
from icelock.table.commit.protocol import CommitTurn

if TYPE_CHECKING:
    from icelock.catalog.base import EncryptedCatalog


_Catalog = TypeVar("_Catalog", bound="EncryptedCatalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """A new table as it was asked for; ``properties`` are checked, with the catalog's defaults and overrides."""

    schema: Schema | pa.Schema
    location: str | None
    partition_spec: PartitionSpec
    sort_order: SortOrder
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A commit that passed every check, as it goes to the service.

    Args:
        base: the table it was made on; None if it makes the table.
        staged: the table it makes; the metadata file is not written yet.
        requirements: what the table has to be.
        updates: what leads from ``base`` to ``staged``.
        config: what a REST server sent for requests about the table.
    """

    base: IcebergTable | None
    staged: StagedTable
    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]
    config: Mapping[str, Any]


class StoreTurn(CommitTurn, ABC):
    """A turn that can commit."""

    def __init__(self, location: str | None) -> None:
        super().__init__(location)
        self.check: Callable[[IcebergTable], None] | None = None
        """Compares the current table with the client's pins, before anything is built on it."""

    def load(self) -> IcebergTable:
        """Return the table of ``location``.

        Raises:
            IntegrityError: it is not the one that was committed, or older than one that was seen.
        """
        current = self.current()
        if self.check is not None:
            self.check(current)
        return current

    def base(self, *, new: bool) -> IcebergTable | None:
        """Return the table a commit is made on; None if there is none. ``new``: the commit makes the table."""
        del new
        return None if self.location is None else self.load()

    @abstractmethod
    def current(self) -> IcebergTable:
        """Return the table of ``location``, compared with what the service knows of it."""

    def make(self, change: Change) -> tuple[TableMetadata, str]:
        """Do as ``commit``, and tell that it was made."""
        start = time.perf_counter()
        metadata, location = self.commit(change)
        tell_commit(change, location, start=start)
        return metadata, location

    @abstractmethod
    def commit(self, change: Change) -> tuple[TableMetadata, str]:
        """Make a commit; return the table's metadata and metadata file, as the service has them.

        Raises:
            CommitFailedException, TableAlreadyExistsError, NoSuchNamespaceError: nothing was changed, and the metadata file is deleted.
            CommitStateUnknownException: the outcome is unknown; nothing was deleted.
        """


class Store(ABC, Generic[_Catalog]):
    """What a service does for one catalog, which owns it."""

    def __init__(self, catalog: _Catalog) -> None:
        # Weak, so that a catalog that nobody holds goes at once, with its connections.
        self._catalog = weakref.ref(catalog)

    @property
    def catalog(self) -> _Catalog:
        """The catalog."""
        found = self._catalog()
        assert found is not None  # noqa: S101 - its methods are what calls a store
        return found

    @property
    def iceberg(self) -> Any:
        """PyIceberg's methods of the catalog, without ours over them."""
        return self.catalog._iceberg

    def name_of(self, identifier: str | Identifier) -> Identifier:
        """Return a table's name in parts."""
        return Catalog.identifier_to_tuple(identifier)

    def has(self, name: Identifier) -> bool:
        """Whether a name has a table."""
        return self.catalog.table_exists(name)

    @abstractmethod
    def exclusive(self, name: Identifier) -> AbstractContextManager[StoreTurn]:
        """Take the service's lock on a table, if it has one, and find the table; the turn ends with the context.

        Raises:
            CommitFailedException: the service gave no lock or did not answer; nothing was changed.
        """

    def load(self, name: Identifier) -> IcebergTable:
        """Load a table and compare it with what the service knows of it."""
        table: IcebergTable = self.iceberg.load_table(name)
        return table

    @abstractmethod
    def kept(self, name: Identifier) -> Kept:
        """Return what the service keeps of a table, without comparing anything.

        Raises:
            NoSuchTableError: as PyIceberg.
        """

    @abstractmethod
    def stage(self, name: Identifier, form: TableForm) -> StagedTable:
        """Return a new table at its place; nothing is written, and no one sees it."""

    def names_for_any(self, locations: Iterable[str]) -> bool:  # noqa: ARG002 - by those that can be asked
        """Whether the service names one of these metadata files for a table of any catalog that it serves, as far as it can be asked."""
        return False

    def place(self, name: Identifier, location: str | None) -> str | None:  # noqa: ARG002 - by those that decide it
        """Return where a new table goes; None if the service says it."""
        return location

    def stage_again(self, name: Identifier, metadata: TableMetadata) -> StagedTable:
        """Return a table that another process staged."""
        return self.catalog._staged_first(name, metadata)

    @abstractmethod
    def create(self, name: Identifier, form: TableForm) -> IcebergTable:
        """Make an empty table and load it.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError, CommitFailedException, CommitError: nothing was made.
            CommitStateUnknownException: the outcome is unknown; nothing was deleted.
        """

    def before_plain(self, identifier: str | Identifier) -> None:
        """Hook: runs before a plain table is created."""

    def check_empty(self, name: Identifier, made: TableMetadata, first: str) -> None:
        """Check that a new table is empty, unless others replaced ``first``, its metadata file, since.

        Raises:
            IntegrityError: see ``catalog.commit.outcome``.
        """
        if first not in {entry.metadata_file for entry in made.metadata_log}:
            check_new(made, table=".".join(name), catalog=self.catalog.name)

    @abstractmethod
    def register(self, staged: StagedTable) -> None:
        """Add a table whose metadata file is there, and stays there whatever happens.

        Raises:
            TableAlreadyExistsError, NoSuchNamespaceError, CommitFailedException, CommitError: nothing was made.
            CommitStateUnknownException: the outcome is unknown.
        """

    def drop(self, name: Identifier, *, purge: bool = False) -> None:
        """Drop a table; ``purge`` asks a server to delete its files."""
        del purge
        self.iceberg.drop_table(name)

    def rename(self, old: Identifier, new: Identifier) -> IcebergTable:
        """Rename a table and load it."""
        table: IcebergTable = self.iceberg.rename_table(old, new)
        return table

    replaces_snapshots: ClassVar[bool] = True
    """Whether a commit can say anything of the snapshots that are there."""

    def check_converts(self, name: Identifier) -> None:
        """Check that the service can make an encrypted table of a plain one.

        Raises:
            PolicyError: it cannot; says why.
        """

    def forget(self, name: Identifier) -> None:
        """Delete what the service keeps beside its row of a table that is gone."""

    def move(self, old: Identifier, new: Identifier) -> None:
        """Give what the service keeps beside its row the table's new name."""
