"""Failures on the way to a metastore: raised at one call, or made by cutting the wire.

``Faults`` stands in for a catalog's connections and fails one call before or after the metastore has done it.
``CutWire`` is a proxy in front of the metastore that ends the connection at a request, or between its request and its answer.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self


class Faults:
    """``fail(call, when, error)``: the next such call fails; ``calls`` are the names of all that were made."""

    def __init__(self, catalog: Any) -> None:
        self._inner = catalog._client
        self._plan: dict[str, tuple[str, BaseException, int]] = {}
        self.calls: list[str] = []
        catalog._client = self

    def fail(self, call: str, when: str, error: BaseException, times: int = 1) -> None:
        self._plan[call] = (when, error, times)

    def __enter__(self) -> Any:
        return _Client(self._inner.__enter__(), self)

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def due(self, call: str) -> tuple[str, BaseException | None]:
        when, error, times = self._plan.get(call, ("", None, 0))
        if times > 1:
            self._plan[call] = (when, error, times - 1)  # type: ignore[assignment]
        else:
            self._plan.pop(call, None)
        return when, error


class _Client:
    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def use(*args: Any, **kwargs: Any) -> Any:
            self._faults.calls.append(name)
            when, error = self._faults.due(name)
            if error is not None and when == "before":
                raise error
            answer = call(*args, **kwargs)
            if error is not None:
                raise error
            return answer

        return use


class CutWire:
    """A TCP proxy to the metastore; ``cut(request, when)`` ends the connection of the next request of that name.

    ``when`` is ``before`` (the metastore never sees the request) or ``after`` (it does, and its answer is lost). With ``dead``
    no new connection is taken from then on.
    """

    def __init__(self, uri: str) -> None:
        host, port = uri.removeprefix("thrift://").split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"
        self._plan: tuple[bytes, str, bool] | None = None
        self._sockets: list[socket.socket] = []
        self._dead = False

    def cut(self, request: str, when: str, *, dead: bool = False) -> None:
        self._plan = (request.encode(), when, dead)

    def mend(self) -> None:
        self._dead = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        # A shutdown wakes the thread that accepts; closing alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for opened in self._sockets:
            _close(opened)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._dead:
                _close(client)
                continue
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            lost = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, lost), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, lost), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self._plan is None or self._plan[0] not in data:
                    server.sendall(data)
                    continue
                (_, when, self._dead), self._plan = self._plan, None
                if when == "before":
                    break
                lost.set()
                server.sendall(data)
        if not lost.is_set():
            _close(client)
            _close(server)

    def _answers(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if lost.is_set():
                    break
                client.sendall(data)
        _close(client)
        _close(server)


def _close(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    opened.close()
