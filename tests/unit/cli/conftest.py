from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakes.sqlite import TestLake


@pytest.fixture
def configured_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestLake:
    """A lake whose catalog is called ``test`` in PyIceberg's configuration."""
    lake = TestLake(tmp_path)
    configure(lake, "test", monkeypatch)
    return lake


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say how far a command is from the beginning: what the tests do takes less than the second after which it is said."""
    monkeypatch.setattr("icelock.cli.output.SOON", 0.0)


def configure(lake: TestLake, catalog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a lake's catalog a name in PyIceberg's configuration."""
    for name, value in lake.properties().items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{catalog.upper()}__{name.upper().replace('.', '__').replace('-', '_')}", value)
