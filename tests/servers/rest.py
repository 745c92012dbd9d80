"""Iceberg's own REST catalog server (Java 1.11.0, JdbcCatalog on sqlite), for one test session.

``with RestServer() as server:``; ``server.uri`` is ``http://127.0.0.1:PORT``. Its jars come through Maven into ``.cache/rest`` of the clone
(75 MB, about half a minute the first time). The port is the system's choice; database and logs lie in a temporary folder that the
end removes. The server ends when this process does. Needs Maven and a JDK 17 or 21 on PATH or named by JAVA_HOME.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from tests.helpers.class_archive import QUICK_START
from tests.servers.metastore import announced_port

SOURCES: Final = Path(__file__).parent / "java_rest"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "rest"
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def jars() -> Path:
    """The folder of the jars and the compiled classes in ``java_rest``."""
    sources = sorted(SOURCES.glob("*.java"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in (SOURCES / "pom.xml", *sources))).hexdigest()[:16]
    made = CACHE / f"server-{state}"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            _run("mvn", "-q", "-B", "-C", "-f", str(SOURCES / "pom.xml"), _GOAL, f"-DoutputDirectory={folder}/made")
            quick = (f"-J{option}" for option in QUICK_START.split())
            _run(_jdk("javac"), *quick, "-nowarn", "-d", f"{folder}/made", "-cp", f"{folder}/made/*", *map(str, sources))
            Path(folder, "made").rename(made)
    return made


def java(main: str, *arguments: str) -> list[str]:
    """Run a main class and return the lines that it prints."""
    place = jars()
    return _run(_jdk("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{place}:{place}/*", main, *arguments).splitlines()


class RestServer:
    """One server and its warehouse folder."""

    def __init__(self, *, timeout: float = 120.0) -> None:
        self._timeout = timeout
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.uri = ""

    @property
    def warehouse(self) -> Path:
        assert self._folder is not None
        return self._folder / "warehouse"

    @property
    def database(self) -> Path:
        """The server's sqlite database."""
        assert self._folder is not None
        return self._folder / "rest.db"

    def __enter__(self) -> Self:
        place = jars()
        self._folder = Path(tempfile.mkdtemp(prefix="icelock-rest-"))
        try:
            self._process = self._launch(place, self._folder)
            self.uri = f"http://127.0.0.1:{self._port(self._process)}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        process, folder = self._process, self._folder
        self._process, self._folder, self.uri = None, None, ""
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace") if self._folder else ""

    def _launch(self, place: Path, folder: Path) -> subprocess.Popen[bytes]:
        command = [
            _jdk("java"),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            f"-Djava.io.tmpdir={folder}",
            *("-cp", f"{place}:{place}/*"),
            "RestMain",
            f"jdbc:sqlite:{self.database}",
            f"file://{self.warehouse}",
        ]
        with (folder / "server.log").open("wb") as log:
            return subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True)

    def _port(self, process: subprocess.Popen[bytes]) -> int:
        port = announced_port(process, timeout=self._timeout)
        if port is None:
            msg = f"the REST server did not start within {self._timeout:.0f} s (a JDK 17 or 21 is needed):\n{self.log()[-4000:]}"
            raise RuntimeError(msg)
        return port


def _jdk(tool: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / tool) if home else tool


def _run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        msg = f"{command[0]} is missing, and Iceberg's REST server needs it (on Debian: apt-get install maven openjdk-17-jdk-headless)"
        raise RuntimeError(msg)
    environment = {**os.environ, "JDK_JAVA_OPTIONS": QUICK_START}  # for Maven
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        msg = f"{command[0]} failed ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(msg)
    return done.stdout
