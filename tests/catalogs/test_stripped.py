"""An encrypted table whose metadata comes back plain: refused when it is loaded, so that nobody writes a plain file for it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from lake import people
from lakes import CatalogLake
from pyiceberg.exceptions import NoSuchTableError
from test_pins import local

from icelock.errors import FormatError, IntegrityError, PolicyError

# The in-memory catalog has no other clients.
pytestmark = pytest.mark.parametrize(
    "lake", ["sqlite", "rest", "postgres", "glue", pytest.param("hive", marks=pytest.mark.hive)], indirect=True
)
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
    facts = getattr(table.catalog, "facts", None)
    if facts is not None:
        facts.drop(table.name())


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
    with pytest.raises(IntegrityError, match=rf"not encrypted any more.*call catalog\.pins\.forget\('{lake.name()}'\)"):
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


def kept_snapshots(metadata: dict[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in ("snapshots", "current-snapshot-id", "refs", "snapshot-log", "last-sequence-number")}
