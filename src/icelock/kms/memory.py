"""``MemoryKms``: master keys from catalog properties, for tests.

Wrapped key = ``nonce(12) | ciphertext | tag(16)``, AES-GCM under the master key, no AAD. These are the bytes of Java
Iceberg's test KMS (``MemoryMockKMS``, ``UnitestKMS``: keyA = ``0123456789012345``, keyB = ``1123456789012345``), so each side
opens the other's tables.

Master keys are in the configuration in the clear: this client protects nothing.

Not here: versions of a key (``kms/local.py`` has them).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from icelock.errors import FormatError, IntegrityError, KmsError, KmsErrorKind, PolicyError
from icelock.format import aes_gcm
from icelock.properties import KMS_MEMORY_KEY_PREFIX
from icelock.secret import SecretBytes

_HEX_LENGTHS: Final = (32, 48, 64)
_HEX: Final = re.compile(r"[0-9a-fA-F]+", re.ASCII)


class MemoryKms:
    """A KMS whose master keys are the properties ``kms.memory.keys.<id>`` = 32, 48 or 64 hex digits.

    >>> kms = MemoryKms({"kms.memory.keys.keyA": b"0123456789012345".hex()})
    >>> kms.unwrap_key(kms.wrap_key(b"k" * 16, "keyA"), "keyA") == b"k" * 16
    True
    >>> kms
    MemoryKms(key ids: 'keyA')

    Args:
        properties: the catalog's properties.
        random_bytes: source of nonces.

    Raises:
        PolicyError: a key that is not hex or has another length, or an empty key id.
    """

    def __init__(self, properties: Mapping[str, str], *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._random_bytes = random_bytes
        self._keys = {
            name.removeprefix(KMS_MEMORY_KEY_PREFIX): _master_key(name, value)
            for name, value in properties.items()
            if name.startswith(KMS_MEMORY_KEY_PREFIX)
        }

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Encrypt ``key`` with the master key (see ``KmsClient.wrap_key``)."""
        master = self._master(wrapping_key_id)
        return aes_gcm.encrypt(master.reveal(), self._random_bytes(aes_gcm.NONCE_LENGTH), key)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Decrypt what ``wrap_key`` returned (see ``KmsClient.unwrap_key``)."""
        master = self._master(wrapping_key_id)
        try:
            return aes_gcm.decrypt(master.reveal(), wrapped_key)
        except (IntegrityError, FormatError) as e:
            raise KmsError(
                f"master key {wrapping_key_id!r} did not wrap this key ({len(wrapped_key)} bytes), or it was changed; "
                f"give the same {KMS_MEMORY_KEY_PREFIX}{wrapping_key_id} as when the table was written",
                kind=KmsErrorKind.FOREIGN,
                key_id=wrapping_key_id,
            ) from e

    def _master(self, key_id: str) -> SecretBytes:
        try:
            return self._keys[key_id]
        except KeyError as e:
            known = ", ".join(map(repr, self._keys)) or "none"
            raise KmsError(
                f"no master key {key_id!r} (known: {known}); set the catalog property {KMS_MEMORY_KEY_PREFIX}{key_id}",
                kind=KmsErrorKind.MISSING,
                key_id=key_id,
            ) from e

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key ids: {', '.join(map(repr, self._keys)) or 'none'})"


def _master_key(name: str, value: object) -> SecretBytes:
    if name == KMS_MEMORY_KEY_PREFIX:
        raise PolicyError(f"{name!r} names no key; write {KMS_MEMORY_KEY_PREFIX}<key id>")
    if not isinstance(value, str) or len(value) not in _HEX_LENGTHS or not _HEX.fullmatch(value):
        found = f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise PolicyError(f"{name}: expected 32, 48 or 64 hex digits (a key of 16, 24 or 32 bytes), got {found}")
    return SecretBytes(bytes.fromhex(value))
