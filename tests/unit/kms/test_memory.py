from __future__ import annotations

import base64

import pytest

from icelock.errors import KmsError, KmsErrorKind, PolicyError
from icelock.kms.memory import MemoryKms

KEY_A = b"0123456789012345"


def test_unwraps_what_java_wrapped():
    # encryption-keys of golden table "refs": Java 1.12.0 with its test KMS, keyA
    blob = base64.b64decode("PQIRodrxdigYdQUAzaW45d6/VHi7wopXiHr9dOs7yvCPRZcOwq524daiPec=")
    kms = MemoryKms({"kms.memory.keys.keyA": KEY_A.hex()})
    assert len(kms.unwrap_key(blob, "keyA")) == 16


def test_wraps_as_nonce_ciphertext_tag_without_aad():
    # AES-128-GCM test case 2 of the GCM specification (McGrew and Viega): key, nonce and plaintext of zeros
    kms = MemoryKms({"kms.memory.keys.zero": "00" * 16}, random_bytes=bytes)
    expected = "00" * 12 + "0388dace60b6a392f328c2b971b2fe78" + "ab6e47d42cec13bdf53a67b21257bddf"
    assert kms.wrap_key(bytes(16), "zero").hex() == expected


@pytest.mark.parametrize("length", [16, 24, 32])
def test_takes_master_keys_of_16_24_and_32_bytes(length):
    kms = MemoryKms({"kms.memory.keys.k": "aB" * length})
    assert kms.unwrap_key(kms.wrap_key(b"x" * 16, "k"), "k") == b"x" * 16


@pytest.mark.parametrize(
    "value", ["", "00" * 15, "00" * 17, "0" * 33, "g" * 32, " " + "0" * 31, "00 " * 16, "MDEyMzQ1Njc4OTAxMjM0NQ==", "\u0660" * 32, 16, None]
)
def test_refuses_junk_and_wrong_lengths_at_once(value):
    with pytest.raises(PolicyError, match=r"kms\.memory\.keys\.keyA: expected 32, 48 or 64 hex digits"):
        MemoryKms({"kms.memory.keys.keyA": value})


def test_error_about_a_bad_key_does_not_show_it():
    with pytest.raises(PolicyError) as caught:
        MemoryKms({"kms.memory.keys.keyA": "c0ffee" * 5})
    assert "c0ffee" not in str(caught.value)


def test_refuses_an_empty_key_id():
    with pytest.raises(PolicyError, match="names no key"):
        MemoryKms({"kms.memory.keys.": "00" * 16})


def test_key_ids_may_have_dots():
    kms = MemoryKms({"kms.memory.keys.team.a/1": "00" * 16})
    assert kms.unwrap_key(kms.wrap_key(b"x" * 24, "team.a/1"), "team.a/1") == b"x" * 24


def test_missing_key_names_the_known_ones_and_the_property():
    with pytest.raises(KmsError, match=r"known: 'keyA'.*kms\.memory\.keys\.keyB") as caught:
        MemoryKms({"kms.memory.keys.keyA": KEY_A.hex()}).wrap_key(b"x" * 16, "keyB")
    assert caught.value.kind is KmsErrorKind.MISSING


def test_other_properties_are_left_alone():
    assert repr(MemoryKms({"uri": "x", "kms.memory.keys.keyA": KEY_A.hex()})) == "MemoryKms(key ids: 'keyA')"
