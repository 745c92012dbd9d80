"""A real Hive metastore (thrift) from the jars that PySpark ships, for one test session.

``with Metastore() as metastore:`` or ``start`` and ``stop``; ``metastore.uri`` is ``thrift://127.0.0.1:PORT``. The port is chosen by the
system, the database (Derby) is in memory, logs go to a temporary folder that ``stop`` removes. The server ends when this process does.
Needs a JDK 17 or 21 on PATH or named by JAVA_HOME.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

MAIN = Path(__file__).parent / "HmsMain.java"
PACKAGES = ("java.lang", "java.util", "java.net", "java.nio", "java.io", "sun.nio.ch", "java.util.concurrent")
LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.c.ref = c
appender.c.type = Console
appender.c.name = c
appender.c.target = SYSTEM_ERR
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %c{1}: %m%n
"""


def spark_jars() -> Path:
    """The folder of PySpark's jars; PySpark is not imported."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        msg = "the metastore's jars come with PySpark: install icelock[test]"
        raise RuntimeError(msg)
    return Path(found.origin).parent / "jars"


class Metastore:
    """One server; ``start`` returns its URI. ``settings`` go into its hive-site.xml."""

    def __init__(self, *, warehouse: Path | None = None, timeout: float = 180.0, settings: Mapping[str, str] | None = None) -> None:
        self._warehouse = warehouse
        self._settings = dict(settings or {})
        self._timeout = timeout
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.uri = ""

    def start(self) -> str:
        """Start the server and wait until it listens."""
        self._folder = Path(tempfile.mkdtemp(prefix="icelock-metastore-"))
        try:
            self._process = self._launch(self._folder)
            self.uri = f"thrift://127.0.0.1:{self._port(self._process)}"
        except BaseException:
            self.stop()
            raise
        return self.uri

    def stop(self) -> None:
        """Stop the server and remove its folder; may be called again."""
        process, folder = self._process, self._folder
        self._process, self._folder, self.uri = None, None, ""
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def log(self) -> str:
        """What the server wrote to its log."""
        return (self._folder / "metastore.log").read_text(errors="replace") if self._folder else ""

    def _launch(self, folder: Path) -> subprocess.Popen[bytes]:
        conf = folder / "conf"
        conf.mkdir()
        warehouse = self._warehouse or folder / "warehouse"
        properties = {
            "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "none",  # PySpark has none of the pools
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": warehouse.as_uri(),
            "hive.metastore.disallow.incompatible.col.type.changes": "false",
            "fs.defaultFS": "file:///",
            **self._settings,
        }
        items = "".join(f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
        (conf / "hive-site.xml").write_text(f"<configuration>{items}</configuration>")
        (conf / "log4j2.properties").write_text(LOGGING)
        home = os.environ.get("JAVA_HOME")
        command = [
            str(Path(home) / "bin" / "java") if home else "java",
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in PACKAGES),
            f"-Dderby.stream.error.file={folder / 'derby.log'}",
            f"-Djava.io.tmpdir={folder}",
            *("-cp", f"{conf}:{spark_jars()}/*"),
            str(MAIN),  # the launcher compiles a single source file by itself
        ]
        with (folder / "metastore.log").open("wb") as log:
            return subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True)

    def _port(self, process: subprocess.Popen[bytes]) -> int:
        port = announced_port(process, timeout=self._timeout)
        if port is None:
            msg = f"the metastore did not start within {self._timeout:.0f} s (a JDK 17 or 21 is needed):\n{self.log()[-4000:]}"
            raise RuntimeError(msg)
        return port


def announced_port(process: subprocess.Popen[bytes], *, timeout: float) -> int | None:
    """Return the port that a server says in a line ``port N``; None when it ends or takes longer, in seconds."""
    lines: list[bytes] = []
    over = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"port "):
                lines.append(line)
                over.set()
        over.set()  # the end of the stream: the process is gone

    threading.Thread(target=read, daemon=True).start()
    return int(lines[0].split()[1]) if over.wait(timeout) and lines else None
