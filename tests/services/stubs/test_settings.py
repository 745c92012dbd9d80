"""Where settings come from: keys from the client alone; names, tokens and storage credentials from the server."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from pyiceberg.catalog.rest import Capability
from pyiceberg.exceptions import ForbiddenError

from icelock.errors import CommitError, FormatError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.io.file_io import storage_of
from icelock.kms.loader import load_kms_client as load
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, people
from tests.lakes.stub import QUICK, StubLake
from tests.servers.rest_stub import RestStub

EVIL = {
    "encryption.kms-impl": "attacker.Kms",
    "py-kms-impl": "attacker.Kms",
    "py-io-impl": "attacker.Io",
    "kms.vault.address": "https://attacker",
    "kms.vault.token-file": "/etc/attacker",
    "kms.endpoint": "https://attacker",
    "azure.keyvault.url": "https://attacker",
    "icelock.plaintext-files": "allow-unkeyed",
}


@pytest.mark.parametrize("place", ["defaults", "overrides", "table_config"])
def test_encryption_settings_of_a_server_are_ignored_with_one_warning(place: str, lake: StubLake, stub: RestStub, caplog) -> None:
    setattr(stub, place, EVIL)
    with caplog.at_level(logging.WARNING, "icelock"):
        catalog = lake.catalog()
        table = lake.table(rows=2, catalog=catalog)
        assert ids(catalog.load_table("db.t")) == [0, 1]
    warned = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert len(warned) == 1
    # A default for what the client has set itself is none.
    assert all(name in warned[0] for name in EVIL if (place, name) != ("defaults", "encryption.kms-impl"))
    assert lake.calls.take(), "the client's own KMS was used"
    for settings in (catalog.properties, table.io.properties, storage_of(table.io).properties):
        assert not set(EVIL) & {name for name, value in settings.items() if value == EVIL.get(name)}


def test_a_server_cannot_replace_the_clients_kms(lake: StubLake, stub: RestStub) -> None:
    own = {name: value for name, value in lake.properties().items() if name.startswith(("encryption.", "kms."))}
    stub.overrides = dict.fromkeys(own, "attacker")
    catalog = lake.catalog()
    assert {name: catalog.properties[name] for name in own} == own
    assert ids(lake.table(rows=1, catalog=catalog)) == [0]


def test_encryption_settings_among_table_properties_are_ignored_with_one_warning(lake: StubLake, caplog) -> None:
    lake.table(rows=1)
    lake.kept["properties"].update({**EVIL, "s3.endpoint": "https://attacker", "s3.secret-access-key": "x"})
    catalog = lake.catalog()
    with caplog.at_level(logging.WARNING, "icelock"):
        table = catalog.load_table("db.t")
        assert ids(table) == ids(catalog.load_table("db.t")) == [0]
    [warned] = [record.getMessage() for record in caplog.records]
    assert all(name in warned for name in EVIL)
    settings = storage_of(table.io).properties
    assert not {"attacker" in str(value) for value in settings.values()} - {False}
    assert "s3.secret-access-key" not in settings


def test_no_property_that_icelock_sets_is_told_of(lake: StubLake, caplog) -> None:
    """A rotation and a removal of plain files that are under way; each names itself in the table's properties."""
    lake.table(rows=1)
    lake.kept["properties"].update({"icelock.rotation-kek": "k", "icelock.removing-plain": "file:///x", "icelock.optimize.expire": "false"})
    with caplog.at_level(logging.WARNING, "icelock"):
        assert ids(lake.catalog().load_table("db.t")) == [0]
    assert not caplog.records


def test_a_kms_gets_the_clients_settings_and_none_of_the_server(lake: StubLake, stub: RestStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that storage has as well (regions, tokens) go to the storage, not to the KMS."""
    stub.overrides = stub.table_config = {**EVIL, "client.region": "attacker-1", "gcs.oauth2.token": "attacker", "s3.endpoint": "http://x"}
    given: list[dict[str, str]] = []
    monkeypatch.setattr("icelock.table.encryption.load_kms_client", lambda properties: given.append(dict(properties)) or load(properties))
    catalog = lake.catalog()
    assert ids(lake.table(rows=1, catalog=catalog)) == [0]
    assert catalog.properties["client.region"] == "attacker-1", "the storage is the server's to choose"
    [settings] = given
    assert settings == {name: value for name, value in lake.properties().items() if name != "type"}


LOCATIONS = "write.py-location-provider.impl"


def test_a_class_of_paths_that_a_table_names_is_not_loaded(lake: StubLake) -> None:
    table = lake.table(rows=1)
    lake.kept["properties"][LOCATIONS] = "antigravity.Provider"
    files, kept = set(lake.files()), lake.kept
    named = lake.catalog().load_table("db.t")
    assert ids(named) == [0], "reading needs none"
    uses = {
        "append": lambda: named.append(people(1, 1)),
        "delete": lambda: named.delete("id = 0"),
        "property": lambda: named.transaction().set_properties({"owner": "us"}).commit_transaction(),
        "asked for": named.location_provider,
        "a copy from before": lambda: table.append(people(1, 1)),
    }
    for use in uses.values():
        with pytest.raises(PolicyError, match=rf"{LOCATIONS} 'antigravity\.Provider', which would load a class of the table's choice"):
            use()
    assert "antigravity" not in sys.modules
    assert set(lake.files()) == files
    assert lake.kept == kept
    named.transaction().remove_properties(LOCATIONS).commit_transaction()
    named.append(people(1, 1))
    assert ids(named) == [0, 1]


def test_a_class_of_paths_of_the_clients_own_is_used(lake: StubLake) -> None:
    own = {LOCATIONS: "pyiceberg.table.locations.SimpleLocationProvider"}
    with pytest.raises(PolicyError, match="which would load a class"):
        lake.table(**own)
    table = lake.table(rows=1, catalog=lake.catalog(**own), **own)
    assert ids(table) == [0]
    with pytest.raises(PolicyError, match="which would load a class"):
        lake.catalog().load_table("db.t").append(people(1, 1))


@pytest.mark.parametrize("who", ["server", "client"])
@pytest.mark.parametrize("more", [KEYED, {"icelock.plain": "true"}], ids=["encrypted", "plain"])
def test_a_server_is_not_asked_for_its_own_plans(who: str, more: dict[str, str], lake: StubLake, stub: RestStub) -> None:
    mode = {"scan-planning-mode": "server"}
    if who == "server":
        stub.overrides = mode
    catalog = lake.catalog(**(mode if who == "client" else {}))
    catalog._supported_endpoints.add(Capability.V1_SUBMIT_TABLE_SCAN_PLAN)
    table = catalog.create_table("db.t", people().schema, properties={**QUICK, **more})
    table.append(people(0, 2))
    assert ids(table) == [0, 1]
    assert not [request for request in stub.requests if request.endswith("/plan")]


def test_updates_stand_in_the_protocols_form_and_order(lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    sent = next(body for request, body in stub.bodies if request == "POST /v1/namespaces/db/tables/t")
    assert [update["action"] for update in sent["updates"]] == [
        "add-encryption-key", "add-encryption-key", "add-snapshot", "set-snapshot-ref",
    ]  # fmt: skip
    kek, list_key, snapshot = (sent["updates"][0]["encryption-key"], sent["updates"][1]["encryption-key"], sent["updates"][2]["snapshot"])
    assert set(kek) == {"key-id", "encrypted-key-metadata", "encrypted-by-id", "properties"}
    assert kek["encrypted-by-id"] == "keyA"
    assert list_key["encrypted-by-id"] == kek["key-id"]
    assert snapshot["key-id"] == list_key["key-id"]
    assert snapshot["first-row-id"] == 0
    assert snapshot["added-rows"] == 1
    assert {"type": "assert-table-uuid", "uuid": lake.kept["table-uuid"]} in sent["requirements"]


def test_key_ids_are_text_that_survives_a_change_of_properties(lake: StubLake) -> None:
    table = lake.table(rows=1)
    keys, snapshots = lake.kept["encryption-keys"], lake.kept["snapshots"]
    strange = "a+b/c=="
    for entry in keys:
        if entry["encrypted-by-id"] != "keyA":
            entry["key-id"] = strange
    snapshots[0]["key-id"] = strange
    table = lake.catalog().load_table("db.t")
    assert ids(table) == [0]
    table.transaction().set_properties({"x": "y"}).commit_transaction()
    assert lake.kept["encryption-keys"] == keys
    assert lake.kept["snapshots"] == snapshots
    assert ids(lake.catalog().load_table("db.t")) == [0]


def test_oauth2_and_the_tables_token_are_pyicebergs(lake: StubLake, stub: RestStub) -> None:
    place = f"{stub.uri}/v1/oauth/tokens"
    lake.table(rows=1, catalog=lake.catalog(credential="client:secret", **{"oauth2-server-uri": place}))
    sent = [headers for request, headers in stub.headers if request == "POST /v1/namespaces/db/tables/t"]
    assert [headers["Authorization"] for headers in sent] == ["Bearer from-oauth"]


def test_requests_are_signed_with_sigv4(lake: StubLake, stub: RestStub) -> None:
    pytest.importorskip("boto3")
    signed = {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-west-1", "client.access-key-id": "AKIDEXAMPLE"}
    lake.table(rows=1, catalog=lake.catalog(**signed, **{"client.secret-access-key": "secret"}))
    sent = [headers for request, headers in stub.headers if request.endswith("/tables/t")]
    assert all("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/" in headers["Authorization"] for headers in sent)


def test_lent_credentials_are_lent_again_before_they_end(lake: StubLake, stub: RestStub) -> None:
    clock = [1_000_000_000]

    def lend(number: int) -> None:
        config = {"s3.access-key-id": f"lent-{number}", "s3.session-token-expires-at-ms": str(clock[0] + 600_000)}
        stub.credentials = [{"prefix": "file://", "config": config}, {"prefix": "s3://", "config": {"s3.access-key-id": "other"}}]

    lend(1)
    catalog = lake.catalog()
    catalog.encryption.clock = lambda: clock[0]
    table = lake.table(catalog=catalog)
    storage = storage_of(table.io)
    assert storage.properties["s3.access-key-id"] == "lent-1"
    lend(2)
    clock[0] += 299_999
    assert storage.properties["s3.access-key-id"] == "lent-1"
    clock[0] += 1
    assert storage.properties["s3.access-key-id"] == "lent-2"
    table.append(people(0, 2))
    assert ids(table) == [0, 1]


def test_lent_credentials_that_are_not_lent_again_serve_until_their_end(lake: StubLake, stub: RestStub) -> None:
    clock = [1_000_000_000]
    stub.credentials = [{"prefix": "", "config": {"s3.session-token-expires-at-ms": str(clock[0] + 600_000)}}]
    catalog = lake.catalog()
    catalog.encryption.clock = lambda: clock[0]
    storage = storage_of(lake.table(catalog=catalog).io)
    file = next(iter((lake.warehouse).rglob("*.metadata.json")))
    stub.fail("GET", "/tables/t", when="before", how=403, times=2)
    clock[0] += 599_999
    assert storage.new_input(f"file://{file}").exists()
    clock[0] += 1
    with pytest.raises(ForbiddenError, match="made to fail"):
        storage.new_input(f"file://{file}")


def _ending(config: dict[str, str], at_ms: int) -> list[dict[str, Any]]:
    return [{"prefix": "file://", "config": {**config, "s3.session-token-expires-at-ms": str(at_ms)}}]


def test_a_table_that_is_being_made_is_lent_credentials_again(lake: StubLake, stub: RestStub) -> None:
    """As long as it is not there, they come with staging it once more; then from the table."""
    clock = [1_000_000_000]
    catalog = lake.catalog()
    catalog.encryption.clock = lambda: clock[0]
    stub.credentials = _ending({"s3.access-key-id": "one"}, clock[0] + 600_000)
    transaction = catalog.create_table_transaction("db.t", people().schema, properties=KEYED)
    transaction.append(people(0, 1))
    storage = storage_of(transaction.staged.io)
    assert storage.properties["s3.access-key-id"] == "one"
    clock[0] += 400_000
    stub.credentials = _ending({"s3.access-key-id": "two"}, clock[0] + 600_000)
    transaction.append(people(1, 1))
    assert storage.properties["s3.access-key-id"] == "two"
    made = transaction.commit_transaction()
    clock[0] += 400_000
    stub.credentials = _ending({"s3.access-key-id": "three"}, clock[0] + 600_000)
    made.append(people(2, 1))
    assert storage_of(made.io).properties["s3.access-key-id"] == "three"
    assert ids(made) == [0, 1, 2]
    staged = [body for request, body in stub.bodies if request == "POST /v1/namespaces/db/tables"]
    assert [body["stage-create"] for body in staged] == [True, True]
    assert staged[1]["location"] == made.location(), "once more at the same place"


def test_a_table_that_another_process_staged_is_resumed_with_credentials(lake: StubLake, stub: RestStub) -> None:
    stub.credentials = _ending({"s3.access-key-id": "one"}, 4_000_000_000_000)
    staged = lake.catalog().create_table_transaction("db.t", people().schema, properties=KEYED).staged_metadata()
    stub.credentials = _ending({"s3.access-key-id": "two"}, 4_000_000_000_000)
    stub.table_config = {"s3.endpoint": "http://lent"}
    resumed = lake.catalog().resume_create_transaction("db.t", staged)
    settings = storage_of(resumed.staged.io).properties
    assert (settings["s3.access-key-id"], settings["s3.endpoint"]) == ("two", "http://lent")
    resumed.append(people(0, 2))
    assert stub.tables == {}
    made = resumed.commit_transaction()
    assert ids(made) == [0, 1]
    assert made.location() == json.loads(staged)["location"]


def test_a_table_with_other_credentials_is_refreshed_with_them(lake: StubLake, stub: RestStub) -> None:
    table = lake.table(rows=1)
    stub.credentials = [{"prefix": "file://", "config": {"s3.access-key-id": "fresh"}}]
    table.refresh()
    assert storage_of(table.io).properties["s3.access-key-id"] == "fresh"


def test_a_table_that_lost_its_key_id_at_the_server_is_refused(lake: StubLake) -> None:
    lake.table(rows=1)
    del lake.kept["properties"]["encryption.key-id"]
    with pytest.raises(IntegrityError, match="the property was removed"):
        lake.catalog().load_table("db.t")


@pytest.mark.parametrize("answer", ["none", {}, {"metadata": {}}, {"metadata": {"format-version": 4}}, {"metadata-location": 3}, []])
def test_an_answer_that_is_no_table_is_a_format_error(answer, lake: StubLake, stub: RestStub) -> None:
    lake.table(rows=1)
    stub.loaded = lambda _: answer
    with pytest.raises(FormatError):
        lake.catalog().load_table("db.t")


def test_without_a_kms_an_encrypted_table_is_neither_read_nor_written(lake: StubLake) -> None:
    lake.table(rows=1)
    files, kept = lake.files(), lake.kept
    table = lake.without_kms().load_table("db.t")
    for use in (
        lambda: table.scan().to_arrow(),
        lambda: table.append(people(1, 1)),
        lambda: table.delete("id = 0"),
        table.inspect.files,
    ):
        with pytest.raises(KeyUnavailableError, match=r"no KMS is configured for catalog test: set encryption.kms-type"):
            use()
    assert lake.files() == files
    assert lake.kept == kept


def test_register_with_overwrite_is_refused(lake: StubLake) -> None:
    table = lake.table(rows=1)
    with pytest.raises(PolicyError, match="register_table with overwrite"):
        lake.catalog().register_table("db.u", table.metadata_location, overwrite=True)
    assert list(lake.stub.tables) == [("db", "t")]


def test_a_key_id_that_a_server_changes_at_creation_is_found_out(lake: StubLake, stub: RestStub) -> None:
    create = stub.create
    stub.create = lambda space, body: create(space, {**body, "properties": {**body["properties"], "encryption.key-id": "keyB"}})
    with pytest.raises(CommitError, match=r"encryption\.key-id is 'keyB' in catalog test instead of 'keyA'"):
        lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    assert not [path for path in lake.files() if path.endswith(".parquet")]
