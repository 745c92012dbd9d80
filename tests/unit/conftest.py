"""The one fixture that unit tests of tables and catalogs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakes.sqlite import TestLake


@pytest.fixture
def lake(tmp_path: Path) -> TestLake:
    return TestLake.with_namespace(tmp_path)
