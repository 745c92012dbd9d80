"""A server of a test: a process on 127.0.0.1 that ends with its ``with`` block."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.waiting import wait_until


def free_ports(count: int = 1) -> int:
    """Return the first of ``count`` neighbouring ports that are free now, below those that the system gives away meanwhile."""
    for _ in range(100):
        port = random.SystemRandom().randrange(10_000, 32_000)
        if all(_is_free(port + n) for n in range(count)):
            return port
    msg = f"no {count} neighbouring free ports"
    raise RuntimeError(msg)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextmanager
def running(
    command: Sequence[str | Path], *, folder: Path, is_up: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Start a server, wait until it is up, and end it; its log is ``folder/server.log``."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env={**os.environ, "HOME": str(folder), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        up = wait_until(lambda: process.poll() is not None or is_up())
        if not up or process.poll() is not None:
            msg = f"{command[0]} did not come up:\n{log.read_text(errors='replace')[-2000:]}"
            raise RuntimeError(msg)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0
