"""A lake for one test: sqlite catalog, warehouse folder, KMS that counts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pyarrow as pa

import icelock
from tests.helpers.counting_kms import Calls
from tests.lakes.compiled_sql import share

share()

KEYED = {"encryption.key-id": "keyA"}
# The same in a statement of Spark's.
KEY = "TBLPROPERTIES ('encryption.key-id' = 'keyA')"


class TestLake:
    """One folder with ``catalog.db`` and ``warehouse``."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = Calls(folder)
        self.warehouse = folder / "warehouse"

    @classmethod
    def with_namespace(cls, folder: Path) -> Self:
        """Return a lake that has the namespace ``db``; no KMS was called."""
        (folder / "catalog.db").write_bytes(_database())
        return cls(folder)

    def properties(self, **more: str) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder / 'catalog.db'}",
            "warehouse": str(self.warehouse),
            **self.calls.properties(),
            **more,
        }

    def catalog(self, **more: str) -> Any:
        return icelock.load_catalog("test", **self.properties(**more))

    def without_kms(self) -> Any:
        keep = {k: v for k, v in self.properties().items() if not k.startswith(("encryption.", "kms."))}
        return icelock.load_catalog("test", **keep)

    def files(self) -> dict[str, bytes]:
        """Return every file of the warehouse by relative path."""
        return {str(p.relative_to(self.warehouse)): p.read_bytes() for p in sorted(self.warehouse.rglob("*")) if p.is_file()}


@cache
def _database() -> bytes:
    """The database of a lake that has the namespace ``db`` and no table: made once, as SQLAlchemy takes 16 ms of CPU for each."""
    with TemporaryDirectory() as folder:
        catalog = TestLake(Path(folder)).catalog()
        catalog.create_namespace("db")
        catalog.close()
        return (Path(folder) / "catalog.db").read_bytes()


def people(start: int = 0, count: int = 10) -> pa.Table:
    """Rows whose values are searched for on storage."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"canary-{i:05d}" for i in ids]),
            "city": pa.array([f"town-{i % 3}" for i in ids]),
        }
    )
