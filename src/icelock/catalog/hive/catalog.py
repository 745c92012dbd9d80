"""The Hive catalog: encrypted tables that Java Iceberg's Hive catalog shares, both ways.

Also usable from PyIceberg itself: ``py-catalog-impl=icelock.catalog.hive.HiveCatalog``. Needs the extra ``hive`` (thrift).

The row in the metastore has the table's key id, key length and the hash of its metadata file; they are written on every
create, register and commit and compared on every load, so a metadata file that was edited, exchanged or rolled back is
refused (``catalog.hive.parameters``).

The row is replaced under the metastore's lock. Order in a turn: 1 the lock; 2 the row and its metadata file, checked; 3 the new metadata in
memory, checked; 4 the new row; 5 the metadata file; 6 the lock renewed; 7 ``alter_table``, which names the file that it expects to replace
(metastores with HIVE-26882 refuse it when the row has moved on, so a writer without the lock is not overwritten either).

If 7 fails, the row is read on a new connection (``catalog.commit.outcome``). The metastore answered with an error, and the row does not
name the new file: the commit was not made. Without an answer the request may still be on its way: the outcome is unknown, and nothing is
deleted. Source: Java HiveTableOperations.doCommit.

Not here: rules (``catalog.base``), what is in a row (``catalog.hive.parameters``), locks (``catalog.hive.lock``).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, cast

from hive_metastore import ttypes
from pyiceberg.catalog import hive as ice
from pyiceberg.catalog.hive import _construct_hive_storage_descriptor
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool
from thrift.Thrift import TException

from icelock import properties as names
from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.commit.loadable import MetadataForm
from icelock.catalog.commit.outcome import unanswered
from icelock.catalog.commit.pointer import PointerStore, PointerTurn, named_metadata
from icelock.catalog.commit.store import TableForm
from icelock.catalog.hive.client import MetastoreClient
from icelock.catalog.hive.lock import LockWait, TableLock
from icelock.catalog.hive.parameters import check_row, facts_of, row_parameters, warn_beyond_bmp
from icelock.catalog.trust.kept import Kept
from icelock.errors import CommitError, PolicyError
from icelock.metadata.column_types import UnreadType
from icelock.table.guard.rules import check_metadata

ice.HIVE_PRIMITIVE_TYPES[UnreadType] = "unknown"  # as Java's HiveSchemaUtil says of variant since 1.12
# Answers of the metastore: it has dealt with the request. After any other error it may still do so.
_ANSWERS: Final = (
    ttypes.AlreadyExistsException,
    ttypes.InvalidObjectException,
    ttypes.InvalidOperationException,
    ttypes.MetaException,
    ttypes.NoSuchObjectException,
)
_EXPECTED_KEY: Final = "expected_parameter_key"
_EXPECTED_VALUE: Final = "expected_parameter_value"


class HiveCatalog(EncryptedCatalog, ice.HiveCatalog):
    """PyIceberg's ``HiveCatalog`` whose tables can be encrypted. Safe to share between threads."""

    _store: HiveStore
    table_defaults: ClassVar[Mapping[str, str]] = ice.DEFAULT_PROPERTIES

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        cast("MetastoreClient", self._client).catalog = name
        self._require_hash = names.flag(properties, names.HIVE_REQUIRE_HASH, default=True)

    def _make_store(self) -> HiveStore:
        return HiveStore(self)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> MetastoreClient:
        return MetastoreClient(properties)

    def _convert_iceberg_into_hive(self, table: IcebergTable) -> Any:
        return self._store.new_row(table)

    def _convert_hive_into_iceberg(self, table: Any) -> IcebergTable:
        identifier = (table.dbName, table.tableName)
        location = metadata_location(table)
        metadata, digest = self._read(location)
        # The row first: what a file says that was exchanged does not matter.
        name = ".".join(identifier)
        check_row(table.parameters, metadata, table=name, location=location, file_digest=digest, require_hash=self._require_hash)
        check_metadata(metadata, location=location)
        return self.table_of(identifier, metadata, location)


class HiveStore(PointerStore[HiveCatalog]):
    """The rows of a metastore."""

    server: ClassVar[str] = "the metastore"

    def name_of(self, identifier: str | Identifier) -> Identifier:
        """Return database and table."""
        return self.catalog.identifier_to_database_and_table(identifier)

    def has(self, name: Identifier) -> bool:
        """Whether a name has a row; its metadata file is not read."""
        with self.catalog._client as client:
            return self._row_on(client, name) is not None

    @contextlib.contextmanager
    def exclusive(self, name: Identifier) -> Iterator[HiveTurn]:
        """Take the metastore's lock, and read the row."""
        database, table = self.catalog.identifier_to_database_and_table(name, NoSuchTableError)
        with self.connected() as client, self.lock(client, database, table) as lock:
            try:
                row = self._row_on(client, name)
            except TException as e:
                raise CommitFailedException(f"the metastore failed to read table {database}.{table}: {e}; nothing was changed") from e
            yield HiveTurn(self, client, lock, row)

    def create(self, name: Identifier, form: TableForm) -> IcebergTable:
        """Create a table."""
        with _not_made(name):
            return super().create(name, form)

    def register(self, staged: StagedTable) -> None:
        """Insert a row."""
        with _not_made(staged.name()):
            super().register(staged)

    def rename(self, old: Identifier, new: Identifier) -> IcebergTable:
        """Rename a table under its lock, so that no commit is lost; all parameters stay."""
        self.catalog.free_name(new)
        database, table = self.catalog.identifier_to_database_and_table(old, NoSuchTableError)
        with self.connected() as client, self.lock(client, database, table):
            return super().rename(old, new)

    def lock(self, client: Any, database: str, table: str) -> TableLock:
        """Return the metastore's lock on a table, to be entered."""
        catalog = self.catalog
        return TableLock(
            catalog._client,  # type: ignore[arg-type]  # made by _create_hive_client
            client,
            database=database,
            table=table,
            request=catalog._create_lock_request,
            wait=LockWait.from_properties(catalog.properties),
        )

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """Connect to a metastore.

        Raises:
            CommitFailedException: none answers; nothing was changed.
        """
        catalog = self.catalog
        with contextlib.ExitStack() as stack:
            try:
                client = stack.enter_context(catalog._client)
            except (TException, OSError) as e:
                raise unanswered("metastore", e) from e
            yield client

    def named(self, name: Identifier) -> str | None:
        """Return the metadata file that the row names now."""
        with self.catalog._client as client:
            row = self._row_on(client, name)
        return None if row is None else (row.parameters or {}).get(ice.PROP_METADATA_LOCATION)

    def kept(self, name: Identifier) -> Kept:
        """Return what the row has."""
        with self.catalog._client as client:
            row = self._row_on(client, name)
        if row is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}")
        location = metadata_location(row)
        return Kept(
            location=location,
            io=self.catalog._load_file_io(location=location),
            where=self.server,
            facts=facts_of(row.parameters, location),
            key_id_required=True,
            hash_required=self.catalog._require_hash,
        )

    def read(self, name: Identifier, location: str) -> TableMetadata:
        """Read the metadata of the row, compared with it."""
        del location
        return self.catalog.load_table(name).metadata

    def new_row(self, staged: IcebergTable) -> Any:
        """Return the row of a new table."""
        with _hive_types(staged):
            row = self.iceberg._convert_iceberg_into_hive(staged)
        row.parameters = row_parameters(None, staged.metadata, location=staged.metadata_location)
        return row

    def replacement(self, row: Any, current: IcebergTable, staged: StagedTable, form: MetadataForm) -> Any:
        """Return the row that a commit puts in the place of ``row``; what others keep there stays."""
        new = copy.deepcopy(row)
        with _hive_types(staged):
            hive2 = property_as_bool(self.catalog.properties, ice.HIVE2_COMPATIBLE, ice.HIVE2_COMPATIBLE_DEFAULT)
            described = _construct_hive_storage_descriptor(staged.schema(), staged.location(), hive2)
        if new.sd is None:
            new.sd = described
        new.sd.cols, new.sd.location = described.cols, described.location
        new.parameters = row_parameters(
            row.parameters,
            staged.metadata,
            location=staged.metadata_location,
            previous=current.metadata_location,
            removed=current.properties.keys() - staged.properties.keys(),
            digest=form.metadata_hash,
        )
        return new

    def _row_on(self, client: Any, name: Identifier) -> Any | None:
        try:
            return self.catalog._get_hive_table(client, *self.name_of(name))
        except NoSuchTableError:
            return None


class HiveTurn(PointerTurn):
    """A table's lock in the metastore, and the row as it was when the lock was given."""

    _store: HiveStore

    def __init__(self, store: HiveStore, client: Any, lock: TableLock, row: Any | None) -> None:
        super().__init__(store, None if row is None else metadata_location(row))
        self._client = client
        self._lock = lock
        self._row = row
        self._new_row: Any = None

    def current(self) -> IcebergTable:
        """Return the table of the row, checked against it."""
        return self._store.catalog._convert_hive_into_iceberg(self._row)

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Make the new row."""
        warn_beyond_bmp(staged.metadata, table=".".join(staged.name()), text=form.text)
        store = self._store
        self._new_row = store.new_row(staged) if current is None else store.replacement(self._row, current, staged, form)

    def confirm(self) -> None:
        """Check that the lock is still held."""
        self._lock.renew()

    def swap(self, staged: StagedTable) -> None:
        """Put the new row there, and give the lock back."""
        try:
            self._put(self._new_row)
        except Exception as e:
            if not self._store.was_made(staged, self.location, e, final=isinstance(e, _ANSWERS)):
                table = ".".join(staged.name())
                if isinstance(e, ttypes.AlreadyExistsException):
                    raise TableAlreadyExistsError(f"Table {table} already exists") from e
                raise CommitFailedException(
                    f"the metastore refused the change of table {table}: {getattr(e, 'message', e)}; nothing was changed"
                ) from e
        self._lock.release()

    def _put(self, row: Any) -> None:
        if self.location is None:
            self._client.create_table(row)
            return
        context = {
            ice.DO_NOT_UPDATE_STATS: ice.DO_NOT_UPDATE_STATS_DEFAULT,
            _EXPECTED_KEY: ice.PROP_METADATA_LOCATION,
            _EXPECTED_VALUE: self.location,
        }
        self._client.alter_table_with_environment_context(row.dbName, row.tableName, row, ttypes.EnvironmentContext(properties=context))


def metadata_location(row: Any) -> str:
    """Return the metadata file that a row names.

    Raises:
        NoSuchIcebergTableError, NoSuchPropertyException: see ``named_metadata``.
    """
    return named_metadata(row.parameters, table=f"{row.dbName}.{row.tableName}", where="the metastore")


@contextlib.contextmanager
def _not_made(name: Identifier) -> Iterator[None]:
    try:
        yield
    except CommitFailedException as e:
        raise CommitError(f"table {'.'.join(name)} was not made: {e}") from e


@contextlib.contextmanager
def _hive_types(table: IcebergTable) -> Iterator[None]:
    try:
        yield
    except KeyError as e:
        kind = e.args[0]
        raise PolicyError(
            f"table {'.'.join(table.name())}: a Hive metastore has no column type for {getattr(kind, '__name__', kind)}; use another type"
        ) from e
