"""A Hive catalog for one test: a database of its own in the session's metastore, and a view of the rows past the catalog."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hive_metastore.ttypes import ShowLocksRequest
from pyiceberg.catalog.hive import _HiveClient

import icelock
from tests.helpers.tables import local
from tests.lakes.sqlite import KEYED, TestLake, people


class HiveLake(TestLake):
    """``database`` is new; ``name`` makes full names of tables in it."""

    __test__ = False

    def __init__(self, folder: Path, uri: str) -> None:
        super().__init__(folder)
        self.uri = uri
        self.database = f"db_{uuid.uuid4().hex[:12]}"
        self.catalog().create_namespace(self.database, {"location": f"file://{self.warehouse}/{self.database}.db"})
        self.calls.take()

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "hive", "uri": self.uri, "warehouse": f"file://{self.warehouse}", **self.calls.properties(), **more}

    def catalog(self, **more: str) -> Any:
        return icelock.load_catalog("hive", **self.properties(**more))

    def without_kms_catalog(self) -> Any:
        keep = {k: v for k, v in self.properties().items() if not k.startswith(("encryption.", "kms."))}
        return icelock.load_catalog("hive", **keep)

    def name(self, table: str = "t") -> str:
        return f"{self.database}.{table}"

    def make(self, table: str = "t", *, rows: int = 0, **options: Any) -> Any:
        options = {"properties": KEYED, **options}
        made = self.catalog().create_table(self.name(table), people().schema, **options)
        if rows:
            made.append(people(0, rows))
        return made

    def load(self, table: str = "t", **more: str) -> Any:
        return self.catalog(**more).load_table(self.name(table))

    def row(self, table: str = "t") -> Any:
        with _HiveClient(self.uri) as client:
            return client.get_table(self.database, table)

    def parameters(self, table: str = "t") -> dict[str, str]:
        return dict(self.row(table).parameters)

    def alter(self, table: str = "t", *, put: Mapping[str, str] | None = None, drop: tuple[str, ...] = ()) -> None:
        """Change parameters as another client of the metastore does: without a lock."""
        with _HiveClient(self.uri) as client:
            row = client.get_table(self.database, table)
            row.parameters = {**{k: v for k, v in row.parameters.items() if k not in drop}, **(put or {})}
            client.alter_table(self.database, table, row)

    def locks(self) -> list[Any]:
        with _HiveClient(self.uri) as client:
            return list(client.show_locks(ShowLocksRequest(dbname=self.database)).locks or ())

    def metadata_path(self, table: str = "t") -> Path:
        return local(self.parameters(table)["metadata_location"])

    def metadata_files(self, table: str = "t") -> set[str]:
        return {path.name for path in (self.warehouse / f"{self.database}.db" / table / "metadata").glob("*.metadata.json")}


def sha256(data: bytes) -> str:
    """Java's metadata_hash of a canonical file, by hand."""
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def compact(value: Any) -> bytes:
    """The bytes of a metadata file after an edit by a JSON tool that keeps order and spacing."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
