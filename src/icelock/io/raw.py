"""The streams of encrypted bytes below AGS1: what a storage has to offer, and complete reads and writes.

A raw stream may read or write less than requested; the two functions here repeat until it is done. Not here: what the
bytes mean (``io.streams``).
"""

from __future__ import annotations

from typing import Any, Protocol


class Source(Protocol):
    """A seekable stream of encrypted bytes, as PyIceberg's ``InputFile.open`` gives it; ``readinto`` is used if it has one."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most ``size`` bytes; nothing at the end."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move, and return the position from the start."""

    def close(self) -> None:
        """Release the stream."""


class Sink(Protocol):
    """A stream that takes encrypted bytes, as PyIceberg's ``OutputFile.create`` gives it."""

    def write(self, data: Any, /) -> int | None:
        """Write some or all of ``data``, and return the number of bytes."""

    def close(self) -> None:
        """Make the written bytes durable, and release the stream."""


def size_of(stream: Any) -> int:
    """Return the length of an open file, which is at its beginning afterwards."""
    size = getattr(stream, "size", None)
    if callable(size):
        return int(size())
    stream.seek(0, 2)
    length = int(stream.tell())
    stream.seek(0)
    return length


def read_up_to(raw: Source, view: memoryview) -> int:
    """Fill ``view`` from ``raw`` and return the number of bytes, fewer only if ``raw`` ends."""
    readinto = getattr(raw, "readinto", None)
    done = 0
    while done < len(view):
        if readinto is not None:
            got = readinto(view[done:]) or 0
        else:
            data = raw.read(len(view) - done) or b""
            got = len(data)
            view[done : done + got] = data
        if not got:
            break
        done += got
    return done


def write_all(raw: Sink, view: memoryview, location: str) -> None:
    """Write all of ``view`` to ``raw``.

    Raises:
        OSError: ``raw`` takes no more.
    """
    while view:
        taken = raw.write(view)
        if not taken:
            raise OSError(f"{location}: the storage took {taken} of {len(view)} bytes")
        view = view[taken:]
