"""Refusals of commits that were made, and successes of commits that were not: what gateways and lying servers make of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId
from requests import HTTPError, Response

from icelock.catalog.commit.store import Change
from icelock.catalog.rest.evidence import nothing_done
from icelock.errors import IntegrityError
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RefusalError, RestStub

pytestmark = pytest.mark.turns(3)
COMMIT = ("POST", "/tables/t")
REFUSED = [301, 400, 401, 403, 404, 405, 406, 409, 410, 415, 422, 429, 451, 501]
ONCE = {"commit.retry.num-retries": "0"}


def set_owner(table: Any) -> None:
    table.transaction().set_properties({"owner": "us"}).commit_transaction()


@pytest.mark.parametrize("status", REFUSED)
def test_a_commit_that_was_made_and_then_refused_counts_once(status: int, lake: StubLake, stub: RestStub) -> None:
    """As when a gateway sends the request twice: 401 asks to log in and is sent a second time by PyIceberg."""
    table = lake.table(rows=1, **ONCE)
    files = set(lake.files())
    stub.fail(*COMMIT, when="after", how=status)
    table.append(people(1, 1))
    assert ids(table) == ids(lake.catalog().load_table("db.t")) == [0, 1]
    assert len(lake.kept["snapshots"]) == 2
    assert files < set(lake.files())


@pytest.mark.parametrize("status", REFUSED)
def test_a_change_without_a_snapshot_that_was_made_and_then_refused_counts(status: int, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **ONCE)
    stub.fail(*COMMIT, when="after", how=status)
    set_owner(table)
    assert table.properties["owner"] == "us"


@pytest.mark.parametrize("status", REFUSED)
def test_a_table_that_was_made_with_its_rows_and_then_refused_counts(status: int, lake: StubLake, stub: RestStub) -> None:
    transaction = lake.catalog().create_table_transaction("db.t", people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 2))
    stub.fail(*COMMIT, when="after", how=status)
    made = transaction.commit_transaction()
    assert ids(made) == ids(lake.catalog().load_table("db.t")) == [0, 1]


def refuses(stub: RestStub, status: int, kind: str) -> None:
    """Have the server itself turn commits down."""

    def commit(*_: Any) -> Any:
        raise RefusalError(status, kind, "not like this")

    stub.commit = commit


# The types of Iceberg's REST specification and of Java's servers for requests that are turned down.
TURNED_DOWN = [
    (400, "BadRequestException", BadRequestError),
    (400, "ValidationException", BadRequestError),
    (400, "IllegalArgumentException", BadRequestError),
    (401, "NotAuthorizedException", UnauthorizedError),
    (403, "ForbiddenException", ForbiddenError),
    (403, "NotAuthorizedException", ForbiddenError),
    (403, "TableActionForbidden", ForbiddenError),  # Lakekeeper's
    (406, "UnsupportedOperationException", RESTError),
    (422, "UnprocessableEntityException", RESTError),
]


@pytest.mark.parametrize(("status", "kind", "error"), TURNED_DOWN)
def test_what_the_server_itself_turns_down_leaves_nothing(status: int, kind: str, error: Any, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **ONCE)
    kept, files = lake.kept, set(lake.files())
    refuses(stub, status, kind)
    with pytest.raises(error, match="not like this"):
        table.append(people(1, 1))
    assert lake.kept == kept
    assert set(lake.files()) == files


def page(status: int, body: bytes = b"<html>no</html>", kind: str = "text/html") -> bytes:
    """What a gateway answers by itself."""
    return b"HTTP/1.1 %d No\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        kind.encode(),
        len(body),
        body,
    )


def error_of(status: int, **change: Any) -> bytes:
    error = {"message": "no", "type": "BadRequestException", "code": status, **change}
    return page(status, json.dumps({"error": error}).encode(), "application/json")


# Neither the form nor the type of what a server of Iceberg says when it turns a commit down.
NO_PROOF: dict[str, bytes] = {
    **{f"a page with {status}": page(status) for status in (400, 403, 404, 405, 406, 410, 415, 422, 429, 451, 501)},
    "JSON of another kind": page(403, b'{"message": "Forbidden"}', "application/json"),
    "JSON without a type": page(403, b'{"error": {"code": 403, "message": "no", "status": "PERMISSION_DENIED"}}', "application/json"),
    "nothing": page(400, b""),
    "a list": page(400, b'["error"]', "application/json"),
    "a type of its own": error_of(400, type="TestFailure"),
    "a type of another status": error_of(403),
    "another code": error_of(400, code=403),
    "a code as text": error_of(400, code="400"),
    "a type that is none": error_of(400, type=["BadRequestException"]),
    "no table, which is there": error_of(404, type="NoSuchTableException"),
    "a redirect": page(301),
}


@pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
@pytest.mark.parametrize("what", NO_PROOF)
def test_a_refusal_that_proves_nothing_deletes_nothing_while_looks_stay_old(
    what: str,
    made: bool,  # noqa: FBT001
    lake: StubLake,
    stub: RestStub,
) -> None:
    """A cache goes on showing the table as it was, for longer than the client looks."""
    table = lake.table(rows=1, **ONCE)
    old, loaded, files = stub.tables["db", "t"], stub.loaded, set(lake.files())
    stub.loaded = lambda _: loaded(old)
    stub.fail(*COMMIT, when="after" if made else "before", how=NO_PROOF[what])
    with pytest.raises(CommitStateUnknownException, match="Nothing was deleted") as caught:
        table.append(people(1, 1))
    [data] = [path for path in set(lake.files()) - files if path.endswith(".parquet")]
    assert data in str(caught.value.__notes__)
    stub.loaded = loaded
    assert ids(lake.catalog().load_table("db.t")) == ([0, 1] if made else [0])


@pytest.mark.parametrize("retries", ["0", "2"])
@pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
def test_a_conflict_with_nobody_to_be_seen_is_unknown_in_the_end(
    made: bool,  # noqa: FBT001
    retries: str,
    lake: StubLake,
    stub: RestStub,
) -> None:
    """The second of two requests is a conflict with the first one, which an old look does not show."""
    table = lake.table(rows=1, **{"commit.retry.num-retries": retries, "commit.retry.min-wait-ms": "1"})
    old, loaded, files, commit = stub.tables["db", "t"], stub.loaded, set(lake.files()), stub.commit
    stub.loaded = lambda _: loaded(old)

    def conflict(*request: Any) -> Any:
        if made and stub.tables["db", "t"] is old:
            commit(*request)
        raise RefusalError(409, "CommitFailedException", "another writer was first")

    stub.commit = conflict
    with pytest.raises(CommitStateUnknownException, match="Nothing was deleted"):
        table.append(people(1, 1))
    assert len([path for path in set(lake.files()) - files if path.endswith(".parquet")]) == 1
    stub.loaded = loaded
    assert ids(lake.catalog().load_table("db.t")) == ([0, 1] if made else [0])


@pytest.mark.parametrize("then", ["is gone", "turns it down"])
def test_what_comes_after_a_conflict_with_nobody_to_be_seen_deletes_nothing(then: str, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **{"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    old, loaded, commit = stub.tables["db", "t"], stub.loaded, stub.commit
    stub.loaded = lambda _: loaded(old)

    def conflict(*request: Any) -> Any:
        commit(*request)
        if then == "is gone":
            stub.fail("GET", "/tables/t", when="before", how=403, times=4)
        else:
            refuses(stub, 403, "ForbiddenException")
        raise RefusalError(409, "CommitFailedException", "another writer was first")

    stub.commit = conflict
    with pytest.raises((CommitStateUnknownException, RESTError)):
        table.append(people(1, 1))
    stub.loaded = loaded
    stub._plan.clear()
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


@pytest.mark.parametrize("shown", ["an older version", "another property"])
def test_a_version_that_does_not_rule_the_commit_out_is_no_proof(shown: str, lake: StubLake, stub: RestStub) -> None:
    """A replica that lags behind shows what was there before, or what came between, and our commit is on top of it."""
    table = lake.table(rows=1, **ONCE)
    older = stub.tables["db", "t"]
    table.append(people(1, 1))
    loaded, commit = stub.loaded, stub.commit

    def conflict(space: str, name: str, body: Any) -> Any:
        if shown == "another property":
            commit(space, name, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "them"}}]})
        seen = older if shown == "an older version" else stub.tables[space, name]
        commit(space, name, body)
        stub.loaded = lambda _: loaded(seen)
        raise RefusalError(409, "CommitFailedException", "another writer was first")

    stub.commit = conflict
    with pytest.raises(CommitStateUnknownException, match="Nothing was deleted"):
        table.append(people(2, 1))
    stub.loaded = loaded
    assert ids(lake.catalog().load_table("db.t")) == [0, 1, 2]


def test_a_conflict_of_a_plain_table_with_nobody_to_be_seen_deletes_nothing(lake: StubLake, stub: RestStub) -> None:
    """PyIceberg's transaction deletes the manifests of a commit that failed."""
    properties = {"icelock.plain": "true", **QUICK, "commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"}
    table = lake.catalog().create_table("db.t", people().schema, properties=properties)
    old, loaded, commit = stub.tables["db", "t"], stub.loaded, stub.commit

    def conflict(*request: Any) -> Any:
        commit(*request)
        stub.loaded = lambda _: loaded(old)
        raise RefusalError(409, "CommitFailedException", "another writer was first")

    stub.commit = conflict
    with pytest.raises(CommitStateUnknownException, match="Nothing was deleted"):
        table.append(people(0, 2))
    stub.loaded = loaded
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


def test_a_snapshot_of_no_branch_may_be_invalid_the_second_time(lake: StubLake) -> None:
    """It asks for no state of a branch, so a second copy is no conflict, but has a snapshot that is there."""
    table = lake.table(rows=1)
    added = AddSnapshotUpdate(snapshot=table.current_snapshot())
    refusal = BadRequestError("no")
    refusal.__cause__ = HTTPError(response=Response())
    refusal.__cause__.response.status_code = 400
    refusal.__cause__.response._content = json.dumps({"error": {"message": "no", "type": "ValidationException", "code": 400}}).encode()
    branch = AssertRefSnapshotId(ref="main", snapshot_id=None)
    for requirements, updates, proof in (((), (added,), False), ((branch,), (added,), True), ((), (), True)):
        assert nothing_done(refusal, Change(base=table, staged=table, requirements=requirements, updates=updates, config={}), None) is proof


def test_a_conflict_that_shows_late_is_found_to_be_our_own(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **{"commit.retry.num-retries": "3", "commit.retry.min-wait-ms": "1"})
    old, loaded = stub.tables["db", "t"], stub.loaded
    looks = iter([old] * 4)
    stub.loaded = lambda now: loaded(next(looks, now))
    stub.fail(*COMMIT, when="after", how=409)
    table.append(people(1, 1))
    assert ids(table) == [0, 1]
    assert len(lake.kept["snapshots"]) == 2


@pytest.mark.parametrize("made", [True, False], ids=["made", "not made"])
@pytest.mark.parametrize("how", [403, 409])
def test_a_new_table_that_is_refused_without_a_proof_keeps_its_rows(
    how: int,
    made: bool,  # noqa: FBT001
    lake: StubLake,
    stub: RestStub,
) -> None:
    transaction = lake.catalog().create_table_transaction("db.t", people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 2))
    stub.fail(*COMMIT, when="after" if made else "before", how=how)
    stub.fail("GET", "/tables/t", when="before", how=404, times=5)
    with pytest.raises(CommitStateUnknownException, match="Nothing was deleted"):
        transaction.commit_transaction()
    assert [path for path in lake.files() if path.endswith(".parquet")]
    stub._plan.clear()
    assert lake.catalog().table_exists("db.t") is made


def test_caches_on_the_way_are_told_to_ask_the_server(lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    asked = [headers for request, headers in stub.headers if request.startswith("GET") and request.endswith("/tables/t")]
    assert asked
    assert {headers.get("Cache-Control") for headers in asked} == {"no-cache"}


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("status", [403, 404, 409])
def test_a_refusal_after_which_nobody_can_look_is_unknown(status: int, made: bool, lake: StubLake, stub: RestStub) -> None:  # noqa: FBT001
    table = lake.table(rows=1, **ONCE)
    files = set(lake.files())
    commit = stub.commit

    def and_then_no_looks(*request: Any) -> Any:
        stub.fail("GET", "/tables/t", when="before", how=403, times=5)
        if made:
            commit(*request)
        raise RefusalError(status, "Refused", "refused")

    stub.commit = and_then_no_looks
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted") as caught:
        table.append(people(1, 1))
    [data] = [path for path in set(lake.files()) - files if path.endswith(".parquet")]
    assert data in str(caught.value.__notes__)
    stub._plan.clear()
    assert ids(lake.catalog().load_table("db.t")) == ([0, 1] if made else [0])


def test_a_table_that_was_renamed_after_a_commit_that_was_then_refused_can_be_read(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **ONCE)
    commit = stub.commit

    def and_renamed(*request: Any) -> Any:
        commit(*request)
        stub.tables["db", "u"] = stub.tables.pop(("db", "t"))
        raise RefusalError(404, "NoSuchTableException", "no table")

    stub.commit = and_renamed
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted"):
        table.append(people(1, 1))
    assert ids(lake.catalog().load_table("db.u")) == [0, 1]


def test_a_change_that_lost_to_another_one_is_still_a_conflict(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **ONCE)
    commit = stub.commit

    def others_first(space: str, name: str, _: Any) -> Any:
        commit(space, name, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "them"}}]})
        raise RefusalError(409, "CommitFailedException", "another writer was first")

    stub.commit = others_first
    with pytest.raises(CommitFailedException):
        set_owner(table)
    assert lake.kept["properties"]["owner"] == "them"


def the_old_table(stub: RestStub) -> Any:
    return lambda space, name, _: stub.loaded(stub.tables[space, name])


def the_new_table_and_forgets_it(stub: RestStub) -> Any:
    commit = stub.commit

    def answer(space: str, name: str, body: Any) -> Any:
        old = stub.tables.get((space, name))
        made = commit(space, name, body)
        if old is None:
            del stub.tables[space, name]
        else:
            stub.tables[space, name] = old
        return made

    return answer


@pytest.mark.parametrize("change", [lambda table: table.append(people(1, 1)), set_owner])
@pytest.mark.parametrize("lie", [the_old_table, the_new_table_and_forgets_it])
def test_a_success_without_the_change_is_unknown(lie: Any, change: Any, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    kept, files = lake.kept, set(lake.files())
    stub.commit = lie(stub)
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted"):
        change(table)
    assert lake.kept == kept
    assert files <= set(lake.files())


def test_a_success_of_a_table_that_is_not_there_is_unknown(lake: StubLake, stub: RestStub) -> None:
    transaction = lake.catalog().create_table_transaction("db.t", people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 2))
    stub.commit = the_new_table_and_forgets_it(stub)
    with pytest.raises(CommitStateUnknownException, match="has no table, without it; nothing was deleted"):
        transaction.commit_transaction()
    assert [path for path in lake.files() if path.endswith(".parquet")]


def test_a_change_that_is_seen_late_counts(lake: StubLake, stub: RestStub) -> None:
    """A catalog may show a commit to the next look but one only."""
    table = lake.table(rows=1)
    old, loaded = stub.tables["db", "t"], stub.loaded
    looks = iter([old])
    commit = stub.commit

    def slowly(*request: Any) -> Any:
        answer = commit(*request)
        stub.loaded = lambda now: loaded(next(looks, now))
        return answer

    stub.commit = slowly
    table.append(people(1, 1))
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


def test_a_commit_on_which_others_went_on_at_once_counts(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    commit = stub.commit

    def and_others(space: str, name: str, body: Any) -> Any:
        answer = commit(space, name, body)
        stub.commit = commit
        for owner in ("one", "two"):
            commit(space, name, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": owner}}]})
        return answer

    for change in (lambda: table.append(people(1, 1)), lambda: table.transaction().set_properties({"mine": "yes"}).commit_transaction()):
        stub.commit = and_others
        change()
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]
    assert (lake.kept["properties"]["owner"], lake.kept["properties"]["mine"]) == ("two", "yes")


def _kek(metadata: dict[str, Any]) -> dict[str, Any]:
    [entry] = [key for key in metadata["encryption-keys"] if key["encrypted-by-id"] == "keyA"]
    return entry


CHANGES: dict[str, Any] = {
    "wrapped bytes": lambda kek: kek.update({"encrypted-key-metadata": "AAAA" + kek["encrypted-key-metadata"][4:]}),
    "time stamp": lambda kek: kek["properties"].update({"KEY_TIMESTAMP": "1700000000000"}),
    "master key": lambda kek: kek.update({"encrypted-by-id": "keyB"}),
    "another property": lambda kek: kek["properties"].update({"x": "y"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_kek_that_changed_while_the_table_was_held_is_noticed_before_anything_is_sent(what: str, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    files = set(lake.files())
    CHANGES[what](_kek(lake.kept))
    stub.requests.clear()
    with pytest.raises(IntegrityError, match=r"key entry .* changed in the catalog since the table was loaded.*nothing was committed"):
        table.append(people(1, 1))
    assert {request.split()[0] for request in stub.requests} == {"GET"}
    assert set(lake.files()) == files


@pytest.mark.parametrize("when", ["with the commit", "after the answer"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_kek_that_changes_with_the_commit_is_noticed_and_nothing_is_deleted(what: str, when: str, lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    right = dict(_kek(lake.kept))
    commit = stub.commit

    def and_changes(space: str, name: str, body: Any) -> Any:
        answer = commit(space, name, body)
        if when == "after the answer":
            answer = json.loads(json.dumps(answer))
        CHANGES[what](_kek(stub.tables[space, name]["metadata"]))
        return answer

    right = {**right, "properties": dict(right["properties"])}
    stub.commit = and_changes
    with pytest.raises(IntegrityError, match=r"the commit was made, but catalog test has other key entries .*Nothing was deleted"):
        table.append(people(1, 1))
    assert len(lake.kept["snapshots"]) == 2
    stub.commit = commit
    entries = [key for key in lake.kept["encryption-keys"] if key["key-id"] == right["key-id"]]
    entries[0].clear()
    entries[0].update(right)
    assert ids(lake.catalog().load_table("db.t")) == [0, 1], "once the entry is as it was, all can be read"


def test_a_master_key_that_changed_while_the_table_was_held_is_noticed(lake: StubLake) -> None:
    table = lake.table(rows=1)
    lake.kept["properties"]["encryption.key-id"] = "keyB"
    with pytest.raises(IntegrityError, match=r"encryption\.key-id (changed in the catalog|is .keyB., and was .keyA.)"):
        table.append(people(1, 1))


def test_a_table_that_is_there_already_is_said_of_a_table_made_with_rows(lake: StubLake) -> None:
    transaction = lake.catalog().create_table_transaction("db.t", people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 2))
    lake.table(rows=1)
    files = {path for path in lake.files() if path.endswith(".parquet")}
    with pytest.raises(TableAlreadyExistsError):
        transaction.commit_transaction()
    assert ids(lake.catalog().load_table("db.t")) == [0]
    assert len({path for path in lake.files() if path.endswith(".parquet")}) < len(files)
