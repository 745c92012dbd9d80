"""When KEKs are the same ones, wrapped anew: by their bytes, under the master key that they should have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.rewrap import are_the_same
from icelock.secret import SecretBytes

OLD = EncryptedKey(key_id="k1", encrypted_key_metadata=b"A:one", encrypted_by_id="A", properties={"KEY_TIMESTAMP": "1"})
NEW = replace(OLD, encrypted_key_metadata=b"B:one", encrypted_by_id="B")
SECOND = replace(OLD, key_id="k2", encrypted_key_metadata=b"A:two")


@pytest.mark.parametrize(
    ("before", "now", "master", "expected", "asked"),
    [
        ([OLD], [NEW], "B", True, 2),
        ([OLD], [OLD], "A", True, 0),
        ([OLD], [replace(OLD, encrypted_key_metadata=b"a:one")], "A", True, 2),
        ([OLD, SECOND], [NEW], "B", True, 2),
        ([OLD], [NEW, replace(NEW, key_id="k3", encrypted_key_metadata=b"B:new")], "B", True, 2),
        ([OLD], [replace(NEW, encrypted_key_metadata=b"B:own")], "B", False, 2),
        ([OLD, SECOND], [NEW, replace(NEW, key_id="k2", encrypted_key_metadata=b"B:own")], "B", False, 4),
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
        return SecretBytes(kek.encrypted_key_metadata.partition(b":")[2].ljust(16))

    assert are_the_same(before, now, master, opened=unwrapped) is expected
    assert len(opened) == asked
