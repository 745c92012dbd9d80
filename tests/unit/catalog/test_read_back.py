"""What a catalog has after a commit that it took: the commit itself, or one that came after it, and the keys that it was sealed under."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog as IcebergSqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import AddSnapshotUpdate

from icelock.catalog.commit.outcome import has_commit
from icelock.catalog.sql.catalog import SqlTurn
from icelock.errors import IntegrityError
from tests.lakes.sqlite import KEYED, TestLake, people

QUICK = {"commit.status-check.num-retries": "1", "commit.status-check.min-wait-ms": "1"}


def table_of(lake: TestLake) -> Any:
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **QUICK})
    table.append(people(0, 1))
    return table


@pytest.mark.parametrize(
    "change", [lambda table: table.append(people(1, 1)), lambda table: table.transaction().set_properties({"a": "b"}).commit_transaction()]
)
def test_a_database_that_says_done_and_does_nothing_is_found_out(change: Any, lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(lake)
    files = set(lake.files())
    monkeypatch.setattr(SqlTurn, "swap", lambda *_: None)
    with pytest.raises(CommitStateUnknownException, match=r"says that the commit .* was made, but has .*, without it; nothing was deleted"):
        change(table)
    assert files < set(lake.files())
    assert lake.catalog().load_table("db.t").scan().count() == 1


@pytest.mark.parametrize("what", ["encrypted-key-metadata", "properties"])
def test_a_kek_that_changed_while_the_table_was_held_is_noticed_before_the_commit(what: str, lake: TestLake) -> None:
    """Where the database knows no hash of the file, as after a commit of a client that writes none."""
    table = table_of(lake)
    file = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(file.read_text())
    for key in content["encryption-keys"]:
        if key["encrypted-by-id"] == "keyA":
            key[what] = {"KEY_TIMESTAMP": "1700000000000"} if what == "properties" else "AAAA" + key[what][4:]
    file.write_text(json.dumps(content))
    with sqlite3.connect(lake.folder / "catalog.db") as database:
        database.execute("DELETE FROM icelock_table_facts")
    files = set(lake.files())
    with pytest.raises(IntegrityError, match=r"key entry .* changed in the catalog since the table was loaded.*nothing was committed"):
        table.append(people(1, 1))
    assert set(lake.files()) == files


def a_table(location: str, snapshots: list[int], *history: str) -> Any:
    metadata = SimpleNamespace(
        snapshots=[SimpleNamespace(snapshot_id=number) for number in snapshots],
        metadata_log=[SimpleNamespace(metadata_file=file) for file in history],
    )
    return SimpleNamespace(metadata_location=location, metadata=metadata)


def adding(*snapshots: int) -> tuple[Any, ...]:
    return tuple(AddSnapshotUpdate.model_construct(snapshot=SimpleNamespace(snapshot_id=number)) for number in snapshots)


@pytest.mark.parametrize(
    ("kept", "updates", "expected"),
    [
        (a_table("new", [1, 2], "old"), adding(2), True),
        (a_table("new", [1], "old"), adding(2), False),
        (a_table("new", [1], "old"), (), True),
        (a_table("later", [1, 2, 3], "old", "new"), adding(2), True),
        (a_table("later", [3], "old", "new"), adding(2), True),  # expired since
        (a_table("later", [1, 2, 3]), adding(2), True),  # no history is kept
        (a_table("later", [1, 3], "old"), adding(2), False),  # instead of ours
        (a_table("later", [1, 3]), adding(2), False),
        (a_table("old", [1]), adding(2), False),
        (a_table("old", [1]), (), False),
        (a_table("held", [1]), (), False),
        (a_table("later", [1], "old", "new"), (), True),
        (a_table("later", [1], "old"), (), False),
        (a_table("later", [1]), (), True),  # nothing to tell by
    ],
)
def test_what_a_table_tells_that_was_read_back(kept: Any, updates: tuple[Any, ...], expected: bool) -> None:  # noqa: FBT001
    assert has_commit(a_table("new", [1, 2], "older", "old"), kept, updates, before="held") is expected


def test_a_new_table_whose_row_names_a_file_of_somebody_else_is_refused(lake: TestLake) -> None:
    """What a database can do that keeps no facts: the row of the new table leads to another table, which has rows and keys."""
    other = table_of(lake)
    catalog = lake.catalog()
    catalog._store.load = lambda name: catalog.table_of(name, other.metadata, other.metadata_location)
    catalog._store.has = lambda _: False
    with pytest.raises(IntegrityError, match=r"table db\.new: it was made just now, and comes from catalog test with key entries"):
        catalog.create_table("db.new", people().schema, properties=KEYED)


@pytest.mark.parametrize("drop", ["drop_table", "purge_table"])
def test_a_database_that_says_dropped_and_has_the_table_is_found_out(drop: str, lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = lake.catalog(**QUICK)
    catalog.create_table("db.t", people().schema, properties=KEYED).append(people(0, 1))
    files = set(lake.files())
    monkeypatch.setattr(IcebergSqlCatalog, "drop_table", lambda *_: None)
    with pytest.raises(CommitStateUnknownException, match=r"says that table db\.t was dropped, but has a table of this name"):
        getattr(catalog, drop)("db.t")
    assert set(lake.files()) == files


def test_a_database_that_copies_instead_of_renaming_is_found_out(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = lake.catalog(**QUICK)
    made = catalog.create_table("db.t", people().schema, properties=KEYED)

    def copies(_: Any, old: Any, new: Any) -> Any:
        assert (old, new) == (("db", "t"), ("db", "u"))
        return catalog.table_of(("db", "u"), made.metadata, made.metadata_location)

    monkeypatch.setattr(IcebergSqlCatalog, "rename_table", copies)
    with pytest.raises(CommitStateUnknownException, match=r"says that table db\.t was renamed, but has a table of this name"):
        catalog.rename_table("db.t", "db.u")
