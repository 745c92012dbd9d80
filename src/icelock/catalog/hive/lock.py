"""The metastore's exclusive lock on a table, held while a commit reads, checks and replaces the table's row.

Invariant: whatever happens, the lock is released: on the connection that took it or on a new one, also if the reply to
the request was lost (the lock is then found by ``agentInfo``, an id that the request carries). Only if no connection can be
made does it stay until the metastore drops it (``hive.txn.timeout``, 300 s). Threads of one process queue before
(``catalog.commit.queue``).

Waiting honours PyIceberg's ``lock-check-min-wait-time``, ``lock-check-max-wait-time`` (seconds) and ``lock-check-retries``
with Java's first and longest wait and about Java's three minutes in all, but in more and shorter steps. Source: Java MetastoreLock.

Not here: what is done under the lock (``catalog.hive.catalog``).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from hive_metastore.ttypes import CheckLockRequest, LockState, ShowLocksRequest, UnlockRequest
from pyiceberg.catalog.hive import LOCK_CHECK_MAX_WAIT_TIME, LOCK_CHECK_MIN_WAIT_TIME, LOCK_CHECK_RETRIES
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.utils.properties import property_as_float, property_as_int
from thrift.Thrift import TException
from thrift.transport.TTransport import TTransportException

from icelock.catalog.hive.client import MetastoreClient

logger = logging.getLogger(__name__)

MIN_WAIT_DEFAULT: Final = 0.05
MAX_WAIT_DEFAULT: Final = 5.0
CHECKS_DEFAULT: Final = 75
REQUESTS: Final = 3
# Java's is 1.5: the next writer then sleeps, on average, for a sixth of the time that it has waited, and so do all behind it.
_GROWTH: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """How long to wait for a lock that another writer holds: ``checks`` times, from ``shortest`` to ``longest`` seconds."""

    shortest: float = MIN_WAIT_DEFAULT
    longest: float = MAX_WAIT_DEFAULT
    checks: int = CHECKS_DEFAULT

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LockWait:
        """Read the catalog properties ``lock-check-*``."""
        given = dict(properties)
        return cls(
            shortest=property_as_float(given, LOCK_CHECK_MIN_WAIT_TIME, MIN_WAIT_DEFAULT) or 0.0,
            longest=property_as_float(given, LOCK_CHECK_MAX_WAIT_TIME, MAX_WAIT_DEFAULT) or 0.0,
            checks=property_as_int(given, LOCK_CHECK_RETRIES, CHECKS_DEFAULT) or 0,
        )

    def seconds(self, check: int) -> float:
        """Return the wait before check number ``check`` (from 0)."""
        return min(self.longest, self.shortest * _GROWTH ** min(check, 128))


class TableLock:
    """Context manager: the lock is held inside.

    ``request`` makes PyIceberg's lock request for database and table.

    Raises:
        CommitFailedException: other writers held it for too long, or the metastore failed; nothing was changed.
    """

    def __init__(
        self,
        connections: MetastoreClient,
        client: Any,
        *,
        database: str,
        table: str,
        request: Callable[[str, str], Any],
        wait: LockWait,
    ) -> None:
        self._connections = connections
        self._client = client
        self._database = database
        self._table = table
        self._request = request
        self._wait = wait
        self._agent = f"icelock-{uuid.uuid4()}"
        self._asked = False
        self._lock_id: int | None = None

    def __enter__(self) -> Self:
        """Take the lock, waiting for other writers."""
        try:
            self._acquire()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give the lock back."""
        self.release()

    def renew(self) -> None:
        """Check that the lock is still held, which also restarts its timeout.

        Raises:
            CommitFailedException: it is not, because this process took too long.
        """
        try:
            state = self._client.check_lock(CheckLockRequest(lockid=self._lock_id)).state
        except TException as e:
            raise CommitFailedException(f"the lock on table {self._name()} was lost before the commit: {e}; nothing was changed") from e
        if state != LockState.ACQUIRED:
            self._refuse(state)

    def _acquire(self) -> None:
        state = self._ask()
        check = 0
        while state == LockState.WAITING:
            if check >= self._wait.checks:
                raise CommitFailedException(
                    f"table {self._name()} is locked by another writer, and was at {check} checks of its lock; nothing was changed"
                )
            time.sleep(self._wait.seconds(check))
            check += 1
            try:
                state = self._client.check_lock(CheckLockRequest(lockid=self._lock_id)).state
            except TException as e:
                raise CommitFailedException(
                    f"the metastore failed while the lock on table {self._name()} was waited for: {e}; nothing was changed"
                ) from e
        if state != LockState.ACQUIRED:
            self._refuse(state)

    def _ask(self) -> int:
        """Send the request, again if it fails: the metastore may be busy with requests of others."""
        request = self._request(self._database, self._table)
        request.agentInfo = self._agent
        for attempt in range(REQUESTS):
            self._asked = True
            try:
                answer = self._client.lock(request)
            except TException as e:
                if attempt + 1 == REQUESTS or isinstance(e, TTransportException):
                    raise CommitFailedException(f"the metastore gave no lock on table {self._name()}: {e}; nothing was changed") from e
                self.release()
                time.sleep(self._wait.seconds(attempt))
            else:
                self._lock_id = answer.lockid
                return int(answer.state)
        raise AssertionError  # not reached: the last attempt returns or raises

    def release(self) -> None:
        """Give the lock back, once; a failure to do so is logged and changes nothing about the commit."""
        if not self._asked:
            return
        try:
            try:
                self._unlock(self._client)
            except Exception as e:  # noqa: BLE001 - whatever it was, a new connection may do
                logger.debug("giving back the lock on table %s on a new connection, after %s", self._name(), e)
                with self._connections as client:
                    self._unlock(client)
        except Exception as e:  # noqa: BLE001 - the metastore drops a lock that is not renewed; the commit is what counts
            logger.warning("the lock on table %s was not given back (%s); the metastore drops it by itself", self._name(), e)
        self._asked, self._lock_id = False, None

    def _unlock(self, client: Any) -> None:
        ids = [self._lock_id]
        if self._lock_id is None:  # it never arrived
            shown = client.show_locks(ShowLocksRequest(dbname=self._database, tablename=self._table))
            ids = [lock.lockid for lock in shown.locks or () if lock.agentInfo == self._agent]
        for lock_id in ids:
            client.unlock(UnlockRequest(lockid=lock_id))

    def _refuse(self, state: int) -> None:
        name = LockState._VALUES_TO_NAMES.get(state, state)
        raise CommitFailedException(f"the lock on table {self._name()} is in state {name}, not ACQUIRED; nothing was changed")

    def _name(self) -> str:
        return f"{self._database}.{self._table}"
