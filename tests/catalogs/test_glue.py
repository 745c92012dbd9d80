"""Glue: what stands in the parameters, what it proves, and what becomes of a commit that Glue refuses or does not answer."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchIcebergTableError, TableAlreadyExistsError

from icelock.errors import IntegrityError, PolicyError
from tests.helpers.tables import ids, local
from tests.lakes.catalogs import QUICK, GlueLake
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.parametrize("lake", ["glue"], indirect=True)


def test_what_stands_in_the_parameters(lake: GlueLake) -> None:
    table = lake.make(rows=1, owner="us")
    lake.alter(theirs="stays")
    table.append(people(1, 1))
    table.transaction().remove_properties("owner").commit_transaction()
    file = local(table.metadata_location).read_bytes()
    assert lake.parameters() == {
        "table_type": "ICEBERG",
        "metadata_location": table.metadata_location,
        "previous_metadata_location": table.metadata.metadata_log[-1].metadata_file,
        "encryption.key-id": "keyA",
        "metadata_hash": base64.b64encode(hashlib.sha256(file).digest()).decode(),
        "metadata_hash_location": table.metadata_location,
        "theirs": "stays",
        **{name: table.properties[name] for name in table.properties if name.startswith("commit.")},
    }


@pytest.mark.parametrize("change", [{"encryption.key-id": "keyB"}, {"encryption.data-key-length": "24"}, {"owner": "attacker"}])
def test_another_content_of_the_file_is_refused(change: dict[str, str], lake: GlueLake) -> None:
    path = local(lake.make(rows=1).metadata_location)
    holder = lake.load()
    was = path.read_bytes()
    content = json.loads(was)
    path.write_text(json.dumps({**content, "properties": {**content["properties"], **change}}))
    for use in (lake.load, lambda: holder.append(people(9, 1))):
        with pytest.raises(IntegrityError, match=r"might have been modified: its .* Glue says"):
            use()
    path.write_bytes(was)
    assert ids(lake.load()) == [0]


def test_after_a_client_that_writes_no_hash_the_key_still_holds(lake: GlueLake) -> None:
    table = lake.make(rows=1)
    content = json.loads(local(table.metadata_location).read_bytes())
    theirs = local(table.metadata_location).with_name("00009-4a1b7c1e-30f4-4c25-8a34-0a4f7b8f5b11.metadata.json")
    theirs.write_text(json.dumps({**content, "properties": {**content["properties"], "owner": "java"}}))
    lake.point_at(f"file://{theirs}")
    assert lake.load().properties["owner"] == "java"
    theirs.write_text(json.dumps({**content, "properties": {"encryption.key-id": "keyB"}}))
    with pytest.raises(IntegrityError, match="'keyB', and Glue says 'keyA'"):
        lake.load()


def _failing(lake: GlueLake, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**kwargs: Any) -> None:
        del kwargs
        raise error

    monkeypatch.setattr(lake.glue, "update_table", fail)


def _refusal(status: int) -> ClientError:
    return ClientError({"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "UpdateTable")


@pytest.mark.parametrize("error", [_refusal(400), EndpointConnectionError(endpoint_url="x")])
def test_a_refused_commit_leaves_nothing(error: Exception, lake: GlueLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.make(rows=1, **{"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    files, parameters = set(lake.files()), lake.parameters()
    _failing(lake, error, monkeypatch)
    with pytest.raises(CommitFailedException, match="nothing was changed"):
        table.append(people(1, 1))
    assert set(lake.files()) == files
    assert lake.parameters() == parameters


@pytest.mark.parametrize("error", [_refusal(500), ReadTimeoutError(endpoint_url="x")])
def test_a_commit_that_may_be_under_way_is_unknown_and_keeps_its_files(
    error: Exception, lake: GlueLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.make(rows=1)
    files = set(lake.files())
    _failing(lake, error, monkeypatch)
    with pytest.raises(CommitStateUnknownException, match="Glue did not say"):
        table.append(people(1, 1))
    written = set(lake.files()) - files
    assert sorted(Path(path).suffix for path in written) == [".avro", ".avro", ".json", ".parquet"]
    assert files <= set(lake.files())


@pytest.mark.parametrize(
    "make",
    [
        lambda catalog, name, given: catalog.register_table(name, given.metadata_location),
        lambda catalog, name, given: catalog.create_table(name, given.schema(), properties=KEYED),
    ],
    ids=["register", "create"],
)
def test_a_table_that_another_client_makes_at_this_moment_stays(make: Any, lake: GlueLake, monkeypatch: pytest.MonkeyPatch) -> None:
    given, catalog = lake.make("given", rows=3), lake.catalog()
    free_name = catalog.free_name
    theirs: dict[str, bytes] = {}

    def and_others_make_one(identifier: Any) -> Any:
        name = free_name(identifier)
        lake.make(rows=1)
        theirs.update(lake.files())
        return name

    monkeypatch.setattr(catalog, "free_name", and_others_make_one)
    with pytest.raises(TableAlreadyExistsError):
        make(catalog, lake.name(), given)
    assert lake.files() == theirs
    assert ids(lake.load()) == [0]


def test_a_database_of_s3_tables_is_refused(lake: GlueLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icelock.catalog.glue.GlueCatalog._is_s3tables_database", lambda *_: True)
    with pytest.raises(PolicyError, match="S3 Tables"):
        lake.catalog().create_table(lake.name(), people().schema, properties=KEYED)
    assert lake.files() == {}


def test_other_tables_are_not_icebergs(lake: GlueLake) -> None:
    lake.glue.create_table(DatabaseName=lake.space, TableInput={"Name": "csv", "Parameters": {"classification": "csv"}})
    with pytest.raises(NoSuchIcebergTableError, match="is no Iceberg table"):
        lake.load("csv")


@pytest.mark.parametrize(
    "change", [lambda table: table.append(people(1, 1)), lambda table: table.transaction().set_properties({"a": "b"}).commit_transaction()]
)
def test_a_glue_that_says_done_and_does_nothing_is_found_out(change: Any, lake: GlueLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.make(rows=1)
    files, parameters = set(lake.files()), lake.parameters()
    monkeypatch.setattr(lake.glue, "update_table", lambda **_: {"ResponseMetadata": {"HTTPStatusCode": 200}})
    with pytest.raises(CommitStateUnknownException, match=r"says that the commit .* was made, but has .*, without it; nothing was deleted"):
        change(table)
    assert lake.parameters() == parameters
    assert files < set(lake.files())
    assert ids(lake.load()) == [0]


def test_a_glue_that_says_done_and_makes_no_table_is_found_out(lake: GlueLake, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = lake.catalog().create_table_transaction(lake.name(), people().schema, properties={**KEYED, **QUICK})
    transaction.append(people(0, 1))
    monkeypatch.setattr(lake.glue, "create_table", lambda **_: {"ResponseMetadata": {"HTTPStatusCode": 200}})
    with pytest.raises(CommitStateUnknownException, match="nothing was deleted"):
        transaction.commit_transaction()
    assert [path for path in lake.files() if path.endswith(".parquet")]
