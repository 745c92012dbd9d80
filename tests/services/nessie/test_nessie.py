"""Nessie 0.99.0 itself cannot hold an encrypted table, and is found out when one is made; its stub behaves as it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from icelock.errors import CommitError, PolicyError
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.servers.nessie import Nessie

BUCKET = "lake"


@pytest.fixture(scope="module")
def storage() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    session = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="eu-west-1")
    client = session.client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield client
    client.close()
    server.stop()


@pytest.fixture(scope="module")
def nessie(storage: Any) -> Iterator[Nessie]:
    with Nessie(storage.meta.endpoint_url, BUCKET) as server:
        yield server


class NessieLake(TestLake):
    __test__ = False

    def __init__(self, folder: Path, server: Nessie, storage: Any) -> None:
        super().__init__(folder)
        self._settings = {
            "type": "rest",
            "uri": server.uri,
            "warehouse": "lake",
            "s3.endpoint": storage.meta.endpoint_url,
            "s3.access-key-id": "any",
            "s3.secret-access-key": "any",
        }

    def properties(self, **more: str) -> dict[str, str]:
        return {**self._settings, **self.calls.properties(), **more}


def _stored(storage: Any) -> set[str]:
    return {entry["Key"] for entry in storage.list_objects_v2(Bucket=BUCKET).get("Contents", ())}


def test_nessie_is_found_out_before_a_row_is_written(nessie: Nessie, storage: Any, tmp_path: Path) -> None:
    catalog = NessieLake(tmp_path, nessie, storage).catalog()
    catalog.create_namespace("db")
    with pytest.raises(
        CommitError, match=r"version 3 was asked for.*made version 2.*cannot hold encrypted tables.*drop it, and use another"
    ):
        catalog.create_table("db.t", people().schema, properties=KEYED)
    with pytest.raises(CommitError, match=r"version 3 was asked for.*made version 2"):
        catalog.create_table_transaction("db.s", people().schema, properties=KEYED)
    assert catalog.list_tables("db") == [("db", "t")]
    with pytest.raises(PolicyError, match="has encryption properties but format version 2"):
        catalog.load_table("db.t")
    assert all(key.endswith(".metadata.json") for key in _stored(storage))
    catalog.drop_table("db.t")
    assert catalog.list_tables("db") == []


def test_what_nessie_does_with_key_updates_is_what_the_stub_does(nessie: Nessie, storage: Any, tmp_path: Path) -> None:
    catalog = NessieLake(tmp_path, nessie, storage).catalog()
    catalog.create_namespace("plain")
    catalog.create_table("plain.t", people().schema, properties={"icelock.plain": "true"})
    entry = {"key-id": "k", "encrypted-key-metadata": "AAAA", "encrypted-by-id": "m", "properties": {}}
    body = {"requirements": [], "updates": [{"action": "add-encryption-key", "encryption-key": entry}]}
    place = f"{nessie.uri}/v1/main%7Clake/namespaces/plain/tables/t"
    answer = requests.post(place, json=body, timeout=60)
    assert answer.status_code == 500
    assert "Could not resolve type id 'add-encryption-key'" in answer.text
    catalog.drop_table("plain.t")
