"""``KekCache``: unwrapped KEKs, for a bounded time and number.

The key is (KMS client, master key id, wrapped blob): two clients that both know ``key1`` never see each other's KEKs
(cases C-69). The client is told apart by identity and kept alive by the entry, so the identity is not used again.

One load at a time for one key: 16 threads that need a KEK cause one KMS call. A failed load is not kept, and all that
waited for it get its error. Entries end ``max_age_seconds`` after their load began, at most one hour (Java's limit).

Not here: what is loaded and how (``keys/kek.py``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, final

from icelock.errors import KeyUnavailableError, PolicyError
from icelock.kms.client import KmsClient
from icelock.properties import KEK_CACHE_SECONDS
from icelock.secret import SecretBytes

MAX_AGE_SECONDS: Final = 3_600
MAX_ENTRIES: Final = 256

_Key = tuple[int, str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    kms: KmsClient
    since: float
    result: Future[SecretBytes]


@final
class KekCache:
    """A thread-safe cache of unwrapped KEKs; one may serve many tables and KMS clients.

    Args:
        clock: monotonic seconds.
        max_age_seconds: 0 (nothing is kept) to 3600.
        max_entries: the least recently used one goes first.

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
        self._lock = threading.Lock()
        self._slots: OrderedDict[_Key, _Slot] = OrderedDict()

    def get(self, kms: KmsClient, master_key_id: str, blob: bytes, load: Callable[[], SecretBytes]) -> SecretBytes:
        """Return the KEK of that blob, from the cache or by calling ``load`` once.

        Raises:
            Exception: whatever ``load`` raises.
        """
        key = (id(kms), master_key_id, blob)
        slot, mine = self._claim(key, kms)
        if mine:
            try:
                slot.result.set_result(load())
            except BaseException as e:
                self._drop(key, slot)
                # An interrupt is this thread's own affair, the others get an error.
                slot.result.set_exception(
                    e if isinstance(e, Exception) else KeyUnavailableError("the call of the KMS was interrupted; try again")
                )
                raise
        return slot.result.result()

    def put(self, kms: KmsClient, master_key_id: str, blob: bytes, kek: SecretBytes) -> None:
        """Keep a KEK that was just minted."""
        result: Future[SecretBytes] = Future()
        result.set_result(kek)
        with self._lock:
            self._keep((id(kms), master_key_id, blob), _Slot(kms=kms, since=self._clock(), result=result))

    def clear(self) -> None:
        """Forget all KEKs."""
        with self._lock:
            self._slots.clear()

    def _claim(self, key: _Key, kms: KmsClient) -> tuple[_Slot, bool]:
        with self._lock:
            self._expire()
            slot = self._slots.get(key)
            if slot is not None:
                self._slots.move_to_end(key)
                return slot, False
            slot = _Slot(kms=kms, since=self._clock(), result=Future())
            self._keep(key, slot)
            return slot, True

    def _keep(self, key: _Key, slot: _Slot) -> None:
        self._slots[key] = slot
        self._slots.move_to_end(key)
        while len(self._slots) > self._max_entries:
            self._slots.popitem(last=False)

    def _expire(self) -> None:
        oldest = self._clock() - self._max_age
        for key in [key for key, slot in self._slots.items() if slot.since <= oldest]:
            del self._slots[key]

    def _drop(self, key: _Key, slot: _Slot) -> None:
        with self._lock:
            if self._slots.get(key) is slot:
                del self._slots[key]

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._slots)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_age_seconds={self._max_age}, max_entries={self._max_entries})"
