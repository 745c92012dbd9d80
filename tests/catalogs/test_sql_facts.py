"""What a SQL database knows of an encrypted table: another metadata file is noticed without any setting."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy import text

from icelock.catalog.sql.facts import TableFacts
from icelock.errors import IntegrityError
from tests.helpers.tables import ids, local
from tests.lakes.catalogs import CatalogLake
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.parametrize("lake", ["sqlite", "postgres"], indirect=True)


def facts(lake: CatalogLake) -> dict[str, dict[str, Any]]:
    """The rows of the namespace, by table."""
    with lake.catalog().engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM icelock_table_facts WHERE table_namespace = :s"), {"s": lake.space}).mappings()
        return {row["table_name"]: dict(row) for row in rows}


def test_what_stands_there(lake: CatalogLake) -> None:
    table = lake.make(rows=1, **{"encryption.data-key-length": "32"})
    file = local(table.metadata_location).read_bytes()
    assert facts(lake) == {
        "t": {
            "catalog_name": "test",
            "table_namespace": lake.space,
            "table_name": "t",
            "metadata_location": table.metadata_location,
            "key_id": "keyA",
            "data_key_length": "32",
            "metadata_hash": base64.b64encode(hashlib.sha256(file).digest()).decode(),
        }
    }
    lake.catalog().create_table(lake.name("plain"), people().schema, properties={"icelock.plain": "true"}).append(people(0, 1))
    assert list(facts(lake)) == ["t"]


def _older(table: Any, content: dict[str, Any]) -> bytes:
    del content
    return local(table.metadata.metadata_log[-1].metadata_file).read_bytes()


def _without_encryption(table: Any, content: dict[str, Any]) -> bytes:
    del table
    for name in ("encryption-keys", "refs"):
        content.pop(name, None)
    content |= {"properties": {}, "snapshots": [], "snapshot-log": [], "current-snapshot-id": None}
    return json.dumps(content).encode()


def _property(name: str, value: str) -> Any:
    def change(table: Any, content: dict[str, Any]) -> bytes:
        del table
        content["properties"][name] = value
        return json.dumps(content).encode()

    return change


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_older, "its hash is"),
        (_without_encryption, "its encryption.key-id is None, and the database says 'keyA'"),
        (_property("encryption.key-id", "keyB"), "its encryption.key-id is 'keyB'"),
        (_property("encryption.data-key-length", "32"), "its encryption.data-key-length is '32', and the database says None"),
        (_property("owner", "attacker"), "its hash is"),
    ],
)
def test_another_content_of_the_file_is_refused(change: Any, words: str, lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    table.append(people(1, 1))
    holder = lake.load()
    path = local(table.metadata_location)
    was = path.read_bytes()
    path.write_bytes(change(table, json.loads(was)))
    with pytest.raises(IntegrityError, match=words):
        lake.load()
    with pytest.raises(IntegrityError, match=words):
        holder.append(people(9, 1))
    path.write_bytes(was)
    assert ids(lake.load()) == [0, 1]


def test_a_tool_that_only_spaces_the_file_changed_nothing(lake: CatalogLake) -> None:
    path = local(lake.make(rows=1).metadata_location)
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=2))
    assert ids(lake.load()) == [0]


def test_a_commit_of_a_client_that_writes_no_facts_is_believed_for_the_same_key(lake: CatalogLake) -> None:
    """As Java's JdbcCatalog: it changes the row, and knows nothing of the facts."""
    table = lake.make(rows=1)
    content = json.loads(local(table.metadata_location).read_bytes())
    theirs = local(table.metadata_location).with_name("00009-4a1b7c1e-30f4-4c25-8a34-0a4f7b8f5b11.metadata.json")
    theirs.write_text(json.dumps({**content, "properties": {**content["properties"], "owner": "java"}}))
    lake.point_at(f"file://{theirs}")
    assert lake.load().properties["owner"] == "java"
    theirs.write_text(json.dumps({**content, "properties": {"encryption.key-id": "keyB"}}))
    with pytest.raises(IntegrityError, match="'keyB', and the database says 'keyA'"):
        lake.load()
    theirs.write_text(json.dumps(content))
    table = lake.load()
    table.append(people(1, 1))
    assert facts(lake)["t"]["metadata_location"] == table.metadata_location


def test_facts_go_with_the_table(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    location = lake.make(rows=1).metadata_location
    catalog.rename_table(lake.name(), lake.name("u"))
    assert [(name, row["metadata_location"]) for name, row in facts(lake).items()] == [("u", location)]
    catalog.drop_table(lake.name("u"))
    assert facts(lake) == {}
    catalog.register_table(lake.name("v"), location)
    assert [(name, row["metadata_location"]) for name, row in facts(lake).items()] == [("v", location)]


def test_a_name_that_another_client_freed_can_be_used_again(lake: CatalogLake) -> None:
    lake.make(rows=1)
    with lake.catalog().engine.begin() as connection:
        connection.execute(text("DELETE FROM iceberg_tables WHERE table_namespace = :s"), {"s": lake.space})
    lake.catalog().create_table(lake.name(), people().schema, properties={"icelock.plain": "true"}).append(people(0, 1))
    assert facts(lake) == {}
    assert lake.load().format_version == 2


def test_a_table_from_before_there_were_facts_gets_them_with_its_next_commit(lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    with lake.catalog().engine.begin() as connection:
        connection.execute(text("DELETE FROM icelock_table_facts WHERE table_namespace = :s"), {"s": lake.space})
    assert ids(lake.load()) == [0]
    table.append(people(1, 1))
    assert facts(lake)["t"]["metadata_location"] == table.metadata_location


def test_a_database_user_that_may_not_make_the_table_is_told(lake: CatalogLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableFacts, "ensure", lambda _: None)
    monkeypatch.setattr(TableFacts, "_is_there", lambda _: False)
    with pytest.raises(CommitFailedException, match=r"no table icelock_table_facts .* grant that once"):
        lake.catalog().create_table(lake.name(), people().schema, properties=KEYED)
    assert lake.files() == {}
    assert lake.catalog().list_tables(lake.space) == []
