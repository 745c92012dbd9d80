"""Dropping, renaming and registering when the answer gets lost, or is a refusal of what was done: what is there decides."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchTableError, RESTError, TableAlreadyExistsError
from rest_stub import RestStub
from stub_lake import StubLake, ids

from icelock.errors import FormatError

LOST = [500, 503, "drop"]
REFUSED = [400, 403, 404, 409, 302]


@pytest.fixture(autouse=True)
def _with_rename(stub: RestStub) -> None:
    handle = stub.handle

    def rename(method: str, path: str, body: Any) -> tuple[int, Any]:
        if (method, path) != ("POST", "/v1/tables/rename"):
            return handle(method, path, body)
        old, new = ((*body[which]["namespace"], body[which]["name"]) for which in ("source", "destination"))
        stub.tables[new] = stub.tables.pop(old)
        return 204, None

    stub.handle = rename  # type: ignore[method-assign]


@pytest.mark.parametrize("how", LOST)
def test_a_table_that_was_dropped_before_the_answer_was_lost_is_dropped(how: Any, lake: StubLake, stub: RestStub) -> None:
    catalog = lake.table(rows=1).catalog
    stub.fail("DELETE", "/tables/t", when="after", how=how)
    catalog.drop_table("db.t")
    assert stub.tables == {}


@pytest.mark.parametrize("how", LOST)
def test_a_drop_that_may_be_under_way_is_unknown_and_a_purge_deletes_nothing(how: Any, lake: StubLake, stub: RestStub) -> None:
    catalog = lake.table(rows=1).catalog
    files = set(lake.files())
    for drop in (catalog.drop_table, catalog.purge_table):
        stub.fail("DELETE", "/tables/t", when="before", how=how)
        with pytest.raises(CommitStateUnknownException, match=r"did not say whether table db\.t was dropped"):
            drop("db.t")
    assert set(lake.files()) == files


@pytest.mark.parametrize("how", REFUSED)
def test_a_drop_that_is_refused_is_none_and_a_purge_deletes_nothing(how: Any, lake: StubLake, stub: RestStub) -> None:
    catalog = lake.table(rows=1).catalog
    files = set(lake.files())
    for drop in (catalog.drop_table, catalog.purge_table):
        stub.fail("DELETE", "/tables/t", when="before", how=how)
        with pytest.raises((RESTError, NoSuchTableError, FormatError)):
            drop("db.t")
    assert set(lake.files()) == files
    assert list(stub.tables) == [("db", "t")]


@pytest.mark.parametrize("how", [*LOST, *REFUSED])
def test_a_table_that_was_renamed_whatever_was_answered_is_renamed(how: Any, lake: StubLake, stub: RestStub) -> None:
    catalog = lake.table(rows=1).catalog
    stub.fail("POST", "/tables/rename", when="after", how=how)
    assert ids(catalog.rename_table("db.t", "db.u")) == [0]
    assert list(stub.tables) == [("db", "u")]


@pytest.mark.parametrize("how", [*LOST, *REFUSED])
def test_a_table_that_was_not_renamed_is_not(how: Any, lake: StubLake, stub: RestStub) -> None:
    catalog = lake.table(rows=1).catalog
    stub.fail("POST", "/tables/rename", when="before", how=how)
    with pytest.raises(CommitStateUnknownException if how in LOST else (RESTError, NoSuchTableError, TableAlreadyExistsError, FormatError)):
        catalog.rename_table("db.t", "db.u")
    assert list(stub.tables) == [("db", "t")]


@pytest.mark.parametrize("how", [*LOST, *REFUSED])
def test_a_table_that_was_registered_whatever_was_answered_is_registered(how: Any, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.fail("POST", "/register", when="after", how=how)
    assert ids(table.catalog.register_table("db.u", table.metadata_location)) == [0]


@pytest.mark.parametrize("how", LOST)
def test_a_registration_that_may_be_under_way_is_unknown(how: Any, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.fail("POST", "/register", when="before", how=how)
    with pytest.raises(CommitStateUnknownException, match=r"did not say whether table db\.u was registered"):
        table.catalog.register_table("db.u", table.metadata_location)


def test_a_name_that_is_taken_is_not_registered_again(lake: StubLake) -> None:
    table = lake.table(rows=1)
    with pytest.raises(TableAlreadyExistsError):
        table.catalog.register_table("db.t", table.metadata_location)
