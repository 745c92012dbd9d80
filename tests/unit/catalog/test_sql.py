"""The SQL catalog: names, PyIceberg's own ways in, and plain tables."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog as pyiceberg_load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceNotEmptyError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.types import LongType, NestedField, StringType

import icelock
from icelock.catalog.sql.catalog import SqlCatalog
from icelock.catalog.sql.facts import TableFacts
from icelock.errors import KeyUnavailableError, PolicyError
from icelock.table.table import Table
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = people().schema


def test_names(lake: TestLake) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.t", SCHEMA, properties=KEYED).append(people())
    assert catalog.list_tables("db") == [("db", "t")]
    assert catalog.table_exists("db.t")
    assert not catalog.table_exists("db.u")
    catalog.create_namespace("other")
    catalog.rename_table("db.t", "other.u")
    assert catalog.list_tables("db") == []
    assert catalog.load_table("other.u").scan().count() == 10
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("other")
    catalog.drop_table("other.u")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("other.u")
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("nowhere.t", SCHEMA, properties=KEYED)
    assert {("db",), ("other",)} <= set(catalog.list_namespaces())


def test_drop_needs_no_kms_and_purge_does(lake: TestLake) -> None:
    """C-11, C-70."""
    catalog = lake.catalog()
    for name in ("db.dropped", "db.purged"):
        table = catalog.create_table(name, SCHEMA, properties=KEYED)
        table.append(people())
        table.append(people(10))
    lake.without_kms().drop_table("db.dropped")
    with pytest.raises(KeyUnavailableError):
        lake.without_kms().purge_table("db.purged")
    assert catalog.load_table("db.purged").scan().count() == 20
    catalog.purge_table("db.purged")
    assert not [name for name in lake.files() if name.startswith("db/purged/")]
    assert [name for name in lake.files() if name.startswith("db/dropped/")], "drop without purge keeps the files"


def test_pyiceberg_loads_the_catalog_by_its_class(lake: TestLake) -> None:
    properties = {k: v for k, v in lake.properties().items() if k != "type"}
    catalog = pyiceberg_load_catalog("test", **{"py-catalog-impl": "icelock.catalog.sql.SqlCatalog", **properties})
    assert isinstance(catalog, SqlCatalog)
    table = catalog.create_table("db.t", SCHEMA, properties=KEYED)
    table.append(people())
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 10
    assert {data[:4] for name, data in lake.files().items() if name.endswith(".parquet")} == {b"PARE"}


def test_pyiceberg_s_configuration_is_honoured(lake: TestLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    lines = "\n".join(f"    {key}: {value}" for key, value in lake.properties().items() if key not in {"uri", "encryption.kms-impl"})
    (config / ".pyiceberg.yaml").write_text(f"catalog:\n  fromfile:\n{lines}\n", encoding="utf-8")
    monkeypatch.setenv("PYICEBERG_HOME", str(config))
    monkeypatch.setenv("PYICEBERG_CATALOG__FROMFILE__URI", lake.properties()["uri"])
    catalog = icelock.load_catalog("fromfile", **{"encryption.kms-impl": "tests.helpers.counting_kms.CountingKms"})
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties=KEYED).append(people())
    assert (
        icelock.load_catalog("fromfile", **{"encryption.kms-impl": "tests.helpers.counting_kms.CountingKms"})
        .load_table("db.t")
        .scan()
        .count()
        == 10
    )


def test_iceberg_schemas_sort_orders_and_locations(lake: TestLake) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType(), doc="who"), identifier_field_ids=[1]
    )
    order = SortOrder(SortField(source_id=2))
    place = str(lake.warehouse / "elsewhere")
    table = lake.catalog().create_table("db.t", schema, location=place, sort_order=order, properties=KEYED)
    rows = pa.table(
        {"id": pa.array([3, 1, 2], pa.int64()), "name": ["c", "a", "b"]},
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]),
    )
    table.append(rows)
    loaded = lake.catalog().load_table("db.t")
    assert loaded.location() == place
    assert loaded.schema().identifier_field_ids == [1]
    assert loaded.sort_order().fields[0].source_id == 2
    assert loaded.scan().to_arrow().column("name").to_pylist() == ["a", "b", "c"], "rows are stored in the table's order"


def test_plain_tables_of_version_2_pass_through_to_pyiceberg(lake: TestLake) -> None:
    """A catalog holds both; only encrypted ones are icelock's."""
    table = lake.catalog().create_table("db.plain", SCHEMA, properties={"icelock.plain": "true"})
    assert not isinstance(table, Table)
    table.append(people())
    assert lake.without_kms().load_table("db.plain").scan().count() == 10


def test_plain_tables_of_version_3_are_not_made(lake: TestLake) -> None:
    with pytest.raises(PolicyError, match="encrypted only"):
        lake.catalog().create_table("db.plain", SCHEMA, properties={"format-version": "3"})


def test_several_kms_in_one_process(lake: TestLake) -> None:
    """C-69: two services that know one key id with different bytes."""
    base: dict[str, Any] = {k: v for k, v in lake.properties().items() if not k.startswith(("encryption.", "kms."))}
    one = icelock.load_catalog("test", **base, **{"encryption.kms-type": "memory", "kms.memory.keys.k": "11" * 16})
    two = icelock.load_catalog("test", **base, **{"encryption.kms-type": "memory", "kms.memory.keys.k": "22" * 16})
    one.create_table("db.one", SCHEMA, properties={"encryption.key-id": "k"}).append(people())
    two.create_table("db.two", SCHEMA, properties={"encryption.key-id": "k"}).append(people(100))
    assert one.load_table("db.one").scan().count() == two.load_table("db.two").scan().count() == 10
    with pytest.raises(KeyUnavailableError):
        one.load_table("db.two").scan().to_arrow()
    assert one.load_table("db.one").scan().count() == 10


def test_register_checks_the_keys_first(lake: TestLake) -> None:
    """C-14: a metadata file is believed only once its keys open."""
    catalog = lake.catalog()
    table = catalog.create_table("db.t", SCHEMA, properties=KEYED)
    table.append(people())
    assert catalog.register_table("db.again", table.metadata_location).scan().count() == 10
    with pytest.raises(KeyUnavailableError):
        lake.without_kms().register_table("db.third", table.metadata_location)
    assert catalog.list_tables("db") == [("db", "again"), ("db", "t")]


@pytest.mark.parametrize("what", ["abort", "rollback", "fail"])
def test_a_commit_that_the_database_refuses_by_a_rule_of_its_own_is_a_failed_one(lake: TestLake, what: str) -> None:
    """A trigger or a constraint: the table was there, and the commit's files go."""
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "commit.retry.num-retries": "0"})
    before = lake.files()
    with closing(sqlite3.connect(lake.folder / "catalog.db")) as database:
        database.execute(f"create trigger no before update on iceberg_tables begin select raise({what}, 'not today'); end")
    with pytest.raises(CommitFailedException, match="not today"):
        table.append(people())
    assert lake.files() == before
    with closing(sqlite3.connect(lake.folder / "catalog.db")) as database:
        database.execute("drop trigger no")
    table.append(people())
    assert lake.catalog().load_table("db.t").scan().count() == people().num_rows


def test_threads_that_are_the_first_to_use_a_catalog_share_its_facts(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that makes the table of facts would leave another one's without: its first commit would be refused."""
    begin, all_here = TableFacts.__init__, threading.Barrier(4)

    def slow(self: TableFacts, *args: Any) -> None:
        time.sleep(0.05)
        begin(self, *args)

    def use(_: int) -> int:
        all_here.wait()
        return id(catalog._store.facts)

    monkeypatch.setattr(TableFacts, "__init__", slow)
    catalog = lake.catalog()
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(use, range(4)))) == 1
