"""What storage says is believed only as far as the metastore's row confirms it: edited, exchanged and rolled-back metadata files."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, KmsError, KmsErrorKind, PolicyError
from tests.helpers.tables import ids, local
from tests.lakes.hive import HiveLake, compact, sha256
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.hive

LENIENT = {"icelock.hive.require-hash": "false"}


def refused(hive: HiveLake, match: str, **more: str) -> None:
    """The table can neither be loaded nor committed to, and nothing changes by trying."""
    before = hive.parameters(), hive.files()
    with pytest.raises(IntegrityError, match=match):
        hive.load(**more)
    assert (hive.parameters(), hive.files()) == before
    assert hive.locks() == []


def edit(hive: HiveLake, change: Callable[[dict[str, Any]], None]) -> None:
    path = hive.metadata_path()
    metadata = json.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(compact(metadata))


def without_key_id(metadata: dict[str, Any]) -> None:
    del metadata["properties"]["encryption.key-id"]


def without_any_trace_of_encryption(metadata: dict[str, Any]) -> None:
    without_key_id(metadata)
    del metadata["encryption-keys"]
    metadata.update({"snapshots": [], "refs": {}, "current-snapshot-id": None, "snapshot-log": []})


def another_key_id(metadata: dict[str, Any]) -> None:
    metadata["properties"]["encryption.key-id"] = "keyB"


def a_shorter_key(metadata: dict[str, Any]) -> None:
    metadata["properties"]["encryption.data-key-length"] = "16"


def one_snapshot_less(metadata: dict[str, Any]) -> None:
    gone = metadata["snapshots"].pop()
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = metadata["snapshots"][-1]["snapshot-id"]
    metadata["snapshot-log"] = [entry for entry in metadata["snapshot-log"] if entry["snapshot-id"] != gone["snapshot-id"]]


def entries_dropped(metadata: dict[str, Any]) -> None:
    metadata["encryption-keys"] = metadata["encryption-keys"][:1]


def a_time_stamp_moved(metadata: dict[str, Any]) -> None:
    stamp = metadata["encryption-keys"][0]["properties"]
    stamp["KEY_TIMESTAMP"] = str(int(stamp["KEY_TIMESTAMP"]) + 1)


def the_keys_of_two_snapshots_swapped(metadata: dict[str, Any]) -> None:
    first, second = metadata["snapshots"][:2]
    first["key-id"], second["key-id"] = second["key-id"], first["key-id"]


def a_manifest_list_elsewhere(metadata: dict[str, Any]) -> None:
    metadata["snapshots"][-1]["manifest-list"] = metadata["snapshots"][0]["manifest-list"]


def a_column_renamed(metadata: dict[str, Any]) -> None:
    metadata["schemas"][0]["fields"][1]["name"] = "other"


def the_location_moved(metadata: dict[str, Any]) -> None:
    metadata["location"] += "-elsewhere"


def the_history_shortened(metadata: dict[str, Any]) -> None:
    metadata["metadata-log"] = []


EDITS = (
    without_key_id,
    without_any_trace_of_encryption,
    another_key_id,
    a_shorter_key,
    one_snapshot_less,
    entries_dropped,
    a_time_stamp_moved,
    the_keys_of_two_snapshots_swapped,
    a_manifest_list_elsewhere,
    a_column_renamed,
    the_location_moved,
    the_history_shortened,
)


@pytest.mark.turns(3)
@pytest.mark.parametrize("change", EDITS)
def test_an_edited_metadata_file_is_refused(hive: HiveLake, change: Callable[[dict[str, Any]], None]) -> None:
    """C-15: at load, and when a table that was loaded before commits."""
    table = hive.make(rows=5)
    table.append(people(5, 5))
    edit(hive, change)
    refused(hive, "might have been modified")
    before = hive.parameters()
    with pytest.raises(IntegrityError, match="might have been modified"):
        table.append(people(10))
    with pytest.raises(IntegrityError, match="might have been modified"):
        table.transaction().set_properties({"owner": "me"}).commit_transaction()
    assert hive.parameters() == before
    assert hive.locks() == []


def test_an_older_file_in_the_place_of_the_current_one_is_refused(hive: HiveLake) -> None:
    table = hive.make(rows=5)
    old = hive.metadata_path().read_bytes()
    table.append(people(5, 5))
    hive.metadata_path().write_bytes(old)
    refused(hive, r"hash is .*, and the metastore says")


def test_the_file_of_another_table_under_the_same_key_is_refused(hive: HiveLake) -> None:
    hive.make(rows=5)
    hive.make("u", rows=5)
    hive.metadata_path("t").write_bytes(hive.metadata_path("u").read_bytes())
    refused(hive, "might have been modified")
    assert ids(hive.load("u")) == list(range(5))


def test_a_plain_file_in_the_place_of_an_encrypted_one_is_refused(hive: HiveLake) -> None:
    """The writer after it would write plaintext."""
    hive.make(rows=5)
    hive.catalog().create_table(hive.name("plain"), people().schema, properties={"icelock.plain": "true"})
    plain = json.loads(hive.metadata_path("plain").read_bytes())
    hive.metadata_path().write_bytes(compact(plain))
    refused(hive, r"encryption\.key-id is None, and the metastore says 'keyA'")
    plain["properties"].update(KEYED)
    hive.metadata_path().write_bytes(compact(plain))
    refused(hive, "format version 2")


def test_an_encrypted_file_in_the_place_of_a_plain_one_is_refused(hive: HiveLake) -> None:
    """Else rows would be written under a key that the attacker chose."""
    hive.make("u", rows=5)
    hive.catalog().create_table(hive.name(), people().schema, properties={"icelock.plain": "true"})
    hive.metadata_path().write_bytes(hive.metadata_path("u").read_bytes())
    refused(hive, r"no encryption\.key-id in the metastore")


def test_a_commit_that_left_the_old_hash_is_refused(hive: HiveLake) -> None:
    """What PyIceberg's own HiveCatalog would do."""
    table = hive.make(rows=5)
    old = hive.parameters()["metadata_hash"]
    table.append(people(5, 5))
    hive.alter(put={"metadata_hash": old})
    refused(hive, "which client changed the table without writing the hash")


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_hash_that_is_gone_is_an_error_with_a_way_out(hive: HiveLake, how: str) -> None:
    """Java falls back to the key id silently; here only by a setting, and the next commit writes the hash again."""
    hive.make(rows=5)
    hive.alter(drop=("metadata_hash",)) if how == "removed" else hive.alter(put={"metadata_hash": ""})
    refused(hive, r"no metadata_hash.*icelock\.hive\.require-hash=false and commit once")
    table = hive.load(**LENIENT)
    assert ids(table) == list(range(5))
    table.transaction().set_properties({"owner": "me"}).commit_transaction()
    assert hive.parameters()["metadata_hash"] == sha256(hive.metadata_path().read_bytes())
    assert ids(hive.load()) == list(range(5))


@pytest.mark.parametrize("change", [without_key_id, without_any_trace_of_encryption, another_key_id, a_shorter_key])
def test_without_a_hash_key_id_and_length_are_compared(hive: HiveLake, change: Callable[[dict[str, Any]], None]) -> None:
    hive.make(rows=5)
    hive.alter(drop=("metadata_hash",))
    edit(hive, change)
    refused(hive, r"encryption\.(key-id|data-key-length) is .*, and the metastore says", **LENIENT)


def test_a_length_that_only_the_metastore_has_is_refused_without_a_hash(hive: HiveLake) -> None:
    hive.make(rows=5)
    hive.alter(put={"encryption.data-key-length": "32"}, drop=("metadata_hash",))
    refused(hive, r"encryption\.data-key-length is None, and the metastore says '32'", **LENIENT)


@pytest.mark.parametrize("value", ["not base64!", "AAAA", "\u00e9"])
def test_a_hash_that_is_none(hive: HiveLake, value: str) -> None:
    hive.make()
    hive.alter(put={"metadata_hash": value})
    refused(hive, "hash|base64")


def test_a_key_id_that_is_gone_or_changed_in_the_metastore(hive: HiveLake) -> None:
    hive.make(rows=5)
    hive.alter(put={"encryption.key-id": "keyB"})
    refused(hive, "is 'keyA', and the metastore says 'keyB'")
    hive.alter(drop=("encryption.key-id",))
    refused(hive, r"no encryption\.key-id in the metastore: the parameter was removed")
    hive.alter(drop=("metadata_hash",))
    refused(hive, r"no encryption\.key-id in the metastore", **LENIENT)
    hive.alter(put={"encryption.key-id": "keyA"})
    assert ids(hive.load(**LENIENT)) == list(range(5))


def test_fields_that_are_not_known_are_kept_and_left_out_of_the_hash(hive: HiveLake) -> None:
    """Java hashes its own writing of what it parsed."""
    hive.make(rows=5)
    good = hive.parameters()["metadata_hash"]

    def add_unknown(metadata: dict[str, Any]) -> None:
        metadata["a-new-field"] = {"x": [1, "ü"]}
        metadata["snapshots"][0]["another"] = True

    edit(hive, add_unknown)
    table = hive.load()
    assert ids(table) == list(range(5))
    assert hive.parameters()["metadata_hash"] == good != sha256(hive.metadata_path().read_bytes())
    table.append(people(5, 5))
    written = json.loads(hive.metadata_path().read_bytes())
    assert written.pop("a-new-field") == {"x": [1, "ü"]}
    assert [snapshot.pop("another", None) for snapshot in written["snapshots"]] == [True, None]
    assert hive.parameters()["metadata_hash"] == sha256(compact(written))
    assert ids(hive.load()) == list(range(10))


def test_the_same_metadata_in_other_bytes_is_the_same(hive: HiveLake) -> None:
    """Spaces, order and compression carry no meaning; Java may write gzip."""
    hive.make(rows=5)
    path = hive.metadata_path()
    metadata = json.loads(path.read_bytes())
    path.write_text(json.dumps(dict(sorted(metadata.items(), reverse=True)), indent=2))
    assert ids(hive.load()) == list(range(5))
    packed = path.with_name("00001-packed.gz.metadata.json")
    packed.write_bytes(gzip.compress(compact(metadata)))
    hive.alter(put={"metadata_location": f"file:{packed}"})
    table = hive.load()
    assert ids(table) == list(range(5))
    edit_of = json.loads(gzip.decompress(packed.read_bytes()))
    edit_of["last-updated-ms"] += 1
    packed.write_bytes(gzip.compress(compact(edit_of)))
    refused(hive, "might have been modified")


def test_damage_that_leaves_no_metadata(hive: HiveLake) -> None:
    hive.make()
    path = hive.metadata_path()
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    with pytest.raises(FormatError, match=path.name):
        hive.load()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        hive.load()


def test_rows_that_name_no_iceberg_table(hive: HiveLake) -> None:
    hive.make()
    hive.alter(put={"table_type": "HUDI"})
    with pytest.raises(NoSuchIcebergTableError, match="'HUDI'"):
        hive.load()
    hive.alter(put={"table_type": "iceberg"}, drop=("metadata_location",))
    with pytest.raises(NoSuchPropertyException, match="metadata_location"):
        hive.load()


def dropped(hive: HiveLake, *, rows: int = 5) -> str:
    """Return the metadata file of a table that is no longer in the metastore."""
    hive.make(rows=rows)
    location = hive.parameters()["metadata_location"]
    hive.catalog().drop_table(hive.name())
    hive.calls.take()
    return location


@pytest.mark.parametrize("rows", [0, 5])
def test_registering_writes_the_hash_and_opens_the_keys_first(hive: HiveLake, rows: int) -> None:
    location = dropped(hive, rows=rows)
    table = hive.catalog().register_table(hive.name("again"), location)
    assert hive.calls.take() == (["unwrap keyA"] if rows else ["wrap keyA"])
    assert hive.parameters("again")["metadata_location"] == location
    assert hive.parameters("again")["metadata_hash"] == sha256(local(location).read_bytes())
    assert ids(table) == list(range(rows))
    table.append(people(rows, 5))
    assert ids(hive.load("again")) == list(range(rows + 5))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (without_key_id, IntegrityError),
        (another_key_id, KeyUnavailableError),
        (entries_dropped, KeyUnavailableError),
        (a_time_stamp_moved, IntegrityError),
    ],
)
def test_a_file_whose_keys_do_not_open_is_not_registered(
    hive: HiveLake, change: Callable[[dict[str, Any]], None], error: type[Exception]
) -> None:
    hive.make(rows=5, properties={**KEYED, "encryption.data-key-length": "32"})
    edit(hive, change)
    location = hive.parameters()["metadata_location"]
    hive.catalog().drop_table(hive.name())
    before = hive.files()
    with pytest.raises(error):
        hive.catalog().register_table(hive.name("again"), location)
    assert hive.files() == before
    assert hive.catalog().list_tables(hive.database) == []


def test_registering_needs_the_kms_a_free_name_and_version_3(hive: HiveLake) -> None:
    location = dropped(hive)
    with pytest.raises(KeyUnavailableError, match=r"encryption\.kms-type"):
        hive.without_kms_catalog().register_table(hive.name("again"), location)
    hive.calls.deny("unwrap")
    with pytest.raises(KmsError) as caught:
        hive.catalog().register_table(hive.name("again"), location)
    assert caught.value.kind is KmsErrorKind.DENIED
    with pytest.raises(PolicyError, match="overwrite"):
        hive.catalog().register_table(hive.name("again"), location, overwrite=True)
    hive.catalog().create_table(
        hive.name("plain"), Schema(NestedField(1, "id", LongType(), required=False)), properties={"icelock.plain": "true"}
    )
    plain = json.loads(hive.metadata_path("plain").read_bytes())
    plain["properties"].update(KEYED)
    below = local(location).with_name("v2.metadata.json")
    below.write_bytes(compact(plain))
    with pytest.raises(PolicyError, match="version 3"):
        hive.catalog().register_table(hive.name("again"), f"file:{below}")
    assert hive.catalog().list_tables(hive.database) == [(hive.database, "plain")]


def test_characters_that_java_s_hash_may_fail_on_are_warned_of(hive: HiveLake, caplog: pytest.LogCaptureFixture) -> None:
    table = hive.make()
    with caplog.at_level(logging.WARNING, logger="icelock"):
        table.transaction().set_properties({"note": "größer, 日本 \uffee"}).commit_transaction()
        assert caplog.records == []
        table.transaction().set_properties({"note": "key \U0001f511 here"}).commit_transaction()
    (record,) = caplog.records
    assert "basic plane" in record.getMessage()
    assert "\U0001f511" in record.getMessage()
    assert hive.parameters()["metadata_hash"] == sha256(hive.metadata_path().read_bytes())
    assert hive.load().properties["note"] == "key \U0001f511 here"
