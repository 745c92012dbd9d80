"""``SingleFlight``: a thread-safe cache that computes a value once, however many threads ask for it at the same time.

How much is kept, and for how long, is decided by the ``cachetools`` cache that it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Generic, TypeVar

from cachetools import Cache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Values by key. The first thread that asks for a key loads its value; those that ask meanwhile wait for that."""

    def __init__(self, kept: Cache[K, V]) -> None:
        self._kept = kept
        self._loading: dict[K, Future[V]] = {}
        self._lock = threading.Lock()

    def get(self, key: K, load: Callable[[], V]) -> V:
        """Return the value of ``key``, which ``load`` computes if it is neither kept nor being loaded.

        Raises:
            Exception: what ``load`` raised, in all threads that waited for it; nothing is kept. An interrupt (``KeyboardInterrupt``)
                is raised in its own thread only, and one of the others loads instead.
        """
        while True:
            with self._lock:
                len(self._kept)  # a cache with a time limit drops what has expired
                with suppress(KeyError):
                    return self._kept[key]
                future = self._loading.get(key)
                if future is None:
                    mine = self._loading[key] = Future()
            if future is None:
                return self._load(key, load, mine)
            with suppress(CancelledError):
                return future.result()

    def put(self, key: K, value: V) -> None:
        """Keep a value that is known already, unless it is larger than the whole cache."""
        with self._lock, suppress(ValueError):
            self._kept[key] = value

    def clear(self) -> None:
        """Forget all values, and keep none that is being loaded now."""
        with self._lock:
            self._kept.clear()
            self._loading.clear()

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)

    def _load(self, key: K, load: Callable[[], V], future: Future[V]) -> V:
        try:
            value = load()
            with self._lock, suppress(ValueError):
                if self._loading.get(key) is future:  # else the cache was cleared meanwhile
                    self._kept[key] = value
        except BaseException as e:
            self._loaded(key, future)
            if isinstance(e, Exception):
                future.set_exception(e)
            else:
                future.cancel()
            raise
        self._loaded(key, future)
        future.set_result(value)
        return value

    def _loaded(self, key: K, future: Future[V]) -> None:
        with self._lock:
            if self._loading.get(key) is future:
                del self._loading[key]
