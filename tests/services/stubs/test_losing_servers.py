"""A server that cannot hold encrypted tables is found out at the first thing it is asked for, and nothing is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from icelock.errors import CommitError, PolicyError
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import StubLake
from tests.servers.rest_stub import RestStub
from tests.services.stubs.servers_that_lose_keys import KeylessStub, LowerVersionStub, NessieStub, SeaweedStub


@contextlib.contextmanager
def lake_on(kind: type[RestStub], folder: Path) -> Iterator[StubLake]:
    with kind(folder / "warehouse") as stub:
        yield StubLake(folder, stub)


def test_nessie_is_found_out_when_a_table_is_made(tmp_path: Path) -> None:
    with lake_on(NessieStub, tmp_path) as lake:
        with pytest.raises(CommitError, match=r"version 3 was asked for.*made version 2.*cannot hold encrypted tables.*drop it"):
            lake.table()
        assert lake.kept["format-version"] == 2
        with pytest.raises(PolicyError, match="encryption needs version 3"):
            lake.catalog().load_table("db.t")
        assert [path for path in lake.files() if not path.endswith(".metadata.json")] == []
        lake.catalog().drop_table("db.t")
        assert lake.stub.tables == {}


def test_nessie_is_found_out_when_a_table_is_staged(tmp_path: Path) -> None:
    with lake_on(NessieStub, tmp_path) as lake:
        with pytest.raises(CommitError, match="made version 2"):
            lake.catalog().create_table_transaction("db.t", people().schema, properties=KEYED)
        assert lake.stub.tables == {}
        assert lake.files() == {}


def test_a_server_that_fails_at_key_updates_leaves_the_data_and_says_what_it_may_mean(tmp_path: Path) -> None:
    with lake_on(NessieStub, tmp_path) as lake:
        lake.stub.create = RestStub.create.__get__(lake.stub)
        table = lake.table()
        kept = lake.kept
        with pytest.raises(CommitStateUnknownException, match="add-encryption-key") as caught:
            table.append(people(0, 3))
        assert lake.kept == kept
        data = [path for path in lake.files() if path.endswith(".parquet")]
        assert len(data) == 1
        assert data[0] in str(caught.value.__notes__)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (SeaweedStub, r"snapshot \d+ came back without its key-id"),
        (KeylessStub, r"encryption keys .* did not come back after the commit"),
        (LowerVersionStub, r"format version 3 was committed, 2 came back"),
    ],
)
def test_what_a_server_lost_is_said_and_the_data_is_named_and_kept(kind: type[RestStub], words: str, tmp_path: Path) -> None:
    with lake_on(kind, tmp_path) as lake:
        table = lake.table()
        with pytest.raises(CommitError, match=words + r"; catalog .* cannot hold encrypted tables; nothing was deleted") as caught:
            table.append(people(0, 3))
        data = [path for path in lake.files() if path.endswith(".parquet")]
        assert len(data) == 1
        assert lake.files()[data[0]][:4] == b"PARE"
        assert data[0] in str(caught.value.__notes__)
        assert len(lake.kept["snapshots"]) == 1, "the commit was made"
