"""The same Parquet file under a new key: module by module, so no value is decoded, and rows, pages, statistics and offsets stay.

Each module is authenticated by the old key at its place, and encrypted by the new one at the same place; it is as long as before. The
footer says what it said. Only the few bytes after the footer's begin are written in the one form that this library writes them in.

Source: parquet-format's Encryption.md. Not here: which modules there are (``format.parquet_modules``), other formats (``io.reencrypt``).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputFile, OutputFile

from icelock import metrics
from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm
from icelock.format import parquet_crypto as crypto
from icelock.format.key_metadata import FileKey, KeyMetadata
from icelock.format.parquet_modules import BEFORE_ALL, LENGTH, LONGEST_FOOTER, Layout, ModulePlace, as_plain_file, following, layout_of
from icelock.io.raw import read_up_to, write_all
from icelock.io.stored import check_size
from icelock.keys.entropy import Entropy

_UNIQUE: Final = 8


def reencrypt_parquet(source: InputFile, key: KeyMetadata, output: OutputFile, file_key: FileKey, entropy: Entropy) -> KeyMetadata:
    """Copy an encrypted Parquet file under a new key, in the memory of a page and the footer; return its key metadata.

    Raises:
        IntegrityError: a module or the footer does not authenticate, the file has another length than its key metadata says, or storage
            does not have what was written.
        FormatError: the footer is no Parquet metadata.
        FileExistsError: the storage has a file at the output's place.
        OSError: the storage failed. On any error deleting the new file is up to the caller.
    """
    with source.open() as stream:
        reader = _Reader(stream, source.location)
        if key.encrypted_length not in (None, reader.size):
            raise IntegrityError(f"{source.location} has {reader.size} bytes, and its key metadata says {key.encrypted_length}")
        end = reader.at(max(0, reader.size - crypto.END_LENGTH), crypto.END_LENGTH)
        length = crypto.footer_length(end, reader.size, source.location)
        if end[4:] != crypto.ENCRYPTED_MAGIC or length > LONGEST_FOOTER:
            raise IntegrityError(f"{source.location} has no encrypted footer, or one of {length} bytes: it is not written again")
        start = reader.size - crypto.END_LENGTH - length
        opened = crypto.open_footer(reader.at(start, length), key.dek.reveal(), key.aad_prefix or b"", source.location)
        layout = _layout(opened.file_metadata, source.location)
        sink: Any = output.create(overwrite=False)
        try:
            writer = _Writer(sink, output.location, file_key, entropy)
            writer.put(crypto.ENCRYPTED_MAGIC)
            reader.seek(len(crypto.ENCRYPTED_MAGIC))
            _copy(reader, start, layout, _Opener(key, opened.aad), writer)
            writer.end(opened.file_metadata)
        finally:
            sink.close()
    check_size(output, writer.written)
    metrics.add(files_read=1, bytes_read=reader.size, files_written=1, bytes_written=writer.written)
    return file_key.closed(writer.written)


def _layout(file_metadata: bytes, location: str) -> Layout:
    try:
        return layout_of(pq.read_metadata(pa.BufferReader(as_plain_file(file_metadata))))
    except (OSError, pa.ArrowException, ValueError) as e:
        raise FormatError(f"{location}: its footer authenticates, but is no Parquet metadata ({type(e).__name__})") from e


class _Reader:
    """Bytes of a stored file from the first to the last."""

    def __init__(self, stream: Any, location: str) -> None:
        self._stream = stream
        self.location = location
        self.size = int(stream.seek(0, 2))
        self.position = self.size

    def seek(self, position: int) -> None:
        self._stream.seek(position)
        self.position = position

    def at(self, position: int, count: int) -> bytes:
        self.seek(position)
        return self.take(count)

    def take(self, count: int) -> bytes:
        """Return the next bytes, all of them."""
        data = bytearray(count)
        if read_up_to(self._stream, memoryview(data)) != count:
            raise IntegrityError(f"{self.location} ends where {count} bytes should follow: it was cut")
        self.position += count
        return bytes(data)


class _Opener:
    def __init__(self, key: KeyMetadata, aad: bytes) -> None:
        self._key = key
        self._aad = aad

    def plain(self, message: bytes, places: Any) -> tuple[ModulePlace, bytes] | None:
        """Return the place at which a module authenticates, and its plain bytes."""
        for place in places:
            try:
                return place, aes_gcm.decrypt(self._key.dek.reveal(), message, crypto.module_aad(self._aad, *place))
            except (IntegrityError, FormatError):
                continue
        return None


class _Writer:
    def __init__(self, sink: Any, location: str, file_key: FileKey, entropy: Entropy) -> None:
        self._sink = sink
        self._location = location
        self._key = file_key
        self._entropy = entropy
        self._unique = entropy.random_bytes(_UNIQUE)
        self.written = 0

    def put(self, data: bytes) -> None:
        write_all(self._sink, memoryview(data), self._location)
        self.written += len(data)

    def module(self, plain: bytes, place: ModulePlace) -> bytes:
        nonce = self._entropy.random_bytes(aes_gcm.NONCE_LENGTH)
        aad = crypto.module_aad(self._key.aad_prefix + self._unique, *place)
        message = aes_gcm.encrypt(self._key.dek.reveal(), nonce, plain, aad)
        return LENGTH.pack(len(message)) + message

    def end(self, file_metadata: bytes) -> None:
        footer = crypto.file_crypto_metadata(self._unique) + self.module(file_metadata, (crypto.FOOTER,))
        self.put(footer + LENGTH.pack(len(footer)) + crypto.ENCRYPTED_MAGIC)


def _copy(reader: _Reader, start: int, layout: Layout, opener: _Opener, writer: _Writer) -> None:
    """Copy all modules before the footer."""
    place: ModulePlace = BEFORE_ALL
    missing = set(layout.chunks)
    while reader.position < start:
        position = reader.position
        (length,) = LENGTH.unpack(reader.take(LENGTH.size))
        if not aes_gcm.OVERHEAD <= length <= start - reader.position:
            raise _unread(reader.location, position)
        found = opener.plain(reader.take(length), following(place, position, layout))
        if found is None:
            raise _unread(reader.location, position)
        place, plain = found
        writer.put(writer.module(plain, place))
        missing.discard(position)
    if missing:
        raise _unread(reader.location, min(missing))


def _unread(location: str, position: int) -> IntegrityError:
    return IntegrityError(f"{location}: the module at byte {position} does not authenticate: bytes were changed; restore the file")
