"""How a REST catalog's server is talked to: every answer ends, is of bounded size, and comes from the server that was asked.

A server, or a proxy before it, can answer without end (a byte now and then, 100 Continue for ever, pages that repeat),
with more than memory holds (also by compression), or send a request elsewhere. So below PyIceberg's session

- an answer (status, headers and body together) is complete in ``icelock.rest.answer-timeout-ms``, and its bytes, as sent and
  unpacked, are ``icelock.rest.max-answer-bytes`` at most. A listing counts as one answer, however many pages it has.
- a redirect is followed to the same scheme, host and port only. 301, 302 and 303 are followed for GET and HEAD only: they would turn a
  change into a read (RFC 9110, 15.4), whose success would be taken for that of the change.

An answer that is too large or invalid is an ``AnswerError``, one that is too late requests' ``ReadTimeout``. Both are
``RequestException``: the server may have done what was asked.

Not here: what is asked (``catalog.rest.requests``), the outcome of a commit (``catalog.rest.commit``).
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from requests import ConnectionError as RequestsConnectionError
from requests import ConnectTimeout, PreparedRequest, RequestException, Response, Session
from requests.adapters import BaseAdapter
from requests.exceptions import ChunkedEncodingError, ReadTimeout
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError as TransportError
from urllib3.exceptions import MaxRetryError, NewConnectionError, ReadTimeoutError

from icelock import properties as names
from icelock.errors import CatalogUnreachableError, FormatError

_CHUNK: Final = 65_536
# What an error has to say, and the headers of an answer (http.client: 100 of 64 KiB).
_SMALL: Final = 65_536
_HEADERS: Final = 8 * 2**20
_HOPS: Final = 5
_FOR_LOOKS: Final = frozenset({301, 302, 303})
_FOR_ALL: Final = frozenset({307, 308})
_LOOKS: Final = frozenset({"GET", "HEAD"})
_LOG_IN_AGAIN: Final = frozenset({401, 419})
_PORTS: Final = {"http": 80, "https": 443}
_ELSEWHERE, _ERROR, _TIME_OUT, _SERVER, _NOT_IMPLEMENTED = 300, 400, 408, 500, 501


class AnswerError(FormatError, RequestException):
    """An answer of a catalog's server that is not accepted: too large, cut off, in an unknown form, or from elsewhere."""

    request = response = None


class RedirectError(AnswerError):
    """The server redirects a request elsewhere, or in a way that would turn a change into a read; it was not followed."""


class ServerUnreachableError(CatalogUnreachableError, RequestsConnectionError):
    """No REST server, or server of tokens, has an open port at the address; nothing was sent."""

    request = response = None


class _TooLargeError(Exception):
    """Neither ``OSError`` nor one of urllib3's, which would take it for a lost connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in seconds, sizes in bytes."""

    connect: float
    silence: float
    answer: float
    size: int


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """What is left of the time and the bytes of one answer, and the pages that a listing had."""

    ends: float
    wire: int
    left: int
    pages: set[str] = field(default_factory=set)

    def seconds(self) -> float:
        """Return the time that is left; a TimeoutError if there is none."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        return left

    def count(self, size: int) -> None:
        """Count bytes that came; a ``_TooLargeError`` if they are more than are allowed."""
        self.wire -= size
        if self.wire < 0:
            raise _TooLargeError


_EXCHANGE: ContextVar[_Exchange | None] = ContextVar("exchange", default=None)
# Not empty once a request of a call has left.
_LEFT: ContextVar[list[bool] | None] = ContextVar("left", default=None)
_LISTING: ContextVar[_Exchange | None] = ContextVar("listing", default=None)


class BoundedSender:
    """Takes the place of a session's ``send``."""

    def __init__(self, session: Session, limits: Limits, catalog: str) -> None:
        self._session, self._limits, self._catalog = session, limits, catalog
        self._send = session.send
        # requests would follow, with its rules, and read the answer to the end whatever its size.
        session.get_redirect_target = lambda resp: None  # type: ignore[method-assign]  # noqa: ARG005
        session.send = self  # type: ignore[method-assign]

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Count all requests of the block as one answer in pages."""
        token = _LISTING.set(self._new())
        try:
            yield
        finally:
            _LISTING.reset(token)

    def __call__(self, request: PreparedRequest, **options: Any) -> Response:
        """Send a request.

        Raises:
            ServerUnreachableError, AnswerError, requests.RequestException: no valid answer came.
        """
        exchange = _LISTING.get() or self._new()
        _turn_page(exchange, request)
        token = _EXCHANGE.set(exchange)
        left = _LEFT.get()
        try:
            for _ in range(_HOPS):
                try:
                    response = self._once(request, exchange, options)
                except Exception as e:
                    if _unconnected(e):
                        raise _unreachable(self._catalog, request, e) from e
                    if left is not None:
                        left.append(True)
                    raise
                if left is not None:
                    left.append(True)
                if response.status_code in _LOG_IN_AGAIN:
                    exchange.pages.clear()  # a listing starts again
                if not _ELSEWHERE <= response.status_code < _ERROR:
                    return response
                request = _redirected(request, response.status_code, response.headers.get("Location"))
        finally:
            _EXCHANGE.reset(token)
        raise RedirectError(f"the REST server sends {request.method} {_shown(request.url)} round in circles; check the catalog's uri")

    def _new(self) -> _Exchange:
        size = self._limits.size
        return _Exchange(ends=time.monotonic() + self._limits.answer, wire=size + _HEADERS, left=size)

    def _once(self, request: PreparedRequest, exchange: _Exchange, options: dict[str, Any]) -> Response:
        _bind(self._session.get_adapter(str(request.url)))
        try:
            wait = (self._limits.connect, min(self._limits.silence, exchange.seconds()))
            response = self._send(request, **{**options, "timeout": wait, "stream": True, "allow_redirects": False})
            try:
                content = _body(response, exchange)
                if response.status_code < _ERROR:
                    content.decode()
            finally:
                response.close()
        except ReadTimeoutError as e:
            raise ReadTimeout(e, request=request) from e
        except TransportError as e:
            raise ChunkedEncodingError(e, request=request) from e
        except _TooLargeError:
            raise AnswerError(
                f"the answer to {request.method} {_shown(request.url)} is too large: {names.REST_MAX_ANSWER} is {self._limits.size} bytes"
            ) from None
        except UnicodeDecodeError as e:
            raise AnswerError(f"the answer to {request.method} {_shown(request.url)} is not UTF-8: {e}") from e
        except TimeoutError as e:
            raise ReadTimeout(e, request=request) from e
        response._content, response._content_consumed = content, True
        response.encoding = "utf-8"
        return response


def _body(response: Response, exchange: _Exchange) -> bytes:
    """Read a body, unpacked."""
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding not in {"identity", "gzip", "x-gzip", "deflate"}:
        raise AnswerError(
            f"the answer to {response.request.method} {_shown(response.url)} is compressed as {coding[:40]!r}, which was not asked for"
        )
    packed = None if coding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib
    most = min(exchange.left, _SMALL) if response.status_code >= _ERROR else exchange.left
    parts: list[bytes] = []
    size = 0
    for chunk in response.raw.stream(_CHUNK, decode_content=False):
        try:
            part = chunk if packed is None else packed.decompress(chunk, most - size + 1)
        except zlib.error as e:
            raise _damaged(response, coding) from e
        size += len(part)
        if size > most:
            raise _TooLargeError
        parts.append(part)
    if packed is not None and size and not packed.eof:
        raise _damaged(response, coding)
    exchange.left -= size
    return b"".join(parts)


def _damaged(response: Response, coding: str) -> AnswerError:
    return AnswerError(f"the answer to {response.request.method} {_shown(response.url)} is cut off or damaged: it is not {coding}")


def _turn_page(exchange: _Exchange, request: PreparedRequest) -> None:
    page = str(request.url)
    if "pageToken=" not in page:
        return
    if page in exchange.pages:
        raise AnswerError(f"the pages of {_shown(page)} go round in circles: the REST server sends a next-page-token again")
    exchange.pages.add(page)


def _redirected(request: PreparedRequest, status: int, target: str | None) -> PreparedRequest:
    """Return a request for where the server sends it; a RedirectError if it may not be sent there."""
    place = urljoin(str(request.url), target or "")
    why = ""
    if target is None or status not in _FOR_LOOKS | _FOR_ALL:
        why = f"{status} names no place to go to"
    elif status in _FOR_LOOKS and request.method not in _LOOKS:
        why = f"{status} would turn it into GET"
    elif origin(place) is None or origin(place) != origin(str(request.url)):
        why = "credentials go to the catalog's own scheme, host and port only"
    if why:
        what = f"{request.method} {_shown(request.url)} on to {_shown(place)}"
        raise RedirectError(f"the REST server sends {what}: not followed, because {why}; correct the catalog's uri")
    again = request.copy()
    again.prepare_url(place, None)
    return again


def origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a http or https URL; None if it is invalid, or has a name or password in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname.lower(), port or _PORTS[parts.scheme]


def _shown(url: str | None) -> str:
    """Return a URL for messages: without query, and not too long."""
    text = str(url).split("?", 1)[0]
    return ascii(text[:200])[1:-1]


@contextmanager
def one_call() -> Iterator[None]:
    """Count all requests of the block as one: it was sent if any of them was, even if the last one met no server."""
    token = _LEFT.set([])
    try:
        yield
    except RequestException as e:
        if _LEFT.get():
            e.icelock_left = True  # type: ignore[attr-defined]
        raise
    finally:
        _LEFT.reset(token)


def not_sent(error: Exception) -> bool:
    """Whether a request never left: none of the requests of its call (``one_call``) had a connection."""
    return not getattr(error, "icelock_left", False) and _unconnected(error)


def _unreachable(catalog: str, request: PreparedRequest, error: Exception) -> ServerUnreachableError:
    """Return the error that names the catalog and the address, without a user's name and password that a URL may have."""
    place = urlsplit(str(request.url))
    why = "no connection in time" if isinstance(error, ConnectTimeout) else str(error.args[0].reason).rpartition(": ")[2]
    address = f"{place.scheme}://{place.netloc.rpartition('@')[2]}"
    return ServerUnreachableError(
        f"catalog {catalog}: no server answers at {address} ({why}). Nothing was sent: start the server, or correct the catalog's uri or "
        "the network's settings, and try again"
    )


def _unconnected(error: Exception) -> bool:
    if isinstance(error, ConnectTimeout | ServerUnreachableError):
        return True
    cause = error.args[0] if isinstance(error, RequestsConnectionError) and error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)


def may_be_done(error: Exception) -> bool:
    """Whether a request that failed may have been done, or still be: it was sent, and not refused."""
    if isinstance(error, RedirectError):
        return False
    if isinstance(error, RequestException):
        return not not_sent(error)
    status = getattr(getattr(error.__cause__, "response", None), "status_code", 0)  # PyIceberg's errors come from requests'
    return status == _TIME_OUT or (status >= _SERVER and status != _NOT_IMPLEMENTED)


class _BoundedRaw(io.RawIOBase):
    """The bytes of a socket, until time or size are used up."""

    def __init__(self, raw: Any, connection: socket.socket, exchange: _Exchange) -> None:
        super().__init__()
        self._raw, self._connection, self._exchange = raw, connection, exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        wait, left = self._connection.gettimeout(), self._exchange.seconds()
        shorter = wait is None or left < wait
        if shorter:
            self._connection.settimeout(left)
        try:
            size: int | None = self._raw.readinto(buffer)
        finally:
            if shorter:
                self._connection.settimeout(wait)
        self._exchange.count(size or 0)
        return size

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """http.client's, with every byte counted, including status and headers."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        exchange = _EXCHANGE.get()
        if exchange is not None:
            self.fp = io.BufferedReader(_BoundedRaw(self.fp.detach(), sock, exchange))

    def _read_status(self) -> tuple[str, int, str]:
        """Skip interim responses (RFC 9110, 15.2), which http.client does for 100 only."""
        while True:
            line: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]  # http.client's own
            if line[1] == http.client.SWITCHING_PROTOCOLS:
                raise http.client.BadStatusLine(str(line[1]))  # never asked for
            if line[1] >= http.client.OK:
                return line
            http.client.parse_headers(self.fp)


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS: Final = {"http": _Pool, "https": _SecurePool}


def _bind(adapter: BaseAdapter) -> None:
    """Let an adapter make connections of ours: requests' own, and the one of PyIceberg that signs."""
    manager: Any = getattr(adapter, "poolmanager", None)
    if manager is None or manager.pool_classes_by_scheme is _POOLS:
        return
    manager.pool_classes_by_scheme = _POOLS
    by_proxy = adapter.proxy_manager_for  # type: ignore[attr-defined]  # an HTTPAdapter

    def bound(proxy: str, **options: Any) -> Any:
        proxied = by_proxy(proxy, **options)
        proxied.pool_classes_by_scheme = _POOLS
        return proxied

    adapter.proxy_manager_for = bound  # type: ignore[attr-defined]
