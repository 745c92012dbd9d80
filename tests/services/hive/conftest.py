"""A database of the session's metastore for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakes.hive import HiveLake
from tests.servers.metastore import Metastore


@pytest.fixture
def hive(metastore: Metastore, tmp_path: Path) -> HiveLake:
    return HiveLake(tmp_path, metastore.uri)
