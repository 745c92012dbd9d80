"""An HTTP proxy in front of a real service that spoils the first answers: an error of the service's, a dropped connection, silence."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """What the service would say itself."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Drop:
    """The connection is closed without an answer."""


@dataclass(frozen=True)
class Silence:
    """No answer comes until the proxy ends."""


Fault = Answer | Drop | Silence


class FaultyProxy:
    """``faults`` are used up one a request; ``always`` never is. ``requests`` counts all; ``authorizations`` has their headers."""

    def __init__(self, target: int) -> None:
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.requests = 0
        self.authorizations: list[str] = []
        self._done = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, target))
        self._server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def next_fault(self) -> Fault | None:
        self.requests += 1
        return self.faults.pop(0) if self.faults else self.always

    def wait(self) -> None:
        self._done.wait(60)

    @contextmanager
    def serving(self) -> Iterator[FaultyProxy]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def _handler(proxy: FaultyProxy, target: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            proxy.authorizations.append(self.headers.get("Authorization", ""))
            fault = proxy.next_fault()
            if isinstance(fault, Answer):
                self._answer(fault)
            elif isinstance(fault, Silence):
                proxy.wait()
            elif fault is None:
                self._answer(self._forwarded(body))
            self.close_connection = True

        def do_PUT(self):
            self.do_POST()

        def _forwarded(self, body):
            connection = http.client.HTTPConnection("127.0.0.1", target, timeout=10)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                return Answer(answer.status, answer.read(), {"Content-Type": answer.headers.get("Content-Type", "")})
            finally:
                connection.close()

        def _answer(self, answer):
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(answer.body)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_):
            pass

    return Handler
