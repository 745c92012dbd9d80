"""Two tables never get one folder, unless the user says so: what is left over could not be told otherwise."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from icelock.errors import PolicyError
from icelock.maintenance import remove_leftovers
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people

UNIQUE = "unique-table-location"
PLAIN = {"icelock.plain": "true", "format-version": "2"}


def folder(table: Any) -> str:
    return str(table.location()).rpartition("/")[2]


@pytest.mark.parametrize("properties", [KEYED, PLAIN], ids=["encrypted", "plain"])
@pytest.mark.parametrize("versions", [1, 2])
def test_a_new_table_with_the_old_name_of_another(lake: TestLake, properties: dict[str, str], versions: int) -> None:
    catalog = lake.catalog()
    first = catalog.create_table("db.t", people().schema, properties=properties)
    for _ in range(versions - 1):
        first.append(people())
    catalog.rename_table("db.t", "db.kept")
    again = catalog.create_table("db.t", people().schema, properties=properties)
    again.append(people(50))
    assert folder(first) == "t"
    assert re.fullmatch("t-[0-9a-f]{32}", folder(again))
    if properties is KEYED:
        assert remove_leftovers(catalog.load_table("db.kept"), older_than=timedelta(0)).files == ()
    assert catalog.load_table("db.kept").scan().count() == 10 * (versions - 1)
    assert ids(catalog.load_table("db.t")) == list(range(50, 60))


def test_in_one_commit_too(lake: TestLake) -> None:
    lake.catalog().create_table("db.t", people().schema, properties=KEYED).append(people())
    lake.catalog().rename_table("db.t", "db.kept")
    with lake.catalog().create_table_transaction("db.t", people().schema, properties=KEYED) as creation:
        creation.append(people(50))
    assert folder(lake.catalog().load_table("db.t")) != "t"


def test_files_of_a_table_that_was_dropped_are_in_nobodys_way(lake: TestLake) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.t", people().schema, properties=KEYED).append(people())
    catalog.drop_table("db.t")
    again = catalog.create_table("db.t", people().schema, properties=KEYED)
    assert folder(again) != "t"
    assert remove_leftovers(again, older_than=timedelta(0)).files == ()


def test_what_a_creation_left_is_not_a_table(lake: TestLake) -> None:
    """Of one version, and nobody has it; nor is half a file one."""
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    lake.catalog().drop_table("db.t")
    again = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    assert folder(again) == "t"
    assert [file.path for file in remove_leftovers(again, older_than=timedelta(0)).files] == [made.metadata_location]
    lake.catalog().drop_table("db.t")
    for path in lake.warehouse.rglob("*.metadata.json"):
        path.write_bytes(path.read_bytes()[:100])
    assert folder(lake.catalog().create_table("db.t", people().schema, properties=KEYED)) == "t"


def test_the_user_decides(lake: TestLake) -> None:
    unique, shared = lake.catalog(**{UNIQUE: "true"}), lake.catalog(**{UNIQUE: "false"})
    first, second = (unique.create_table(f"db.{name}", people().schema, properties=KEYED) for name in ("a", "b"))
    assert [re.sub("[0-9a-f]{32}", "", folder(table)) for table in (first, second)] == ["a-", "b-"]
    shared.create_table("db.c", people().schema, properties=KEYED).append(people())
    shared.rename_table("db.c", "db.d")
    assert folder(shared.create_table("db.c", people().schema, properties=KEYED)) == "c"
    place = f"{lake.warehouse.as_uri()}/elsewhere"
    assert unique.create_table("db.e", people().schema, location=place, properties=KEYED).location() == place
    with pytest.raises(PolicyError, match=UNIQUE):
        lake.catalog(**{UNIQUE: "perhaps"}).create_table("db.f", people().schema, properties=KEYED)
