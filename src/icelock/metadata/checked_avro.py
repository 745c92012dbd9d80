"""Manifests and manifest lists of plain tables, checked and unpacked for PyIceberg's readers.

Each block is unpacked within the limits, and checked to be rows of the file's schema, byte by byte (``io.avro.check``). Exactly these
uncompressed blocks are passed on.

Not here: encrypted manifests and those of tables of version 3, which are read by ``metadata.manifest``.
"""

from __future__ import annotations

from icelock.errors import FormatError
from icelock.io.avro.check import RowCheck
from icelock.io.avro.read import MAGIC, AvroFile, encode_long
from icelock.io.limits import Limits
from icelock.io.plain_input import RESTORE, PlainBytes
from icelock.metadata.stored_schema import forms


def checked_avro(data: bytes, location: str, limits: Limits) -> bytes:
    """Return an Avro file's rows as an Avro file without compression.

    Raises:
        FormatError: it is not an Avro file, its blocks are not rows of its schema, or it exceeds the limits.
    """
    avro = AvroFile(PlainBytes(location=location, data=data), limits)
    try:
        rows = RowCheck(forms(avro.schema, location=location)[-1].schema, location=location)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise FormatError(f"{location}: the file's Avro schema is invalid ({type(e).__name__}: {e}); {RESTORE}") from e
    parts = [MAGIC, _header({**avro.header, "avro.codec": b"null"}), avro.sync]
    for block in avro.all_blocks():
        rows.check(block)
        parts += [encode_long(block.rows), encode_long(len(block.data)), block.data, avro.sync]
    return b"".join(parts)


def _header(entries: dict[str, bytes]) -> bytes:
    parts = [encode_long(len(entries))]
    for name, value in entries.items():
        for text in (name.encode(), value):
            parts += [encode_long(len(text)), text]
    return b"".join([*parts, encode_long(0)])
