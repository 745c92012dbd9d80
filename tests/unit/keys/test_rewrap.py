"""When KEKs are the same ones, wrapped anew: by their bytes, under the master key that they should have."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import KeyUnavailableError, KmsError, KmsErrorKind
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.entropy import SystemEntropy
from icelock.keys.rewrap import _java_hash, are_the_same, mint_first_key_id, rewrap
from icelock.secret import SecretBytes

Change = Callable[[bytes, bytes, list[bytes]], tuple[bytes, bytes]]


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


class FaultyKms:
    """Wraps each key into a form of its own, and does one wrong thing to one key of many: ``wrap`` or ``unwrap`` says what."""

    def __init__(self, at: int, wrap: Change | None, unwrap: Change | None) -> None:
        self._at, self._wrap, self._unwrap = at, wrap, unwrap
        self._blobs: list[bytes] = []
        self._keys: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self.calls: list[str] = []

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        with self._lock:
            self.calls.append(f"wrap {wrapping_key_id}")
            blob = b"blob-%d-%s" % (len(self._blobs), wrapping_key_id.encode())
            kept, given = key, blob
            if len(self._blobs) == self._at and self._wrap is not None:
                kept, given = self._wrap(key, blob, self._blobs)
            self._blobs.append(blob)
            self._keys[blob] = kept
            return given

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        with self._lock:
            self.calls.append(f"unwrap {wrapping_key_id}")
            if wrapped_key not in self._keys:
                raise KmsError("not ours", kind=KmsErrorKind.FOREIGN, key_id=wrapping_key_id)
            key = self._keys[wrapped_key]
            return self._unwrap(key, wrapped_key, self._blobs)[0] if wrapped_key == self._blobs[self._at] and self._unwrap else key


FAULTS: dict[str, tuple[Change | None, Change | None]] = {
    "keeps a bit less of the key": (lambda key, blob, _: (key[:-1] + bytes([key[-1] ^ 1]), blob), None),
    "keeps the key without its end": (lambda key, blob, _: (key[:-1], blob), None),
    "keeps a key of another length": (lambda key, blob, _: (key[:16], blob), None),
    "keeps nothing": (lambda _key, blob, _: (b"", blob), None),
    "gives the form of another key": (lambda key, _blob, blobs: (key, blobs[0]), None),
    "gives a form that was cut": (lambda key, blob, _: (key, blob[:-1]), None),
    "gives the key itself": (lambda key, _blob, _: (key, key), None),
    "gives nothing": (lambda key, _blob, _: (key, b""), None),
    "gives a form that no metadata takes": (lambda key, _blob, _: (key, bytes(65_537)), None),
    "opens it to another key": (None, lambda key, _blob, _: (key[::-1], b"")),
    "opens it to a part of the key": (None, lambda key, _blob, _: (key[:16], b"")),
}


@pytest.mark.parametrize("at", [1, 3, 5])
@pytest.mark.parametrize(("wrap", "unwrap"), FAULTS.values(), ids=FAULTS)
def test_each_kek_that_a_kms_loses_is_found_out(wrap: Change | None, unwrap: Change | None, at: int) -> None:
    """Six KEKs, of which one would be lost. A trial of any other one would say that all is well."""
    kms = FaultyKms(at, wrap, unwrap)
    keks = [(replace(OLD, key_id=f"k{number}"), SecretBytes(bytes([number + 1]) * 31 + b"x")) for number in range(6)]
    with pytest.raises(KeyUnavailableError):
        rewrap(keks, kms=kms, master_key_id="B", entropy=SystemEntropy())


def test_what_it_costs() -> None:
    """A call to wrap each KEK and one to try it; and no two are tried before all are wrapped."""
    kms = FaultyKms(0, None, None)
    keks = [(replace(OLD, key_id=f"k{number}"), SecretBytes(bytes([number + 1]) * 32)) for number in range(6)]
    assert [kek.key_id for kek in rewrap(keks, kms=kms, master_key_id="B", entropy=SystemEntropy())] == [
        f"k{number}" for number in range(6)
    ]
    assert kms.calls == ["wrap B"] * 6 + ["unwrap B"] * 6


def test_an_id_that_javas_map_has_first() -> None:
    """``"hello".hashCode()`` and the longer one are Java's; a bucket is ``(h ^ h >>> 16) & (n - 1)`` (java.util.HashMap.hash)."""
    assert _java_hash("hello") == 99162322
    assert _java_hash("polygenelubricants") == 2**31, "Java's smallest int"
    code = _java_hash(mint_first_key_id(SystemEntropy()))
    assert [(code ^ code >> 16) & (buckets - 1) for buckets in (16, 256, 4096)] == [0, 0, 0]
