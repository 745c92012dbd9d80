"""Answers of a metastore without end or of any size: a call ends."""

from __future__ import annotations

import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("hive_metastore")

from icelock.catalog.hive import client as hive_client
from icelock.catalog.hive.client import MetastoreClient

# A reply (2) of Thrift's strict binary protocol to get_all_databases, and the field that a success has: a list of text.
REPLY = struct.pack(">I", 0x80010002) + struct.pack(">I", 17) + b"get_all_databases" + struct.pack(">I", 0)
SUCCESS = REPLY + struct.pack(">bh", 15, 0) + struct.pack(">b", 11)


def drip(start: bytes) -> Callable[[Any], None]:
    def send(file: Any) -> None:
        file.write(start)
        for _ in range(100):
            file.write(b"a")
            time.sleep(0.1)

    return send


def flood(start: bytes) -> Callable[[Any], None]:
    def send(file: Any) -> None:
        file.write(start)
        for _ in range(2000):
            file.write(b"a" * 2**16)

    return send


@contextmanager
def metastore(answer: Callable[[Any], None]) -> Iterator[str]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(100)
            try:
                answer(self.wfile)
            except OSError:
                return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"thrift://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "answer",
    [
        drip(b""),
        drip(SUCCESS + struct.pack(">ii", 1, 1000)),
        flood(SUCCESS + struct.pack(">ii", 1, 0x7FFFFFFF)),  # a text of 2 GiB
        flood(SUCCESS + struct.pack(">i", 0x7FFFFFFF)),  # a list of 2 G texts
        flood(SUCCESS + struct.pack(">ii", 200, 60_000_000)),  # many large ones
        flood(struct.pack(">I", 0x80010002) + struct.pack(">I", 0x7FFFFFFF)),  # a name of 2 GiB
        flood(struct.pack(">I", 0x7FFFFFFF)),  # the same, in the old form
    ],
    ids=["drips", "drips in a text", "long text", "long list", "all too large", "long name", "old form"],
)
def test_an_answer_without_end_ends_the_call(answer: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_client, "TIMEOUT_MS", 700)
    began = time.monotonic()
    with metastore(answer) as uri, MetastoreClient({"uri": uri}) as client, pytest.raises(Exception) as caught:  # noqa: PT011 - which is thrift's
        client.get_all_databases()
    assert time.monotonic() - began < 5
    assert type(caught.value).__module__.startswith("thrift.")


def test_an_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_client, "TIMEOUT_MS", 5000)
    long = b"b" * 3_000_000
    body = SUCCESS + struct.pack(">i", 2) + struct.pack(">i", 1) + b"a" + struct.pack(">i", len(long)) + long + b"\x00"
    with metastore(lambda file: file.write(body)) as uri, MetastoreClient({"uri": uri}) as client:
        assert client.get_all_databases() == ["a", long.decode()]
