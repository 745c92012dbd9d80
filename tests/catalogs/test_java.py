"""Java Iceberg 1.11 on our tables through its own REST client and JdbcCatalog: keys and key-ids intact, and we go on after its commits.

Java encrypts in its Hive catalog only, so here it changes a property and the schema. With Hive, where it decrypts and encrypts as well, it
is ``tests/interop``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from icelock.errors import IntegrityError
from tests.helpers.tables import ids
from tests.lakes.catalogs import CatalogLake, PostgresLake, RestLake
from tests.lakes.sqlite import people
from tests.servers.rest import java

JDBC = ["sqlite", "postgres"]


def _as_java_sees_it(lake: CatalogLake) -> list[dict[str, Any]]:
    """Let Java commit twice; return the metadata before and after as Java writes it."""
    if isinstance(lake, RestLake):
        where = ("org.apache.iceberg.rest.RESTCatalog", "java", lake.server.uri, "")
    else:
        database = f"jdbc:sqlite:{lake.folder / 'catalog.db'}"
        if isinstance(lake, PostgresLake):
            database = f"jdbc:postgresql://127.0.0.1:{lake.server.port}/lakes?user=icelock"
        where = ("org.apache.iceberg.jdbc.JdbcCatalog", "test", database, str(lake.warehouse))
    return [json.loads(line) for line in java("JavaClient", *where, lake.name()) if line.startswith("{")]


def _facts(lake: CatalogLake) -> dict[str, Any]:
    with lake.catalog().engine.connect() as connection:
        found = connection.execute(text("SELECT * FROM icelock_table_facts WHERE table_namespace = :s"), {"s": lake.space})
        return dict(found.mappings().one())


def _local(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))


@pytest.mark.turns(3)
@pytest.mark.parametrize("lake", [*JDBC, "rest"], indirect=True)
def test_java_keeps_what_makes_the_table_encrypted(lake: CatalogLake) -> None:
    table = lake.make(rows=2)
    table.append(people(2, 1))
    ours = json.loads(table.metadata.model_dump_json())
    before, after = _as_java_sees_it(lake)
    for name in ("format-version", "encryption-keys", "snapshots", "next-row-id", "refs"):
        assert before[name] == after[name] == ours[name], name
    assert before["properties"] == ours["properties"]
    assert after["properties"] == {**ours["properties"], "java": "was here"}
    again = lake.load()
    assert again.properties["java"] == "was here"
    assert again.schema().column_names == ["id", "name", "city", "added"]
    assert ids(again) == [0, 1, 2]
    assert again.scan().to_arrow()["added"].to_pylist() == [None, None, None]
    again.append(people(3, 1))
    table.append(people(4, 1))
    assert ids(lake.load()) == [0, 1, 2, 3, 4]
    assert lake.load().properties["java"] == "was here"
    assert {data[:4] for path, data in lake.files().items() if Path(path).suffix == ".avro"} == {b"AGS1"}


@pytest.mark.parametrize("lake", JDBC, indirect=True)
def test_what_the_facts_say_after_a_commit_of_javas(lake: CatalogLake) -> None:
    """The hash stays that of our last file until we commit again: then Java's changes are accepted. The key id holds all the time."""
    ours = lake.make(rows=1)
    before = _facts(lake)
    assert before["metadata_location"] == ours.metadata_location
    _as_java_sees_it(lake)
    assert _facts(lake) == before, "Java knows nothing of them"
    javas = lake.load()
    file = _local(javas.metadata_location)
    was = file.read_bytes()
    content = json.loads(was)
    file.write_text(json.dumps({**content, "properties": {**content["properties"], "encryption.key-id": "keyB"}}))
    for use in (lake.load, lambda: javas.append(people(1, 1))):
        with pytest.raises(IntegrityError, match="'keyB', and the database says 'keyA'"):
            use()
    file.write_bytes(was)
    assert _facts(lake) == before
    javas.append(people(1, 1))
    accepted = lake.load()
    file = _local(accepted.metadata_location)
    assert _facts(lake) == {
        **before,
        "metadata_location": accepted.metadata_location,
        "metadata_hash": base64.b64encode(hashlib.sha256(file.read_bytes()).digest()).decode(),
    }
    content = json.loads(file.read_bytes())
    file.write_text(json.dumps({**content, "properties": {**content["properties"], "owner": "attacker"}}))
    with pytest.raises(IntegrityError, match="its hash is"):
        lake.load()


@pytest.mark.turns(3)
@pytest.mark.parametrize("lake", [*JDBC, "rest"], indirect=True)
def test_a_pinned_client_follows_java(lake: CatalogLake) -> None:
    """What comes after what was seen is no attack; what Java wrote cannot be edited or taken back either."""
    pins = {"icelock.pins-file": str(lake.folder / "pins.json"), f"icelock.pins.{lake.name()}": "keyA"}
    ours = lake.make(rows=1)
    lake.load(**pins)
    _as_java_sees_it(lake)
    javas = lake.load(**pins)
    assert javas.properties["java"] == "was here"
    lake.point_at(ours.metadata_location)
    for use in (lambda: lake.load(**pins), lambda: javas.append(people(1, 1))):
        with pytest.raises(IntegrityError, match="does not follow what was seen"):
            use()
    lake.point_at(javas.metadata_location)
    javas.append(people(1, 1))
    assert ids(lake.load(**pins)) == [0, 1]
