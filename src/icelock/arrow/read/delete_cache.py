"""``DeleteCache``: delete files of one scan, decoded once although they apply to many data files.

It lives as long as the scan, is shared by its threads, and is bounded: the least recently used entries go. An entry is found by the
file's path and key metadata together, so a file that was opened with one key is not handed out for another; it holds decoded
values and no key but that.

Not here: decoding (``arrow.read.deletes``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

MOST_BYTES: Final = 256 << 20

T = TypeVar("T")


class DeleteCache:
    """Values by key, each loaded by the first that asks while others wait; ``most_bytes`` bounds what is kept between uses."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._loading: dict[Hashable, Future[Any]] = {}
        self._bytes = 0

    def __reduce__(self) -> tuple[type[DeleteCache], tuple[int]]:
        """Pickle as an empty cache: what was decoded stays in its process."""
        return DeleteCache, (self._most_bytes,)

    def get(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """Return the value of ``key``; ``load`` gives it with its size in bytes.

        Raises:
            Exception: what ``load`` raised; nothing is kept then.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]  # type: ignore[no-any-return]
            future = self._loading.get(key)
            mine = future is None
            if future is None:
                future = self._loading[key] = Future()
        if mine:
            self._load(key, load, future)
        return future.result()  # type: ignore[no-any-return]

    def _load(self, key: Hashable, load: Callable[[], tuple[Any, int]], future: Future[Any]) -> None:
        try:
            value, size = load()
        except BaseException as e:
            with self._lock:
                del self._loading[key]
            future.set_exception(e)
            raise
        with self._lock:
            del self._loading[key]
            self._keep(key, value, size)
        future.set_result(value)

    def _keep(self, key: Hashable, value: Any, size: int) -> None:
        if size > self._most_bytes:
            return
        self._values[key] = (value, size)
        self._bytes += size
        while self._bytes > self._most_bytes:
            _, (_, dropped) = self._values.popitem(last=False)
            self._bytes -= dropped
