"""The SQL catalog on a real PostgreSQL: what it does on sqlite it does there; and a missing driver is named."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError, NoSuchTableError, NotInstalledError, TableAlreadyExistsError

import icelock
from icelock.errors import KeyUnavailableError, PolicyError
from tests.lakes.postgres import PostgresLake
from tests.lakes.sqlite import KEYED, people

SCHEMA = people().schema


def test_a_table_from_its_making_to_its_end(lake: PostgresLake) -> None:
    catalog = lake.catalog()
    table = catalog.create_table("db.t", SCHEMA, properties=KEYED)
    table.append(people())
    table.append(people(10))
    table.overwrite(people(100, 5), "id < 3")
    table.delete("id = 4")
    assert sorted(lake.catalog().load_table("db.t").scan().to_arrow().column("id").to_pylist()) == [3, *range(5, 20), *range(100, 105)]
    with table.update_schema() as update:
        update.rename_column("city", "town")
    assert lake.catalog().load_table("db.t").schema().column_names == ["id", "name", "town"]
    assert {data[:4] for name, data in lake.files().items() if name.endswith(".parquet")} == {b"PARE"}
    catalog.purge_table("db.t")
    assert lake.files() == {}


def test_names(lake: PostgresLake) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.t", SCHEMA, properties=KEYED).append(people())
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", SCHEMA, properties=KEYED)
    catalog.create_namespace("other", {"owner": "me"})
    assert catalog.load_namespace_properties("other")["owner"] == "me"
    assert {("db",), ("other",)} <= set(catalog.list_namespaces())
    assert catalog.rename_table("db.t", "other.u").scan().count() == 10
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("other")
    location = catalog.load_table("other.u").metadata_location
    catalog.drop_table("other.u")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("other.u")
    with pytest.raises(KeyUnavailableError):
        lake.without_kms().register_table("db.again", location)
    assert catalog.register_table("db.again", location).scan().count() == 10
    assert catalog.list_tables("db") == [("db", "again")]
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("nowhere.t", SCHEMA, properties=KEYED)
    with pytest.raises(PolicyError, match="cannot be removed"):
        catalog.load_table("db.again").transaction().remove_properties("encryption.key-id")


def test_plain_tables_pass_through_to_pyiceberg(lake: PostgresLake) -> None:
    lake.catalog().create_table("db.plain", SCHEMA, properties={"icelock.plain": "true"}).append(people())
    assert lake.without_kms().load_table("db.plain").scan().count() == 10


def test_two_catalogs_made_at_once_find_their_tables(lake: PostgresLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see that the catalog's own tables are missing, and one is first."""
    lake.server.make("fresh")
    made: list[Any] = []

    def first(_: Any) -> None:
        monkeypatch.undo()
        made.append(lake.catalog(uri=lake.server.uri("fresh")))
        made[0].create_tables()
        msg = 'relation "iceberg_tables" already exists'
        raise icelock.catalog.sql.catalog.SQLAlchemyError(msg)

    monkeypatch.setattr("icelock.catalog.sql.SqlCatalog.create_tables", first)
    catalog = lake.catalog(uri=lake.server.uri("fresh"))
    catalog.create_namespace("db")
    assert made[0].list_namespaces() == [("db",)]


def test_a_catalog_outlives_a_restart_of_the_server(lake: PostgresLake) -> None:
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    table.append(people())
    lake.server.crash()
    lake.server.start()
    assert table.refresh().scan().count() == 10
    lake.server.crash()
    lake.server.start()
    table.append(people(10))
    assert lake.catalog().load_table("db.t").scan().count() == 20


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(NotInstalledError, match=r"'\.\[postgres\]'"):
        icelock.load_catalog("pg", type="sql", uri="postgresql+psycopg://nobody@127.0.0.1:1/x", warehouse=str(tmp_path))
