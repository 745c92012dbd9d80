"""A lake that closes its catalogs: a server has few connections, psycopg warns of those left open, and garbage is collected late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lakes.sqlite import TestLake


class ClosingLake(TestLake):
    """``close`` it."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.opened: list[Any] = []

    def catalog(self, **more: str) -> Any:
        made = super().catalog(**more)
        self.opened.append(made)
        return made

    def without_kms(self) -> Any:
        made = super().without_kms()
        self.opened.append(made)
        return made

    def close(self) -> None:
        """Close every catalog."""
        for catalog in self.opened:
            catalog.close()
