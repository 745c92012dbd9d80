"""What a listener between a Spark driver and its executors hears.

Executors are told to connect to 127.0.0.2, where a ``Tap`` listens on the driver's two ports (RPC, blocks), hands everything on to
127.0.0.1, and keeps a copy. Executors open no port of their own for the driver, so all that goes both ways passes here.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

_HERE = "127.0.0.1"
_OTHER = "127.0.0.2"


class Tap:
    """Listens from its making until ``close``; ``conf`` are the settings of the session that is listened to."""

    def __init__(self) -> None:
        self._heard: list[bytearray] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tap")
        self._thread.start()
        self._servers = [self._run(asyncio.start_server(self._connected, _OTHER, _port())) for _ in range(2)]
        rpc, blocks = (str(server.sockets[0].getsockname()[1]) for server in self._servers)
        self.conf = {
            "spark.driver.host": _OTHER,
            "spark.driver.bindAddress": _HERE,
            "spark.driver.port": rpc,
            "spark.driver.blockManager.port": blocks,
            "spark.port.maxRetries": "0",
        }

    def heard(self, text: bytes) -> bool:
        """Whether some bytes went over the wire, in either direction."""
        return any(text in stream for stream in self._heard)

    def forget(self) -> None:
        """Begin again."""
        for stream in self._heard:
            del stream[:]

    def close(self) -> None:
        """Stop listening and end the connections."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        there_reader, there_writer = await asyncio.open_connection(_HERE, port)
        await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self._heard.append(heard)
        try:
            while data := await reader.read(1 << 16):
                heard += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        pumps = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def _port() -> int:
    """Return a port that is free on both addresses."""
    while True:
        with socket.create_server((_HERE, 0)) as here:
            port: int = here.getsockname()[1]
            try:
                with socket.create_server((_OTHER, port)):
                    return port
            except OSError:
                continue
