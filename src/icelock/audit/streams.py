"""AGS1 streams, block by block: every length is held against the key metadata's, every block against its tag.

Not here: the layout (``format.ags1``).
"""

from __future__ import annotations

from contextlib import closing

from icelock.audit.fault import Fault
from icelock.audit.read_ahead import Ahead, Reader
from icelock.audit.storage import StoredBytes, described
from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm, ags1
from icelock.format.key_metadata import KeyMetadata


class Ags1Blocks:
    """The blocks of an open stream.

    Raises:
        Fault: the file has another length than its key metadata says, or does not begin as a stream.
    """

    def __init__(self, stored: StoredBytes, key: KeyMetadata) -> None:
        self._stored, self._key = stored, key
        self._length = promised_length(stored, key)
        header = stored.read(0, ags1.HEADER_LENGTH)
        try:
            self.count = ags1.block_count(self._length)
            ags1.check_header(header, stored.location)
        except FormatError as e:
            code = "block-does-not-authenticate" if header[:4] == ags1.MAGIC else "file-not-encrypted"
            raise Fault(code, f"it is no AGS1 stream: it is {described(header)}, and has {self._length} bytes") from e

    def plain(self, index: int) -> bytes:
        """Return a block's plain bytes.

        Raises:
            Fault: its tag does not match.
        """
        message = self._stored.read(*self._place(index))
        try:
            return aes_gcm.decrypt(self._key.dek.reveal(), memoryview(message), self._aad(index))
        except (IntegrityError, FormatError) as e:
            raise self._unread(index) from e

    def check_ends(self) -> None:
        """Authenticate the first and the last block.

        Raises:
            Fault: a tag does not match.
        """
        for index in sorted({0, self.count - 1}):
            self.plain(index)

    def check_all(self, reader: Reader) -> None:
        """Authenticate every block.

        Raises:
            Fault: a tag does not match.
        """
        verifier = aes_gcm.Verifier(self._key.dek.reveal())
        start, _ = self._place(0)
        with closing(reader.windows(self._stored, start, self._length)) as windows:
            ahead = Ahead(windows, start)
            for index in range(self.count):
                position, length = self._place(index)
                message = ahead.ahead(position, length)[:length]
                if len(message) < aes_gcm.OVERHEAD or not verifier.authenticates(message, self._aad(index)):
                    raise self._unread(index)

    def _place(self, index: int) -> tuple[int, int]:
        return ags1.block_offset(index), ags1.block_length(index, self._length)

    def _aad(self, index: int) -> bytes:
        return ags1.block_aad(self._key.aad_prefix or b"", index)

    def _unread(self, index: int) -> Fault:
        return Fault(
            "block-does-not-authenticate",
            f"block {index} of {self.count} does not authenticate: bytes were changed, or the key is not this file's",
        )


def promised_length(stored: StoredBytes, key: KeyMetadata) -> ags1.EncryptedLength:
    """Return the length that the key metadata promises, which the stored file has.

    Raises:
        Fault: it has another one.
    """
    length = ags1.EncryptedLength(stored.size if key.encrypted_length is None else key.encrypted_length)
    if stored.size != length:
        raise Fault("file-length-differs", f"it has {stored.size} bytes on storage, and its key metadata says {length}")
    return length


class Ags1Plain:
    """The plain bytes of a stream from the first to the last, one block in memory; ``read`` and ``tell`` are what fastavro asks for."""

    def __init__(self, blocks: Ags1Blocks) -> None:
        self._blocks = blocks
        self._next = 0
        self._position = 0
        self._plain = memoryview(b"")

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._position

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes, fewer only at the end.

        Raises:
            Fault: a block does not authenticate, or the file claims a value of less than no bytes.
        """
        if count < 0:
            raise Fault("manifest-damaged", f"it opens, but claims a value of {count} bytes")
        pieces: list[memoryview] = []
        left = count
        while left:
            if not self._plain:
                if self._next == self._blocks.count:
                    break
                self._plain = memoryview(self._blocks.plain(self._next))
                self._next += 1
            pieces.append(self._plain[:left])
            self._plain = self._plain[left:]
            left -= len(pieces[-1])
        self._position += count - left
        return b"".join(pieces)
