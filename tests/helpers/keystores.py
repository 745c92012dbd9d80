"""Keystores made by the JDK's keytool."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PASSWORD = "correct horse battery"
SECRET = ("-storepass:env", "KEYSTORE_PASSWORD")


def keytool(*arguments: str | Path) -> None:
    _run("keytool", *arguments)


def java(source: Path, *arguments: str | Path) -> None:
    """Run a Java source file of one class."""
    _run("java", source, *arguments)


def _run(tool: str, *arguments: str | Path) -> None:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / tool) if home else tool
    if shutil.which(program) is None:
        pytest.skip(f"{tool} is missing: the keystore tests need a JDK (on Debian: apt-get install openjdk-17-jdk-headless)")
    environment = os.environ | {"KEYSTORE_PASSWORD": PASSWORD}
    done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def add_key(store: Path, alias: str, *more: str) -> None:
    options = more or ("-keyalg", "AES", "-keysize", "256")
    keytool("-genseckey", "-alias", alias, *options, "-storetype", "PKCS12", "-keystore", store, *SECRET)
