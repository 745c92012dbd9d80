from __future__ import annotations

import base64

import pytest

from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm

# McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B, test cases 1, 4, 7, 13.
CASE_4_PLAIN = bytes.fromhex(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
)
CASE_4_CIPHER = bytes.fromhex(
    "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
)
CASE_4_TAG = bytes.fromhex("5bc94fbc3221a5db94fae95ae7121a47")
KNOWN = [
    (bytes(16), bytes(12), b"", b"", bytes.fromhex("58e2fccefa7e3061367f1d57a4e7455a")),
    (
        bytes.fromhex("feffe9928665731c6d6a8f9467308308"),
        bytes.fromhex("cafebabefacedbaddecaf888"),
        bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
        CASE_4_PLAIN,
        CASE_4_CIPHER + CASE_4_TAG,
    ),
    (bytes(24), bytes(12), b"", b"", bytes.fromhex("cd33b28ac773f74ba00ed1f312572435")),
    (bytes(32), bytes(12), b"", b"", bytes.fromhex("530f8afbc74536b9a963b4f1c4cb738b")),
]
KEY = b"0123456789012345"
MESSAGE = aes_gcm.encrypt(KEY, bytes(12), b"seventeen bytes..", b"aad")


@pytest.mark.parametrize(("key", "nonce", "aad", "plaintext", "sealed"), KNOWN)
def test_message_is_nonce_then_the_published_ciphertext_and_tag(key, nonce, aad, plaintext, sealed):
    assert aes_gcm.encrypt(key, nonce, plaintext, aad) == nonce + sealed
    assert aes_gcm.decrypt(key, nonce + sealed, aad) == plaintext


def test_lengths_are_those_of_the_format():
    assert (aes_gcm.NONCE_LENGTH, aes_gcm.TAG_LENGTH, aes_gcm.OVERHEAD) == (12, 16, 28)
    assert len(MESSAGE) == 12 + 17 + 16


def test_empty_aad_is_no_aad():
    message = aes_gcm.encrypt(KEY, bytes(12), b"x", None)
    assert aes_gcm.decrypt(KEY, message, b"") == b"x"


def test_kek_wrapped_by_javas_test_kms_opens():
    """The KEK of the golden table avro_data; its length is the table's key length."""
    wrapped = base64.b64decode("FSMoCXyUxZ5PA7TKRfELfelhdaaIPC/Ik+vCRjn4ApJQOKXpHY1hR5/eoOo=")
    assert len(aes_gcm.decrypt(b"0123456789012345", wrapped)) == 16


@pytest.mark.parametrize("bit", range(0, len(MESSAGE) * 8, 5))
def test_any_changed_bit_is_refused(bit):
    changed = bytearray(MESSAGE)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(IntegrityError, match="does not match"):
        aes_gcm.decrypt(KEY, bytes(changed), b"aad")


@pytest.mark.parametrize(
    ("key", "aad"), [(b"x" * 16, b"aad"), (KEY, b"AAD"), (KEY, None), (KEY + bytes(8), b"aad"), (KEY + bytes(16), b"aad")]
)
def test_another_key_or_aad_is_refused(key, aad):
    """C-62."""
    with pytest.raises(IntegrityError, match="does not match"):
        aes_gcm.decrypt(key, MESSAGE, aad)


@pytest.mark.parametrize("length", [28, 29, 44])
def test_a_cut_message_that_still_has_nonce_and_tag_is_refused(length):
    with pytest.raises(IntegrityError):
        aes_gcm.decrypt(KEY, MESSAGE[:length], b"aad")


@pytest.mark.parametrize("length", [0, 1, 12, 27])
def test_a_message_too_short_for_nonce_and_tag_is_refused(length):
    with pytest.raises(FormatError, match=f"at least 28 bytes.* has {length}"):
        aes_gcm.decrypt(KEY, MESSAGE[:length], b"aad")


@pytest.mark.parametrize("length", [0, 1, 15, 17, 20, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(FormatError, match=f"16, 24 or 32 bytes, this one has {length}"):
        aes_gcm.decrypt(bytes(length), MESSAGE)
    with pytest.raises(FormatError, match=f"16, 24 or 32 bytes, this one has {length}"):
        aes_gcm.encrypt(bytes(length), bytes(12), b"")


@pytest.mark.parametrize("length", [0, 8, 11, 13, 16])
def test_a_nonce_of_another_length_is_refused(length):
    with pytest.raises(FormatError, match=f"12 bytes, this one has {length}"):
        aes_gcm.encrypt(KEY, bytes(length), b"")


def test_errors_do_not_show_the_key():
    key = b"very secret key!"
    with pytest.raises(IntegrityError) as caught:
        aes_gcm.decrypt(key, MESSAGE, b"aad")
    assert "secret" not in str(caught.value)


def test_a_verifier_says_of_each_message_whether_its_tag_matches():
    verifier = aes_gcm.Verifier(KEY)
    changed = bytearray(MESSAGE)
    changed[-1] ^= 1
    longer = aes_gcm.encrypt(KEY, bytes(12), bytes(100_000), b"aad")
    empty = aes_gcm.encrypt(KEY, bytes(12), b"", b"aad")
    for message, aad, expected in [
        (MESSAGE, b"aad", True),
        (changed, b"aad", False),
        (MESSAGE, b"bad", False),
        (longer, b"aad", True),
        (MESSAGE, b"aad", True),
        (empty, b"aad", True),
        (longer[:-1], b"aad", False),
    ]:
        assert verifier.authenticates(memoryview(message), aad) is expected
    with pytest.raises(FormatError, match="at least 28 bytes"):
        verifier.authenticates(memoryview(MESSAGE)[:27])
    with pytest.raises(FormatError, match="16, 24 or 32 bytes"):
        aes_gcm.Verifier(bytes(15))
