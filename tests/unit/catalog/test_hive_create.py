"""Creating a table in a metastore: whatever goes wrong, the lock on its name is given back and no metadata file is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("hive_metastore")

from hive_metastore.ttypes import AlreadyExistsException, Database, LockResponse, LockState, MetaException, NoSuchObjectException
from pyiceberg.exceptions import TableAlreadyExistsError

from icelock.catalog.hive.catalog import HiveCatalog
from icelock.errors import CommitError
from tests.lakes.sqlite import KEYED, TestLake, people


class Metastore:
    """A metastore without tables, as a client and as the connection to it; ``fails`` has errors of its calls."""

    def __init__(self, warehouse: Path, **fails: Exception) -> None:
        self.warehouse, self.fails = warehouse, fails
        self.locked: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def get_database(self, name: str) -> Any:
        return Database(name=name, locationUri=f"file://{self.warehouse}/{name}", parameters={})

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        raise self.fails.get("get_table" if self.locked else "", NoSuchObjectException(f"{dbname}.{tbl_name}"))

    def lock(self, request: Any) -> Any:
        del request
        self.locked.append(1)
        return LockResponse(lockid=1, state=LockState.ACQUIRED)

    def check_lock(self, request: Any) -> Any:
        if "check_lock" in self.fails:
            raise self.fails["check_lock"]
        return LockResponse(lockid=request.lockid, state=LockState.ACQUIRED)

    def unlock(self, request: Any) -> None:
        self.locked.remove(request.lockid)

    def create_table(self, row: Any) -> None:
        del row
        assert self.locked
        raise self.fails["create_table"]


@pytest.mark.parametrize(
    ("call", "error", "raised"),
    [
        ("get_table", MetaException("busy"), CommitError),
        ("check_lock", MetaException("no such lock"), CommitError),
        ("create_table", MetaException("no"), CommitError),
        ("create_table", AlreadyExistsException("t"), TableAlreadyExistsError),
    ],
)
def test_a_table_that_is_not_made_leaves_no_lock_and_no_file(
    call: str, error: Exception, raised: type[Exception], lake: TestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Metastore(lake.folder, **{call: error})
    settings = {name: value for name, value in lake.properties().items() if name.startswith(("encryption.", "kms."))}
    catalog = HiveCatalog("hive", uri="thrift://127.0.0.1:9", warehouse=f"file://{lake.folder}", **settings)
    monkeypatch.setattr(catalog, "_client", metastore)
    before = lake.files()
    with pytest.raises(raised):
        catalog.create_table("db.t", people().schema, properties=KEYED)
    assert metastore.locked == []
    assert lake.files() == before
    assert not catalog._queues.queue(("db", "t"))._taken
