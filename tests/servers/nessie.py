"""Nessie 0.99.0 itself, for tests: its own server with its REST catalog on an S3 of moto's, all on 127.0.0.1.

``with Nessie(s3_endpoint, bucket) as server:``; ``server.uri`` is the REST catalog's address. The server's jar comes through Maven into
``.cache/nessie`` of the clone (234 MB, checked against its SHA-256). It needs a Java 21 or later, which the other tests do not:
``java()`` is one that was found, or None. The server ends when this process does: it waits for the end of its standard input.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final, Self

CACHE: Final = Path(__file__).parents[2] / ".cache" / "nessie"
VERSION: Final = "0.99.0"
SHA256: Final = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
_JAR: Final = f"nessie-quarkus-{VERSION}-runner.jar"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_OLDEST: Final = 21
_KEEPER: Final = '"$@" & server=$!; cat > /dev/null; kill -KILL $server 2> /dev/null; wait $server'
_S3: Final = "nessie.catalog.service.s3.default-options"


@cache
def java() -> str | None:
    """Return a Java that can run the server: JAVA_HOME's, PATH's, or one of /usr/lib/jvm."""
    home = os.environ.get("JAVA_HOME")
    places = [f"{home}/bin/java"] if home else []
    places += [found] if (found := shutil.which("java")) else []
    places += sorted(map(str, Path("/usr/lib/jvm").glob("*/bin/java")))
    return next((place for place in places if _version(place) >= _OLDEST), None)


class Nessie:
    """One server, whose tables are lost with it."""

    def __init__(self, s3: str, bucket: str, *, timeout: float = 180.0) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._timeout = timeout
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self.uri = ""

    def __enter__(self) -> Self:
        jar = _fetched()
        self._folder = Path(tempfile.mkdtemp(prefix="icelock-nessie-"))
        try:
            self._launch(jar, self._folder)
            self.uri = f"{self._address(time.monotonic() + self._timeout)}/iceberg"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            assert keeper.stdin is not None
            keeper.stdin.close()
            keeper.wait(60)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def log(self) -> str:
        assert self._folder is not None
        return (self._folder / "log").read_text(errors="replace")

    def _launch(self, jar: Path, folder: Path) -> None:
        settings = {
            "java.io.tmpdir": str(folder),
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": "0",
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": "0",
            "quarkus.otel.sdk.disabled": "true",
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": f"s3://{self._bucket}/warehouse",
            f"{_S3}.endpoint": self._s3,
            f"{_S3}.path-style-access": "true",
            f"{_S3}.region": "eu-west-1",
            f"{_S3}.request-signing-enabled": "false",
            f"{_S3}.access-key": "urn:nessie-secret:quarkus:tests.s3",
            "tests.s3.name": "any",
            "tests.s3.secret": "any",
        }
        options = ["-Xmx400m", "-XX:TieredStopAtLevel=1", *(f"-D{name}={value}" for name, value in settings.items())]
        command = [str(java()), *options, "-jar", str(jar)]
        with (folder / "log").open("wb") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", *command],
                cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _address(self, end: float) -> str:
        while time.monotonic() < end:
            found = re.search(r"Listening on: (http://127\.0\.0\.1:\d+)", self.log())
            if found:
                return found[1]
            time.sleep(0.1)
        msg = f"Nessie did not start within {self._timeout:.0f} s:\n{self.log()[-4000:]}"
        raise RuntimeError(msg)


def _fetched() -> Path:
    jar = CACHE / _JAR
    if not jar.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            artifact = f"-Dartifact=org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"
            subprocess.run(["mvn", "-q", "-B", "-C", _COPY, artifact, f"-DoutputDirectory={folder}"], check=True, capture_output=True)
            came = Path(folder) / _JAR
            with came.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest != SHA256:
                msg = f"{_JAR} from Maven has SHA-256 {digest}, expected {SHA256}"
                raise ValueError(msg)
            came.replace(jar)
    return jar


def _version(program: str) -> int:
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0
