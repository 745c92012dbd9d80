"""Java Iceberg 1.11 on our tables through its own REST client and JdbcCatalog: keys and key-ids intact, and we go on after its commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lake import people
from lakes import CatalogLake, RestLake
from rest_server import java

pytestmark = pytest.mark.parametrize("lake", ["sqlite", "rest"], indirect=True)


def _as_java_sees_it(lake: CatalogLake) -> list[dict[str, Any]]:
    if isinstance(lake, RestLake):
        where = ("org.apache.iceberg.rest.RESTCatalog", "java", lake.server.uri, "")
    else:
        where = ("org.apache.iceberg.jdbc.JdbcCatalog", "test", f"jdbc:sqlite:{lake.folder / 'catalog.db'}", str(lake.warehouse))
    return [json.loads(line) for line in java("JavaClient", *where, lake.name()) if line.startswith("{")]


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
    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    table.append(people(3, 1))
    assert sorted(lake.load().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    assert lake.load().properties["java"] == "was here"
    assert {data[:4] for path, data in lake.files().items() if Path(path).suffix == ".avro"} == {b"AGS1"}
