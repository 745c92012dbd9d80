"""A Puffin file of deletion vectors under a new key, whose vectors are of data files that lie elsewhere now.

Blobs keep their bytes and places; only the footer's properties ``referenced-data-file`` change. Not here: vectors (``io.puffin.read``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Final

from icelock.errors import FormatError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.files import EncryptedInputFile, EncryptedOutputFile
from icelock.io.puffin.read import MAGIC

_END: Final = struct.Struct("<Ii")
_REFERENCED: Final = "referenced-data-file"


def move_vectors(source: EncryptedInputFile, output: EncryptedOutputFile, place_of: Callable[[str], str]) -> KeyMetadata:
    """Write a file of vectors again, in memory; return its key metadata. ``place_of`` says where a data file lies now.

    Raises:
        FormatError: it is no Puffin file, or its footer is compressed, which none of a deletion vector's writers does.
        IntegrityError: its bytes are not those that were written.
        FileExistsError, OSError: the storage has the new file, or failed; deleting that is up to the caller.
    """
    with source.open() as stream:
        data = stream.read()
    blobs, footer = _parts(data, source.location)
    for blob in footer.get("blobs", ()):
        properties = blob.get("properties") or {}
        if _REFERENCED in properties:
            properties[_REFERENCED] = place_of(properties[_REFERENCED])
    text = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    with output.written() as sink:
        sink.write(blobs + MAGIC + text + _END.pack(len(text), 0) + MAGIC)
    return output.key_metadata


def _parts(data: bytes, location: str) -> tuple[bytes, dict[str, list[dict[str, dict[str, str]]]]]:
    """Return what is before the footer, and the footer's JSON."""
    end = len(data) - _END.size - len(MAGIC)
    if end < 0 or not data.startswith(MAGIC) or not data.endswith(MAGIC):
        raise FormatError(f"{location} is not a Puffin file: it does not begin and end with {MAGIC!r}")
    length, flags = _END.unpack_from(data, end)
    start = end - length
    if flags or start < 2 * len(MAGIC) or data[start - len(MAGIC) : start] != MAGIC:
        raise FormatError(f"{location}: its Puffin footer is compressed (flags {flags}) or does not lie where it says: rewrite the deletes")
    try:
        footer = json.loads(data[start:end])
    except ValueError as e:
        raise FormatError(f"{location}: its Puffin footer is not JSON: {e}") from e
    return data[: start - len(MAGIC)], footer
