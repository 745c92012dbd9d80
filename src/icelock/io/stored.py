"""A finished file: what its manifest entry needs, and the check that storage has it.

Not here: how it was written (``arrow.write.parquet_file``, ``arrow.write.avro_file``).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile, OutputFile

from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.raw import size_of


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
    _check_size(stored.location, len(stored), written)


def _check_size(location: str, found: int, written: int) -> None:
    if found != written:
        raise IntegrityError(f"{location} has {found} bytes on storage, {written} were written: the storage lost some; write again")


def check_stored(io: FileIO, location: str, *, size: int, magic: bytes) -> None:
    """Check the size and the first bytes of an encrypted file that was just closed.

    Raises:
        IntegrityError: storage does not have the bytes that were written, or they are not encrypted.
    """
    with io.new_input(location).open() as stream:  # which asks object storage for its size, once
        _check_size(location, size_of(stream), size)
        first = bytes(stream.read(len(magic)))
    if first != magic:
        raise IntegrityError(f"{location} begins with {first!r}, not {magic!r}: it is not encrypted; do not commit it")
