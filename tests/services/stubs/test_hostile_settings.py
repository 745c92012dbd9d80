"""What a hostile server sends as settings: none of it loads a class, opens a file, or sends a request or a credential elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from icelock.errors import FormatError, PolicyError
from icelock.io.file_io import storage_of
from tests.helpers.tables import ids
from tests.lakes.sqlite import people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RestStub

PLACES = ["defaults", "overrides", "table_config", "credentials"]
# None of these is in the list of what a server may set (docs/how-to/catalog-rest.md).
HOSTILE: dict[str, Any] = {
    "auth": {"type": "custom", "impl": "antigravity.Manager", "custom": {}},
    "ssl": {"cabundle": False, "client": {"cert": "/etc/hostname"}},
    "uri": "http://127.0.0.1:1/",
    "oauth2-server-uri": "http://127.0.0.1:1/token",
    "credential": "attacker:secret",
    "scope": "attacker",
    "header.Host": "attacker",
    "header.x-attack": "1",
    "rest.sigv4-enabled": "true",
    "rest.signing-name": "attacker",
    "rest.client.socket-timeout-ms": "1",
    "snapshot-loading-mode": "refs",
    "scan-planning-mode": "nonsense",
    "py-io-impl": "antigravity.FileIO",
    "py-catalog-impl": "antigravity.Catalog",
    "py-kms-impl": "antigravity.Kms",
    "encryption.kms-impl": "antigravity.Kms",
    "icelock.plaintext-files": "allow-unkeyed",
    "icelock.rest.max-answer-bytes": "1",
    "write.py-location-provider.impl": "antigravity.Provider",
    "s3.retry-strategy-impl": "antigravity.Strategy",
    "s3.signer": "S3V4RestSigner",
    "s3.signer.uri": "http://127.0.0.1:1/",
    "s3.proxy-uri": "http://127.0.0.1:1/",
    "s3.role-arn": "arn:aws:iam::1:role/attacker",
    "s3.profile-name": "attacker",
    "client.role-arn": "arn:aws:iam::1:role/attacker",
    "client.profile-name": "attacker",
    "client.access-key-id": "attacker",
    "gcs.session-kwargs": '{"trust_env": true}',
    "adls.connection-string": "BlobEndpoint=http://127.0.0.1:1/",
    "adls.credential": "DefaultAzureCredential",
    "adls.tenant-id": "attacker",
    "hf.endpoint": "http://127.0.0.1:1/",
    "hdfs.host": "attacker",
    "DEFAULT_SCHEME": "http",
    "http.proxy": "http://127.0.0.1:1/",
    "anything": "new",
}


def sent_as(place: str, settings: dict[str, Any], stub: RestStub) -> None:
    setattr(stub, place, [{"prefix": "file://", "config": settings}] if place == "credentials" else settings)


def everywhere(catalog: Any, table: Any) -> dict[str, Any]:
    return {**catalog.properties, **storage_of(table.io).properties, **table.config}


@pytest.mark.parametrize("place", PLACES)
def test_what_a_server_may_not_set_is_left_out_with_one_line_of_names(place: str, lake: StubLake, stub: RestStub, caplog) -> None:
    sent_as(place, HOSTILE, stub)
    with caplog.at_level(logging.WARNING, "icelock"):
        catalog = lake.catalog()
        table = lake.table(rows=2, catalog=catalog)
        assert ids(catalog.load_table("db.t")) == [0, 1]
    own = lake.properties()
    kept = {name for name, value in everywhere(catalog, table).items() if name in HOSTILE and value != own.get(name)}
    assert kept == set()
    assert "antigravity" not in sys.modules
    [line] = [record.getMessage() for record in caplog.records if record.name.startswith("icelock")]
    # A default for what the client has set itself is none.
    told = line.removeprefix("catalog test: the REST server sends ").split("; ignored", 1)[0].split(", ")
    assert [name for name in HOSTILE if name not in told] == [name for name in HOSTILE if place == "defaults" and name in own]
    assert "127.0.0.1" not in line
    assert "attacker" not in line.replace("x-attack", "")
    assert {headers.get("x-attack") for _, headers in stub.headers} == {None}


@pytest.mark.parametrize("value", [None, ["a"], {"a": "b"}, 1.5, "with\nline", "x" * 20_000, ""])
@pytest.mark.parametrize("place", PLACES)
def test_values_of_another_form_are_left_out(place: str, value: Any, lake: StubLake, stub: RestStub) -> None:
    names = ("token", "prefix", "warehouse", "rest-page-size", "namespace-separator", "s3.endpoint", "s3.access-key-id", "client.region")
    sent_as(place, {name: value for name in names if not (name == "prefix" and value == "")}, stub)
    catalog = lake.catalog()
    table = lake.table(rows=1, catalog=catalog)
    assert ids(table) == [0]
    assert not set(names) & set(everywhere(catalog, table))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prefix", "../../admin"),
        ("prefix", "a/%2e%2e/b"),
        ("prefix", "a?b"),
        ("namespace-separator", "/"),
        ("namespace-separator", "%2F"),
        ("token", "a b"),
        ("client.region", "x.attacker.example/#"),
        ("s3.region", "-"),
        ("gcs.oauth2.token", "/etc/passwd"),
        ("gcs.oauth2.token", "google_default"),
        ("gcs.oauth2.token", "token.json"),
        ("adls.account-name", "attacker.example/"),
        ("s3.signer.endpoint", "../sign"),
        ("rest-page-size", "-1"),
        ("view-endpoints-supported", "perhaps"),
    ],
)
def test_values_that_lead_elsewhere_are_left_out(name: str, value: str, lake: StubLake, stub: RestStub) -> None:
    stub.overrides = {name: value}
    stub.table_config = {name: value}
    catalog = lake.catalog()
    table = lake.table(rows=1, catalog=catalog)
    assert name not in everywhere(catalog, table)
    assert ids(table) == [0]


ADDRESSES = {
    "s3.endpoint": "http://attacker.example",
    "gcs.service.host": "http://attacker.example",
    "adls.dfs-storage-authority": "a.example",
}
KEYS = {"s3.access-key-id": "lent", "s3.secret-access-key": "lent", "gcs.oauth2.token": "ya29.lent", "adls.sas-token": "sig=lent"}
OWN = {
    "s3.access-key-id": "own",
    "s3.secret-access-key": "own",
    "s3.session-token": "own",
    "client.secret-access-key": "own",
    "gcs.oauth2.token": "own-token",
    "adls.client-secret": "own",
    "adls.sas-token.acc.dfs.core.windows.net": "own",
}


@pytest.mark.parametrize("place", PLACES)
def test_the_clients_keys_do_not_go_to_an_address_of_the_server(place: str, lake: StubLake, stub: RestStub, caplog) -> None:
    sent_as(place, ADDRESSES, stub)
    with caplog.at_level(logging.WARNING, "icelock"):
        settings = storage_of(lake.table(catalog=lake.catalog(**OWN)).io).properties
    assert not set(ADDRESSES) & set(settings)
    assert {name: settings[name] for name in OWN} == OWN
    assert any("s3.endpoint" in record.getMessage() and "attacker" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("place", PLACES)
def test_where_a_server_lends_keys_none_of_the_clients_is_used(place: str, lake: StubLake, stub: RestStub) -> None:
    stub.overrides = dict(ADDRESSES)
    sent_as(place, {**ADDRESSES, **KEYS}, stub)
    settings = storage_of(lake.table(catalog=lake.catalog(**OWN)).io).properties
    if place == "defaults":  # the client has keys of its own
        assert {name: settings[name] for name in OWN} == OWN
        assert not set(ADDRESSES) & set(settings)
        return
    assert {name: settings[name] for name in (*ADDRESSES, *KEYS)} == {**ADDRESSES, **KEYS}
    assert {name for name, value in settings.items() if str(value).startswith("own")} == set()


def test_an_address_that_the_client_has_too_counts(lake: StubLake, stub: RestStub) -> None:
    stub.overrides = dict(ADDRESSES)
    settings = storage_of(lake.table(catalog=lake.catalog(**OWN, **ADDRESSES)).io).properties
    assert {name: settings[name] for name in (*OWN, *ADDRESSES)} == {**OWN, **ADDRESSES}


@pytest.mark.parametrize(
    "address",
    ["http://169.254.169.254", "http://[fe80::1]", "http://2852039166", "http://0xa9fea9fe", "http://169.254.43518", "http://[::ffff:169.254.169.254]",
     "http://metadata.google.internal", "http://user:x@host", "file:///etc", "ftp://host"],
)  # fmt: skip
def test_an_address_of_the_machines_own_network_does_not_count_with_keys_either(address: str, lake: StubLake, stub: RestStub) -> None:
    stub.overrides = {"s3.endpoint": address, **KEYS}
    assert "s3.endpoint" not in storage_of(lake.table().io).properties


def test_what_a_server_may_set_counts(lake: StubLake, stub: RestStub) -> None:
    stub.defaults = {"prefix": "", "warehouse": "of-the-server", "rest-page-size": 10}
    stub.overrides = {"token": "of-the-server", "s3.path-style-access": True}
    catalog = lake.catalog(warehouse="of-the-client", token="of-the-client")
    assert [catalog.properties[name] for name in ("warehouse", "token", "rest-page-size")] == ["of-the-client", "of-the-server", "10"]
    table = lake.table(rows=1, catalog=catalog)
    assert storage_of(table.io).properties["s3.path-style-access"] == "true"
    sent = [headers["Authorization"] for request, headers in stub.headers if request.endswith("/tables/t")]
    assert set(sent) == {"Bearer of-the-server"}


@pytest.mark.parametrize("body", [[], "x", None, {"defaults": []}, {"overrides": "x"}, {"endpoints": {}}, {"storage": 1, "defaults": 3}])
def test_a_configuration_that_is_none_is_a_format_error(body: Any, lake: StubLake, stub: RestStub) -> None:
    handle = stub.handle
    stub.handle = lambda method, path, sent: (200, body) if path.endswith("/config") else handle(method, path, sent)
    with pytest.raises(FormatError, match="not what the protocol demands"):
        lake.catalog()


def test_endpoints_that_this_client_does_not_know_are_left_out(lake: StubLake, stub: RestStub) -> None:
    handle = stub.handle
    known = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", "HUG /v1/x", 3, None, "x", {"a": 1}]
    stub.handle = lambda method, path, sent: (200, {"endpoints": known}) if path.endswith("/config") else handle(method, path, sent)
    catalog = lake.catalog()
    with pytest.raises(NotImplementedError, match="does not support endpoint: POST"):
        catalog.create_table("db.t", people().schema, properties={"encryption.key-id": "keyA"})


LOCATIONS = "write.py-location-provider.impl"
PLAIN = {"icelock.plain": "true", "format-version": "2"}


def test_a_class_of_paths_that_a_plain_table_names_is_not_loaded(lake: StubLake, stub: RestStub) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.p", people().schema, properties=PLAIN).append(people(0, 2))
    stub.tables["db", "p"]["metadata"]["properties"][LOCATIONS] = "antigravity.Provider"
    kept, files = stub.tables["db", "p"], set(lake.files())
    table = catalog.load_table("db.p")
    assert ids(table) == [0, 1], "reading needs none"
    uses: list[Any] = [
        lambda: table.append(people(2, 1)),
        lambda: table.overwrite(people(2, 1)),
        lambda: table.delete("id = 0"),
        lambda: table.upsert(people(1, 2), join_cols=["id"]),
        lambda: table.dynamic_partition_overwrite(people(2, 1)),
        lambda: table.add_files([f"file://{lake.warehouse}/x.parquet"], check_duplicate_files=False),
        lambda: table.transaction().set_properties({"a": "b"}).commit_transaction(),
        table.location_provider,
    ]
    for use in uses:
        with pytest.raises(PolicyError, match="which would load a class of the table's choice"):
            use()
    assert "antigravity" not in sys.modules
    assert (stub.tables["db", "p"], set(lake.files())) == (kept, files)
    table.transaction().remove_properties(LOCATIONS).commit_transaction()
    table.append(people(2, 1))
    assert ids(table) == [0, 1, 2]


def test_a_class_of_paths_that_a_staged_plain_table_names_is_not_loaded(lake: StubLake, stub: RestStub) -> None:
    create = stub.create
    stub.create = lambda space, body: create(space, {**body, "properties": {**body["properties"], LOCATIONS: "antigravity.Provider"}})
    with pytest.raises(PolicyError, match="which would load a class of the table's choice"):
        lake.catalog().create_table_transaction("db.p", people().schema, properties=PLAIN).append(people(0, 1))
    assert "antigravity" not in sys.modules


def test_a_table_that_is_said_to_be_dropped_and_is_not_keeps_its_files(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=2, catalog=lake.catalog(**QUICK))
    files, handle = set(lake.files()), stub.handle
    stub.handle = lambda method, path, body: (204, None) if method == "DELETE" else handle(method, path, body)
    with pytest.raises(CommitStateUnknownException, match=r"but has a table of this name.*No file was deleted"):
        table.catalog.purge_table("db.t")
    assert set(lake.files()) == files
    stub.handle = handle
    table.catalog.purge_table("db.t")
    assert not [path for path in lake.files() if path.endswith((".parquet", ".avro"))]
