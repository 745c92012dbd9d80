"""A stub server for a test, and a lake on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lakes.stub import StubLake
from tests.servers.rest_stub import RestStub


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[RestStub]:
    with RestStub(tmp_path / "warehouse") as started:
        yield started


@pytest.fixture
def lake(stub: RestStub, tmp_path: Path) -> StubLake:
    return StubLake(tmp_path, stub)
