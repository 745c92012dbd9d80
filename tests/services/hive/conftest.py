"""One metastore for the session, one database for a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lakes.hive import HiveLake
from tests.servers.metastore import Metastore


@pytest.fixture(scope="session")
def metastore() -> Iterator[Metastore]:
    with Metastore() as started:
        yield started


@pytest.fixture
def hive(metastore: Metastore, tmp_path: Path) -> HiveLake:
    return HiveLake(tmp_path, metastore.uri)
