from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import FormatError, IntegrityError, KmsError, KmsErrorKind, PolicyError
from icelock.kms.keyring import KeyFileProtection, Keyring, KeyState, MasterKey, MasterKeyVersion, PassphraseProtection, require_enabled
from icelock.kms.keyring_format import decode_keyring, encode_keyring
from icelock.secret import SecretBytes

KEYRING_KEY = SecretBytes(b"K" * 32)
KEYS = [SecretBytes(bytes([n]) * 32) for n in range(4)]
PASSPHRASE = PassphraseProtection(salt=b"s" * 16, iterations=1, lanes=1, memory_kib=8)


def a_keyring(protection=PASSPHRASE):
    keyring = Keyring(protection=protection).added("orders", key=KEYS[0], now_ms=1)
    return keyring.added("café ☕", key=KEYS[1], now_ms=2).rotated("orders", key=KEYS[2], now_ms=3).with_state("café ☕", KeyState.DISABLED)


def encoded(keyring):
    return encode_keyring(keyring, KEYRING_KEY, check_nonce=b"c" * 12, nonce=b"n" * 12)


def decoded(data, key=KEYRING_KEY):
    return decode_keyring(data, lambda _: key)[0]


@pytest.mark.parametrize("keyring", [Keyring(protection=KeyFileProtection()), a_keyring(), a_keyring(KeyFileProtection())])
def test_decodes_what_it_encoded(keyring):
    assert decoded(encoded(keyring)) == keyring


def test_unlock_is_asked_with_the_files_protection():
    seen = []
    keyring, key = decode_keyring(encoded(a_keyring()), lambda protection: seen.append(protection) or KEYRING_KEY)
    assert seen == [PASSPHRASE]
    assert (keyring, key) == (a_keyring(), KEYRING_KEY)


def test_file_is_what_the_docstring_says():
    """Opened without icelock's code: JSON, then AES-GCM with the AAD that the format names."""
    document = json.loads(encoded(a_keyring()))
    assert list(document) == ["format", "version", "protection", "check", "keys", "sealed"]
    assert document["protection"] == {
        "type": "passphrase", "kdf": "argon2id", "salt": "c3Nzc3Nzc3Nzc3Nzc3Nzcw==", "iterations": 1, "lanes": 1, "memory-kib": 8
    }  # fmt: skip
    assert document["keys"] == [
        {"key-id": "orders", "state": "enabled", "versions": [{"version": 1, "created-ms": 1}, {"version": 2, "created-ms": 3}]},
        {"key-id": "café ☕", "state": "disabled", "versions": [{"version": 1, "created-ms": 2}]},
    ]
    sealed = base64.b64decode(document.pop("sealed"))
    aad = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    assert AESGCM(b"K" * 32).decrypt(sealed[:12], sealed[12:], aad) == b"\x00" * 32 + b"\x02" * 32 + b"\x01" * 32


def test_file_holds_no_master_key_in_any_form():
    data = encoded(Keyring(protection=KeyFileProtection()).added("k", key=SecretBytes(b"masterkeymasterkeymasterkey12345"), now_ms=0))
    assert b"masterkey" not in data
    assert base64.b64encode(b"masterkeymas") not in data
    assert b"masterkey".hex().encode() not in data


def test_every_changed_byte_is_noticed():
    data = encoded(a_keyring())
    for position in range(len(data)):
        for bit in (0x01, 0x20, 0x80):
            changed = bytearray(data)
            changed[position] ^= bit
            with pytest.raises((FormatError, IntegrityError, KmsError)):
                decoded(bytes(changed))


@pytest.mark.parametrize("member", ["check", "sealed"])
def test_another_spelling_of_the_same_base64_is_noticed(member):
    """The last character before the padding has four bits that decode to nothing."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    document = json.loads(encoded(a_keyring()))
    text = document[member]
    assert text.endswith("==")
    other = text[:-3] + alphabet[alphabet.index(text[-3]) + 1] + "=="
    assert base64.b64decode(other) == base64.b64decode(text)
    with pytest.raises(FormatError, match="another spelling"):
        decoded(encoded(a_keyring()).replace(text.encode(), other.encode()))


@pytest.mark.parametrize("cut", [0, 1, 10, 100, -2, -1])
def test_a_cut_file_is_noticed(cut):
    with pytest.raises(FormatError):
        decoded(encoded(a_keyring())[:cut])


def test_bytes_left_over_are_noticed():
    with pytest.raises(FormatError, match="another spelling"):
        decoded(encoded(a_keyring()) + b"\n")


def rewritten(change):
    document = json.loads(encoded(a_keyring()))
    change(document)
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["keys"][1].update(state="enabled"),
        lambda d: d["keys"][0].update({"key-id": "order"}),
        lambda d: d["keys"][0]["versions"][0].update({"created-ms": 4}),
        lambda d: d["keys"].reverse(),
        lambda d: d["keys"].pop(),
        lambda d: d["keys"][0]["versions"].pop(),
        lambda d: d["keys"].append(d["keys"][0]),
        lambda d: d.update(version=1.0),
    ],
    ids=["enabled", "renamed", "redated", "reordered", "removed", "version-removed", "repeated", "version-as-float"],
)
def test_content_that_was_edited_is_an_integrity_error(change):
    with pytest.raises(IntegrityError, match="changed after it was written"):
        decoded(rewritten(change))


def test_wrong_keyring_key_is_denied():
    with pytest.raises(KmsError) as caught:
        decoded(encoded(a_keyring()), SecretBytes(b"L" * 32))
    assert caught.value.kind is KmsErrorKind.DENIED


def test_weaker_parameters_written_into_the_file_are_noticed():
    with pytest.raises(KmsError) as caught:
        decoded(rewritten(lambda d: d["protection"].update(iterations=2)))
    assert caught.value.kind is KmsErrorKind.DENIED


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(format="other"),
        lambda d: d.update(version=2),
        lambda d: d.update(version=True),
        lambda d: d.update(more=1),
        lambda d: d.pop("keys"),
        lambda d: d.update(check="AA=="),
        lambda d: d.update(check="!"),
        lambda d: d.update(sealed=""),
        lambda d: d.update(keys={}),
        lambda d: d.update(keys=[1]),
        lambda d: d.update(protection={"type": "none"}),
        lambda d: d["protection"].update(salt="AAAA"),
        lambda d: d["protection"].update(iterations=0),
        lambda d: d["protection"].update({"memory-kib": 1 << 30}),
        lambda d: d["protection"].update(lanes=True),
        lambda d: d["keys"][0].update(state="on"),
        lambda d: d["keys"][0].update(versions=[1]),
        lambda d: d["keys"][0]["versions"][0].update(version="1"),
    ],
)
def test_another_shape_is_a_format_error(change):
    with pytest.raises(FormatError):
        decoded(rewritten(change))


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"format": "icelock-keyring"}', b"1" * 9999])
def test_other_files_are_a_format_error(data):
    with pytest.raises(FormatError):
        decoded(data)


def test_lone_surrogates_are_a_format_error():
    data = encoded(a_keyring()).replace(b'"orders"', b'"\\ud800"')
    with pytest.raises(FormatError):
        decoded(data)


def test_rotation_adds_a_version_and_keeps_the_old_ones():
    key = a_keyring().get("orders")
    assert [v.key for v in key.versions] == [KEYS[0], KEYS[2]]
    assert (key.newest.version, key.newest.created_ms) == (2, 3)


def test_changes_return_a_new_keyring():
    keyring = Keyring(protection=PASSPHRASE)
    keyring.added("a", key=KEYS[0], now_ms=0)
    assert keyring.keys == ()


@pytest.mark.parametrize("key_id", ["", " a", "a ", "a\n", "\t", "a\x00b", "x" * 256])
def test_bad_key_ids_are_refused(key_id):
    with pytest.raises(PolicyError, match="printable characters"):
        Keyring(protection=PASSPHRASE).added(key_id, key=KEYS[0], now_ms=0)


def test_an_id_that_is_taken_is_refused():
    with pytest.raises(PolicyError, match="already exists"):
        a_keyring().added("orders", key=KEYS[3], now_ms=0)


def test_unknown_ids_are_missing():
    for change in (lambda k: k.get("x"), lambda k: k.rotated("x", key=KEYS[0], now_ms=0), lambda k: k.with_state("x", KeyState.DISABLED)):
        with pytest.raises(KmsError, match=r"no master key 'x' \(known: 'orders', 'café ☕'\)") as caught:
            change(a_keyring())
        assert caught.value.kind is KmsErrorKind.MISSING


def test_disabled_keys_are_not_used_nor_rotated():
    for use in (lambda k: require_enabled(k.get("café ☕")), lambda k: k.rotated("café ☕", key=KEYS[0], now_ms=0)):
        with pytest.raises(KmsError, match="disabled") as caught:
            use(a_keyring())
        assert caught.value.kind is KmsErrorKind.DISABLED
    require_enabled(a_keyring().with_state("café ☕", KeyState.ENABLED).get("café ☕"))


def test_versions_count_up_from_one():
    version = MasterKeyVersion(version=2, created_ms=0, key=KEYS[0])
    for versions in ((), (version,)):
        with pytest.raises(FormatError, match=r"expected versions 1, 2"):
            MasterKey(key_id="k", versions=versions)


def test_master_keys_have_32_bytes():
    with pytest.raises(FormatError, match="expected 32 bytes, got 16"):
        MasterKeyVersion(version=1, created_ms=0, key=SecretBytes(b"k" * 16))


def test_reprs_show_no_key_bytes():
    text = repr(a_keyring())
    assert "SecretBytes(32 bytes)" in text
    assert "\\x00\\x00" not in text
