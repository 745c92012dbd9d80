"""Replacing a table's row in the Hive metastore: lock, check, write metadata, alter, and finding out what became of it.

The turn is the metastore's lock. Order in it: 1 the row and its metadata file, checked; 2 the new metadata in memory, guarded; 3 the
new row; 4 the metadata file; 5 the lock renewed; 6 ``alter_table``, which names the file that it expects to replace (metastores with
HIVE-26882 refuse it when the row has moved on, so a writer without the lock is not overwritten either).

Until 6 nothing has happened: a failure is ``CommitFailedException`` or a typed error, and the metadata file is deleted. If 6
fails the row is looked at on a new connection (``catalog.commit.outcome``). The metastore answered with an error and the new file is not
there: the commit was not made. Without an answer the request may still be on its way: nobody knows, and nothing is deleted. Source:
Java HiveTableOperations.doCommit.

Not here: what stands in a row (``catalog.hive.parameters``), the rules of encrypted tables (``catalog.base``).
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any, Final

from hive_metastore.ttypes import (
    AlreadyExistsException,
    EnvironmentContext,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
)
from pyiceberg.catalog.hive import (
    DO_NOT_UPDATE_STATS,
    DO_NOT_UPDATE_STATS_DEFAULT,
    HIVE2_COMPATIBLE,
    HIVE2_COMPATIBLE_DEFAULT,
    HIVE_PRIMITIVE_TYPES,
    PROP_METADATA_LOCATION,
    _construct_hive_storage_descriptor,
)
from pyiceberg.catalog.hive import HiveCatalog as IcebergHiveCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.utils.properties import property_as_bool
from thrift.Thrift import TException

from icelock.catalog.commit.outcome import discard, resolve_outcome, unknown
from icelock.catalog.commit.pointer import PointerCommits, PointerTurn, named_metadata
from icelock.catalog.hive.client import MetastoreClient
from icelock.catalog.hive.lock import LockWait, TableLock
from icelock.catalog.hive.parameters import row_parameters, warn_beyond_bmp
from icelock.errors import PolicyError
from icelock.metadata.column_types import UnreadType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.typedef import Identifier

    from icelock.catalog.commit.pointer import MetadataForm

# Answers of the metastore: the request was dealt with. Anything else may still be under way.
HIVE_PRIMITIVE_TYPES[UnreadType] = "unknown"  # as Java's HiveSchemaUtil says of variant since 1.12
_ANSWERS: Final = (InvalidObjectException, InvalidOperationException, MetaException, NoSuchObjectException)
_EXPECTED_KEY: Final = "expected_parameter_key"
_EXPECTED_VALUE: Final = "expected_parameter_value"


class HiveRows(PointerCommits, IcebergHiveCatalog):
    """PyIceberg's ``HiveCatalog`` with commits that know their outcome; base of ``catalog.hive.HiveCatalog``."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._lock_wait = LockWait.from_properties(properties)

    @contextlib.contextmanager
    def _exclusive(self, identifier: Identifier) -> Iterator[HiveTurn]:
        database, name = self.identifier_to_database_and_table(identifier, NoSuchTableError)
        with self._connected() as client, self.table_lock(client, database, name) as lock:
            yield HiveTurn(self, client, lock, self._row(client, database, name))

    def table_lock(self, client: Any, database: str, name: str) -> TableLock:
        """Return the metastore's lock on a table, to be entered."""
        return TableLock(
            self._client,  # type: ignore[arg-type]  # made by _create_hive_client
            client,
            database=database,
            table=name,
            request=self._create_lock_request,
            wait=self._lock_wait,
        )

    def persist(self, client: Any, row: Any, staged: StagedTable, *, replaces: str | None, ours: bool = True) -> None:
        """Create the row, or alter the one that names the metadata file ``replaces``.

        ``ours`` says that the metadata file was written for this and goes when it comes to nothing.

        Raises:
            TableAlreadyExistsError, CommitFailedException: nothing was changed.
            CommitStateUnknownException: nobody knows.
        """
        table = ".".join(staged.name())
        try:
            if replaces is None:
                client.create_table(row)
            else:
                self._alter(client, row, replaces)
        except AlreadyExistsException as e:
            if self._landed(staged, replaces, patient=False):
                return
            _discard(staged, ours=ours)
            raise TableAlreadyExistsError(f"Table {table} already exists") from e
        except _ANSWERS as e:
            landed = self._landed(staged, replaces, patient=False)
            if landed is None:
                raise unknown(staged, e, who="the metastore") from e
            if not landed:
                _discard(staged, ours=ours)
                raise CommitFailedException(
                    f"the metastore refused the change of table {table}: {getattr(e, 'message', e)}; nothing was changed"
                ) from e
        except Exception as e:
            if not self._landed(staged, replaces, patient=True):
                raise unknown(staged, e, who="the metastore") from e

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> MetastoreClient:
        return MetastoreClient(properties)

    def _convert_iceberg_into_hive(self, table: IcebergTable) -> Any:
        with _hive_types(table):
            row = super()._convert_iceberg_into_hive(table)
        row.parameters = row_parameters(None, table.metadata, location=table.metadata_location)
        return row

    def _replacement(self, row: Any, current: IcebergTable, staged: StagedTable, form: MetadataForm) -> Any:
        """Return the row that the commit puts in the place of ``row``; what others keep there stays."""
        new = copy.deepcopy(row)
        with _hive_types(staged):
            hive2 = property_as_bool(self.properties, HIVE2_COMPATIBLE, HIVE2_COMPATIBLE_DEFAULT)
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

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            try:
                client = stack.enter_context(self._client)
            except (TException, OSError) as e:
                raise CommitFailedException(f"no metastore answers at {self.properties.get('uri')}: {e}; nothing was changed") from e
            yield client

    def _row(self, client: Any, database: str, name: str) -> Any | None:
        try:
            return self._get_hive_table(client, database, name)
        except NoSuchTableError:
            return None
        except TException as e:
            raise CommitFailedException(f"the metastore failed to read table {database}.{name}: {e}; nothing was changed") from e

    @staticmethod
    def _alter(client: Any, row: Any, replaces: str) -> None:
        context = {
            DO_NOT_UPDATE_STATS: DO_NOT_UPDATE_STATS_DEFAULT,
            _EXPECTED_KEY: PROP_METADATA_LOCATION,
            _EXPECTED_VALUE: replaces,
        }
        client.alter_table_with_environment_context(row.dbName, row.tableName, row, EnvironmentContext(properties=context))

    def _landed(self, staged: StagedTable, replaces: str | None, *, patient: bool) -> bool | None:
        name = staged.name()
        return resolve_outcome(
            staged, replaces, named=lambda: self._named(name), read=lambda _: self.load_table(name).metadata, patient=patient
        )

    def _named(self, identifier: Identifier) -> str | None:
        database, name = self.identifier_to_database_and_table(identifier)
        with self._client as client:
            try:
                row = self._get_hive_table(client, database, name)
            except NoSuchTableError:
                return None
        return (row.parameters or {}).get(PROP_METADATA_LOCATION)


class HiveTurn(PointerTurn):
    """A table's lock in the metastore, and the row as it was when the lock was given."""

    def __init__(self, catalog: HiveRows, client: Any, lock: TableLock, row: Any | None) -> None:
        super().__init__(None if row is None else metadata_location(row))
        self._catalog = catalog
        self._client = client
        self._lock = lock
        self._row = row
        self._new_row: Any = None

    def current(self) -> IcebergTable:
        """Return the table of the row, checked against it."""
        return self._catalog._convert_hive_into_iceberg(self._row)

    def prepare(self, current: IcebergTable | None, staged: StagedTable, form: MetadataForm) -> None:
        """Make the new row."""
        warn_beyond_bmp(staged.metadata, table=".".join(staged.name()), text=form.text)
        if current is None:
            self._new_row = self._catalog._convert_iceberg_into_hive(staged)
        else:
            self._new_row = self._catalog._replacement(self._row, current, staged, form)

    def confirm(self) -> None:
        """Check that the lock is still held.

        Raises:
            CommitFailedException: it is not; nothing was changed.
        """
        self._lock.renew()

    def swap(self, staged: StagedTable) -> None:
        """Put the new row there, and give the lock back."""
        self._catalog.persist(self._client, self._new_row, staged, replaces=self.location)
        self._lock.release()


def metadata_location(row: Any) -> str:
    """Return the metadata file that a row names.

    Raises:
        NoSuchIcebergTableError, NoSuchPropertyException: it is no Iceberg table's row, or names none.
    """
    return named_metadata(row.parameters, table=f"{row.dbName}.{row.tableName}", where="the metastore")


def _discard(staged: StagedTable, *, ours: bool) -> None:
    if ours:
        discard(staged)


@contextlib.contextmanager
def _hive_types(table: IcebergTable) -> Iterator[None]:
    try:
        yield
    except KeyError as e:
        kind = e.args[0]
        raise PolicyError(
            f"table {'.'.join(table.name())}: a Hive metastore has no column type for {getattr(kind, '__name__', kind)}; use another type"
        ) from e
