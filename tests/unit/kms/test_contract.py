"""The exported contract, run on our own clients and on a user's class, each as the loader makes it."""

from __future__ import annotations

import pytest

from icelock.kms.keyring import KeyFileProtection, Keyring
from icelock.kms.keyring_file import create_keyring
from icelock.kms.loader import load_kms_client
from icelock.kms.local import LocalKms
from icelock.kms.memory import MemoryKms
from icelock.kms.unlock import KeyFileUnlocker, make_key_file
from icelock.secret import SecretBytes
from icelock.testing import KmsContract
from tests.unit.kms.user_kms import VersionedKms

KEY_A = b"0123456789012345"
KEY_B = b"1123456789012345"


class TwoKeys(KmsContract):
    @pytest.fixture
    def key_id(self):
        return "keyA"

    @pytest.fixture
    def other_key_id(self):
        return "keyB"

    @pytest.fixture
    def secrets(self):
        return [KEY_A, KEY_B]


class TestMemoryKms(TwoKeys):
    @pytest.fixture
    def properties(self):
        return {"kms.memory.keys.keyA": KEY_A.hex(), "kms.memory.keys.keyB": KEY_B.hex()}

    @pytest.fixture
    def kms(self, properties):
        return MemoryKms(properties)

    @pytest.fixture
    def other_kms(self):
        return MemoryKms({"kms.memory.keys.keyA": KEY_B.hex()})


class TestLocalKms(TwoKeys):
    @staticmethod
    def _keyring(folder, **keys):
        folder.mkdir()
        make_key_file(folder / "key")
        keyring = Keyring(protection=KeyFileProtection())
        for key_id, key in keys.items():
            keyring = keyring.added(key_id, key=SecretBytes(key), now_ms=0)
        create_keyring(folder / "keyring", KeyFileUnlocker(path=folder / "key"), keyring)
        return {"kms.local.path": str(folder / "keyring"), "kms.local.key-file": str(folder / "key")}

    @pytest.fixture
    def properties(self, tmp_path):
        return self._keyring(tmp_path / "ours", keyA=KEY_A * 2, keyB=KEY_B * 2)

    @pytest.fixture
    def kms(self, properties):
        return LocalKms(properties)

    @pytest.fixture
    def other_kms(self, tmp_path):
        return LocalKms(self._keyring(tmp_path / "theirs", keyA=KEY_B * 2))

    @pytest.fixture
    def secrets(self, properties, tmp_path):
        del properties
        key_file = (tmp_path / "ours" / "key").read_bytes().strip()
        return [KEY_A, KEY_B, key_file]


class TestUsersClass(TwoKeys):
    @pytest.fixture
    def properties(self):
        return {"my-kms.keys.keyA": KEY_A.hex(), "my-kms.keys.keyB": KEY_B.hex()}

    @pytest.fixture
    def kms(self, properties):
        return load_kms_client({"encryption.kms-impl": "tests.unit.kms.user_kms.VersionedKms", **properties}).inner

    @pytest.fixture
    def other_kms(self):
        return VersionedKms({"my-kms.keys.keyA": KEY_B.hex()})


class TestRetryingKms(TestMemoryKms):
    """What the loader returns keeps the contract too."""

    @pytest.fixture
    def kms(self, properties):
        return load_kms_client({"encryption.kms-type": "memory", **properties})

    @pytest.fixture
    def properties(self):
        return {"kms.memory.keys.keyA": KEY_A.hex(), "kms.memory.keys.keyB": KEY_B.hex()}

    def test_is_made_anew_from_pickled_properties(self, kms, key_id, properties):
        again = load_kms_client({"encryption.kms-type": "memory", **properties})
        assert again.unwrap_key(kms.wrap_key(b"k" * 16, key_id), key_id) == b"k" * 16


# The contract has to fail for clients that break it.


class _ReturnsTheKey(MemoryKms):
    def wrap_key(self, key, wrapping_key_id):
        self._master(wrapping_key_id)
        return key

    def unwrap_key(self, wrapped_key, wrapping_key_id):
        self._master(wrapping_key_id)
        return wrapped_key


class _ShowsTheKey(MemoryKms):
    def __repr__(self):
        return f"MemoryKms({KEY_A.hex()})"


def test_contract_notices_a_client_that_does_not_encrypt():
    kms = _ReturnsTheKey({"kms.memory.keys.keyA": KEY_A.hex()})
    with pytest.raises(AssertionError):
        KmsContract().test_hides_the_key_in_the_blob(kms, "keyA", KEY_B)
    with pytest.raises(AssertionError):
        KmsContract().test_wraps_the_same_key_differently_each_time(kms, "keyA")


def test_contract_notices_a_client_that_takes_changed_blobs():
    kms = _ReturnsTheKey({"kms.memory.keys.keyA": KEY_A.hex()})
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        KmsContract().test_refuses_a_changed_blob(kms, "keyA", 0.5)


def test_contract_notices_key_bytes_in_a_repr():
    kms = _ShowsTheKey({"kms.memory.keys.keyA": KEY_A.hex()})
    with pytest.raises(AssertionError):
        KmsContract().test_shows_no_secret(kms, "keyA", "missing", [KEY_A])
