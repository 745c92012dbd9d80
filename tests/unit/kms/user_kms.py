"""KMS clients as a user would write them, for ``encryption.kms-impl``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import KmsError, KmsErrorKind

PREFIX = b"mine:v1:"


class VersionedKms:
    """Keys ``my-kms.keys.<id>`` = hex; the blob has a text prefix with the version, as some services do (cases C-37)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        prefix = "my-kms.keys."
        self._keys = {name.removeprefix(prefix): bytes.fromhex(value) for name, value in properties.items() if name.startswith(prefix)}

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        nonce = os.urandom(12)
        return PREFIX + nonce + AESGCM(self._key(wrapping_key_id)).encrypt(nonce, key, PREFIX)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        key = self._key(wrapping_key_id)
        prefix, blob = wrapped_key[: len(PREFIX)], wrapped_key[len(PREFIX) :]
        try:
            return AESGCM(key).decrypt(blob[:12], blob[12:], prefix)
        except (InvalidTag, ValueError) as e:
            msg = "not a blob of mine"
            raise KmsError(msg, kind=KmsErrorKind.FOREIGN, key_id=wrapping_key_id) from e

    def _key(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            msg = f"no key {key_id}"
            raise KmsError(msg, kind=KmsErrorKind.MISSING, key_id=key_id)
        return self._keys[key_id]

    def __repr__(self) -> str:
        return "VersionedKms()"


class WithoutUnwrap:
    def __init__(self, properties: Mapping[str, str]) -> None: ...

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return key + wrapping_key_id.encode()


class Refusing(VersionedKms):
    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties
        msg = "could not log in with token s3cr3t"
        raise RuntimeError(msg)


class WithoutArguments(VersionedKms):
    def __init__(self) -> None:
        super().__init__({})


def not_a_class(properties: Mapping[str, str]) -> VersionedKms:
    return VersionedKms(properties)


class Failing(VersionedKms):
    """Fails as ``my-kms.fault`` says: ``<call> <what>``; what is an error's name or what is returned."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._call, _, self._fault = properties.get("my-kms.fault", "").partition(" ")
        if self._call == "init":
            self._fail(b"")

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        blob = super().wrap_key(key, wrapping_key_id)
        return self._fail(key) if self._call == "wrap" else blob

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        key = super().unwrap_key(wrapped_key, wrapping_key_id)
        return self._fail(key) if self._call == "unwrap" else key

    def _fail(self, key: bytes) -> bytes:
        kind = {"ConnectionError": ConnectionError, "TimeoutError": TimeoutError, "KeyError": KeyError, "Own": Own}.get(self._fault)
        if kind is not None:
            msg = f"token=s3cr3t {key.hex()}"
            raise kind(msg)
        if self._fault == "KeyboardInterrupt":
            raise KeyboardInterrupt
        answers = {"None": None, "text": "text", "empty": b"", "short": b"12345", "itself": key, "number": 16, "list": list(key)}
        answers["other"] = key[::-1]
        return answers[self._fault]  # type: ignore[return-value]


class Own(Exception):  # noqa: N818 - as a user may call it
    """An error of the user's own."""


class MakesNothing(VersionedKms):
    def __new__(cls, properties: Mapping[str, str]) -> None:  # type: ignore[misc]
        del properties
