"""The catalogs; a server that nobody asks for is not started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_server import RestServer

from hive_lake import HiveLake
from metastore import Metastore
from postgres_lake import PostgresLake
from postgres_server import Postgres
from race_places import Place, sqlite_lake

KINDS = ("sqlite", "postgres", pytest.param("hive", marks=pytest.mark.hive))


@pytest.fixture(scope="session")
def metastore() -> Iterator[Metastore]:
    with Metastore() as started:
        yield started


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres() as started:
        yield started


@pytest.fixture
def rest_server() -> Iterator[RestServer]:
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
