"""Contract tests for plug-ins, for use with pytest.

``KmsContract`` has the tests that every KMS client must pass. For your own client, write::

    import pytest
    from icelock.testing import KmsContract

    class TestMyKms(KmsContract):
        @pytest.fixture
        def kms(self):
            return MyKms({"my.endpoint": "..."})

        @pytest.fixture
        def key_id(self):
            return "a-key-that-exists"

The other fixtures are optional; tests that need a missing one are skipped. To see values in failed assertions, put
``pytest.register_assert_rewrite("icelock.testing")`` into conftest.py.

pytest is not a dependency of icelock: import this module from tests only.
"""
# ruff: noqa: S101 - assertions in methods are what a pytest contract class is made of

from __future__ import annotations

import base64
import pickle
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from icelock.errors import KmsError, KmsErrorKind
from icelock.kms.client import KmsClient

__all__ = ["KmsContract"]

# Text, line ends, zeros and bytes that are not UTF-8: key bytes have no meaning.
_KEYS: Final = (b"0123456789012345", b"\x00" * 16, b"\xff" * 24, bytes(range(24)), b"\r\n\x00\x1a" * 8, bytes(range(224, 256)))
_IDS: Final = [f"{len(key)}-{key[:3].hex()}" for key in _KEYS]
_THREADS: Final = 8


class KmsContract:
    """What a ``KmsClient`` promises, as tests. Subclass it and give the fixtures ``kms`` and ``key_id``."""

    @pytest.fixture
    def kms(self) -> KmsClient:
        """Return the client under test."""
        raise NotImplementedError("write a fixture 'kms' that returns the client under test")

    @pytest.fixture
    def key_id(self) -> str:
        """Return the id of a master key that may wrap and unwrap."""
        raise NotImplementedError("write a fixture 'key_id' that returns the id of an existing master key")

    @pytest.fixture
    def other_key_id(self) -> str | None:
        """Return the id of another master key of the same KMS (optional)."""
        return None

    @pytest.fixture
    def other_kms(self) -> KmsClient | None:
        """Return a client of another KMS that knows ``key_id`` too, with other bytes (optional)."""
        return None

    @pytest.fixture
    def missing_key_id(self) -> str:
        """Return the id of a master key that does not exist."""
        return "icelock-no-such-key"

    @pytest.fixture
    def properties(self) -> Mapping[str, str] | None:
        """Return the properties that the client was made from (optional)."""
        return None

    @pytest.fixture
    def secrets(self) -> Sequence[bytes]:
        """Return master keys, passwords and tokens that must not appear anywhere (optional)."""
        return ()

    @pytest.mark.parametrize("key", _KEYS, ids=_IDS)
    def test_returns_the_wrapped_key(self, kms: KmsClient, key_id: str, key: bytes) -> None:
        """Keys of 16, 24 and 32 bytes come back, whatever their bytes."""
        blob = kms.wrap_key(key, key_id)
        assert type(blob) is bytes
        unwrapped = kms.unwrap_key(blob, key_id)
        assert type(unwrapped) is bytes
        assert unwrapped == key

    def test_wraps_the_same_key_differently_each_time(self, kms: KmsClient, key_id: str) -> None:
        """Equal keys give different blobs."""
        blobs = {kms.wrap_key(b"k" * 16, key_id) for _ in range(4)}
        assert len(blobs) == 4  # noqa: PLR2004
        assert {kms.unwrap_key(blob, key_id) for blob in blobs} == {b"k" * 16}

    @pytest.mark.parametrize("key", _KEYS, ids=_IDS)
    def test_hides_the_key_in_the_blob(self, kms: KmsClient, key_id: str, key: bytes) -> None:
        """The wrapped key is encrypted, not just packed."""
        blob = kms.wrap_key(key, key_id)
        assert not any(form in blob for form in _forms(key))

    def test_opens_a_blob_that_was_stored_as_text(self, kms: KmsClient, key_id: str) -> None:
        """The blob is opaque: it survives base64, as in table metadata, and can be unwrapped again."""
        blob = base64.b64decode(base64.b64encode(kms.wrap_key(b"k" * 32, key_id)))
        assert [kms.unwrap_key(blob, key_id) for _ in range(2)] == [b"k" * 32] * 2

    def test_refuses_an_unknown_key_id(self, kms: KmsClient, key_id: str, missing_key_id: str) -> None:
        """Both calls report a missing master key by its kind, and name it."""
        blob = kms.wrap_key(b"k" * 16, key_id)
        calls = partial(kms.wrap_key, b"k" * 16, missing_key_id), partial(kms.unwrap_key, blob, missing_key_id)
        for call in calls:
            with pytest.raises(KmsError) as caught:
                call()
            assert caught.value.kind is KmsErrorKind.MISSING
            assert caught.value.key_id == missing_key_id
            assert missing_key_id in str(caught.value)

    @pytest.mark.parametrize("position", [0, 0.5, 1], ids=["first", "middle", "last"])
    def test_refuses_a_changed_blob(self, kms: KmsClient, key_id: str, position: float) -> None:
        """One flipped bit is noticed."""
        blob = bytearray(kms.wrap_key(b"k" * 16, key_id))
        blob[int((len(blob) - 1) * position)] ^= 1
        _assert_foreign(kms, bytes(blob), key_id)

    @pytest.mark.parametrize("length", [0, 1, 15, -1], ids=["nothing", "one-byte", "15-bytes", "one-byte-less"])
    def test_refuses_a_cut_blob(self, kms: KmsClient, key_id: str, length: int) -> None:
        """A shortened blob is noticed."""
        _assert_foreign(kms, kms.wrap_key(b"k" * 16, key_id)[:length], key_id)

    def test_refuses_the_blob_of_another_key(self, kms: KmsClient, key_id: str, other_key_id: str | None) -> None:
        """A blob opens with the master key that wrapped it, and no other."""
        if other_key_id is None:
            pytest.skip("no fixture other_key_id")
        _assert_foreign(kms, kms.wrap_key(b"k" * 16, key_id), other_key_id)

    def test_refuses_the_blob_of_another_kms(self, kms: KmsClient, key_id: str, other_kms: KmsClient | None) -> None:
        """The same id in another KMS is another key (cases C-69)."""
        if other_kms is None:
            pytest.skip("no fixture other_kms")
        blob = kms.wrap_key(b"k" * 16, key_id)
        _assert_foreign(other_kms, blob, key_id)
        assert kms.unwrap_key(blob, key_id) == b"k" * 16

    def test_serves_many_threads(self, kms: KmsClient, key_id: str) -> None:
        """Calls from many threads do not disturb each other."""
        keys = [bytes([n]) * 16 for n in range(_THREADS * 4)]
        with ThreadPoolExecutor(_THREADS) as pool:
            unwrapped = list(pool.map(lambda key: kms.unwrap_key(kms.wrap_key(key, key_id), key_id), keys))
        assert unwrapped == keys

    def test_shows_no_secret(self, kms: KmsClient, key_id: str, missing_key_id: str, secrets: Sequence[bytes]) -> None:
        """Reprs and errors, with their causes, hold neither the key nor a secret of the client."""
        key = b"secret-key-bytes"
        blob = kms.wrap_key(key, key_id)
        kms.unwrap_key(blob, key_id)
        shown = [repr(kms), str(kms)]
        calls = partial(kms.wrap_key, key, missing_key_id), partial(kms.unwrap_key, blob[:-1], key_id)
        for call in calls:
            with pytest.raises(KmsError) as caught:
                call()
            shown += [*traceback.format_exception(caught.value), repr(caught.value)]
        text = "\n".join(shown).encode()
        for secret in (key, *secrets):
            assert not any(form in text for form in _forms(secret))

    def test_is_made_anew_from_pickled_properties(self, kms: KmsClient, key_id: str, properties: Mapping[str, str] | None) -> None:
        """The plain configuration is enough to construct the client in another process."""
        if properties is None:
            pytest.skip("no fixture properties")
        copied = pickle.loads(pickle.dumps(dict(properties)))  # noqa: S301 - our own bytes
        again: KmsClient = type(kms)(copied)  # type: ignore[call-arg]
        assert again.unwrap_key(kms.wrap_key(b"k" * 16, key_id), key_id) == b"k" * 16


def _assert_foreign(kms: KmsClient, blob: bytes, key_id: str) -> None:
    with pytest.raises(KmsError) as caught:
        kms.unwrap_key(blob, key_id)
    assert caught.value.kind is KmsErrorKind.FOREIGN
    assert caught.value.key_id == key_id


def _forms(secret: bytes) -> list[bytes]:
    hexed = secret.hex().encode()
    encoded = base64.b64encode(secret).rstrip(b"=")
    return [secret, hexed, hexed.upper(), encoded, repr(secret).encode()]
