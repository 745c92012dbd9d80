"""Encrypted Parquet files: the footer, and every module before it in the order of the file.

Readers skip page indexes and Bloom filters that they do not need; here no byte is left out.

Source: parquet-format's Encryption.md. Not here: the tail's bytes (``format.parquet_crypto``), which modules there are
(``format.parquet_modules``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from icelock.audit.fault import Fault
from icelock.audit.read_ahead import Ahead, Reader
from icelock.audit.storage import StoredBytes, described
from icelock.audit.streams import promised_length
from icelock.errors import FormatError, IntegrityError
from icelock.format import aes_gcm
from icelock.format import parquet_crypto as crypto
from icelock.format import parquet_modules as modules
from icelock.format.key_metadata import KeyMetadata
from icelock.format.parquet_modules import LENGTH, Layout, ModulePlace

_UNAUTHENTICATED: Final = "algorithm-without-authentication"
_TAIL: Final = 1 << 16
_MAGIC: Final = 4


class Footer(NamedTuple):
    """What an authenticated footer says: the AAD of all modules, where it begins, and where column chunks do."""

    aad: bytes
    start: int
    layout: Layout

    @property
    def rows(self) -> int:
        """The rows of the file."""
        return self.layout.rows


def open_footer(stored: StoredBytes, key: KeyMetadata) -> Footer:
    """Authenticate a file's footer.

    Raises:
        Fault: another length than promised, no encrypted Parquet file, another algorithm, or a tag that does not match.
    """
    size = promised_length(stored, key)
    head, tail = stored.read(0, _MAGIC), stored.read(max(0, size - _TAIL), min(size, _TAIL))
    if tail[-_MAGIC:] == crypto.PLAIN_MAGIC == head:
        raise _plain(stored, tail, size)
    if head != crypto.ENCRYPTED_MAGIC or tail[-_MAGIC:] != crypto.ENCRYPTED_MAGIC:
        raise Fault("file-not-encrypted", f"it is no encrypted Parquet file: it is {described(head)}, or does not end as one")
    try:
        length = crypto.footer_length(tail[-crypto.END_LENGTH :], size, stored.location)
        start = size - crypto.END_LENGTH - length
        footer = _before_end(stored, tail, length)
        opened = crypto.open_footer(footer, key.dek.reveal(), key.aad_prefix or b"", stored.location)
    except (IntegrityError, FormatError) as e:
        raise _unlike(e, stored.location) from e
    return _read(opened, start)


def _before_end(stored: StoredBytes, tail: bytes, length: int) -> bytes:
    whole = length + crypto.END_LENGTH
    if whole <= len(tail):
        return tail[-whole : -crypto.END_LENGTH]
    if length > modules.LONGEST_FOOTER:
        raise Fault(
            "footer-does-not-authenticate",
            f"it says that its footer has {length} bytes, and more than {modules.LONGEST_FOOTER} are not read",
        )
    return stored.read(stored.size - whole, length)


def _plain(stored: StoredBytes, tail: bytes, size: int) -> Fault:
    """Return the finding for a file whose footer is plain; its pages may be encrypted all the same."""
    try:
        length = crypto.footer_length(tail[-crypto.END_LENGTH :], size, stored.location)
        footer = _before_end(stored, tail, length)
        names_algorithm = crypto.check_signed_footer(footer, stored.location)
    except IntegrityError as e:
        found = _unlike(e, stored.location)
        if found.code == _UNAUTHENTICATED:
            return found
        names_algorithm = False
    if names_algorithm:
        return Fault("footer-in-the-clear", "its footer, with names and bounds of columns, is in the clear; its pages were not looked at")
    return Fault("file-not-encrypted", "it is a plain Parquet file, though its entry has a key")


def _unlike(error: Exception, location: str) -> Fault:
    code = _UNAUTHENTICATED if "AES_GCM_CTR_V1 as its algorithm" in str(error) else "footer-does-not-authenticate"
    text = str(error).removeprefix(location).removeprefix(" failed authentication at its end: ")
    return Fault(code, f"its footer is not what was written: {text.partition('. ')[0]}")


def _read(opened: crypto.OpenFooter, start: int) -> Footer:
    """Let Arrow read the plain FileMetaData."""
    try:
        layout = modules.layout_of(pq.read_metadata(pa.BufferReader(modules.as_plain_file(opened.file_metadata))))
    except (OSError, pa.ArrowException, ValueError) as e:
        raise Fault("footer-does-not-authenticate", f"its footer authenticates, but is no Parquet metadata ({type(e).__name__})") from e
    return Footer(opened.aad, start, layout)


def check_modules(stored: StoredBytes, key: KeyMetadata, footer: Footer, reader: Reader) -> int:
    """Authenticate every module before the footer, and return their number.

    Raises:
        Fault: one does not authenticate, or a column chunk does not begin where the footer says.
        OSError: the storage failed.
    """
    layout, count = footer.layout, 0
    place: ModulePlace = modules.BEFORE_ALL
    missing = set(layout.chunks)
    verifier = aes_gcm.Verifier(key.dek.reveal())
    with closing(reader.windows(stored, _MAGIC, footer.start)) as windows:
        for position, message in _messages(Ahead(windows, _MAGIC), footer.start):
            last, place = place, modules.likeliest(place, position, layout)
            if not verifier.authenticates(message, crypto.module_aad(footer.aad, *place)):
                place = _other_place(verifier, message, footer.aad, modules.following(last, position, layout)) or _refuse(position)
            missing.discard(position)
            count += 1
    if missing:
        group, column, _ = layout.chunks[min(missing)]
        raise Fault("page-does-not-authenticate", f"column {column} of row group {group} does not begin at byte {min(missing)}")
    return count


def _other_place(verifier: aes_gcm.Verifier, message: memoryview, aad: bytes, places: Iterator[ModulePlace]) -> ModulePlace | None:
    return next((place for place in places if verifier.authenticates(message, crypto.module_aad(aad, *place))), None)


def _messages(stored: Ahead, end: int) -> Iterator[tuple[int, memoryview]]:
    """Yield where each module before ``end`` begins, and its message; what was yielded before is overwritten."""
    position = begin = _MAGIC
    ahead = memoryview(b"")
    while position < end:
        at = position - begin
        if len(ahead) < at + LENGTH.size:
            begin, at, ahead = position, 0, stored.ahead(position, LENGTH.size)
        length = LENGTH.unpack_from(ahead, at)[0] if len(ahead) >= at + LENGTH.size else 0
        if not aes_gcm.OVERHEAD <= length <= end - position - LENGTH.size:
            _refuse(position)
        at += LENGTH.size
        if len(ahead) < at + length:
            begin, at, ahead = position + LENGTH.size, 0, stored.ahead(position + LENGTH.size, length)
        yield position, ahead[at : at + length]
        position += LENGTH.size + length


def _refuse(position: int) -> NoReturn:
    raise Fault("page-does-not-authenticate", f"the module at byte {position} does not authenticate: bytes were changed")
