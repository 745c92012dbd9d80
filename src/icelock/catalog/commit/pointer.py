"""Stores that keep one thing of a table: which metadata file is its current one.

Order of a commit, all of it in the table's turn (``catalog.commit.queue``): 1 the current metadata; 2 the new one in memory, checked; 3 the
new row, then the metadata file; 4 the service's row is made to name that file. Before 4 nothing has happened: whatever fails, the metadata
file is deleted and so are the commit's others. If 4 fails, the row is looked at (``catalog.commit.outcome``).

Not here: the services' rows (``catalog.sql``, ``catalog.hive``, ``catalog.glue``), the rules (``catalog.base``).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, TypeVar

from pyiceberg.catalog import ICEBERG, METADATA_LOCATION, TABLE_TYPE
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    TableAlreadyExistsError,
)
from pyiceberg.serializers import Compressor
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from icelock import metrics
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.loadable import MetadataForm, check_loadable
from icelock.catalog.commit.new_place import new_place
from icelock.catalog.commit.outcome import delete_on_failure, discard, resolve_outcome, unknown
from icelock.catalog.commit.store import Change, Store, StoreTurn, TableForm
from icelock.io.failed import failed
from icelock.table.commit.protocol import Stage

logger = logging.getLogger(__name__)

_Catalog = TypeVar("_Catalog", bound="EncryptedCatalog")


class PointerTurn(StoreTurn):
    """A turn that can replace the table's row."""

    exclusive = True

    def __init__(self, store: PointerStore[Any], location: str | None) -> None:
        super().__init__(location)
        self._store = store
        self._digest: str | None = None

    def commit(self, change: Change) -> tuple[TableMetadata, str]:
        """Write the metadata file, then replace the row."""
        staged, form = change.staged, MetadataForm.of(change.staged.metadata)
        with delete_on_failure(staged):
            self.prepare(change.base, staged, form)
            self._store.write(form, staged)
            self.confirm()
        self.stage = Stage.ASKED
        try:
            self.swap(staged)
        except (CommitFailedException, TableAlreadyExistsError, NoSuchNamespaceError):
            discard(staged)
            raise
        return staged.metadata, staged.metadata_location

    def add(self, staged: StagedTable) -> None:
        """Insert a row for a metadata file that is there, and that stays when this fails."""
        self.check_vacant(staged)
        self.prepare(None, staged, MetadataForm.of(staged.metadata))
        self.swap(staged)

    def check_vacant(self, staged: StagedTable) -> None:
        """Check that the name is still free.

        Raises:
            TableAlreadyExistsError: another writer made a table of this name.
        """
        if self.location is not None:
            raise TableAlreadyExistsError(f"Table {'.'.join(staged.name())} already exists")

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Make ready what ``swap`` needs, before the metadata file is written: the metadata's hash, for one."""
        del current, staged
        self._digest = form.metadata_hash

    def confirm(self) -> None:
        """Check that the lock is still held, after the metadata file was written.

        Raises:
            CommitFailedException: it is not; nothing was changed.
        """

    @abstractmethod
    def swap(self, staged: StagedTable) -> None:
        """Make the row name the staged metadata file instead of ``location``.

        Raises:
            CommitFailedException, TableAlreadyExistsError, NoSuchNamespaceError: nothing was changed.
            CommitStateUnknownException: the outcome is unknown.
        """


class PointerStore(Store[_Catalog]):
    """A service that keeps a row for each table."""

    server: ClassVar[str]
    """What the service is called in messages."""

    @abstractmethod
    def exclusive(self, name: Identifier) -> AbstractContextManager[PointerTurn]:
        """See ``Store``."""

    @abstractmethod
    def named(self, name: Identifier) -> str | None:
        """Read on a new connection which metadata file a row names; None if there is no row."""

    def place(self, name: Identifier, location: str | None) -> str:
        """Return where a new table goes that was given no location: below its namespace's place or the warehouse."""
        place: str = self.catalog._resolve_table_location(location, ".".join(name[:-1]), name[-1])
        return place if location is not None else new_place(self.catalog, place)

    def stage(self, name: Identifier, form: TableForm) -> StagedTable:
        """Return a new table at its place."""
        place = self.place(name, form.location)
        metadata = self.catalog.new_metadata(
            schema=form.schema,
            location=place,
            partition_spec=form.partition_spec,
            sort_order=form.sort_order,
            properties=form.properties,
        )
        check_loadable(None, metadata, (), location=metadata.location, table=".".join(name))
        return self.catalog._staged_first(name, metadata)

    def create(self, name: Identifier, form: TableForm) -> IcebergTable:
        """Write the first metadata file and insert a row."""
        staged = self.stage(self.catalog.free_name(name), form)
        with self.catalog.turn(name) as turn:
            assert isinstance(turn, PointerTurn)  # noqa: S101 - made by exclusive
            turn.check_vacant(staged)
            turn.commit(Change(base=None, staged=staged, requirements=(), updates=(), config={}))
        made = self.catalog.load_table(name)
        self.check_empty(name, made.metadata, staged.metadata_location)
        return made

    def register(self, staged: StagedTable) -> None:
        """Insert a row."""
        with self.catalog.turn(staged.name()) as turn:
            assert isinstance(turn, PointerTurn)  # noqa: S101 - likewise
            turn.add(staged)

    def write(self, form: MetadataForm, staged: StagedTable) -> None:
        """Write a metadata file.

        Raises:
            OSError: the storage did not take all of it, or nothing, of the class that it gave (``PermissionError``, ``FileNotFoundError``).
        """
        location = staged.metadata_location
        data: bytes = Compressor.get_compressor(location).bytes_compressor()(form.text.encode())
        try:
            with staged.io.new_output(location).create() as stream:
                stream.write(data)
        except OSError as e:
            remedy = (
                f"nothing was changed. Its place follows from the warehouse of catalog {self.catalog.name}, or from the table's location: "
                "correct it, or let this user write there"
            )
            raise failed(e, f"{location} cannot be written", remedy) from e
        found = len(staged.io.new_input(location))
        if found != len(data):
            raise OSError(f"{location} has {found} bytes on storage, {len(data)} were written: the storage lost some; nothing was changed")
        metrics.add(files_written=1, bytes_written=found)
        self.catalog.metadata_cache.put(sha256(data).digest(), staged.metadata, metadata_hash=form.metadata_hash)

    def was_made(self, staged: StagedTable, replaces: str | None, cause: Exception, *, final: bool) -> bool:
        """Whether a change of a row was made that failed with ``cause``.

        Args:
            staged: what the row was to name.
            replaces: the metadata file that the row named before; None for a new row.
            cause: the error.
            final: the service has dealt with the request; else it may do so later, and a row without the change proves nothing.

        Raises:
            CommitStateUnknownException: the outcome is unknown.
        """
        name = staged.name()
        made = resolve_outcome(staged, replaces, named=partial(self.named, name), read=partial(self.read, name), patient=not final)
        if made is None or not (made or final):
            raise unknown(staged, cause, who=self.server) from cause
        if made:
            logger.debug("the commit of table %s was made though its answer was %s", ".".join(name), cause)
        return made

    def read(self, name: Identifier, location: str) -> TableMetadata:
        """Read the metadata file that a row names."""
        del name
        return self.catalog.read_metadata_file(location)


def named_metadata(parameters: Mapping[str, str] | None, *, table: str, where: str) -> str:
    """Return the metadata file that the parameters of an Iceberg table's row name; ``where`` the row is kept is for messages.

    Raises:
        NoSuchIcebergTableError: the row is not an Iceberg table's.
        NoSuchPropertyException: it names no metadata file.
    """
    known = parameters or {}
    kind = known.get(TABLE_TYPE)
    if kind is None or kind.lower() != ICEBERG:
        raise NoSuchIcebergTableError(f"{table} in {where} is no Iceberg table: its {TABLE_TYPE} is {kind!r}")
    if not known.get(METADATA_LOCATION):
        raise NoSuchPropertyException(f"table {table} has no {METADATA_LOCATION} in {where}")
    return str(known[METADATA_LOCATION])
