"""``PlainInput``: the plain bytes of one Avro or Puffin file, read by position.

Whether the file is an AGS1 stream is said by the parent's key metadata, never by its bytes; they are looked at only to word an
error. The length of an AGS1 stream is the authenticated one, so nothing that was cut or added is missed.

Not here: what the bytes mean (``io.avro.read``, ``io.puffin.read``).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, cast

from icelock.errors import FormatError, KeyUnavailableError
from icelock.format import ags1
from icelock.io.files import EncryptedInputFile
from icelock.io.raw import Source, read_up_to

if TYPE_CHECKING:
    from types import TracebackType

    from pyiceberg.io import InputFile

    from icelock.format.key_metadata import KeyMetadata

RESTORE: Final = "restore the file from a backup, or read a snapshot that does not need it"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBytes:
    """The plain bytes of a whole file that was read, and is closed."""

    location: str
    data: bytes = field(repr=False)

    @property
    def length(self) -> int:
        """The number of plain bytes."""
        return len(self.data)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on.

        Raises:
            FormatError: the file ends before that.
        """
        _check_range(self.location, self.length, offset, size)
        return self.data[offset : offset + size]


class PlainInput:
    """One open file; use it as a context manager, in one thread at a time. ``length`` counts plain bytes.

    ``key_metadata`` None means a plain file: that it is allowed is for the caller to know.

    Raises:
        IntegrityError: another length on storage than the key metadata says, or a block that does not authenticate.
        FormatError: key metadata without a length, or no AGS1 stream where one is expected.
        KeyUnavailableError: an AGS1 stream, but there is no key metadata.
    """

    def __init__(self, source: InputFile, key_metadata: KeyMetadata | None) -> None:
        self.location = source.location
        file = source if key_metadata is None else EncryptedInputFile(source, key_metadata)
        self._stream = cast("Source", file.open())
        try:
            self.length = self._stream.seek(0, io.SEEK_END)
            if key_metadata is None:
                self._refuse_encrypted()
        except BaseException:
            self._stream.close()
            raise

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on.

        Raises:
            FormatError: the file ends before that.
            IntegrityError: a block does not authenticate.
        """
        _check_range(self.location, self.length, offset, size)
        data = memoryview(bytearray(size))
        self._stream.seek(offset)
        got = read_up_to(self._stream, data)
        if got != size:
            raise FormatError(f"{self.location}: expected {size} bytes at {offset}, the storage gave {got}; {RESTORE}")
        return bytes(data)

    def read_whole(self) -> PlainBytes:
        """Return all of the file.

        Raises:
            IntegrityError: a block does not authenticate.
        """
        return PlainBytes(location=self.location, data=self.read_at(0, self.length))

    def close(self) -> None:
        """Release the stream."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _refuse_encrypted(self) -> None:
        if self.length >= len(ags1.MAGIC) and self.read_at(0, len(ags1.MAGIC)) == ags1.MAGIC:
            raise KeyUnavailableError(
                f"{self.location} is an encrypted stream (AGS1), but its manifest entry has no key metadata: "
                "read it through a table with encryption.key-id and a KMS configured"
            )


def _check_range(location: str, length: int, offset: int, size: int) -> None:
    if offset < 0 or size < 0 or offset + size > length:
        raise FormatError(f"{location}: expected {size} bytes at {offset}, but the file has {length}; {RESTORE}")
