"""Fakes for keys: a KMS that counts and can be told to misbehave, and entropy that does not vary."""

from __future__ import annotations

import threading
import time
from collections import Counter

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock.errors import KmsError, KmsErrorKind

DAY_MS = 24 * 60 * 60 * 1_000
NOW_MS = 1_800_000_000_000


class CountingKms:
    """AES-GCM without AAD under ``keys``, like Java's test KMS; knows what it was asked.

    ``deny`` holds the methods that are refused, ``limit`` the longest key that is taken.
    """

    def __init__(self, *, key=b"0123456789012345", deny=(), limit=4_096, seconds=0.0):
        self.keys = {"keyA": key}
        self.deny = set(deny)
        self.limit = limit
        self.seconds = seconds
        self.calls = Counter()
        self.wrapped = []
        self.ids = []
        self._lock = threading.Lock()

    def wrap_key(self, key, wrapping_key_id):
        self._count("wrap", wrapping_key_id)
        assert len(key) <= self.limit
        self.wrapped.append(key)
        nonce = bytes([len(self.wrapped)]) * 12
        return nonce + AESGCM(self._key(wrapping_key_id)).encrypt(nonce, key, None)

    def unwrap_key(self, wrapped_key, wrapping_key_id):
        self._count("unwrap", wrapping_key_id)
        return AESGCM(self._key(wrapping_key_id)).decrypt(wrapped_key[:12], wrapped_key[12:], None)

    def _count(self, method, key_id):
        time.sleep(self.seconds)
        with self._lock:
            self.calls[method] += 1
            self.ids.append(key_id)
        if method in self.deny:
            msg = f"no right to {method}"
            raise KmsError(msg, kind=KmsErrorKind.DENIED, key_id=key_id)

    def _key(self, key_id):
        if key_id not in self.keys:
            msg = f"no key {key_id}"
            raise KmsError(msg, kind=KmsErrorKind.MISSING, key_id=key_id)
        return self.keys[key_id]


class CountedEntropy:
    """1, 2, 3, ... as big-endian numbers: nothing random, nothing twice."""

    def __init__(self):
        self.drawn = 0

    def random_bytes(self, n):
        self.drawn += 1
        return self.drawn.to_bytes(n, "big")


class Clock:
    def __init__(self, now=NOW_MS):
        self.now = now

    def __call__(self):
        return self.now
