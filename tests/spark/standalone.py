"""A real Spark standalone cluster on this machine: a master and workers, each a JVM of its own, from PySpark's own jars.

    from tests.spark.standalone import Cluster, connected

    with Cluster.start(folder) as cluster, connected(cluster, {"spark.speculation": "true"}) as spark:
        ...

    Cluster.start(folder, workers=2, cores=1, memory_mb=1024, settings={})   returns when all workers have registered; ``settings``
        are Spark's for master and workers (``spark.authenticate`` has to be on both sides)
    cluster.url             spark://127.0.0.1:<port>
    cluster.executors()     process ids of the executors' JVMs; cluster.pythons(): of their Python daemons and workers
    cluster.logs()          files with what master, workers and executors said
    connected(cluster, {})  a session there, in a JVM of its own; executors run this Python and find icelock and ``tests`` as if they
                            were installed. Given settings go over ``session_conf(cluster)``
    connected_again(before, cluster, {})    the same in the JVM of a session, which is stopped

Everything is bound to 127.0.0.1, on ports that the system chose; every second worker calls itself localhost, so that there are two hosts.
Logs, work folders and temporary files are under ``folder``. ``stop`` ends the workers, then the master, and then whatever they left
behind in their Unix sessions (by Linux's /proc).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self
from unittest.mock import patch

import pyspark
from pyspark.sql import SparkSession

from tests.helpers.places import python_path
from tests.helpers.spark import HOST, SETTINGS, WARM, end_jvm, session, spark_environment
from tests.helpers.waiting import wait_until

HOSTS = (HOST, "localhost")  # Spark speculates on another host only
SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What JavaModuleOptions of Spark's launcher opens for each JVM that it starts, as far as a master and a worker need it.
_OPENED = ("java.lang", "java.nio", "java.net", "java.util", "java.util.concurrent", "sun.nio.ch", "sun.security.action")
_START_SECONDS = 120.0
_STOP_SECONDS = 15.0
_GRACE_SECONDS = 2.0


class Cluster:
    """A running master with its workers; ``stop`` it, or use it as a context."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []

    @classmethod
    def start(
        cls, folder: Path, *, workers: int = 2, cores: int = 1, memory_mb: int = 1024, settings: Mapping[str, str] | None = None
    ) -> Self:
        """Start a cluster whose files are under ``folder``, and wait until its workers have registered.

        Raises:
            RuntimeError: it did not come up; the message has the end of the log, and no process is left.
        """
        folder.mkdir(parents=True, exist_ok=True)
        conf = _settings_file(folder, settings or {})
        cluster = cls(folder)
        try:
            cluster._daemon("master", f"{DEPLOY}.master.Master", HOST, "--port", "0", "--webui-port", "0", "--properties-file", str(conf))
            cluster.url = cluster._wait("master", r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                work = folder / f"work-{number}"
                size = ("--cores", str(cores), "--memory", f"{memory_mb}M")
                where = ("--port", "0", "--webui-port", "0", "--work-dir", str(work), "--properties-file", str(conf))
                cluster._daemon(f"worker-{number}", f"{DEPLOY}.worker.Worker", HOSTS[number % 2], *size, *where, cluster.url)
            for number in range(workers):
                cluster._wait(f"worker-{number}", r"(Successfully registered with master)")
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        return [pid for pid in self._processes() if "CoarseGrainedExecutorBackend" in _command(pid)]

    def pythons(self) -> list[int]:
        """Process ids of the Python processes of executors."""
        return [pid for pid in self._processes() if "pyspark.daemon" in _command(pid)]

    def logs(self) -> list[Path]:
        """The logs of master and workers, and what executors wrote."""
        return [*self.folder.glob("*.log"), *self.folder.glob("work-*/*/*/std*")]

    def stop(self) -> None:
        """End all processes of the cluster; calling it again does nothing.

        Raises:
            RuntimeError: one did not go away.
        """
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(_STOP_SECONDS)
        wait_until(lambda: not self._processes(), _GRACE_SECONDS)
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: not self._processes(), _STOP_SECONDS):
            msg = f"processes of the cluster are left: {self._processes()}"
            raise RuntimeError(msg)
        for daemon in self._daemons:
            daemon.wait(_STOP_SECONDS)
        self._daemons.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _daemon(self, name: str, main: str, host: str, *arguments: str) -> None:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else shutil.which("java") or "java"
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        # As Spark's launcher gives it to drivers and executors, so that the archive of classes fits (tests.helpers.class_archive).
        first = sorted((SPARK_HOME / "jars").glob("slf4j-api-*.jar"))
        classes = ["-cp", os.pathsep.join(map(str, (SPARK_HOME / "conf", *first, SPARK_HOME / "jars" / "*")))]
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(
                [
                    str(java),
                    "-Xmx192m",
                    *_QUICK_START.split(),
                    f"-Djava.io.tmpdir={temporary}",
                    *opened,
                    *classes,
                    main,
                    "--host",
                    host,
                    *arguments,
                ],
                cwd=self.folder,
                env=_environment(temporary),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._daemons.append(daemon)

    def _wait(self, name: str, pattern: str) -> str:
        log = self.folder / f"{name}.log"
        found: list[str] = []

        def told() -> bool:
            found[:] = re.findall(pattern, log.read_text(errors="replace"))
            return bool(found) or any(daemon.poll() is not None for daemon in self._daemons)

        wait_until(told, _START_SECONDS)
        if not found:
            msg = f"the {name} of Spark did not come up:\n{log.read_text(errors='replace')[-3000:]}"
            raise RuntimeError(msg)
        return found[0]

    def _processes(self) -> list[int]:
        """Return what runs in the Unix sessions of the daemons: Python daemons leave the process group, but not the session."""
        sessions = {daemon.pid for daemon in self._daemons}
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(pid for pid in pids if _session(pid) in sessions)


def session_conf(cluster: Cluster) -> dict[str, str]:
    """Return the settings of a session on the cluster."""
    return {
        **SETTINGS,
        "spark.master": cluster.url,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _QUICK_START,
        "spark.executorEnv.PYTHONPATH": python_path(),
        "spark.sql.warehouse.dir": str(cluster.folder / "spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # Both workers take part from the first task on.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }


@contextlib.contextmanager
def connected(cluster: Cluster, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Give a session on the cluster, in a JVM of its own; ``conf`` goes over ``session_conf``.

    What plans for it is warm, executors are not: their path is in ``session_conf``.
    """
    end_jvm()
    temporary = cluster.folder / "driver"
    temporary.mkdir(exist_ok=True)
    with patch.dict(os.environ, {**spark_environment(WARM), "TMPDIR": str(temporary)}):
        try:
            yield session({**session_conf(cluster), **(conf or {})})
        finally:
            end_jvm()


@contextlib.contextmanager
def connected_again(before: SparkSession, cluster: Cluster, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Stop a session, and give one on another cluster in the same JVM.

    The settings of the first are there unless ``session_conf`` or ``conf`` have others: a JVM has what it was started with as its system
    properties.
    """
    before.stop()
    spark = session({**session_conf(cluster), **conf})
    try:
        yield spark
    finally:
        spark.stop()


def _settings_file(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write Spark's settings into a file: a secret is not for command lines."""
    file = folder / "spark.conf"
    file.touch(mode=0o600)
    own = {"spark.master.rest.enabled": "false"}  # it would listen on port 6066
    file.write_text("".join(f"{name} {value}\n" for name, value in {**own, **settings}.items()))
    return file


def _environment(temporary: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "JDK_JAVA_OPTIONS", "LANG") if name in os.environ}
    own = {"SPARK_HOME": SPARK_HOME, "SPARK_LOCAL_IP": HOST, "SPARK_PUBLIC_DNS": HOST, "SPARK_SCALA_VERSION": "2.13"}
    folders = {"TMPDIR": temporary, "SPARK_LOCAL_DIRS": temporary, "PYSPARK_PYTHON": sys.executable}
    return {**inherited, **{name: str(value) for name, value in {**own, **folders}.items()}}


def _session(pid: int) -> int | None:
    """Return the Unix session of a process that lives."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state == "Z" else int(session)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
