"""New tables of every kind of catalog: its defaults and overrides as in Java, and no plain table that nobody asked for."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from icelock.errors import IcelockError, PolicyError
from icelock.table.table import Table
from tests.lakes.catalogs import CatalogLake
from tests.lakes.sqlite import KEYED, people

pytestmark = [
    pytest.mark.parametrize("lake", ["sqlite", "rest", "postgres", "glue", pytest.param("hive", marks=pytest.mark.hive)], indirect=True),
    pytest.mark.turns(3),
]
SCHEMA = people().schema
PLAIN = {"icelock.plain": "true"}
# Java's TestJdbcCatalog.testTablePropsDefaultAndOverride: a default, one that the caller gives too, one that is overridden.
OF_TABLES = {
    "table-default.encryption.key-id": "keyA",
    "table-default.key1": "default1",
    "table-default.key2": "default2",
    "table-default.key3": "default3",
    "table-override.key3": "override3",
    "table-override.key4": "override4",
}


def check_like_java(table: Any) -> None:
    assert isinstance(table, Table)
    assert table.format_version == 3
    want = {
        "encryption.key-id": "keyA",
        "key1": "default1",
        "key2": "given2",
        "key3": "override3",
        "key4": "override4",
        "key5": "given5",
    }
    assert {name: table.properties.get(name) for name in want} == want
    assert not [name for name in table.properties if name.startswith("table-")]


def given() -> dict[str, str]:
    return {"key2": "given2", "key3": "given3", "key4": "given4", "key5": "given5"}


def test_defaults_and_overrides_hold_for_a_table_and_for_a_transaction(lake: CatalogLake) -> None:
    catalog = lake.catalog(**OF_TABLES)
    catalog.create_table(lake.name("a"), SCHEMA, properties=given())
    check_like_java(lake.load("a"))
    with catalog.create_table_transaction(lake.name("b"), SCHEMA, properties=given()) as tx:
        tx.append(people(0, 3))
    check_like_java(lake.load("b"))
    with catalog.create_or_replace_table_transaction(lake.name("c"), SCHEMA, properties=given()) as tx:
        tx.append(people(0, 3))
    check_like_java(lake.load("c"))
    check_like_java(catalog.create_table_if_not_exists(lake.name("d"), SCHEMA, properties=given()))
    assert not [path for path, data in lake.files().items() if not path.endswith(".metadata.json") and data[:4] not in {b"AGS1", b"PARE"}]


def test_a_replaced_table_gets_them_and_keeps_its_key(lake: CatalogLake) -> None:
    lake.catalog().create_table(lake.name(), SCHEMA, properties={"encryption.key-id": "keyB", "key1": "old1", "key6": "old6"})
    with lake.catalog(**OF_TABLES).replace_table_transaction(lake.name(), SCHEMA, properties=given()) as tx:
        tx.append(people(0, 3))
    replaced = lake.load()
    assert {name: replaced.properties[name] for name in ("key1", "key2", "key3", "key6")} == {
        "key1": "default1", "key2": "given2", "key3": "override3", "key6": "old6",
    }  # fmt: skip
    assert replaced.properties["encryption.key-id"] == "keyB"
    with pytest.raises(PolicyError, match=r"encryption\.key-id.*cannot be changed"):
        lake.catalog(**{"table-override.encryption.key-id": "keyA"}).replace_table_transaction(lake.name(), SCHEMA)
    with pytest.raises(PolicyError, match="stays so"):
        lake.catalog().replace_table_transaction(lake.name(), SCHEMA, properties=PLAIN)


def test_an_override_wins_over_the_callers_key_and_says_so(lake: CatalogLake, caplog: pytest.LogCaptureFixture) -> None:
    catalog = lake.catalog(**{"table-override.encryption.key-id": "keyB", "table-override.encryption.data-key-length": "32"})
    with caplog.at_level(logging.WARNING):
        made = catalog.create_table(lake.name(), SCHEMA, properties={**KEYED, "encryption.data-key-length": "16"})
    assert (made.properties["encryption.key-id"], made.properties["encryption.data-key-length"]) == ("keyB", "32")
    assert "table-override.encryption.key-id=keyB, which wins over the 'keyA' that was asked for" in caplog.text
    with pytest.raises(PolicyError, match=r"exclude each other.*table-override\.encryption\.key-id"):
        catalog.create_table(lake.name("u"), SCHEMA, properties=PLAIN)


def test_a_plain_table_is_made_on_demand_only(lake: CatalogLake) -> None:
    catalog, before = lake.catalog(), lake.files()
    for make in (
        catalog.create_table,
        catalog.create_table_transaction,
        catalog.create_table_if_not_exists,
        catalog.create_or_replace_table_transaction,
    ):
        with pytest.raises(
            PolicyError, match=r"would be plain.*table-default\.encryption\.key-id.*icelock\.plain=true.*require-encryption=false"
        ):
            make(lake.name(), SCHEMA, properties={"owner": "me"})
    assert lake.files() == before
    assert catalog.list_tables(lake.space) == []
    for number, (more, properties) in enumerate((({}, PLAIN), ({"icelock.require-encryption": "false"}, {}), (OF_TABLES, PLAIN))):
        made = lake.catalog(**more).create_table(lake.name(f"p{number}"), SCHEMA, properties=properties)
        assert made.format_version == 2
        assert not [name for name in made.properties if name.startswith(("icelock.", "encryption."))]
        with lake.catalog(**more).create_table_transaction(lake.name(f"q{number}"), SCHEMA, properties=properties) as tx:
            tx.append(people(0, 2))
        loaded = lake.load(f"q{number}")
        assert (loaded.format_version, loaded.scan().count()) == (2, 2)
        assert not [name for name in loaded.properties if name.startswith(("icelock.", "encryption."))]


def test_a_plain_table_is_registered_only_where_that_is_allowed(lake: CatalogLake) -> None:
    made = lake.catalog().create_table(lake.name(), SCHEMA, properties=PLAIN)
    location = made.metadata_location
    lake.catalog().drop_table(lake.name())
    with pytest.raises(PolicyError, match="would be plain"):
        lake.catalog().register_table(lake.name("u"), location)
    assert lake.catalog().list_tables(lake.space) == []
    assert lake.catalog(**{"icelock.require-encryption": "false"}).register_table(lake.name("u"), location).format_version == 2


def test_a_commit_by_hand_makes_no_plain_table_either(lake: CatalogLake) -> None:
    """PyIceberg's transaction of a catalog that lets it, committed through one that does not."""
    lax, strict = lake.catalog(**{"icelock.require-encryption": "false"}), lake.catalog()
    transaction = lax.create_table_transaction(lake.name(), SCHEMA)
    transaction._table.catalog = strict
    with pytest.raises(IcelockError, match="would be plain"):
        transaction.commit_transaction()
    assert strict.list_tables(lake.space) == []


# Java's TableProperties.RESERVED_PROPERTIES; what Spark has a clause for; parameters of a row in a metastore.
RESERVED = [
    "uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary", "current-snapshot-timestamp-ms", "current-schema",
    "default-partition-spec", "default-sort-order", "provider", "location", "metadata_location", "previous_metadata_location",
    "table_type", "metadata_hash", "metadata_hash_location", "storage_handler", "EXTERNAL", "numRows", "transient_lastDdlTime",
]  # fmt: skip


def test_names_that_java_or_the_catalog_keeps_for_itself_are_refused(lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    catalog, before = table.catalog, lake.files()
    for name in [*RESERVED, "format-version"]:
        given = {name: "2"}
        for use in (
            lambda given=given: table.transaction().set_properties(given),
            lambda name=name: table.transaction().remove_properties(name),
            lambda given=given: catalog.create_table(lake.name("u"), SCHEMA, properties={**KEYED, **given}),
            lambda given=given: catalog.create_table_transaction(lake.name("u"), SCHEMA, properties={**KEYED, **given}),
            lambda given=given: catalog.replace_table_transaction(lake.name(), SCHEMA, properties=given),
            lambda given=given: catalog.commit_table(table, (), (SetPropertiesUpdate(updates=given),)),
        ):
            with pytest.raises(PolicyError, match=r"cannot be a table property|format.version"):
                use()
    assert lake.files() == before
    assert catalog.list_tables(lake.space) == [table.name()]


def test_the_format_version_is_given_when_a_table_is_made_and_is_no_property(lake: CatalogLake) -> None:
    catalog = lake.catalog(**{"table-default.format-version": "3"})
    made = catalog.create_table(lake.name(), SCHEMA, properties={**KEYED, "format-version": "3"})
    assert (made.format_version, "format-version" in made.properties) == (3, False)
    again = catalog.replace_table_transaction(lake.name(), SCHEMA, properties={"format-version": "3"}).commit_transaction()
    assert "format-version" not in again.properties
    plain = lake.catalog().create_table(lake.name("p"), SCHEMA, properties={**PLAIN, "format-version": "2"})
    with pytest.raises(PolicyError, match="cannot be a table property"):
        plain.transaction().set_properties({"format-version": "3"}).commit_transaction()
