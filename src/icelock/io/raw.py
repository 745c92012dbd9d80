"""The streams of encrypted bytes below AGS1: what is asked of a storage, and reading and writing that leave nothing over.

A raw stream may give or take less than it was asked to; the two functions here ask again until it is done. Not here:
anything about the bytes (``io.streams``).
"""

from __future__ import annotations

from typing import Any, Protocol


class Source(Protocol):
    """A seekable stream of encrypted bytes, as PyIceberg's ``InputFile.open`` gives it; ``readinto`` is used where it has one."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most ``size`` bytes, none at the end."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move, and return the position from the start."""

    def close(self) -> None:
        """Release the stream."""


class Sink(Protocol):
    """A stream that takes encrypted bytes, as PyIceberg's ``OutputFile.create`` gives it."""

    def write(self, data: Any, /) -> int | None:
        """Take some or all of ``data``, and return how many bytes."""

    def close(self) -> None:
        """Make durable what was written, and release the stream."""


def read_up_to(raw: Source, view: memoryview) -> int:
    """Fill ``view`` from ``raw`` and return the number of bytes, fewer than asked only where ``raw`` ends."""
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
    """Give all of ``view`` to ``raw``.

    Raises:
        OSError: ``raw`` takes no more.
    """
    while view:
        taken = raw.write(view)
        if not taken:
            raise OSError(f"{location}: the storage took {taken} of {len(view)} bytes")
        view = view[taken:]
