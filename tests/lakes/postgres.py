"""A SQL catalog on PostgreSQL for one test: a database of its own."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.lakes.sqlite import TestLake
from tests.servers.postgres import Postgres


class PostgresLake(TestLake):
    """As the sqlite one, with namespace ``db``; ``uri`` can be another way to the same database."""

    __test__ = False

    def __init__(self, folder: Path, server: Postgres) -> None:
        super().__init__(folder)
        self.server = server
        self._opened: list[Any] = []
        self.database = f"db_{uuid.uuid4().hex[:12]}"
        server.make(self.database)
        self.catalog().create_namespace("db")
        self.calls.take()

    def properties(self, **more: str) -> dict[str, str]:
        return {**super().properties(), "uri": self.server.uri(self.database), **more}

    def catalog(self, **more: str) -> Any:
        made = super().catalog(**more)
        self._opened.append(made)
        return made

    def close(self) -> None:
        """Close every catalog: the server has few connections, and garbage is collected late."""
        for catalog in self._opened:
            catalog.close()
