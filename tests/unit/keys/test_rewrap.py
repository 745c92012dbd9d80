"""When KEKs are the same ones, wrapped anew: by their bytes, under the master key that they should have."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.entropy import SystemEntropy
from icelock.keys.rewrap import _java_hash, are_the_same, mint_first_key_id
from icelock.secret import SecretBytes


def raw_of(kek: EncryptedKey) -> bytes:
    return kek.encrypted_key_metadata.partition(b":")[2].ljust(16)


def numbered(kek: EncryptedKey, number: int, key: bytes | None = None) -> EncryptedKey:
    """An entry with the number of its rotation, as docs/reference/format.md says, made without icelock's code."""
    digest = hashlib.sha256(kek.encrypted_key_metadata).hexdigest()
    aad = json.dumps(["icelock-rotation", number, kek.key_id, kek.properties["KEY_TIMESTAMP"], kek.encrypted_by_id, digest])
    seal = b"n" * 12 + AESGCM(key or raw_of(kek)).encrypt(b"n" * 12, b"", aad.encode())
    return replace(kek, properties={**kek.properties, "icelock-rotation": f"{number} {base64.b64encode(seal).decode()}"})


OLD = EncryptedKey(key_id="k1", encrypted_key_metadata=b"A:one", encrypted_by_id="A", properties={"KEY_TIMESTAMP": "1"})
PLAIN = replace(OLD, encrypted_key_metadata=b"B:one", encrypted_by_id="B")
NEW = numbered(PLAIN, 1)
SECOND = replace(OLD, key_id="k2", encrypted_key_metadata=b"A:two")


@pytest.mark.parametrize(
    ("before", "now", "master", "expected", "asked"),
    [
        ([OLD], [NEW], "B", True, 2),
        ([OLD], [OLD], "A", True, 0),
        ([OLD], [numbered(replace(OLD, encrypted_key_metadata=b"a:one"), 1)], "A", True, 2),
        ([OLD, SECOND], [NEW], "B", True, 2),
        ([OLD], [NEW, replace(PLAIN, key_id="k3", encrypted_key_metadata=b"B:new")], "B", True, 2),
        ([NEW], [numbered(OLD, 2)], "A", True, 2),
        ([OLD], [numbered(replace(PLAIN, encrypted_key_metadata=b"B:own"), 1)], "B", False, 2),
        ([OLD, SECOND], [NEW, numbered(replace(PLAIN, key_id="k2", encrypted_key_metadata=b"B:own"), 1)], "B", False, 4),
        ([OLD, replace(OLD, key_id="k9", properties={"KEY_TIMESTAMP": "10"})], [NEW], "B", False, 0),
        ([OLD], [PLAIN], "B", False, 2),
        ([NEW], [OLD], "A", False, 2),
        ([NEW], [numbered(OLD, 1)], "A", False, 2),
        ([NEW], [replace(OLD, properties=NEW.properties)], "A", False, 2),
        ([NEW], [numbered(OLD, 2, key=b"another key 1234")], "A", False, 2),
        ([NEW], [replace(OLD, properties={"KEY_TIMESTAMP": "1", "icelock-rotation": "2"})], "A", False, 2),
        ([NEW], [replace(OLD, properties={"KEY_TIMESTAMP": "1", "icelock-rotation": "x !"})], "A", False, 2),
        ([OLD], [OLD], "B", False, 0),
        ([OLD], [replace(NEW, properties={"KEY_TIMESTAMP": "2"})], "B", False, 0),
        ([OLD], [replace(NEW, key_id="k3")], "B", False, 0),
        ([], [NEW], "B", False, 0),
    ],
)
def test_are_the_same(before: list[EncryptedKey], now: list[EncryptedKey], master: str, expected: bool, asked: int) -> None:  # noqa: FBT001
    opened: list[EncryptedKey] = []

    def unwrapped(kek: EncryptedKey) -> SecretBytes:
        opened.append(kek)
        return SecretBytes(raw_of(kek))

    assert are_the_same(before, now, master, opened=unwrapped) is expected
    assert len(opened) == asked


def test_an_id_that_javas_map_has_first() -> None:
    """``"hello".hashCode()`` and the longer one are Java's; a bucket is ``(h ^ h >>> 16) & (n - 1)`` (java.util.HashMap.hash)."""
    assert _java_hash("hello") == 99162322
    assert _java_hash("polygenelubricants") == 2**31, "Java's smallest int"
    code = _java_hash(mint_first_key_id(SystemEntropy()))
    assert [(code ^ code >> 16) & (buckets - 1) for buckets in (16, 256, 4096)] == [0, 0, 0]
