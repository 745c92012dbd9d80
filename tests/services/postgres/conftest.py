"""One server for the session, one database for a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lakes.postgres import PostgresLake
from tests.servers.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as started:
        yield started


@pytest.fixture
def lake(postgres: Postgres, tmp_path: Path) -> PostgresLake:
    return PostgresLake(tmp_path, postgres)
