"""Where keys, AAD prefixes, nonces and key ids come from.

Everything random in icelock comes from an ``Entropy`` that is passed in, so that tests can fix it; no function of the public
API takes a nonce or a key. (KMS clients generate their own nonces: they are below this layer.)

Executors use ``mint_file_key`` alone: it needs no KMS and no KEK.
"""

from __future__ import annotations

import base64
import os
from typing import Final, Protocol

from icelock.format.key_metadata import AAD_PREFIX_LENGTH, FileKey
from icelock.secret import SecretBytes

KEY_ID_LENGTH: Final = 16


class Entropy(Protocol):
    """A source of random bytes fit for keys."""

    def random_bytes(self, n: int) -> bytes:
        """Return ``n`` unpredictable bytes that were never returned before."""
        ...


class SystemEntropy:
    """The operating system's generator. It has no state, so it can be sent to other processes."""

    __slots__ = ()

    def random_bytes(self, n: int) -> bytes:
        """Return ``n`` bytes from the operating system."""
        return os.urandom(n)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def mint_file_key(entropy: Entropy, length: int) -> FileKey:
    """Return a new file's DEK of ``length`` bytes and AAD prefix of 16; call it once for each file.

    Raises:
        FormatError: a length other than 16, 24 or 32.
    """
    return FileKey(dek=SecretBytes(entropy.random_bytes(length)), aad_prefix=entropy.random_bytes(AAD_PREFIX_LENGTH))


def mint_key_id(entropy: Entropy) -> str:
    """Return a new id for an entry of ``encryption-keys``: base64 of 16 random bytes, as Java makes them."""
    return base64.b64encode(entropy.random_bytes(KEY_ID_LENGTH)).decode()
