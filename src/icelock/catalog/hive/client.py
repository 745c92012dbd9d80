"""Connections to a Hive metastore: one for each ``with``, so that threads do not share a socket.

PyIceberg's client keeps one transport for the whole catalog; two threads that commit at once would read each other's
replies. Several URIs (separated by commas) are tried in order whenever a connection is opened. Answers are bounded in time and size.

Not here: the requests (``catalog.hive.catalog``), locks (``catalog.hive.lock``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from pyiceberg.catalog import URI
from pyiceberg.catalog import hive as ice
from pyiceberg.catalog.hive import _HiveClient
from pyiceberg.utils.properties import property_as_bool
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from icelock.errors import CatalogUnreachableError, PolicyError

# The timeout of Hive's own client: a call to a metastore that does not finish its answer ends then.
TIMEOUT_MS: Final = 600_000
MAX_ANSWER: Final = 64 * 2**20
_CHUNK: Final = 2**20


class MetastoreUnreachableError(CatalogUnreachableError, TTransportException):  # type: ignore[misc]  # thrift has no types
    """No metastore of a catalog answers; nothing was sent."""

    type = TTransportException.NOT_OPEN
    inner = None


class MetastoreClient(_HiveClient):
    """PyIceberg's client whose every ``with`` opens and closes a connection of its own. Safe to share between threads."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._uris = _uris(properties)
        self.catalog = "of Hive"
        """The catalog's name, for messages."""
        self._properties = dict(properties)
        self._local = threading.local()

    def __enter__(self) -> Any:
        """Open a connection to the first metastore that answers.

        Raises:
            MetastoreUnreachableError: none does; its cause is the last one's error.
        """
        failure: Exception | None = None
        for uri in self._uris:
            try:
                return self._enter(uri)
            except TTransportException as e:
                failure = e
        where = ", ".join(f"{url.hostname}:{url.port}" for url in map(urlsplit, self._uris))
        raise MetastoreUnreachableError(
            f"catalog {self.catalog}: no metastore answers at {where}. Nothing was sent: start it, or correct the catalog's uri or the "
            "network's settings, and try again"
        ) from failure

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the connection that this thread opened last."""
        self._opened().pop().__exit__(kind, error, trace)

    def _enter(self, uri: str) -> Any:
        connection = _Connection(uri, self._properties)
        try:
            client = connection.__enter__()
        except BaseException:
            connection.__exit__(None, None, None)
            raise
        self._opened().append(connection)
        return client

    def _opened(self) -> list[_Connection]:
        if not hasattr(self._local, "opened"):
            self._local.opened = []
        return self._local.opened  # type: ignore[no-any-return]


class _Connection(_HiveClient):
    """PyIceberg's client with a timeout."""

    def __init__(self, uri: str, properties: Mapping[str, str]) -> None:
        super().__init__(
            uri,
            properties.get("ugi"),
            property_as_bool(dict(properties), ice.HIVE_KERBEROS_AUTH, ice.HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(ice.HIVE_KERBEROS_SERVICE_NAME, ice.HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )

    def _init_thrift_transport(self) -> Any:
        if self._kerberos_auth:
            return super()._init_thrift_transport()
        url = urlsplit(self._uri)
        socket = BoundedSocket(url.hostname, url.port)
        socket.setTimeout(TIMEOUT_MS)
        return TBufferedTransport(socket)

    def _client(self) -> Any:
        client = super()._client()
        # A longer text or list is refused before memory is allocated for it.
        client._iprot.string_length_limit = MAX_ANSWER
        client._iprot.container_length_limit = MAX_ANSWER
        return client


class BoundedSocket(TSocket):  # type: ignore[misc]  # thrift has no types
    """A socket whose answers are bounded in time and size; an answer begins after something was written."""

    _ends = float("inf")
    _left = MAX_ANSWER

    def write(self, buff: bytes) -> None:
        """Send; what is read from now on is the answer."""
        self._ends, self._left = time.monotonic() + TIMEOUT_MS / 1000, MAX_ANSWER
        super().write(buff)

    def read(self, sz: int) -> bytes:
        """Return some bytes of the answer.

        Raises:
            TTransportException: it is too late or too large.
        """
        seconds = min(self._ends - time.monotonic(), TIMEOUT_MS / 1000)
        if seconds <= 0:
            raise TTransportException(type=TTransportException.TIMED_OUT, message="the answer was not complete in time")
        self.handle.settimeout(seconds)
        try:
            data: bytes = super().read(min(sz, _CHUNK))
        finally:
            self.handle.settimeout(TIMEOUT_MS / 1000)
        self._left -= len(data)
        if self._left < 0:
            raise TTransportException(type=TTransportException.SIZE_LIMIT, message=f"the answer has more than {MAX_ANSWER} bytes")
        return data


def _uris(properties: Mapping[str, str]) -> list[str]:
    uris = [uri.strip() for uri in str(properties.get(URI) or "").split(",") if uri.strip()]
    if not uris or not all(urlsplit(uri).scheme == "thrift" and urlsplit(uri).hostname and urlsplit(uri).port for uri in uris):
        raise PolicyError(
            f"uri of a Hive catalog is {properties.get(URI)!r}; it must be like thrift://metastore:9083 (several are separated by commas)"
        )
    return uris
