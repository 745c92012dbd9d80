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
