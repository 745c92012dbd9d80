"""A SQL catalog on PostgreSQL for one test: a database of its own."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.lakes.closing import ClosingLake
from tests.servers.postgres import Postgres


class PostgresLake(ClosingLake):
    """As the sqlite one, with namespace ``db``; ``uri`` can be another way to the same database."""

    __test__ = False

    def __init__(self, folder: Path, server: Postgres) -> None:
        super().__init__(folder)
        self.server = server
        self.database = f"db_{uuid.uuid4().hex[:12]}"
        server.make(self.database)
        self.catalog().create_namespace("db")
        self.calls.take()

    def properties(self, **more: str) -> dict[str, str]:
        return {**super().properties(), "uri": self.server.uri(self.database), **more}
