"""The catalogs; a server that nobody asks for is not started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.concurrency.race_places import Place, sqlite_lake
from tests.concurrency.race_processes import Processes
from tests.lakes.hive import HiveLake
from tests.lakes.postgres import PostgresLake

KINDS = ("sqlite", "postgres", pytest.param("hive", marks=pytest.mark.hive))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made: dict[str, Any] = {
        "sqlite": lambda: sqlite_lake(tmp_path),
        "postgres": lambda: PostgresLake(tmp_path, request.getfixturevalue("postgres")),
        "hive": lambda: HiveLake(tmp_path, request.getfixturevalue("metastore").uri),
    }
    lake = made[request.param]()
    yield Place(lake)
    if isinstance(lake, PostgresLake):
        lake.close()


@pytest.fixture(scope="package")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    started = Processes(tmp_path_factory.mktemp("race"))
    yield started
    started.end()
