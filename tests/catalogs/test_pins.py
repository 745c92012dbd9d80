"""Pins with every kind of catalog: what was seen can be neither rolled back, nor edited, nor exchanged, nor built on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from icelock.errors import IntegrityError
from icelock.maintenance import leftovers, remove_leftovers
from tests.helpers.tables import ids, local
from tests.lakes.catalogs import CatalogLake
from tests.lakes.sqlite import people

# The in-memory catalog has no other clients.
pytestmark = [
    pytest.mark.parametrize("lake", ["sqlite", "rest", "postgres", "glue", pytest.param("hive", marks=pytest.mark.hive)], indirect=True),
    pytest.mark.turns(3),
]


def pinned(lake: CatalogLake) -> dict[str, str]:
    return {"icelock.pins-file": str(lake.folder / "pins.json")}


def edit(location: str, **changes: Any) -> bytes:
    """Change fields of a metadata file where it lies; return what it was."""
    path = local(location)
    was = path.read_bytes()
    path.write_text(json.dumps({**json.loads(was), **changes}, separators=(",", ":")))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return was


def test_a_rolled_back_table_is_refused_and_not_built_on(lake: CatalogLake) -> None:
    lake.make(rows=1)
    old = lake.load()
    lake.load(**pinned(lake)).append(people(1, 1))
    seen = lake.load(**pinned(lake))
    holder = lake.load(**pinned(lake))
    lake.point_at(old.metadata_location)
    with pytest.raises(IntegrityError, match=r"rolled back, changed or exchanged: it has sequence number 1 and does not follow"):
        lake.load(**pinned(lake))
    assert ids(lake.load()) == [0], "without pins nobody knows"
    files = set(lake.files())
    with pytest.raises(IntegrityError, match="does not follow what was seen"):
        holder.append(people(9, 1))
    assert set(lake.files()) == files
    assert lake.load().metadata_location == old.metadata_location, "nothing was built on it"
    lake.point_at(seen.metadata_location)
    assert ids(lake.load(**pinned(lake))) == [0, 1]


def test_a_commit_on_top_of_a_rolled_back_version_is_noticed(lake: CatalogLake) -> None:
    lake.make(rows=1)
    old = lake.load()
    lake.load(**pinned(lake)).append(people(1, 1))
    lake.point_at(old.metadata_location)
    other = lake.load()
    other.append(people(2, 1))
    other.append(people(3, 1))
    with pytest.raises(IntegrityError, match="sequence number 3 and does not follow"):
        lake.load(**pinned(lake))


def test_an_edited_metadata_file_is_refused(lake: CatalogLake) -> None:
    lake.make(rows=1)
    location = lake.load(**pinned(lake)).metadata_location
    properties = json.loads(local(location).read_bytes())["properties"]
    was = edit(location, properties={**properties, "owner": "attacker"})
    with pytest.raises(IntegrityError, match=r"it was edited|might have been modified"):
        lake.load(**pinned(lake))
    local(location).write_bytes(was)
    assert ids(lake.load(**pinned(lake))) == [0]


def test_another_tables_metadata_is_refused(lake: CatalogLake) -> None:
    lake.make(rows=1)
    other = lake.make("other", rows=2)
    lake.load(**pinned(lake))
    lake.point_at(other.metadata_location)
    with pytest.raises(IntegrityError, match=r"it is table .* was seen before"):
        lake.load(**pinned(lake))


def test_tables_go_on_for_those_who_pin(lake: CatalogLake) -> None:
    """Others' commits, renaming, dropping and making anew are no attacks."""
    catalog = lake.catalog(**pinned(lake))
    lake.make(rows=1)
    mine = catalog.load_table(lake.name())
    for number in range(1, 4):
        lake.load().append(people(number, 1))
    mine.append(people(10, 1))
    assert ids(lake.load(**pinned(lake))) == [0, 1, 2, 3, 10]
    catalog.rename_table(lake.name(), lake.name("u"))
    lake.load("u").append(people(11, 1))
    assert ids(lake.load("u", **pinned(lake))) == [0, 1, 2, 3, 10, 11]
    catalog.drop_table(lake.name("u"))
    lake.make("u", rows=1)
    assert ids(lake.load("u", **pinned(lake))) == [0]


def test_a_pinned_key_id_is_compared_at_load(lake: CatalogLake) -> None:
    """C-15."""
    lake.make(rows=1)
    assert ids(lake.load(**{f"icelock.pins.{lake.name()}": "keyA"})) == [0]
    with pytest.raises(IntegrityError, match=r"has encryption\.key-id 'keyA', and icelock\.pins\..* says 'keyB'"):
        lake.load(**{f"icelock.pins.{lake.name()}": "keyB"})
    lake.catalog().create_table(lake.name("plain"), people().schema, properties={"icelock.plain": "true"})
    with pytest.raises(IntegrityError, match=r"has encryption\.key-id None"):
        lake.load("plain", **{f"icelock.pins.{lake.name('plain')}": "keyA"})


# Without any setting, within one process.


def test_a_process_builds_nothing_on_a_version_before_one_that_it_saw(lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    old = table.metadata_location
    table.append(people(1, 1))
    seen, files = table.metadata_location, set(lake.files())
    lake.point_at(old)
    uses = {
        "append": lambda: table.append(people(9, 1)),
        "delete": lambda: table.delete("id = 0"),
        "property": lambda: table.transaction().set_properties({"owner": "us"}).commit_transaction(),
        "loaded anew": lambda: table.catalog.load_table(lake.name()).append(people(9, 1)),
        "expire": lambda: table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit(),
        "leftovers": lambda: leftovers(table),
        "remove leftovers": lambda: remove_leftovers(table, older_than=timedelta(0)),
        "remove leftovers, loaded anew": lambda: remove_leftovers(table.catalog.load_table(lake.name()), older_than=timedelta(0)),
    }
    for use in uses.values():
        with pytest.raises(IntegrityError, match=r"rolled back.*sequence number 1 and does not follow what was seen"):
            use()
        assert lake.load().metadata_location == old
        assert set(lake.files()) == files
    lake.point_at(seen)
    table.append(people(2, 1))
    assert ids(lake.load()) == [0, 1, 2]


def test_a_version_that_was_restored_on_purpose_is_built_on_once_that_is_said(lake: CatalogLake) -> None:
    table = lake.make(rows=1)
    old = table.metadata_location
    table.append(people(1, 1))
    lake.point_at(old)
    table.catalog.pins.forget(lake.name())
    table.append(people(2, 1))
    assert ids(lake.load()) == [0, 2]
