"""What came out of each cell of the matrix in one run, with the versions that it ran on."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Final

from tests.interop.toolchain import CACHE, ICEBERG_VERSION

PATH: Final = CACHE / "outcomes.json"


class Outcomes:
    """Outcomes by feature and cell: passed, failed or skipped."""

    def __init__(self) -> None:
        self._cells: dict[str, str] = {}

    def add(self, feature: str, cell: str, outcome: str) -> None:
        """Keep the worse of what was said of a cell."""
        key = f"{feature} {cell}"
        if self._cells.get(key) in {None, "passed"}:
            self._cells[key] = outcome

    def save(self) -> None:
        """Write the file, if any cell ran; cells of earlier runs on the same versions are kept."""
        if not self._cells:
            return
        PATH.parent.mkdir(parents=True, exist_ok=True)
        known = load() if PATH.exists() else {}
        cells = known.get("cells", {}) if known.get("versions") == versions() else {}
        PATH.write_text(json.dumps({"versions": versions(), "cells": {**cells, **self._cells}}, indent=1))


def load() -> dict[str, dict[str, str]]:
    """Return the last outcomes: ``versions`` and ``cells``."""
    found: dict[str, dict[str, str]] = json.loads(PATH.read_text())
    return found


def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    packages = {"Spark": "pyspark", "pyarrow": "pyarrow", "PyIceberg": "pyiceberg", "fastavro": "fastavro", "icelock": "icelock"}
    found = {name: version(package) for name, package in packages.items()}
    return {"Java Iceberg": ICEBERG_VERSION, **found, "Python": platform.python_version()}
