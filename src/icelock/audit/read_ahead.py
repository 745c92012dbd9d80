"""A file from one position to another; one that is far is read by a second thread while the first works on what was read.

AES-GCM holds Python's global lock, and reads do not. So a thread that opens a file can read no further meanwhile, but another one can, if
it has begun before. A local file's bytes take less time than such a change of threads, and lie in the cache of another CPU after it: it is
read by the thread that opens it. Buffers and the second thread are used for one file after another.

Not here: what the bytes mean (``audit.streams``, ``audit.parquet``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Final, Self

from icelock.audit.storage import StoredBytes

_WINDOW: Final = 2 << 20  # bytes; a request each


class Reader:
    """Two windows, and a thread once a far file is longer than one of them. A context manager, for one file at a time."""

    def __init__(self) -> None:
        self._buffers = [memoryview(bytearray()), memoryview(bytearray())]
        self._thread: Thread | None = None
        self._wanted: SimpleQueue[tuple[StoredBytes, int, memoryview] | None] = SimpleQueue()
        self._begun: SimpleQueue[None] = SimpleQueue()
        self._read: SimpleQueue[memoryview | BaseException] = SimpleQueue()

    def windows(self, stored: StoredBytes, start: int, end: int) -> Generator[memoryview]:
        """Yield the bytes between two positions, fewer only if the file ends. Asking for the next ones may overwrite the last.

        Until it is at its end, or closed, nobody else may read the file.

        Raises:
            OSError: the storage failed.
        """
        if stored.near:
            while start < end and (found := stored.fill(start, self._buffer(0, end - start))):
                yield found
                start += len(found)
            return
        turn = 0
        found = stored.fill(start, self._buffer(turn, end - start))
        while found and (start := start + len(found)) < end:
            turn ^= 1
            self._ask(stored, start, self._buffer(turn, end - start))
            try:
                yield found
            finally:
                read = self._read.get()
            if isinstance(read, BaseException):
                raise read
            found = read
        if found:
            yield found

    def _buffer(self, turn: int, most: int) -> memoryview:
        size = max(0, min(_WINDOW, most))
        if len(self._buffers[turn]) < size:
            self._buffers[turn] = memoryview(bytearray(size))
        return self._buffers[turn][:size]

    def _ask(self, stored: StoredBytes, position: int, buffer: memoryview) -> None:
        if self._thread is None:
            thread = Thread(target=self._work, name="icelock-audit-read", daemon=True)
            thread.start()
            self._thread = thread  # not one that the system refused, which nobody may wait for
        self._wanted.put((stored, position, buffer))
        self._begun.get()  # lets go of the lock: otherwise the read would begin when it is waited for

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            stored, position, buffer = wanted
            self._begun.put(None)
            try:
                self._read.put(stored.fill(position, buffer))
            except BaseException as e:  # noqa: BLE001 - the thread that waits for it raises it
                self._read.put(e)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._wanted.put(None)
            self._thread.join()


class Ahead:
    """Bytes of windows by their position in the file, which ascends; ``start`` is that of the first window."""

    def __init__(self, windows: Iterator[memoryview], start: int) -> None:
        self._windows = windows
        self._window, self._at = memoryview(b""), start

    def ahead(self, position: int, count: int) -> memoryview:
        """Return at least ``count`` bytes from a position, fewer only if there are no more, and what else is at hand.

        The position is beyond the bytes that were asked for last, and at most where those that were returned end. They may be overwritten.
        """
        inside = position - self._at
        if inside == len(self._window):
            self._next()
            inside = 0
        if inside + count <= len(self._window):
            return self._window[inside:]
        return self._joined(position, count)

    def _joined(self, position: int, count: int) -> memoryview:
        """Return a copy of bytes that are not all in one window."""
        joined = bytearray()
        while len(joined) < count:
            inside = position + len(joined) - self._at
            if inside == len(self._window):
                if not self._next():
                    break
                inside = 0
            joined += self._window[inside : inside + count - len(joined)]
        return memoryview(joined)

    def _next(self) -> bool:
        """Go to the next window, and return whether there is one."""
        self._at += len(self._window)
        self._window = next(self._windows, memoryview(b""))
        return bool(self._window)
