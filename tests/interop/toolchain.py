"""What the interop tests need on Java's side, made on a machine that has only Maven and a JDK.

The Iceberg runtime jar, the libraries of AWS and Azure for Iceberg's KMS clients, and Hadoop's S3A come from Maven Central (48, 69, 4
and 3 MB, checked against pinned SHA-256), the test classes under ``java/`` are compiled against them. All lie in ``.cache/interop`` of
the clone and are made again only when the version or a source changes.

Not here: the metastore, which runs from PySpark's own jars (``tests.servers.metastore``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.helpers.class_archive import QUICK_START

ICEBERG_VERSION: Final = "1.12.0"
SPARK_VERSION: Final = "4.1"
RUNTIME: Final = f"iceberg-spark-runtime-{SPARK_VERSION}_2.13"
RUNTIME_SHA256: Final = "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
AWS_BUNDLE: Final = "iceberg-aws-bundle"
AWS_BUNDLE_SHA256: Final = "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
MAVEN_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
AZURE: Final = "azure"
S3A: Final = "s3a"
SOURCES: Final = Path(__file__).parent / "java"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "interop"


class MissingToolError(Exception):
    """The machine cannot run the interop tests; the message says what to install."""


def class_path() -> list[Path]:
    """Return what goes onto the class path of Spark's driver: the Iceberg runtime, libraries of AWS, Azure and S3A, compiled test classes.

    Raises:
        MissingToolError: no JDK, or no Maven and no jar of an earlier run.
    """
    _found(_jdk("java"), "apt-get install openjdk-17-jdk-headless")
    CACHE.mkdir(parents=True, exist_ok=True)
    runtime = _jar(RUNTIME, RUNTIME_SHA256)
    libraries = [runtime, _jar(AWS_BUNDLE, AWS_BUNDLE_SHA256), *_jars(AZURE), *_jars(S3A)]
    return [*libraries, _classes(libraries)]


def _jar(artifact_id: str, sha256: str) -> Path:
    jar = CACHE / f"{artifact_id}-{ICEBERG_VERSION}.jar"
    if not jar.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            artifact = f"-Dartifact=org.apache.iceberg:{artifact_id}:{ICEBERG_VERSION}"
            _run("mvn", "-q", "-B", "-C", MAVEN_COPY, artifact, f"-DoutputDirectory={folder}", what="apt-get install maven")
            fetched = Path(folder) / jar.name
            found = hashlib.sha256(fetched.read_bytes()).hexdigest()
            if found != sha256:
                msg = f"{jar.name} from Maven has SHA-256 {found}, expected {sha256}"
                raise ValueError(msg)
            fetched.replace(jar)
    return jar


def _jars(name: str) -> list[Path]:
    """Return the jars that ``SHA256SUMS`` in the folder ``name`` lists, which Maven resolves from its ``pom.xml``."""
    folder = Path(__file__).parent / name
    listed = (folder / "SHA256SUMS").read_text()
    sums = dict(reversed(line.split()) for line in listed.splitlines())
    jars = CACHE / f"{name}-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    if not jars.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            made = Path(scratch) / "jars"
            options = ("-q", "-B", "-C", "-f", str(folder / "pom.xml"), f"{MAVEN_COPY}-dependencies", "-DincludeScope=runtime")
            _run("mvn", *options, f"-DoutputDirectory={made}", what="apt-get install maven")
            for jar in made.iterdir():
                if jar.name not in sums:
                    jar.unlink()
                elif hashlib.sha256(jar.read_bytes()).hexdigest() != sums[jar.name]:
                    msg = f"{jar.name} from Maven has another SHA-256 than {sums[jar.name]}"
                    raise ValueError(msg)
            with contextlib.suppress(OSError):
                made.rename(jars)
    return [jars / name for name in sums]


def _classes(libraries: list[Path]) -> Path:
    sources = sorted(SOURCES.glob("*.java"))
    names = "".join(path.name for path in libraries)
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + names.encode()).hexdigest()[:16]
    classes = CACHE / f"classes-{state}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder) / "classes"
            options = ("-nowarn", "-proc:none", "-d", str(made), "-cp", os.pathsep.join(map(str, libraries)))
            quick = (f"-J{option}" for option in QUICK_START.split())
            _run(_jdk("javac"), *quick, *options, *map(str, sources), what="apt-get install openjdk-17-jdk-headless")
            # Another run may have been first.
            with contextlib.suppress(OSError):
                made.rename(classes)
    return classes


def _jdk(tool: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / tool) if home else tool


def _found(program: str, what: str) -> None:
    if shutil.which(program) is None:
        msg = f"{program} is missing: the tests against Java Iceberg need it (on Debian: {what})"
        raise MissingToolError(msg)


def _run(program: str, *arguments: str, what: str) -> None:
    _found(program, what)
    # Maven's JVM takes its options from there, javac those that begin with -J; each runs for seconds.
    environment = {**os.environ, "JDK_JAVA_OPTIONS": QUICK_START}
    done = subprocess.run((program, *arguments), check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        msg = f"{program} failed ({done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(msg)
