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


def configure(lake: TestLake, catalog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a lake's catalog a name in PyIceberg's configuration."""
    for name, value in lake.properties().items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{catalog.upper()}__{name.upper().replace('.', '__').replace('-', '_')}", value)
