"""A server whose new table is not empty: keys, snapshots, branches or statistics of somebody else are refused before a row is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from icelock.errors import IntegrityError
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RestStub

SNAPSHOT = {
    "snapshot-id": 7,
    "sequence-number": 1,
    "timestamp-ms": 1_700_000_000_000,
    "manifest-list": "file:///elsewhere/snap.avro",
    "summary": {"operation": "append"},
    "schema-id": 0,
    "first-row-id": 0,
    "added-rows": 1,
}
KEK = {
    "key-id": "planted",
    "encrypted-key-metadata": "AAAA",
    "encrypted-by-id": "keyA",
    "properties": {"KEY_TIMESTAMP": "1700000000000"},
}
STATISTICS = {
    "snapshot-id": 7,
    "statistics-path": "file:///elsewhere/s.puffin",
    "file-size-in-bytes": 10,
    "file-footer-size-in-bytes": 5,
    "blob-metadata": [],
}
PARTITION_STATISTICS = {"snapshot-id": 7, "statistics-path": "file:///elsewhere/p.parquet", "file-size-in-bytes": 10}


def rows(metadata: Any) -> None:
    metadata["snapshots"] = [*metadata["snapshots"], SNAPSHOT]
    metadata.update({"last-sequence-number": max(1, metadata["last-sequence-number"]), "next-row-id": metadata["next-row-id"] + 1})


def branch(metadata: Any) -> None:
    rows(metadata)
    metadata["refs"] = {**metadata["refs"], "theirs": {"snapshot-id": 7, "type": "branch"}}


def unchanged(metadata: Any) -> None:
    del metadata


def without_rows(metadata: Any) -> None:
    metadata.update({"snapshots": [], "snapshot-log": [], "refs": {}, "current-snapshot-id": None})


def also(name: str, value: Any) -> Callable[[Any], None]:
    return lambda metadata: metadata.update({name: [*metadata.get(name, []), value]})


FOREIGN: dict[str, tuple[Callable[[Any], None], str]] = {
    "a key": (also("encryption-keys", KEK), "key entries planted"),
    "a snapshot": (rows, "snapshots 7"),
    "a branch": (branch, "snapshots 7"),
    "the history of a snapshot": (also("snapshot-log", {"snapshot-id": 7, "timestamp-ms": 1_700_000_000_000}), "snapshots 7"),
    "statistics": (also("statistics", STATISTICS), r"statistics file:///elsewhere/s\.puffin"),
    "partition statistics": (also("partition-statistics", PARTITION_STATISTICS), r"statistics file:///elsewhere/p\.parquet"),
}
COUNTED: dict[str, tuple[Callable[[Any], None], str]] = {
    "sequence number": (lambda metadata: metadata.update({"last-sequence-number": 3}), "sequence number 3"),
    "row id": (lambda metadata: metadata.update({"next-row-id": 2**62}), f"next row id {2**62}"),
}


def answers_with(change: Callable[[Any], None], answer: Any) -> Any:
    changed = copy.deepcopy(answer)
    change(changed["metadata"])
    return changed


@pytest.mark.parametrize("way", ["create", "read back", "stage"])
@pytest.mark.parametrize("what", [*FOREIGN, *COUNTED])
def test_a_new_table_that_is_not_empty_is_refused_before_a_row_is_written(what: str, way: str, lake: StubLake, stub: RestStub) -> None:
    change, words = {**FOREIGN, **COUNTED}[what]
    create, loaded = stub.create, stub.loaded
    if way == "read back":
        stub.create = lambda space, body: create(space, body) and copy.deepcopy(stub.tables[space, body["name"]])
        stub.loaded = lambda table: answers_with(change, loaded(table))
    else:
        stub.create = lambda space, body: answers_with(change, create(space, body))
    make = lake.catalog().create_table_transaction if way == "stage" else lake.catalog().create_table
    with pytest.raises(IntegrityError, match=rf"made just now, and comes from catalog test with .*{words}.* that this client did not send"):
        make("db.t", people().schema, properties=KEYED)
    assert not [path for path in lake.files() if path.endswith((".parquet", ".avro"))]


@pytest.mark.parametrize("way", ["answer", "read back", "read back after an answer without the rows"])
@pytest.mark.parametrize("what", FOREIGN)
def test_a_table_made_with_its_rows_that_has_more_is_told_and_nothing_is_deleted(
    what: str, way: str, lake: StubLake, stub: RestStub
) -> None:
    change, words = FOREIGN[what]
    transaction = lake.catalog().create_table_transaction("db.t", people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 2))
    commit, loaded = stub.commit, stub.loaded
    if way == "answer":
        stub.commit = lambda *request: answers_with(change, commit(*request))
    else:
        answered = unchanged if way == "read back" else without_rows
        stub.commit = lambda *request: commit(*request) and answers_with(answered, stub.tables["db", "t"])
        stub.loaded = lambda table: answers_with(change, loaded(table))
    with pytest.raises(IntegrityError, match=rf"made just now, .*{words}"):
        transaction.commit_transaction()
    stub.loaded = loaded
    assert ids(lake.catalog().load_table("db.t")) == [0, 1]


def test_a_table_to_which_another_client_was_quick_to_write_is_no_stranger(lake: StubLake) -> None:
    catalog = lake.catalog()
    ask = catalog._ask_create

    def and_others_write(*request: Any) -> Any:
        answer = ask(*request)
        lake.catalog().load_table("db.t").append(people(5, 1))
        return answer

    catalog._ask_create = and_others_write
    assert ids(lake.table(catalog=catalog)) == [5]
