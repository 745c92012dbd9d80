"""One AES-GCM message: ``nonce (12) | ciphertext | tag (16)``.

This is the form of every key that icelock stores (a wrapped KEK of the test KMS, a manifest-list key under its KEK) and
of every block of an AGS1 stream. The key length chooses AES-128, AES-192 or AES-256.

Source: Java ``org.apache.iceberg.encryption.Ciphers``. Not here: nonces (the caller brings one from ``keys.entropy``),
and the stream that encrypts into ready buffers (``io.streams``).
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import FormatError, IntegrityError

NONCE_LENGTH: Final = 12
TAG_LENGTH: Final = 16
OVERHEAD: Final = NONCE_LENGTH + TAG_LENGTH
KEY_LENGTHS: Final = (16, 24, 32)


def check_key_length(length: int) -> None:
    """Check the length of an AES key.

    Raises:
        FormatError: ``length`` is not 16, 24 or 32.
    """
    if length not in KEY_LENGTHS:
        raise FormatError(f"an AES key has 16, 24 or 32 bytes, this one has {length}")


def encrypt(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes | None = None) -> bytes:
    """Return ``nonce | ciphertext | tag``; a nonce must never be used twice with one key.

    Raises:
        FormatError: The key or the nonce has the wrong length.
    """
    check_key_length(len(key))
    cipher = AESGCM(key)
    del key  # error trackers record local variables
    if len(nonce) != NONCE_LENGTH:
        raise FormatError(f"an AES-GCM nonce has {NONCE_LENGTH} bytes, this one has {len(nonce)}")
    return nonce + cipher.encrypt(nonce, plaintext, aad)


def decrypt(key: bytes, message: bytes | memoryview, aad: bytes | None = None) -> bytes:
    """Return the plaintext of ``nonce | ciphertext | tag``, or raise: unauthenticated bytes are never returned.

    A memoryview of bytes saves a copy of large messages.

    Raises:
        FormatError: The message is shorter than nonce and tag, or the key has the wrong length.
        IntegrityError: The tag does not match: changed bytes, another key, or another AAD.
    """
    check_key_length(len(key))
    cipher = AESGCM(key)
    del key  # error trackers record local variables
    if len(message) < OVERHEAD:
        raise FormatError(f"an AES-GCM message has at least {OVERHEAD} bytes (nonce and tag), this one has {len(message)}")
    try:
        return cipher.decrypt(message[:NONCE_LENGTH], message[NONCE_LENGTH:], aad)
    except InvalidTag as e:
        raise IntegrityError(
            f"AES-GCM tag of a message of {len(message)} bytes does not match: bytes were changed, or the key or the AAD is wrong"
        ) from e


class Verifier:
    """Authenticates messages of one key, whose plain bytes nobody wants: they go to a buffer that the next message overwrites.

    Not for several threads.

    Raises:
        FormatError: the key has the wrong length.
    """

    def __init__(self, key: bytes) -> None:
        check_key_length(len(key))
        self._cipher = AESGCM(key)
        del key  # error trackers record local variables
        self._plain = memoryview(bytearray())

    def authenticates(self, message: memoryview, aad: bytes | None = None) -> bool:
        """Whether the tag of ``nonce | ciphertext | tag`` matches.

        Raises:
            FormatError: the message is shorter than nonce and tag.
        """
        length = len(message) - OVERHEAD
        if length < 0:
            raise FormatError(f"an AES-GCM message has at least {OVERHEAD} bytes (nonce and tag), this one has {len(message)}")
        if len(self._plain) < length:
            self._plain = memoryview(bytearray(length))
        try:
            self._cipher.decrypt_into(message[:NONCE_LENGTH], message[NONCE_LENGTH:], aad, self._plain[:length])
        except InvalidTag:
            return False
        return True
