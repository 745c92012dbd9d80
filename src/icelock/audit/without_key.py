"""Whether a file has the form of an encrypted one, as far as that can be told without its key.

    AGS1 stream    the header with its block size; a length that a stream can have
    Parquet file   the magic at both ends; FileCryptoMetaData and footer length; the first modules follow one another, and are long enough
    both           a sample of what is encrypted has all half-bytes about equally often, as AES-GCM's output has

The sample is from the first 64 KiB. Text, numbers and most binary formats are far from it; compressed, random, or otherwise encrypted bytes
are not: those pass, and so does whatever is behind the sample.

Not here: files whose key is known (``audit.streams``, ``audit.parquet``).
"""

from __future__ import annotations

from typing import Final

from icelock.audit.storage import StoredBytes, described
from icelock.errors import FormatError, IntegrityError
from icelock.format import ags1, parquet_crypto
from icelock.format.aes_gcm import OVERHEAD
from icelock.format.parquet_modules import LENGTH, LONGEST_FOOTER

_MAGIC: Final = 4
_HEAD: Final = 1 << 16
_FEWEST: Final = 64
"""Bytes of a sample that says something."""
_MOST_UNEVEN: Final = 150.0
"""Of Pearson's chi-square with 15 degrees of freedom: even bytes are above it once in 10^24 samples."""
_CUT = "as a file is that was cut, or is no such file at all"


def unlike_encrypted(stored: StoredBytes) -> str | None:
    """Return what a file lacks to be an encrypted one of the table's; None if nothing can be told against it.

    Raises:
        OSError: the storage failed.
    """
    head = stored.read(0, _HEAD)
    if head.startswith(ags1.MAGIC):
        return _unlike_stream(head, stored)
    if head.startswith(parquet_crypto.ENCRYPTED_MAGIC):
        return _unlike_parquet(head, stored)
    return f"it is {described(head)}"


def _unlike_stream(head: bytes, stored: StoredBytes) -> str | None:
    try:
        ags1.check_header(head[: ags1.HEADER_LENGTH], stored.location)
        ags1.block_count(ags1.EncryptedLength(stored.size))
    except FormatError:
        return f"it begins as an AGS1 stream, and has no such header, or no such length, {_CUT}"
    if _is_uneven(head[ags1.HEADER_LENGTH :]):
        return "it begins as an AGS1 stream, but what follows is not encrypted: some bytes are far too frequent"
    return None


def _unlike_parquet(head: bytes, stored: StoredBytes) -> str | None:
    begins, size = "it begins as an encrypted Parquet file", stored.size
    end = stored.read(max(0, size - parquet_crypto.END_LENGTH), parquet_crypto.END_LENGTH)
    if end[_MAGIC:] != parquet_crypto.ENCRYPTED_MAGIC:
        return f"{begins}, and does not end as one, {_CUT}"
    try:
        length = parquet_crypto.footer_length(end, size, stored.location)
        if length > LONGEST_FOOTER:
            return f"{begins}, and claims a footer of {length} bytes"
        start = size - parquet_crypto.END_LENGTH - length
        footer = stored.read(start, length)
        parquet_crypto.check_encrypted_footer(footer, stored.location)
    except IntegrityError:
        return f"{begins}, and has no such footer, {_CUT}"
    modules = _modules(head[:start], start)
    if modules is None:
        return f"{begins}, but no modules follow one another up to its footer"
    if _is_uneven(modules) or _is_uneven(footer[length // 2 :][:_HEAD]):
        return f"{begins}, but what follows is not encrypted: some bytes are far too frequent"
    return None


def _modules(head: bytes, end: int) -> bytes | None:
    """Return the bytes of the first modules without their lengths; None if one has a length that it cannot have."""
    position, found = _MAGIC, bytearray()
    while position < end and position + LENGTH.size <= len(head):
        (length,) = LENGTH.unpack_from(head, position)
        position += LENGTH.size
        if not OVERHEAD <= length <= end - position:
            return None
        found += head[position : position + length]
        position += length
    return bytes(found)


def _is_uneven(sample: bytes) -> bool:
    """Whether some half-bytes are far more frequent than others; few bytes say nothing."""
    if len(sample) < _FEWEST:
        return False
    halves, expected = sample.hex(), len(sample) / 8
    return sum((halves.count(digit) - expected) ** 2 for digit in "0123456789abcdef") / expected > _MOST_UNEVEN
