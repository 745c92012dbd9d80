"""The catalogs; a server that nobody asks for is not started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.concurrency.race_places import Place, sqlite_lake
from tests.lakes.hive import HiveLake
from tests.lakes.postgres import PostgresLake
from tests.servers.rest import RestServer

KINDS = ("sqlite", "postgres", pytest.param("hive", marks=pytest.mark.hive))


@pytest.fixture
def rest_server() -> Iterator[RestServer]:
    """One of the test's own: each makes the namespace ``db`` in it."""
    with RestServer() as started:
        yield started


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: dict[str, Any] = {
        "sqlite": lambda: sqlite_lake(tmp_path),
        "postgres": lambda: PostgresLake(tmp_path, request.getfixturevalue("postgres")),
        "hive": lambda: HiveLake(tmp_path, request.getfixturevalue("metastore").uri),
    }
    return Place(made[request.param]())
