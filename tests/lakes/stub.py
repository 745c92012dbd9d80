"""A REST catalog on a stub server, for one test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lakes.sqlite import KEYED, TestLake, people
from tests.servers.rest_stub import RestStub

QUICK = {"commit.status-check.num-retries": "2", "commit.status-check.min-wait-ms": "20"}


class StubLake(TestLake):
    """As the sqlite one; tables look quickly at what became of a commit."""

    __test__ = False

    def __init__(self, folder: Path, stub: RestStub) -> None:
        super().__init__(folder)
        self.stub = stub
        self.stub.namespaces["db"] = {}

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "rest", "uri": self.stub.uri, **self.calls.properties(), **more}

    def table(self, *, rows: int = 0, catalog: Any = None, **properties: str) -> Any:
        made = (catalog or self.catalog()).create_table("db.t", people().schema, properties={**KEYED, **QUICK, **properties})
        if rows:
            made.append(people(0, rows))
        return made

    @property
    def kept(self) -> dict[str, Any]:
        """What the server has of the table now."""
        return self.stub.tables["db", "t"]["metadata"]
