from __future__ import annotations

import copy
import json
import pickle

import pytest

from icelock.errors import FormatError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import KEY_TIMESTAMP, EncryptedKey
from icelock.format.key_metadata import KeyMetadata

# Both entries of the golden table avro_data's first snapshot, as Java 1.12.0 wrote them.
JAVA_KEK = (
    '{"key-id":"ZbtVvR9pEWKEm2yQGlU4gw==","encrypted-key-metadata":"FSMoCXyUxZ5PA7TKRfELfelhdaaIPC/Ik+vCRjn4ApJQOKXpHY1hR5/eoOo=",'
    '"encrypted-by-id":"keyA","properties":{"KEY_TIMESTAMP":"1795814639716"}}'
)
JAVA_LIST_KEY = (
    '{"key-id":"YeuggPCqMqKgaHNbvcYeZg==","encrypted-key-metadata":'
    '"mcMpoq3bQe2EG4vUba4yQ5Z0inM60inkNpO8yO7nDD6zKhmOJPDFYNaMhywTkVQer3LDILjRUbSPhnlVhyJwm8srvg==",'
    '"encrypted-by-id":"ZbtVvR9pEWKEm2yQGlU4gw=="}'
)
ENTRY = json.loads(JAVA_KEK)


def compact(key):
    return json.dumps(key.to_json(), separators=(",", ":"))


@pytest.mark.parametrize("text", [JAVA_KEK, JAVA_LIST_KEY])
def test_javas_json_comes_back_byte_for_byte(text):
    assert compact(EncryptedKey.from_json(json.loads(text))) == text


def test_fields_are_read():
    kek = EncryptedKey.from_json(ENTRY)
    assert kek.key_id == "ZbtVvR9pEWKEm2yQGlU4gw=="
    assert kek.encrypted_by_id == "keyA"
    assert len(kek.encrypted_key_metadata) == 12 + 16 + 16
    assert kek.properties == {KEY_TIMESTAMP: "1795814639716"}
    assert EncryptedKey.from_json(json.loads(JAVA_LIST_KEY)).properties == {}


def test_javas_manifest_list_key_opens_with_its_kek_and_timestamp():
    kek = EncryptedKey.from_json(json.loads(JAVA_KEK))
    list_key = EncryptedKey.from_json(json.loads(JAVA_LIST_KEY))
    raw_kek = aes_gcm.decrypt(b"0123456789012345", kek.encrypted_key_metadata)
    metadata = KeyMetadata.decode(aes_gcm.decrypt(raw_kek, list_key.encrypted_key_metadata, b"1795814639716"))
    assert metadata.encrypted_length == 4811


def test_properties_are_written_only_if_there_are_any_and_last():
    assert list(EncryptedKey(key_id="a", encrypted_key_metadata=b"m", encrypted_by_id="b").to_json()) == [
        "key-id",
        "encrypted-key-metadata",
        "encrypted-by-id",
    ]
    assert list(EncryptedKey.from_json(ENTRY).to_json())[-1] == "properties"


def test_order_of_properties_is_kept():
    properties = {"z": "1", "KEY_TIMESTAMP": "2", "a": "3"}
    key = EncryptedKey(key_id="a", encrypted_key_metadata=b"m", encrypted_by_id="b", properties=properties)
    assert list(key.to_json()["properties"]) == ["z", "KEY_TIMESTAMP", "a"]


def test_an_entry_is_not_changed_through_the_mappings_it_came_from_or_gave():
    properties = {KEY_TIMESTAMP: "1"}
    key = EncryptedKey(key_id="a", encrypted_key_metadata=b"m", encrypted_by_id="b", properties=properties)
    properties[KEY_TIMESTAMP] = "2"
    key.to_json()["properties"][KEY_TIMESTAMP] = "3"
    assert key.properties == {KEY_TIMESTAMP: "1"}


def test_key_ids_are_opaque():
    """J-07: another implementation's ids are UUIDs."""
    entry = {**ENTRY, "key-id": "9f1e4c1e-2c7b-4a53-9f5e-0d5a0c6f3b11"}
    assert EncryptedKey.from_json(entry).to_json() == entry


def test_unknown_fields_and_null_properties_are_passed_over():
    assert EncryptedKey.from_json({**ENTRY, "future": 1, "properties": None}).properties == {}


def test_entries_compare_copy_pickle_and_hash_by_value():
    first, second = EncryptedKey.from_json(ENTRY), EncryptedKey.from_json(ENTRY)
    assert first == second == copy.deepcopy(first) == pickle.loads(pickle.dumps(first))  # noqa: S301
    assert len({first, second}) == 1
    assert first != EncryptedKey.from_json({**ENTRY, "properties": {KEY_TIMESTAMP: "1795814639717"}})


@pytest.mark.parametrize("entry", [None, 1, "text", [], [ENTRY], True, 1.5])
def test_an_entry_that_is_no_object_is_refused(entry):
    with pytest.raises(FormatError, match="JSON object"):
        EncryptedKey.from_json(entry)


@pytest.mark.parametrize("field", ["key-id", "encrypted-key-metadata", "encrypted-by-id"])
def test_a_missing_field_is_refused_and_named(field):
    entry = {k: v for k, v in ENTRY.items() if k != field}
    with pytest.raises(FormatError, match=f"{field} is text, found nothing"):
        EncryptedKey.from_json(entry)


@pytest.mark.parametrize("field", ["key-id", "encrypted-key-metadata", "encrypted-by-id"])
@pytest.mark.parametrize("value", [None, 1, [], {}, True])
def test_a_field_of_another_type_is_refused_and_named(field, value):
    with pytest.raises(FormatError, match=f"{field} is text"):
        EncryptedKey.from_json({**ENTRY, field: value})


@pytest.mark.parametrize("field", ["key-id", "encrypted-key-metadata", "encrypted-by-id"])
def test_an_empty_field_is_refused_and_named(field):
    with pytest.raises(FormatError, match=f"empty {field}"):
        EncryptedKey.from_json({**ENTRY, field: ""})


@pytest.mark.parametrize("text", ["FSM", "FSMo=", "FR==", "FS Mo", "FSMo\n", "FSM_", "é123", "===="])
def test_broken_base64_is_refused_and_the_key_named(text):
    with pytest.raises(FormatError, match=r"ZbtVvR9pEWKEm2yQGlU4gw==.*not base64"):
        EncryptedKey.from_json({**ENTRY, "encrypted-key-metadata": text})


@pytest.mark.parametrize("properties", [[], "text", 1, {"a": 1}, {"a": None}, {"a": {}}, {1: "a"}])
def test_properties_that_do_not_map_text_to_text_are_refused(properties):
    with pytest.raises(FormatError, match="maps text to text"):
        EncryptedKey.from_json({**ENTRY, "properties": properties})


def test_repr_is_short():
    assert "encrypted_key_metadata" not in repr(EncryptedKey.from_json(ENTRY))
