"""``KekCache``: unwrapped KEKs, for a bounded time and number.

The key is (KMS client, master key id, wrapped blob): two clients that both know ``key1`` never see each other's KEKs (case C-69). A
client is told apart by its identity; its entry keeps it alive, so that no other client gets that identity.

Sixteen threads that need one KEK cause one KMS call; if it fails, all get its error and nothing is kept. An entry expires
``max_age_seconds`` after its load began, at most one hour (Java's limit).

Not here: what is loaded and how (``keys/kek.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, final

from cachetools import TLRUCache

from icelock.errors import PolicyError
from icelock.kms.client import KmsClient
from icelock.properties import KEK_CACHE_SECONDS
from icelock.secret import SecretBytes
from icelock.single_flight import SingleFlight

MAX_AGE_SECONDS: Final = 3_600
MAX_ENTRIES: Final = 256

_Key = tuple[int, str, bytes]


class _Entry(NamedTuple):
    kms: KmsClient
    since: float
    kek: SecretBytes


@final
class KekCache:
    """A thread-safe cache of unwrapped KEKs; one may serve many tables and KMS clients.

    Args:
        clock: monotonic seconds.
        max_age_seconds: 0 (nothing is kept) to 3600.
        max_entries: above this number, the least recently used one is dropped.

    Raises:
        PolicyError: an age or number out of range.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, max_age_seconds: float = MAX_AGE_SECONDS, *, max_entries: int = MAX_ENTRIES
    ) -> None:
        if not 0 <= max_age_seconds <= MAX_AGE_SECONDS:
            raise PolicyError(f"{KEK_CACHE_SECONDS} is {max_age_seconds}; it must be 0 to {MAX_AGE_SECONDS}")
        if max_entries < 1:
            raise PolicyError(f"a KEK cache holds 1 entry or more, not {max_entries}")
        self._clock = clock
        self._max_age = max_age_seconds
        self._max_entries = max_entries
        self._entries = SingleFlight(TLRUCache[_Key, _Entry](max_entries, lambda _, entry, __: entry.since + max_age_seconds, clock))

    def get(self, kms: KmsClient, master_key_id: str, blob: bytes, load: Callable[[], SecretBytes]) -> SecretBytes:
        """Return the KEK of that blob, from the cache or by calling ``load`` once.

        Raises:
            Exception: whatever ``load`` raises.
        """
        return self._entries.get((id(kms), master_key_id, blob), lambda: _Entry(kms, self._clock(), load())).kek

    def put(self, kms: KmsClient, master_key_id: str, blob: bytes, kek: SecretBytes) -> None:
        """Keep a KEK that was just minted."""
        self._entries.put((id(kms), master_key_id, blob), _Entry(kms, self._clock(), kek))

    def clear(self) -> None:
        """Forget all KEKs."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_age_seconds={self._max_age}, max_entries={self._max_entries})"
