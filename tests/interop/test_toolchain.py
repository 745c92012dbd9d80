"""A machine that lacks something is told what; a jar that is another one is not used."""

from __future__ import annotations

import stat

import pytest

from tests.interop import toolchain
from tests.interop.toolchain import MissingToolError, class_path


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Return a folder that is the whole PATH, and an empty cache."""
    monkeypatch.setattr(toolchain, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def program(folder, name, script="exit 1"):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_without_java_it_is_named(tools):
    assert list(tools.iterdir()) == []
    with pytest.raises(MissingToolError, match=r"java is missing.*openjdk-17-jdk-headless"):
        class_path()


def test_without_maven_it_is_named(tools):
    program(tools, "java")
    with pytest.raises(MissingToolError, match=r"mvn is missing.*apt-get install maven"):
        class_path()


def test_a_maven_that_fails_says_why(tools):
    program(tools, "java")
    program(tools, "mvn", "echo no network; exit 3")
    with pytest.raises(RuntimeError, match=r"mvn failed \(3\):\nno network"):
        class_path()


def test_another_jar_under_the_same_name_is_refused(tools):
    program(tools, "java")
    name = f"{toolchain.RUNTIME}-{toolchain.ICEBERG_VERSION}.jar"
    program(tools, "mvn", f'for last; do :; done; echo other > "${{last#-DoutputDirectory=}}/{name}"')
    with pytest.raises(ValueError, match=f"SHA-256 .*, expected {toolchain.RUNTIME_SHA256}"):
        class_path()
    assert not (toolchain.CACHE / name).exists()
