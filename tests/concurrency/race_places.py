"""The catalogs that writers meet in: sqlite, PostgreSQL, Hive and REST, with one table each."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.lakes.hive import HiveLake
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.servers.rest import RestServer

# All metadata files stay in the log, so that what is left over can be told from what is of use.
PROPERTIES = {**KEYED, "write.metadata.previous-versions-max": "10000"}


class Place:
    """One table, and where its files are; ``properties`` are those of a catalog that another process can load."""

    def __init__(self, lake: TestLake) -> None:
        self.lake = lake
        self.kind = {"TestLake": "sqlite", "PostgresLake": "postgres", "HiveLake": "hive", "RestLake": "rest"}[type(lake).__name__]
        self.table = lake.name("t") if isinstance(lake, HiveLake | RestLake) else "db.t"

    def properties(self, **more: str) -> dict[str, str]:
        return self.lake.properties(**more)

    def make(self, schema: Any = None, properties: dict[str, str] | None = None, **options: Any) -> Any:
        wanted = {**PROPERTIES, **(properties or {})}
        return self.lake.catalog().create_table(self.table, schema or people().schema, properties=wanted, **options)

    def load(self, **more: str) -> Any:
        return self.lake.catalog(**more).load_table(self.table)

    def folder(self) -> Path:
        return Path(self.load().location().removeprefix("file://"))

    def files(self) -> dict[str, bytes]:
        return self.lake.files()


class RestLake(TestLake):
    """A namespace of its own in the session's REST server."""

    __test__ = False

    def __init__(self, folder: Path, server: RestServer) -> None:
        super().__init__(folder)
        self.server = server
        self.space = f"db_{uuid.uuid4().hex[:12]}"
        self.warehouse = server.warehouse / self.space
        self.catalog().create_namespace(self.space)
        self.calls.take()

    def name(self, table: str) -> str:
        return f"{self.space}.{table}"

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.uri, **self.calls.properties(), **more}


def sqlite_lake(folder: Path) -> TestLake:
    lake = TestLake(folder)
    lake.catalog().create_namespace("db")
    return lake
