"""What becomes of a REST commit whose answer is an error or gets lost: found out by looking, nothing deleted that may be needed."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from icelock.errors import CommitError, IntegrityError, PolicyError
from tests.helpers.tables import ids
from tests.lakes.sqlite import people
from tests.lakes.stub import StubLake
from tests.servers.rest_stub import RefusalError, RestStub

COMMIT = ("POST", "/tables/t")
LOST = [408, 500, 502, 503, 504, "drop", "hang", "garbage"]


@pytest.mark.parametrize("how", LOST)
def test_a_commit_that_the_server_made_before_its_answer_was_lost_counts_once(how, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=3, catalog=lake.catalog(**{"rest.client.socket-timeout-ms": "500"}))
    before = len(lake.kept["snapshots"])
    stub.fail(*COMMIT, when="after", how=how)
    table.append(people(3, 2))
    assert ids(table) == [0, 1, 2, 3, 4]
    assert len(lake.kept["snapshots"]) == before + 1
    assert ids(lake.catalog().load_table("db.t")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", LOST)
def test_a_commit_that_may_still_be_under_way_is_unknown_and_keeps_its_files(how, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=3, catalog=lake.catalog(**{"rest.client.socket-timeout-ms": "500"}))
    kept, files = lake.kept, set(lake.files())
    stub.fail(*COMMIT, when="before", how=how)
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted") as caught:
        table.append(people(3, 2))
    assert lake.kept == kept
    written = set(lake.files()) - files
    assert files <= set(lake.files())
    data = [path for path in written if path.endswith(".parquet")]
    assert len(data) == 1
    assert data[0] in str(caught.value.__notes__), "the error names the files that were left"
    assert sum(1 for path in written if path.endswith(".avro")) == 2, "manifest and manifest list are there as well"


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
def test_a_server_that_restarts_around_a_commit(lake: StubLake, stub: RestStub, made: bool) -> None:  # noqa: FBT001
    """It takes the request and is gone, does not answer the first two looks, and is back at the third."""
    table = lake.table(rows=1)
    files = set(lake.files())
    handle = stub.commit

    def and_restarts(*request: Any) -> Any:
        stub.fail("GET", "/tables/t", when="before", how="drop", times=2)
        stub.fail(*COMMIT, when="after", how="drop")
        return handle(*request) if made else {}

    stub.commit = and_restarts
    if made:
        table.append(people(1, 1))
    else:
        with pytest.raises(CommitStateUnknownException, match="nothing was deleted"):
            table.append(people(1, 1))
    stub.commit = handle
    assert ids(lake.catalog().load_table("db.t")) == ([0, 1] if made else [0])
    assert files < set(lake.files())
    table.append(people(2, 1))
    assert ids(lake.catalog().load_table("db.t")) == ([0, 1, 2] if made else [0, 2])


def test_a_change_of_properties_is_found_by_what_it_changed(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.fail(*COMMIT, when="after", how=500)
    table.transaction().set_properties({"owner": "us"}).commit_transaction()
    assert table.properties["owner"] == "us"
    assert lake.kept["properties"]["owner"] == "us"
    stub.fail(*COMMIT, when="before", how=500)
    with pytest.raises(CommitStateUnknownException):
        table.transaction().set_properties({"owner": "them"}).commit_transaction()
    assert lake.kept["properties"]["owner"] == "us"


def test_a_conflict_is_made_again_on_what_is_there(lake: StubLake) -> None:
    ours, theirs = lake.table(rows=1), lake.catalog().load_table("db.t")
    theirs.append(people(10, 1))
    ours.append(people(20, 1))
    assert ids(ours) == [0, 10, 20]
    assert len(lake.kept["snapshots"]) == 3
    assert len({key["key-id"] for key in lake.kept["encryption-keys"]}) == 4, "one KEK and a key for each list"


def test_a_conflict_without_retries_deletes_what_was_written(lake: StubLake) -> None:
    lake.table(rows=1, **{"commit.retry.num-retries": "0"})
    ours, theirs = lake.catalog().load_table("db.t"), lake.catalog().load_table("db.t")
    theirs.append(people(10, 1))
    files = set(lake.files())
    with pytest.raises(CommitFailedException):
        ours.append(people(20, 1))
    assert set(lake.files()) == files
    assert ids(theirs.refresh()) == [0, 10]


def test_a_conflict_with_our_own_commit_that_a_gateway_sent_twice_is_none(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **{"commit.retry.num-retries": "0"})
    stub.fail(*COMMIT, when="after", how=409)
    table.append(people(1, 1))
    assert ids(table) == [0, 1]
    assert len(lake.kept["snapshots"]) == 2


def test_a_server_that_is_gone_was_never_asked(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **{"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    files = set(lake.files())
    stub.__exit__()
    with pytest.raises(CommitFailedException, match="no server answers") as caught:
        table.append(people(1, 1))
    assert str(caught.value).count("answers") == str(caught.value).lower().count("nothing was") == 1, "it is said once"
    assert set(lake.files()) == files
    stub.__enter__()


def test_a_server_that_cannot_be_asked_after_the_commit_says_that_it_was_made(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    commit = stub.commit

    def and_then_is_gone(*request: Any) -> Any:
        stub.fail("GET", "/tables/t", when="before", how=500, times=3)
        return commit(*request)

    stub.commit = and_then_is_gone
    with pytest.raises(CommitError, match="the commit was made"):
        table.append(people(1, 1))
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


def test_a_creation_without_an_answer_is_unknown(lake: StubLake, stub: RestStub) -> None:
    stub.fail("POST", "/namespaces/db/tables", when="after", how="drop")
    with pytest.raises(CommitStateUnknownException, match="look before you repeat"):
        lake.table()
    assert ids(lake.catalog().load_table("db.t")) == []


def test_snapshots_by_reference_are_refused(lake: StubLake) -> None:
    with pytest.raises(PolicyError, match="snapshot-loading-mode must be all"):
        lake.catalog(**{"snapshot-loading-mode": "refs"})


def _rolled_back_to(table: dict[str, Any], stub: RestStub) -> None:
    stub.tables["db", "t"] = table


def test_a_server_that_was_rolled_back_is_noticed_before_anything_is_sent(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    old = stub.tables["db", "t"]
    table.append(people(1, 1))
    files = lake.files()
    _rolled_back_to(old, stub)
    stub.requests.clear()
    with pytest.raises(IntegrityError, match=r"rolled back.*sequence number 1 and does not follow what was seen"):
        table.append(people(2, 1))
    assert {request.split()[0] for request in stub.requests} == {"GET"}
    assert lake.files() == files, "what was committed is there, what was not is gone"


def test_a_server_that_was_rolled_back_between_two_attempts_may_have_had_the_first(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **{"commit.retry.min-wait-ms": "1"})
    old = stub.tables["db", "t"]
    table.append(people(1, 1))
    files = set(lake.files())
    commit = stub.commit

    def made_and_gone(*request: Any) -> Any:
        commit(*request)
        _rolled_back_to(old, stub)
        raise RefusalError(409, "CommitFailedException", "another writer was first")

    stub.commit = made_and_gone
    with pytest.raises(IntegrityError, match="does not follow what was seen") as caught:
        table.append(people(2, 1))
    data = [path for path in set(lake.files()) - files if path.endswith(".parquet")]
    assert len(data) == 1
    assert data[0] in str(caught.value.__notes__)
    assert files <= set(lake.files())


def test_a_server_that_keeps_no_log_of_metadata_is_not_suspected(lake: StubLake, stub: RestStub) -> None:
    keep = stub.keep
    stub.keep = lambda space, name, metadata, location=None: keep(
        space, name, {key: value for key, value in metadata.items() if key != "metadata-log"}, location
    )
    ours = lake.table(rows=1)
    lake.catalog().load_table("db.t").append(people(1, 1))
    lake.catalog().load_table("db.t").transaction().set_properties({"owner": "us"}).commit_transaction()
    ours.append(people(2, 1))
    assert ids(ours) == [0, 1, 2]
