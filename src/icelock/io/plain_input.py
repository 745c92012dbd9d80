"""``PlainInput``: the plain bytes of one Avro or Puffin file, read by position; and the errors for files that are plain, or lack a key.

The parent's key metadata says whether the file is an AGS1 stream, never its bytes; those are looked at only to word an error. The length
of an AGS1 stream is the authenticated one, so cut or added bytes are noticed.

Not here: what the bytes mean (``io.avro.read``, ``io.puffin.read``).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, cast

from pyiceberg.io import InputFile

from icelock.errors import FormatError, KeyUnavailableError, PolicyError
from icelock.format import ags1
from icelock.format.key_metadata import KeyMetadata
from icelock.io.files import EncryptedInputFile
from icelock.io.raw import Source, read_up_to

RESTORE: Final = "restore the file from a backup, or read a snapshot that does not need it"


def plain_refused(what: str, refused: str = "a plain file") -> PolicyError:
    """Return the error for a file of an encrypted table that no key is known for; ``what`` says what lacks it."""
    return PolicyError(
        f"{what}, but its table is encrypted: refused to read {refused}; "
        "if it is from before the table's key id was set, and you trust it, set the catalog property "
        "icelock.plaintext-files=allow-unkeyed, and run icelock convert, which encrypts all such files"
    )


def key_is_missing(location: str, form: str = "stream (AGS1)") -> KeyUnavailableError:
    """Return the error for an encrypted file whose parent has no key metadata for it."""
    return KeyUnavailableError(
        f"{location} is an encrypted {form}, but its parent has no key metadata for it: "
        "read it through a table with encryption.key-id and a KMS configured, or restore the metadata file"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBytes:
    """The plain bytes of a whole file, which is closed again."""

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

    ``key_metadata`` None means a plain file; the caller knows that it is allowed.

    Raises:
        IntegrityError: a stored length other than in the key metadata, or a block that does not authenticate.
        FormatError: key metadata without a length, or not an AGS1 stream where one is expected.
        KeyUnavailableError: an AGS1 stream without key metadata.
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
            raise key_is_missing(self.location)


def _check_range(location: str, length: int, offset: int, size: int) -> None:
    if offset < 0 or size < 0 or offset + size > length:
        raise FormatError(f"{location}: expected {size} bytes at {offset}, but the file has {length}; {RESTORE}")
