"""One lake for a test, on the session's server of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest
from botocore.loaders import create_loader
from moto.server import ThreadedMotoServer

from tests.lakes.catalogs import CatalogLake, Glue, GlueLake, HiveLake, MemoryLake, PostgresLake, RestLake
from tests.servers.postgres import Postgres


@pytest.fixture(scope="session")
def postgres(postgres: Postgres) -> Postgres:
    """The server, with a database for all lakes here."""
    postgres.make("lakes")
    return postgres


@pytest.fixture(scope="session")
def glue() -> Iterator[Glue]:
    """The server; each catalog has a boto3 session of its own, but AWS's models are read once (0.2 s of CPU)."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with patch("botocore.session.create_loader", cache(create_loader)):
        yield Glue(f"http://{host}:{port}")
    server.stop()


KINDS = ["sqlite", "in-memory", "rest", "postgres", "glue", pytest.param("hive", marks=pytest.mark.hive)]


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CatalogLake]:
    made = _made(request, tmp_path)
    yield made
    made.close()


def _made(request: pytest.FixtureRequest, folder: Path) -> CatalogLake:
    match request.param:
        case "rest":
            return RestLake(folder, request.getfixturevalue("rest_server"))
        case "postgres":
            return PostgresLake(folder, request.getfixturevalue("postgres"))
        case "glue":
            return GlueLake(folder, request.getfixturevalue("glue"))
        case "hive":
            return HiveLake(folder, request.getfixturevalue("metastore"))
        case kind:
            return MemoryLake(folder) if kind == "in-memory" else CatalogLake(folder)
