"""A database of the session's server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.lakes.postgres import PostgresLake
from tests.servers.postgres import Postgres


@pytest.fixture
def lake(postgres: Postgres, tmp_path: Path) -> Iterator[PostgresLake]:
    with closing(PostgresLake(tmp_path, postgres)) as made:
        yield made
