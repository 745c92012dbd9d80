"""A real PostgreSQL server for tests: a new cluster in a temporary folder, on a free port of 127.0.0.1.

``with Postgres() as server:``; ``server.uri()`` is SQLAlchemy's, ``crash`` and ``start`` are a restart. The binaries are Debian's
(``/usr/lib/postgresql/*/bin``) or those on PATH. PostgreSQL refuses to run as root: then it runs as ``postgres`` or ``nobody``. The
server ends when this process does, however it ends: it waits for the end of its standard input.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.servers.running import free_ports

# The server's parent: it stops the server when the tests' end of the pipe is gone.
_KEEPER = '"$@" & server=$!; cat > /dev/null; kill -INT $server 2> /dev/null; wait $server'
_SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "100", "shared_buffers": "16MB"}


def binaries() -> Path:
    """The newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    program = found[-1] if found else shutil.which("initdb")
    if program is None:
        msg = "PostgreSQL's server is missing: apt-get install postgresql"
        raise RuntimeError(msg)
    return Path(program).resolve().parent


class Postgres:
    """One server; its superuser is ``icelock``, without a password. ``settings`` are the server's, such as ``fsync="on"``."""

    def __init__(self, **settings: str) -> None:
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._bin = binaries()
        self._user = _unprivileged()
        self._settings = {**_SETTINGS, **settings}
        self.port = free_ports()

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="icelock-pg-"))
        try:
            if self._user is not None:
                shutil.chown(self._folder, self._user["user"], self._user["group"])
            self._run("initdb", "-D", str(self._data), "-U", "icelock", "-A", "trust", "-E", "UTF8", "--no-sync")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def start(self) -> None:
        """Start the server, on the same port as before, and wait until it answers."""
        settings = [f"--{name}={value}" for name, value in {**self._settings, "unix_socket_directories": str(self._folder)}.items()]
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port), *settings]
        with (self._data.parent / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", *command],
                cwd=self._folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, **(self._user or {}),
            )  # fmt: skip
        self._until_it_answers(time.monotonic() + 60)

    def crash(self) -> None:
        """End the server as a crash does: every connection is cut, nothing is shut down in order."""
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        self._stop()

    def uri(self, database: str = "postgres", port: int | None = None) -> str:
        """Return SQLAlchemy's address of a database."""
        return f"postgresql+psycopg://icelock@127.0.0.1:{port or self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Return a connection of its own, past the catalog; each statement commits."""
        return psycopg.connect(host="127.0.0.1", port=self.port, user="icelock", dbname=database, autocommit=True, connect_timeout=10)

    def make(self, database: str) -> None:
        """Make an empty database."""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {database}")  # type: ignore[arg-type]

    def log(self) -> str:
        """What the server wrote."""
        return (self._data.parent / "log").read_text(errors="replace")

    @property
    def _data(self) -> Path:
        assert self._folder is not None
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([str(self._bin / program), *arguments], check=True, cwd=self._folder, capture_output=True, **(self._user or {}))

    def _until_it_answers(self, end: float) -> None:
        assert self._keeper is not None
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError as e:
                if time.monotonic() > end or self._keeper.poll() is not None:
                    msg = f"PostgreSQL does not answer: {e}\n{self.log()[-4000:]}"
                    raise RuntimeError(msg) from e
                time.sleep(0.05)
            else:
                return

    def _stop(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(60)


def _unprivileged() -> dict[str, Any] | None:
    """The user to run as when this is root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
