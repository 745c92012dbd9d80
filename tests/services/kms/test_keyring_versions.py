"""A keyring file of which an older version of a master key is overwritten: icelock has no command for that yet."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from icelock.kms.keyring import KeyFileProtection, Keyring
from icelock.kms.keyring_file import change_keyring, create_keyring, load_keyring
from icelock.kms.unlock import KeyFileUnlocker, make_key_file
from icelock.secret import SecretBytes
from tests.services.kms.service_contract import DestroyedVersionContract


def new_key() -> SecretBytes:
    return SecretBytes(os.urandom(32))


class TestDestroyedVersion(DestroyedVersionContract):
    @pytest.fixture
    def key_id(self):
        return "lake"

    @pytest.fixture
    def unlocker(self, tmp_path) -> KeyFileUnlocker:
        make_key_file(tmp_path / "key")
        return KeyFileUnlocker(path=tmp_path / "key")

    @pytest.fixture
    def keyring(self, tmp_path, unlocker) -> Path:
        create_keyring(tmp_path / "keyring", unlocker, Keyring(protection=KeyFileProtection()).added("lake", key=new_key(), now_ms=0))
        return tmp_path / "keyring"

    @pytest.fixture
    def properties(self, keyring, unlocker):
        return {"encryption.kms-type": "local", "kms.local.path": str(keyring), "kms.local.key-file": str(unlocker.path)}

    @pytest.fixture
    def rotate(self, keyring, unlocker):
        return lambda: change_keyring(keyring, unlocker, lambda ring: ring.rotated("lake", key=new_key(), now_ms=1))

    @pytest.fixture
    def destroy(self, keyring, unlocker):
        def without_old(ring: Keyring) -> Keyring:
            key = ring.get("lake")
            old = tuple(replace(version, key=new_key()) for version in key.versions[:-1])
            return replace(ring, keys=(replace(key, versions=(*old, key.newest)),))

        def destroyed() -> None:
            before = load_keyring(keyring, unlocker).get("lake")
            after = change_keyring(keyring, unlocker, without_old).get("lake")
            kept = [old.key.reveal() == new.key.reveal() for old, new in zip(before.versions, after.versions, strict=True)]
            assert kept == [False, True]

        return destroyed
