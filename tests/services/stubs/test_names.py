"""Dropping, renaming and registering when the answer gets lost, or is a refusal of what was done: what is there decides."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchTableError, RESTError, TableAlreadyExistsError

from icelock.errors import CommitError, FormatError, IntegrityError
from tests.helpers.tables import ids
from tests.lakes.sqlite import people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RestStub

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


def test_a_server_that_registers_what_it_knows_of_version_2_is_said_to_hold_no_encrypted_tables(lake: StubLake, stub: RestStub) -> None:
    location, loaded = lake.table(rows=1).metadata_location, stub.loaded

    def of_version_2(table: Any) -> Any:
        known = {name: value for name, value in table["metadata"].items() if name not in {"encryption-keys", "next-row-id"}}
        snapshots = [{name: value for name, value in snapshot.items() if name != "key-id"} for snapshot in known["snapshots"]]
        return loaded({**table, "metadata": {**known, "format-version": 2, "snapshots": snapshots}})

    stub.loaded = of_version_2
    keep = stub.keep
    stub.keep = lambda *request: of_version_2(keep(*request) and stub.tables["db", "u"])
    with pytest.raises(
        CommitError, match=r"format version 3 was committed, 2 came back; .* cannot hold encrypted tables; nothing was deleted"
    ):
        lake.catalog().register_table("db.u", location)


@pytest.mark.parametrize("how", LOST)
def test_a_registration_that_may_be_under_way_is_unknown(how: Any, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.fail("POST", "/register", when="before", how=how)
    with pytest.raises(CommitStateUnknownException, match=r"did not say whether table db\.u was registered"):
        table.catalog.register_table("db.u", table.metadata_location)


def says_done(stub: RestStub, *wanted: tuple[str, str]) -> None:
    """Have the server answer 204 to some requests and do nothing."""
    handle = stub.handle
    stub.handle = lambda method, path, body: (  # type: ignore[method-assign]
        (204, None) if any(method == verb and part in path for verb, part in wanted) else handle(method, path, body)
    )


def test_a_drop_that_the_server_says_it_made_is_looked_at(lake: StubLake, stub: RestStub) -> None:
    catalog = lake.catalog(**QUICK)
    lake.table(rows=1, catalog=catalog)
    files = set(lake.files())
    says_done(stub, ("DELETE", "/tables/t"))
    for drop in (catalog.drop_table, catalog.purge_table, lambda name: catalog.drop_table(name, purge_requested=True)):
        with pytest.raises(
            CommitStateUnknownException, match=r"says that table db\.t was dropped, but has a table of this name.*No file was"
        ):
            drop("db.t")
    assert set(lake.files()) == files
    stub.tables["db", "t"]["metadata"]["properties"].pop("encryption.key-id")
    with pytest.raises(IntegrityError):  # what was seen of the table is not forgotten
        catalog.load_table("db.t")


def test_a_plain_table_whose_drop_was_not_made_is_told(lake: StubLake, stub: RestStub) -> None:
    catalog = lake.catalog(**QUICK)
    catalog.create_table("db.t", people().schema, properties={"icelock.plain": "true"})
    says_done(stub, ("DELETE", "/tables/t"))
    for drop in (catalog.drop_table, catalog.purge_table):
        with pytest.raises(CommitStateUnknownException, match="has a table of this name"):
            drop("db.t")


def test_a_drop_that_shows_late_is_a_drop(lake: StubLake, stub: RestStub) -> None:
    catalog = lake.catalog(**QUICK)
    lake.table(rows=1, catalog=catalog)
    old, found = stub.tables["db", "t"], stub.found
    looks = iter([None, old, old])  # the drop's own, and two of the client
    stub.found = lambda space, name: next(looks, None) or found(space, name)  # type: ignore[method-assign]
    catalog.drop_table("db.t")
    assert stub.tables == {}


def test_another_table_that_was_made_at_once_is_no_lie(lake: StubLake, stub: RestStub) -> None:
    catalog = lake.catalog(**QUICK)
    lake.table(rows=1, catalog=catalog)
    handle = stub.handle

    def and_others_make_one(method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "DELETE":
            stub.tables["db", "t"]["metadata"]["table-uuid"] = "5d1e5a35-0000-4000-8000-000000000000"
            return 204, None
        return handle(method, path, body)

    stub.handle = and_others_make_one  # type: ignore[method-assign]
    catalog.drop_table("db.t")
    assert list(stub.tables) == [("db", "t")]


def test_a_server_that_cannot_be_asked_after_a_drop_is_believed(lake: StubLake, stub: RestStub) -> None:
    """Some answer 403 about tables that are not there."""
    catalog = lake.catalog(**QUICK)
    lake.table(rows=1, catalog=catalog)
    stub.fail("GET", "/tables/t", when="before", how=403)
    catalog.drop_table("db.t")
    assert stub.tables == {}


def test_a_table_that_was_renamed_and_kept_under_its_old_name_is_told(lake: StubLake, stub: RestStub) -> None:
    """A purge of either name would take the files of the other."""
    catalog = lake.catalog(**QUICK)
    lake.table(rows=1, catalog=catalog)
    handle = stub.handle

    def copies(method: str, path: str, body: Any) -> tuple[int, Any]:
        old = stub.tables["db", "t"]
        answer = handle(method, path, body)
        stub.tables["db", "t"] = old
        return answer

    stub.handle = copies  # type: ignore[method-assign]
    with pytest.raises(CommitStateUnknownException, match=r"says that table db\.t was renamed, but has a table of this name"):
        catalog.rename_table("db.t", "db.u")


def test_a_table_that_the_server_says_it_renamed_and_did_not_is_told(lake: StubLake, stub: RestStub) -> None:
    catalog = lake.table(rows=1).catalog
    says_done(stub, ("POST", "/tables/rename"))
    with pytest.raises(CommitStateUnknownException, match=r"did not say whether table db\.t was renamed"):
        catalog.rename_table("db.t", "db.u")
    assert ids(catalog.load_table("db.t")) == [0]


def test_a_name_that_is_taken_is_not_registered_again(lake: StubLake) -> None:
    table = lake.table(rows=1)
    with pytest.raises(TableAlreadyExistsError):
        table.catalog.register_table("db.t", table.metadata_location)
