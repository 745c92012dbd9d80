"""A finished file: what its manifest entry needs, and the check that storage has it.

Not here: how it was written (``arrow.write.parquet_file``, ``arrow.write.avro_file``).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile, OutputFile

from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedFile:
    """A finished file: ``size`` in stored bytes, its ``rows``, Parquet's ``footer``, and the key metadata that opens it."""

    size: int
    rows: int
    footer: pq.FileMetaData | None
    key_metadata: KeyMetadata


def check_size(stored: InputFile | OutputFile, written: int) -> None:
    """Check that storage has all bytes of a file that was just closed.

    Raises:
        IntegrityError: it has fewer or more.
    """
    found = len(stored)
    if found != written:
        raise IntegrityError(f"{stored.location} has {found} bytes on storage, {written} were written: the storage lost some; write again")


def check_stored(io: FileIO, location: str, *, size: int, magic: bytes) -> None:
    """Check the size and the first bytes of an encrypted file that was just closed.

    Raises:
        IntegrityError: storage does not have the bytes that were written, or they are not encrypted.
    """
    stored = io.new_input(location)
    check_size(stored, size)
    with stored.open() as stream:
        first = bytes(stream.read(len(magic)))
    if first != magic:
        raise IntegrityError(f"{location} begins with {first!r}, not {magic!r}: it is not encrypted; do not commit it")
