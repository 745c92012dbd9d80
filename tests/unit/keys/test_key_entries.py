from __future__ import annotations

from dataclasses import replace

import pytest

from icelock.errors import FormatError, KeyUnavailableError
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.key_entries import KeyEntries

KEK = EncryptedKey(key_id="kek", encrypted_key_metadata=b"1", encrypted_by_id="keyA", properties={"KEY_TIMESTAMP": "1"})
OTHER_KEK = EncryptedKey(key_id="kek2", encrypted_key_metadata=b"2", encrypted_by_id="keyB", properties={"KEY_TIMESTAMP": "1"})
LIST_KEY = EncryptedKey(key_id="list", encrypted_key_metadata=b"3", encrypted_by_id="kek")


def test_entries_keep_their_order():
    assert list(KeyEntries([LIST_KEY, OTHER_KEK, KEK])) == [LIST_KEY, OTHER_KEK, KEK]
    assert len(KeyEntries([LIST_KEY, OTHER_KEK, KEK])) == 3


def test_entries_are_found_by_id():
    entries = KeyEntries([KEK, LIST_KEY])
    assert entries.get("list") is LIST_KEY
    assert "list" in entries
    assert "x" not in entries


def test_a_missing_entry_is_named():
    with pytest.raises(KeyUnavailableError, match=r"no entry 'x' \(1 others"):
        KeyEntries([KEK]).get("x")


def test_the_same_entry_twice_counts_once():
    assert len(KeyEntries([KEK, replace(KEK)])) == 1


@pytest.mark.parametrize(
    "changed",
    [{"encrypted_key_metadata": b"9"}, {"encrypted_by_id": "keyB"}, {"properties": {"KEY_TIMESTAMP": "2"}}, {"properties": {}}],
)
def test_one_id_with_two_contents_is_refused(changed):
    with pytest.raises(FormatError, match="'kek' occurs twice"):
        KeyEntries([KEK, replace(KEK, **changed)])


def test_a_kek_is_what_no_entry_wraps():
    entries = KeyEntries([KEK, OTHER_KEK, LIST_KEY])
    assert entries.kek("kek") is KEK
    with pytest.raises(FormatError, match="expected 'list' to be a KEK"):
        entries.kek("list")


def test_keks_of_one_master_key():
    assert list(KeyEntries([OTHER_KEK, KEK, LIST_KEY]).keks("keyA")) == [KEK]


def test_the_view_does_not_follow_the_list_it_was_made_from():
    keys = [KEK]
    entries = KeyEntries(keys)
    keys.append(LIST_KEY)
    assert "list" not in entries
