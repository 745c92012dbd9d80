"""AGS1 streams: a seekable reader and a streaming writer, both ``io.RawIOBase`` over plain bytes.

The layout is in ``format.ags1``. Invariants:

- No unauthenticated byte reaches the caller, not even through its own buffer when ``readinto`` fails.
- The reader takes the length from key metadata and compares it with the storage: bytes missing or left over are an error
  at opening. Header and block 0 are checked then too, so a wrong key or file shows before the first read.
- After an error every call fails with that error; so does every call of an interrupted writer.
- A writer has a result, its encrypted length, only when it and the stream below it were closed without error.
- Both own the stream below them and close it, also when opening fails.

Source: Java ``AesGcmInputStream``, ``AesGcmOutputStream``; age's ``stream.go`` for sticky errors. Not here: files
(``io.files``), the streams below (``io.raw``), the source of nonces (``keys.entropy``). Not safe for use by several threads at once.
"""

from __future__ import annotations

import io
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Never

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from icelock import metrics
from icelock.errors import FormatError, IntegrityError
from icelock.format import ags1
from icelock.format.aes_gcm import NONCE_LENGTH, OVERHEAD
from icelock.format.ags1 import BLOCK_SIZE, HEADER_LENGTH, EncryptedLength, PlaintextLength
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.io.raw import Sink, Source, read_up_to, write_all
from icelock.keys.entropy import Entropy

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_FIRST_BUFFER: Final = 1 << 16
"""Most manifests are smaller, so a writer does not start with a buffer for a whole block."""


class Ags1Reader(io.RawIOBase):
    """The plain bytes of one AGS1 file: seekable, ``readinto`` and ``read`` short only at the end.

    ``key_metadata`` comes from the file's parent; ``location`` is for messages. One block of plaintext is kept, so small
    reads decrypt each block once; reads of whole blocks are decrypted in the caller's buffer.

    Raises:
        FormatError: Key metadata without a length, or with an impossible one.
        IntegrityError: Bytes missing or left over, another magic or block size; a block that does not authenticate (on opening or reading).
    """

    def __init__(self, raw: Source, key_metadata: KeyMetadata, location: str) -> None:
        self._raw = raw
        self._location = location
        self._failure: Exception | None = None
        self._position = 0
        try:
            self._encrypted = ags1.authenticated_length(key_metadata, location)
            self._size = ags1.plaintext_length(self._encrypted)
            self._cipher = AESGCM(key_metadata.dek.reveal())
            self._aad_prefix = key_metadata.aad_prefix or b""
            self._open()
        except BaseException:
            self.close()
            raise

    def readable(self) -> bool:
        """Return True."""
        self._check()
        return True

    def seekable(self) -> bool:
        """Return True."""
        self._check()
        return True

    def tell(self) -> int:
        """Return the position in the plain bytes."""
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move in the plain bytes and return the new position; it may be beyond the end, where reads return nothing.

        Raises:
            ValueError: A position before the start, or an unknown ``whence``.
        """
        self._check()
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        if whence not in origins:
            raise ValueError(f"{self._location}: whence is 0, 1 or 2, not {whence}")
        position = origins[whence] + offset
        if position < 0:
            raise ValueError(f"{self._location}: cannot seek to {position}")
        self._position = position
        return position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill ``buffer`` as far as the file goes and return the number of bytes; 0 is the end.

        Raises:
            IntegrityError: A block does not authenticate or is not there.
            OSError: The storage failed.
        """
        self._check()
        view = memoryview(buffer).cast("B")
        if view.readonly:
            raise TypeError("readinto() needs a writable buffer")
        try:
            return self._fill(view)
        except Exception as e:
            self._failure = e
            raise

    def read(self, size: int | None = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the end; None or a negative size means all that is left."""
        self._check()
        left = max(0, self._size - self._position)
        data = bytearray(left if size is None or size < 0 else min(size, left))
        self.readinto(data)
        return bytes(data)

    def readall(self) -> bytes:
        """Return all bytes that are left."""
        return self.read()

    def write(self, _: ReadableBuffer, /) -> Never:
        """Refuse: this stream reads."""
        raise io.UnsupportedOperation(f"{self._location}: not writable")

    def close(self) -> None:
        """Close this stream and the one below; closing again does nothing."""
        if self.closed:
            return
        self._block = self._ciphertext = memoryview(b"")
        try:
            self._raw.close()
        finally:
            super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError(f"{self._location}: I/O operation on closed file")
        if self._failure is not None:
            raise self._failure

    def _open(self) -> None:
        """Check header and length, and decrypt block 0; one read of the storage."""
        first = memoryview(bytearray(HEADER_LENGTH + ags1.block_length(0, self._encrypted)))
        stored = self._raw.seek(0, io.SEEK_END)
        self._raw.seek(0)
        got = read_up_to(self._raw, first)
        if got >= HEADER_LENGTH:
            self._check_header(bytes(first[:HEADER_LENGTH]))
        _check_stored_length(stored, self._encrypted, self._location)
        if got < len(first):
            self._refuse_missing(0, len(first), got)
        # No block is longer than block 0, so its buffer serves all of them.
        self._ciphertext = first[HEADER_LENGTH:]
        self._block = memoryview(bytearray(len(self._ciphertext) - OVERHEAD))
        self._block_index = 0
        self._decrypt(0, self._ciphertext, self._block)
        metrics.add(files_read=1, bytes_read=stored)

    def _check_header(self, header: bytes) -> None:
        """The parent's key metadata says that the file is AGS1, so another header is a matter of integrity, not of format."""
        try:
            ags1.check_header(header, self._location)
        except FormatError as e:
            raise IntegrityError(str(e)) from e

    def _fill(self, view: memoryview) -> int:
        total = max(0, min(len(view), self._size - self._position))
        done = 0
        while done < total:
            index, skip = divmod(self._position + done, BLOCK_SIZE)
            length = min(BLOCK_SIZE, self._size - index * BLOCK_SIZE)
            target = view[done : done + min(length - skip, total - done)]
            if index != self._block_index and len(target) == length:
                self._read_block(index, target)
            else:
                self._keep_block(index, length)
                target[:] = self._block[skip : skip + len(target)]
            done += len(target)
        self._position += total
        return total

    def _keep_block(self, index: int, length: int) -> None:
        if index != self._block_index:
            self._block_index = -1
            self._read_block(index, self._block[:length])
            self._block_index = index

    def _read_block(self, index: int, target: memoryview) -> None:
        message = self._ciphertext[: len(target) + OVERHEAD]
        self._raw.seek(ags1.block_offset(index))
        got = read_up_to(self._raw, message)
        if got < len(message):
            self._refuse_missing(index, len(message), got)
        self._decrypt(index, message, target)

    def _decrypt(self, index: int, message: memoryview, target: memoryview) -> None:
        aad = ags1.block_aad(self._aad_prefix, index)
        try:
            self._cipher.decrypt_into(message[:NONCE_LENGTH], message[NONCE_LENGTH:], aad, target)
        except InvalidTag as e:
            target[:] = bytes(len(target))  # OpenSSL wrote decrypted bytes there before it checked the tag
            raise IntegrityError(
                f"{self._name(index)} does not authenticate: its bytes were changed or moved, or the key belongs to another file; "
                "restore the file, or the metadata that holds its key, from a copy"
            ) from e

    def _refuse_missing(self, index: int, expected: int, got: int) -> Never:
        raise IntegrityError(f"{self._name(index)} is cut: expected {expected} bytes, the storage gave {got}; restore the file from a copy")

    def _name(self, index: int) -> str:
        return f"{self._location}: block {index} of {ags1.block_count(self._encrypted)}"


class Ags1Writer(io.RawIOBase):
    """Encrypts plain bytes into one new AGS1 file; memory is one block, whatever the size of the file.

    ``file_key`` must be fresh: one key, one file. Every block gets its nonce from ``entropy``. ``flush`` does nothing: a
    block is written when it is full or at ``close``. As a context manager it aborts when the body raises.
    """

    def __init__(self, raw: Sink, file_key: FileKey, location: str, entropy: Entropy) -> None:
        self._raw = raw
        self._location = location
        self._entropy = entropy
        self._aad_prefix = file_key.aad_prefix
        self._cipher = AESGCM(file_key.dek.reveal())
        self._pending = memoryview(bytearray())
        self._filled = 0
        self._position = 0
        self._blocks = 0
        self._failure: Exception | None = None
        self._encrypted: EncryptedLength | None = None

    @property
    def encrypted_length(self) -> EncryptedLength:
        """The bytes on storage, known after `close`.

        Raises:
            ValueError: The stream is not closed yet, or was aborted.
        """
        if self._encrypted is not None:
            return self._encrypted
        if self._failure is not None:
            raise self._failure
        raise ValueError(f"{self._location}: the encrypted length is known after close")

    def writable(self) -> bool:
        """Return True."""
        self._check()
        return True

    def tell(self) -> int:
        """Return the number of plain bytes taken."""
        self._check()
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        """Take all of ``data`` and return its length in bytes.

        Raises:
            OSError: The storage failed, or takes no more.
        """
        self._check()
        view = memoryview(data).cast("B")
        try:
            self._take(view)
        except BaseException as e:
            self._fail(e)
            raise
        self._position += len(view)
        return len(view)

    def readinto(self, _: WriteableBuffer, /) -> Never:
        """Refuse: this stream writes."""
        raise io.UnsupportedOperation(f"{self._location}: not readable")

    def close(self) -> None:
        """Write the last block and close the stream below; closing again does nothing.

        Raises:
            Exception: The error that made an earlier call fail; the stream below is closed and the file has no result.
        """
        if self.closed:
            return
        try:
            self._check()
            if self._filled or not self._blocks:
                self._emit(self._pending[: self._filled])
            self._raw.close()
        except BaseException as e:
            self._fail(e)
            self.abort()
            raise
        self._encrypted = ags1.encrypted_length(PlaintextLength(self._position))
        metrics.add(files_written=1, bytes_written=self._encrypted)
        self._pending = memoryview(bytearray())
        super().close()

    def abort(self) -> None:
        """Close the stream below without a last block, so that there is no key metadata for its content.

        Never raises. Deleting the file is up to the caller.
        """
        if self.closed:
            return
        if self._failure is None:
            self._failure = ValueError(f"{self._location}: the write was aborted")
        self._pending = memoryview(bytearray())
        with suppress(Exception):
            self._raw.close()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # RawIOBase would close, and a file abandoned half-way would look complete.
        with suppress(Exception):
            self.abort()

    def _check(self) -> None:
        if self.closed:
            raise ValueError(f"{self._location}: I/O operation on closed file")
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            # A KeyboardInterrupt is raised once; from then on nobody knows how much was written.
            interrupted = InterruptedError(f"{self._location}: the write was interrupted by {type(error).__name__}; write the file again")
            self._failure = error if isinstance(error, Exception) else interrupted

    def _take(self, view: memoryview) -> None:
        if self._filled:
            room = BLOCK_SIZE - self._filled
            self._keep(view[:room])
            view = view[room:]
            if self._filled == BLOCK_SIZE:
                self._emit(self._pending)
                self._filled = 0
        while len(view) >= BLOCK_SIZE:
            self._emit(view[:BLOCK_SIZE])
            view = view[BLOCK_SIZE:]
        self._keep(view)

    def _keep(self, view: memoryview) -> None:
        end = self._filled + len(view)
        if end > len(self._pending):
            grown = memoryview(bytearray(min(BLOCK_SIZE, max(2 * end, _FIRST_BUFFER))))
            grown[: self._filled] = self._pending[: self._filled]
            self._pending = grown
        self._pending[self._filled : end] = view
        self._filled = end

    def _emit(self, plaintext: memoryview) -> None:
        head = b"" if self._blocks else ags1.header()
        start = len(head) + NONCE_LENGTH
        nonce = self._entropy.random_bytes(NONCE_LENGTH)
        # A new buffer each time: Arrow's streams keep a reference and may send it after write() has returned.
        out = memoryview(bytearray(len(head) + len(plaintext) + OVERHEAD))
        out[:start] = head + nonce
        self._cipher.encrypt_into(nonce, plaintext, ags1.block_aad(self._aad_prefix, self._blocks), out[start:])
        write_all(self._raw, out, self._location)
        self._blocks += 1


def _check_stored_length(stored: int, expected: EncryptedLength, location: str) -> None:
    if stored != expected:
        fault = f"{expected - stored} bytes are missing" if stored < expected else f"{stored - expected} bytes are left over"
        raise IntegrityError(
            f"{location}: {fault}: key metadata says {expected} bytes, the storage has {stored}; restore the file from a copy"
        )
