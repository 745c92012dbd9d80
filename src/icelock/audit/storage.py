"""Bytes of stored files, as storage gives them: read at a position, and how many there are.

Not here: what the bytes mean (``audit.streams``, ``audit.parquet``).
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:  # as in audit.file_check
    from pyiceberg.io import FileIO

_FORMATS: Final = {
    b"PAR1": "a plain Parquet file",
    b"PARE": "an encrypted Parquet file",
    b"AGS1": "an AGS1 stream",
    b"Obj\x01": "a plain Avro file",
    b"PFA1": "a plain Puffin file",
    b"ORC": "an ORC file",
}


def described(head: bytes) -> str:
    """Return what a file is that begins with these bytes. The bytes are not shown: the file may hold anything, keys too."""
    return next((what for magic, what in _FORMATS.items() if head.startswith(magic)), "of no known format" if head else "empty")


class StoredBytes:
    """An open file of a storage. A context manager.

    ``near``: whether a read waits for this machine only.

    Raises:
        FileNotFoundError: the storage does not have it.
        OSError: the storage failed.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        self.location = location
        try:
            handle: Any = io.new_input(location)
            self._stream: Any = handle.open()
            self.near = hasattr(handle, "place") and handle.place[0].type_name == "local"
        except OSError:
            raise
        except Exception as e:  # storage clients raise what they like
            raise OSError(f"{type(e).__name__}: {e}") from e
        try:
            self.size = int(self._stream.seek(0, 2))
        except BaseException:
            self._stream.close()
            raise
        self._at = self.size

    def read(self, position: int, count: int) -> bytes:
        """Return ``count`` bytes from a position, fewer only if the file ends."""
        if position != self._at:
            self._stream.seek(position)
        pieces: list[bytes] = []
        left = count
        while left:
            piece = self._stream.read(left)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        self._at = position + count - left
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def fill(self, position: int, target: memoryview) -> memoryview:
        """Read bytes from a position into a buffer, and return the part of it that has them, less than all only if the file ends."""
        if position != self._at:
            self._stream.seek(position)
        held = 0
        while held < len(target) and (more := self._into(target[held:])):
            held += more
        self._at = position + held
        return target[:held]

    def _into(self, target: memoryview) -> int:
        """Read some bytes into a buffer, and return how many."""
        if hasattr(self._stream, "readinto"):
            return int(self._stream.readinto(target) or 0)
        piece = self._stream.read(len(target))
        target[: len(piece)] = piece
        return len(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream.close()
