"""Commits of which a server makes only a part and says that they are done: nobody knows, and nothing is deleted."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.types import LongType
from requests import ConnectionError  # noqa: A004 - requests' own
from urllib3.exceptions import MaxRetryError, NewConnectionError

from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RefusalError, RestStub

ONCE = {"commit.retry.num-retries": "0"}


def without(stub: RestStub, *actions: str) -> None:
    apply = stub.apply
    stub.apply = lambda metadata, update: None if update["action"] in actions else apply(metadata, update)


def with_snapshot(stub: RestStub, change: Any) -> None:
    apply = stub.apply

    def changed(metadata: dict[str, Any], update: dict[str, Any]) -> None:
        sent = json.loads(json.dumps(update))
        if sent["action"] == "add-snapshot":
            change(sent["snapshot"], metadata["snapshots"][0])
        apply(metadata, sent)

    stub.apply = changed


def append(table: Any) -> None:
    table.append(people(1, 1))


def both(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "us"})
        transaction.append(people(1, 1))


def set_owner(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"owner": "us", "team": "a"})


def drop_owner(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.remove_properties("owner")
        transaction.set_properties({"team": "a"})


def tag(table: Any) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "one").commit()


def add_column(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.update_schema().add_column("more", LongType()).commit()
        transaction.set_properties({"owner": "us"})


HALVES: dict[str, tuple[Any, Any]] = {
    "main is not moved": (append, lambda stub: without(stub, "set-snapshot-ref")),
    "properties are left out": (both, lambda stub: without(stub, "set-properties")),
    "properties are not removed": (drop_owner, lambda stub: without(stub, "remove-properties")),
    "a tag is not made": (tag, lambda stub: without(stub, "set-snapshot-ref")),
    "a column is not made": (add_column, lambda stub: without(stub, "add-schema", "set-current-schema")),
    "another list": (append, lambda stub: with_snapshot(stub, lambda new, old: new.update({"manifest-list": old["manifest-list"]}))),
    "another sequence number": (append, lambda stub: with_snapshot(stub, lambda new, _: new.update({"sequence-number": 99}))),
    "another parent": (append, lambda stub: with_snapshot(stub, lambda new, _: new.pop("parent-snapshot-id"))),
}


@pytest.mark.parametrize("half", HALVES)
def test_a_commit_that_is_made_by_half_is_unknown(half: str, lake: StubLake, stub: RestStub) -> None:
    change, lie = HALVES[half]
    table = lake.table(rows=1, owner="them")
    files = set(lake.files())
    lie(stub)
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted"):
        change(table)
    assert files <= set(lake.files())
    assert all(Path(snapshot["manifest-list"].removeprefix("file://")).exists() for snapshot in lake.kept["snapshots"])


def test_a_commit_that_is_made_by_half_and_refused_is_unknown(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1, **ONCE)
    without(stub, "set-snapshot-ref")
    stub.fail("POST", "/tables/t", when="after", how=400)
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted"):
        append(table)
    assert all(Path(snapshot["manifest-list"].removeprefix("file://")).exists() for snapshot in lake.kept["snapshots"])


def test_a_table_that_is_made_without_its_rows_is_unknown(lake: StubLake, stub: RestStub) -> None:
    transaction = lake.catalog().create_table_transaction("db.t", people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 2))
    without(stub, "set-snapshot-ref")
    with pytest.raises(CommitStateUnknownException, match="does not point to snapshot"):
        transaction.commit_transaction()
    assert [path for path in lake.files() if path.endswith(".parquet")]


def test_another_table_in_the_answer_to_a_commit_is_unknown(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    commit = stub.commit

    def exchanged(space: str, name: str, body: Any) -> Any:
        commit(space, name, body)
        lake.kept["table-uuid"] = str(uuid.uuid4())
        return stub.loaded(stub.tables[space, name])

    stub.commit = exchanged
    with pytest.raises(CommitStateUnknownException, match="in the place of"):
        append(table)


def test_others_may_go_on_from_a_commit_and_take_back_its_properties(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    commit = stub.commit

    def and_others(space: str, name: str, body: Any) -> Any:
        commit(space, name, body)
        stub.commit = commit
        return commit(space, name, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "them"}}]})

    stub.commit = and_others
    both(table)
    assert lake.kept["properties"]["owner"] == "them"
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


@pytest.mark.parametrize("status", [400, 403, 404, 422, 451, 501])
def test_a_refusal_is_believed_after_a_second_look_only(status: int, lake: StubLake, stub: RestStub) -> None:
    """A catalog may show a commit to the next look but one."""
    table = lake.table(rows=1, **ONCE)
    commit, loaded, looks = stub.commit, stub.loaded, [stub.tables["db", "t"]]

    def made(*request: Any) -> Any:
        commit(*request)
        stub.loaded = lambda now: loaded(looks.pop() if looks else now)
        raise RefusalError(status, "Refused", "refused the second time")

    stub.commit = made
    append(table)
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


@pytest.mark.parametrize("answer", ["401", "307"])
def test_a_commit_that_was_sent_and_then_met_no_server_counts(answer: str, lake: StubLake, stub: RestStub, monkeypatch: Any) -> None:
    """The first request was answered, and made; the second, with a new token or to another place, finds no connection."""
    table = lake.table(rows=1, **ONCE)
    sender = table.catalog._session.send
    real, sent = sender._send, []

    def once(request: Any, **options: Any) -> Any:
        if request.method == "POST" and sent:
            raise ConnectionError(MaxRetryError(None, request.url, NewConnectionError(None, "refused")))
        if request.method == "POST":
            sent.append(request.url)
        return real(request, **options)

    monkeypatch.setattr(sender, "_send", once)
    head = f"HTTP/1.1 {answer} Other\r\nLocation: /v1/namespaces/db/tables/t\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    stub.fail("POST", "/tables/t", when="after", how=head.encode())
    append(table)
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]
    assert len(sent) == 1
