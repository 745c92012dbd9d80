"""Replacing a table's row in the Hive metastore: lock, check, write metadata, alter, and finding out what became of it.

Order: 1 the lock; 2 the row and its metadata file, checked; 3 the new metadata in memory, guarded; 4 the new row; 5 the
metadata file; 6 the lock renewed; 7 ``alter_table``, which names the file that it expects to replace (metastores with HIVE-26882
refuse it when the row has moved on, so a writer without the lock is not overwritten either).

Until 7 nothing has happened: a failure is ``CommitFailedException`` or a typed error, and the metadata file is deleted. If 7
fails the row is looked at on a new connection. The new file is named there, or in the history of the file that is: the
commit was made. The metastore answered with an error and the file is not there: it was not made. Else nobody knows
(``CommitStateUnknownException``), because the request may still be on its way: nothing is deleted. Source: Java
HiveTableOperations.doCommit, BaseMetastoreOperations.checkCommitStatus.

Not here: what stands in a row (``catalog.hive_parameters``), the rules of encrypted tables (``catalog.base``).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
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
    PROP_METADATA_LOCATION,
    _construct_hive_storage_descriptor,
)
from pyiceberg.catalog.hive import HiveCatalog as IcebergHiveCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import CommitTableResponse, StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.utils.properties import property_as_bool, property_as_int
from thrift.Thrift import TException

from icelock.catalog.hive_client import MetastoreClient
from icelock.catalog.hive_lock import LockWait, TableLock, ThreadLocks
from icelock.catalog.hive_parameters import row_parameters, warn_beyond_bmp
from icelock.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


logger = logging.getLogger(__name__)

# Answers of the metastore: the request was dealt with. Anything else may still be under way.
_ANSWERS: Final = (InvalidObjectException, InvalidOperationException, MetaException, NoSuchObjectException)
_EXPECTED_KEY: Final = "expected_parameter_key"
_EXPECTED_VALUE: Final = "expected_parameter_value"
# Java's table properties for looking at the row after a failure.
STATUS_CHECKS: Final = "commit.status-check.num-retries"
STATUS_CHECKS_DEFAULT: Final = 3
STATUS_WAIT_MS: Final = "commit.status-check.min-wait-ms"
STATUS_WAIT_MS_DEFAULT: Final = 1000


class HiveRows(IcebergHiveCatalog):
    """PyIceberg's ``HiveCatalog`` with commits that know their outcome; base of ``catalog.hive.HiveCatalog``."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._lock_wait = LockWait.from_properties(properties)
        self._thread_locks = ThreadLocks()

    def commit_table(self, table: IcebergTable, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> CommitTableResponse:
        """Commit updates of a table under the metastore's lock.

        Raises:
            CommitFailedException: another writer was first or holds the lock, or the metastore refused; nothing was changed.
            CommitStateUnknownException: the metastore did not answer, and the row does not tell; nothing was deleted.
        """
        identifier = table.name()
        database, name = self.identifier_to_database_and_table(identifier, NoSuchTableError)
        with self._connected() as client, self.table_lock(client, database, name) as lock:
            row, current = self._current(client, database, name)
            staged = self._update_and_stage_table(current, identifier, requirements, updates)
            if current is not None and staged.metadata == current.metadata:
                return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)
            new_row = self._replacement(row, current, staged)
            with self.undone(staged):
                warn_beyond_bmp(staged.metadata, table=f"{database}.{name}")
                self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
                lock.renew()
            self.persist(client, new_row, staged, replaces=current.metadata_location if current else None)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def table_lock(self, client: Any, database: str, name: str) -> TableLock:
        """Return the metastore's lock on a table, to be entered."""
        return TableLock(
            self._client,  # type: ignore[arg-type]  # made by _create_hive_client
            client,
            database=database,
            table=name,
            request=self._create_lock_request,
            wait=self._lock_wait,
            threads=self._thread_locks,
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
            self._discard(staged, ours=ours)
            msg = f"Table {table} already exists"
            raise TableAlreadyExistsError(msg) from e
        except _ANSWERS as e:
            landed = self._landed(staged, replaces, patient=False)
            if landed is None:
                raise _unknown(table, staged, e) from e
            if not landed:
                self._discard(staged, ours=ours)
                msg = f"the metastore refused the change of table {table}: {getattr(e, 'message', e)}; nothing was changed"
                raise CommitFailedException(msg) from e
        except Exception as e:
            if not self._landed(staged, replaces, patient=True):
                raise _unknown(table, staged, e) from e

    @contextlib.contextmanager
    def undone(self, staged: StagedTable) -> Iterator[None]:
        """Delete the metadata file that was written inside when the inside fails."""
        try:
            yield
        except BaseException:
            self._discard(staged, ours=True)
            raise

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> MetastoreClient:
        return MetastoreClient(properties)

    def _convert_iceberg_into_hive(self, table: IcebergTable) -> Any:
        with _hive_types(table):
            row = super()._convert_iceberg_into_hive(table)
        row.parameters = row_parameters(None, table.metadata, location=table.metadata_location)
        return row

    def _replacement(self, row: Any | None, current: IcebergTable | None, staged: StagedTable) -> Any:
        """Return the row that the commit puts in the place of ``row``; what others keep there stays."""
        if row is None or current is None:
            return self._convert_iceberg_into_hive(staged)
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
        )
        return new

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            try:
                client = stack.enter_context(self._client)
            except (TException, OSError) as e:
                msg = f"no metastore answers at {self.properties.get('uri')}: {e}; nothing was changed"
                raise CommitFailedException(msg) from e
            yield client

    def _current(self, client: Any, database: str, name: str) -> tuple[Any | None, IcebergTable | None]:
        try:
            row = self._get_hive_table(client, database, name)
        except NoSuchTableError:
            return None, None
        except TException as e:
            msg = f"the metastore failed to read table {database}.{name}: {e}; nothing was changed"
            raise CommitFailedException(msg) from e
        return row, self._convert_hive_into_iceberg(row)

    @staticmethod
    def _alter(client: Any, row: Any, replaces: str) -> None:
        context = {
            DO_NOT_UPDATE_STATS: DO_NOT_UPDATE_STATS_DEFAULT,
            _EXPECTED_KEY: PROP_METADATA_LOCATION,
            _EXPECTED_VALUE: replaces,
        }
        client.alter_table_with_environment_context(row.dbName, row.tableName, row, EnvironmentContext(properties=context))

    def _landed(self, staged: StagedTable, replaces: str | None, *, patient: bool) -> bool | None:
        """Whether the row names the new metadata file, or one after it; None if the row cannot be read.

        ``patient``: the request may still be under way, so a row that does not name it yet is looked at again.
        """
        landed: bool | None = None
        for seconds in _waits(staged.metadata.properties):
            time.sleep(seconds)
            try:
                landed = self._is_named(staged, replaces)
            except Exception as e:  # noqa: BLE001 - whatever it was, the next look may tell
                logger.debug("the row of table %s cannot be read: %s", ".".join(staged.name()), e)
                continue
            if landed or not patient:
                return landed
        return landed

    def _is_named(self, staged: StagedTable, replaces: str | None) -> bool:
        database, name = self.identifier_to_database_and_table(staged.name())
        with self._client as client:
            try:
                row = self._get_hive_table(client, database, name)
            except NoSuchTableError:
                return False
        location = (row.parameters or {}).get(PROP_METADATA_LOCATION)
        if location in {staged.metadata_location, replaces}:
            return bool(location == staged.metadata_location)
        # Another commit came on top of ours, or of what ours was to replace.
        current = self._convert_hive_into_iceberg(row)
        return any(entry.metadata_file == staged.metadata_location for entry in current.metadata.metadata_log)

    def _discard(self, staged: StagedTable, *, ours: bool) -> None:
        if not ours:
            return
        try:
            staged.io.delete(staged.metadata_location)
        except FileNotFoundError:
            return
        except Exception as e:  # noqa: BLE001 - the first error matters more
            logger.debug("left behind: %s (%s)", staged.metadata_location, e)


def _waits(properties: Mapping[str, str]) -> list[float]:
    """Return the seconds before each look at the row: the first comes at once, each further one waits twice as long."""
    given = dict(properties)
    looks = 1 + max(0, property_as_int(given, STATUS_CHECKS, STATUS_CHECKS_DEFAULT) or 0)
    first = max(0, property_as_int(given, STATUS_WAIT_MS, STATUS_WAIT_MS_DEFAULT) or 0) / 1000
    return [0.0, *(min(60.0, first * 2**look) for look in range(looks - 1))]


def _unknown(table: str, staged: StagedTable, cause: Exception) -> CommitStateUnknownException:
    msg = (
        f"the metastore did not say whether table {table} was changed ({type(cause).__name__}: {cause}); nothing was deleted: look whether "
        f"its metadata_location is {staged.metadata_location} or one after it before you repeat the commit"
    )
    return CommitStateUnknownException(msg)


@contextlib.contextmanager
def _hive_types(table: IcebergTable) -> Iterator[None]:
    try:
        yield
    except KeyError as e:
        kind = e.args[0]
        msg = f"table {'.'.join(table.name())}: a Hive metastore has no column type for {getattr(kind, '__name__', kind)}; use another type"
        raise PolicyError(msg) from e
