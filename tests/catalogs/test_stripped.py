"""An encrypted table whose metadata comes back plain: refused when it is loaded, so that nobody writes a plain file for it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate

from icelock.errors import FormatError, IntegrityError, PolicyError
from tests.helpers.tables import local
from tests.lakes.catalogs import CatalogLake, GlueLake, HiveLake
from tests.lakes.sqlite import KEYED, people

# The in-memory catalog has no other clients.
pytestmark = [
    pytest.mark.parametrize("lake", ["sqlite", "rest", "postgres", "glue", pytest.param("hive", marks=pytest.mark.hive)], indirect=True),
    pytest.mark.turns(3),
]
GONE = {"encryption.key-id", "encryption.data-key-length"}
LENGTH = {"encryption.data-key-length": "32"}


def bare(metadata: dict[str, Any]) -> dict[str, Any]:
    """The same table without keys, snapshots and whatever else says that it was encrypted."""
    left = {key: value for key, value in metadata.items() if key not in {"encryption-keys", "current-snapshot-id", "statistics"}}
    properties = {key: value for key, value in metadata["properties"].items() if key not in GONE}
    return {**left, "properties": properties, "snapshots": [], "snapshot-log": [], "refs": {}, "last-sequence-number": 0}


def version_2(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**bare(metadata), "format-version": 2}.items() if key != "next-row-id"}


def another_uuid(metadata: dict[str, Any]) -> dict[str, Any]:
    return {**version_2(metadata), "table-uuid": str(uuid.uuid4())}


def another_key(metadata: dict[str, Any]) -> dict[str, Any]:
    return {**bare(metadata), "properties": {**bare(metadata)["properties"], **LENGTH, "encryption.key-id": "keyB"}}


def shorter_keys(metadata: dict[str, Any]) -> dict[str, Any]:
    return {**bare(metadata), "properties": {**bare(metadata)["properties"], "encryption.key-id": "keyA"}}


def strip(table: Any, how: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the metadata file where it lies, as one can who writes to storage; forget what the catalog keeps beside its location."""
    path = local(table.metadata_location)
    path.write_text(json.dumps(how(json.loads(path.read_text())), separators=(",", ":")))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    table.catalog._store.forget(table.name())


@pytest.mark.parametrize("how", [bare, version_2, another_uuid, another_key, shorter_keys], ids=lambda how: how.__name__)
def test_a_catalog_that_saw_the_table_encrypted_refuses_it(lake: CatalogLake, how: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    table = lake.make(rows=1, **LENGTH)
    catalog = table.catalog
    strip(table, how)
    before = lake.files()
    with pytest.raises(IntegrityError, match="table"):
        catalog.load_table(table.name())
    with pytest.raises(IntegrityError):
        table.refresh()
    with pytest.raises(IntegrityError):
        table.append(people(1, 1))
    assert lake.files() == before


@pytest.mark.parametrize("how", [bare, version_2], ids=lambda how: how.__name__)
def test_it_is_the_same_table_under_another_name(lake: CatalogLake, how: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Renamed by this client, or by another one: then its uuid tells."""
    catalog = lake.make(rows=1).catalog
    catalog.rename_table(lake.name(), lake.name("u"))
    lake.catalog().rename_table(lake.name("u"), lake.name("v"))
    strip(lake.load("v"), how)
    with pytest.raises(IntegrityError):
        catalog.load_table(lake.name("v"))
    with pytest.raises((IntegrityError, NoSuchTableError)):
        catalog.load_table(lake.name("u"))


def test_a_name_is_free_again_once_the_catalog_has_no_table_of_it(lake: CatalogLake) -> None:
    catalog = lake.make(rows=1).catalog
    lake.catalog().drop_table(lake.name())
    made = catalog.create_table(lake.name(), people().schema, properties={"icelock.plain": "true"})
    assert catalog.load_table(lake.name()).metadata.table_uuid == made.metadata.table_uuid
    assert made.format_version == 2


def test_made_plain_by_another_client_is_believed_once_that_is_said(lake: CatalogLake) -> None:
    catalog = lake.make(rows=1).catalog
    lake.catalog().drop_table(lake.name())
    lake.catalog().create_table(lake.name(), people().schema, properties={"icelock.plain": "true"})
    with pytest.raises(IntegrityError, match=rf"no longer encrypted.*call catalog\.pins\.forget\('{lake.name()}'\)"):
        catalog.load_table(lake.name())
    catalog.pins.forget(lake.name())
    assert catalog.load_table(lake.name()).format_version == 2


def test_traces_of_encryption_are_enough_for_who_never_saw_it(lake: CatalogLake) -> None:
    """Key entries below version 3, or snapshots with a key in a table without one."""
    for number, how in enumerate((lambda m: {**m, "format-version": 2}, lambda m: {**bare(m), **kept_snapshots(m)})):
        table = lake.make(f"t{number}", rows=1)
        strip(table, how)
        with pytest.raises((IntegrityError, PolicyError, FormatError)):
            lake.load(f"t{number}")


def seems_plain(lake: CatalogLake) -> None:
    """Make a table that was stripped of its encryption; in Glue and Hive, whose rows would tell, one that another client made plain."""
    if isinstance(lake, GlueLake | HiveLake):
        lake.catalog().create_table(lake.name(), people().schema, properties={"icelock.plain": "true"})
    else:
        strip(lake.make(rows=1), version_2)


WRITES = {
    "append": lambda table: table.append(people(1, 1)),
    "overwrite": lambda table: table.overwrite(people(1, 1)),
    "dynamic": lambda table: table.dynamic_partition_overwrite(people(1, 1)),
    "upsert": lambda table: table.upsert(people(1, 1), join_cols=["id"]),
    "delete": lambda table: table.delete("id = 1"),
    "add_files": lambda table: table.add_files(["file:///nowhere.parquet"], check_duplicate_files=False),
    "transaction": lambda table: table.transaction().append(people(1, 1)),
    "snapshot": lambda table: table.transaction().update_snapshot().fast_append(),
}


def test_who_never_saw_it_writes_no_plain_rows(lake: CatalogLake) -> None:
    """At version 2 nothing tells it from a plain table, but nobody said that it is one."""
    seems_plain(lake)
    before = lake.files()
    table = lake.load()
    assert table.format_version == 2
    for write in WRITES.values():
        with pytest.raises(PolicyError, match=rf"table {lake.name()} is plain.*icelock\.pins\.{lake.name()}=.*icelock\.plain-tables"):
            write(table)
    assert lake.files() == before


def test_a_commit_by_hand_brings_it_none_either(lake: CatalogLake) -> None:
    """As of another library that has written the files itself."""
    seems_plain(lake)
    table = lake.load()
    snapshot = Snapshot(
        snapshot_id=1,
        sequence_number=1,
        timestamp_ms=table.metadata.last_updated_ms,
        manifest_list="file:///list",
        summary=Summary(Operation.APPEND),
    )
    with pytest.raises(PolicyError, match="is plain"):
        table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot),))
    assert lake.load().metadata.snapshots == []


@pytest.mark.parametrize("said", ["icelock.pins.{}", "icelock.plain-tables", "icelock.require-encryption"])
def test_a_plain_table_takes_rows_of_who_says_that_it_is_plain(lake: CatalogLake, said: str) -> None:
    lake.catalog().create_table(lake.name(), people().schema, properties={"icelock.plain": "true"})
    with pytest.raises(PolicyError, match="is plain"):
        lake.load().append(people(1, 1))
    value = {"icelock.plain-tables": f"other.*, {lake.name()[:-1]}*", "icelock.require-encryption": "false"}.get(said, "")
    catalog = lake.catalog(**{said.format(lake.name()): value})
    catalog.load_table(lake.name()).append(people(1, 1))
    assert len(catalog.load_table(lake.name()).scan().to_arrow()) == 1
    with pytest.raises(PolicyError, match="is plain"):
        lake.catalog(**{"icelock.plain-tables": "other.*"}).load_table(lake.name()).append(people(1, 1))


def test_who_made_a_plain_table_may_write_to_it(lake: CatalogLake) -> None:
    catalog = lake.catalog()
    for name, make in (("p", catalog.create_table), ("q", catalog.create_table_transaction)):
        made = make(lake.name(name), people().schema, properties={"icelock.plain": "true"})
        (made.commit_transaction() if name == "q" else made).append(people(1, 1))
        catalog.load_table(lake.name(name)).append(people(1, 1))
        catalog.rename_table(lake.name(name), lake.name(f"{name}2"))
        catalog.load_table(lake.name(f"{name}2")).append(people(1, 1))
        assert len(catalog.load_table(lake.name(f"{name}2")).scan().to_arrow()) == 3
        catalog.drop_table(lake.name(f"{name}2"))
        lake.catalog().create_table(lake.name(f"{name}2"), people().schema, properties={"icelock.plain": "true"})
        with pytest.raises(PolicyError, match="is plain"):
            catalog.load_table(lake.name(f"{name}2")).append(people(1, 1))


def test_a_table_that_another_client_made_anew_is_not_the_one_that_was_made_plain(lake: CatalogLake) -> None:
    catalog, plain = lake.catalog(), {"icelock.plain": "true"}
    catalog.create_table(lake.name(), people().schema, properties=plain)
    lake.catalog().drop_table(lake.name())
    lake.catalog().create_table(lake.name(), people().schema, properties=plain)
    with pytest.raises(PolicyError, match="is plain"):
        catalog.load_table(lake.name()).append(people(1, 1))


def test_a_job_that_says_each_day_that_its_table_is_plain_may_write_to_it(lake: CatalogLake) -> None:
    for _ in range(2):
        table = lake.catalog().create_table_if_not_exists(lake.name(), people().schema, properties={"icelock.plain": "true"})
        table.append(people(1, 1))
    assert len(lake.load().scan().to_arrow()) == 2
    with pytest.raises(PolicyError, match="is plain"):
        lake.catalog().create_table_if_not_exists(lake.name(), people().schema, properties=KEYED).append(people(1, 1))


def test_an_empty_pin_lets_a_table_be_made_plain(lake: CatalogLake) -> None:
    catalog = lake.catalog(**{f"icelock.pins.{lake.name()}": ""})
    catalog.create_table(lake.name(), people().schema).append(people(1, 1))
    with pytest.raises(PolicyError, match="would be plain"):
        catalog.create_table(lake.name("u"), people().schema)


def kept_snapshots(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in ("snapshots", "current-snapshot-id", "refs", "snapshot-log", "last-sequence-number")}
