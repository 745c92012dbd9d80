"""One process for all planning daemons of a JVM: it has imported what they need, and they are forked from it.

Spark starts a daemon for each step of planning (create, plan a read, push down, write, commit), which would each import PyIceberg and
SQLAlchemy for itself: 4 s of CPU, five times a JVM. The first one forks this process before it goes on; the others send it their standard
input, output and error and their environment, and wait for what is forked for them. It ends with the JVM, or when the JVM closes the
first one's input.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

_LONGEST = 1 << 20
_STARTED = b"+"
# Each daemon of Spark's has its own: they say nothing of what is imported.
_OF_EACH = ("PYTHON_", "SPARK_")


def plan_in_one(modules: Iterable[str]) -> None:
    """Return in the first daemon of a JVM, with the modules imported; in others, if the first one's process is gone, too."""
    jvm = os.getppid()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(_address())
    except OSError:
        listener.close()
        _hand_over()
    else:
        listener.listen(16)
    for module in modules:
        importlib.import_module(module)
    if listener.fileno() >= 0:
        if not os.fork():
            _serve(listener, jvm)
        listener.close()


def _address() -> str:
    """Return the name for daemons of this JVM that have the same environment (an abstract one: no file, and gone with the process)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OF_EACH)}
    return f"\0icelock-planner-{os.getppid()}-{zlib.crc32(json.dumps([environment, sys.path], sort_keys=True).encode()):08x}"


def _hand_over() -> None:
    """Let the other process do what this one was started for, and end with it; return if it does not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.connect(_address())
            told = json.dumps({"arguments": sys.orig_argv, "environment": dict(os.environ), "folder": str(Path.cwd())})
            socket.send_fds(server, [told.encode()], [0, 1, 2])
            started = server.recv(1)
        except OSError:
            return
        if started == _STARTED:
            code = server.recv(1)  # when it has ended
            os._exit(code[0] if code else 1)


def _serve(listener: socket.socket, jvm: int) -> None:
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    watch = select.poll()
    watch.register(0, 0)  # no more than that it is closed
    watch.register(os.pidfd_open(jvm), select.POLLIN)  # that it has ended
    watch.register(listener, select.POLLIN)
    while all(ready == listener.fileno() for ready, _ in watch.poll()):
        asked, _ = listener.accept()
        told, streams, _, _ = socket.recv_fds(asked, _LONGEST, 3)
        if streams and not os.fork():
            listener.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            _be_daemon(asked, **json.loads(told))
        for stream in streams:
            os.close(stream)
        asked.close()
    os._exit(0)


def _be_daemon(asked: socket.socket, arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Run Spark's daemon as if this process had been started for it."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.orig_argv, sys.argv = arguments, arguments[-2:]
    asked.send(_STARTED)
    code = 0
    try:
        runpy.run_module(arguments[-2], run_name="__main__", alter_sys=True)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    finally:
        asked.send(bytes([code & 0xFF]))
        os._exit(code)
