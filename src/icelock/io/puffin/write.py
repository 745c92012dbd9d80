"""Deletion vectors into a Puffin file (spec, "Deletion Vectors"; Puffin spec, "deletion-vector-v1 blob type").

    Puffin   PFA1 | blobs | PFA1 | footer JSON | LE uint32 its length | 4 zero bytes | PFA1
    blob     BE uint32 n | D1 D3 39 64 | roaring64 | BE CRC-32        n and CRC cover magic and bitmap

Written as by Java 1.12.0: runs where they are shorter, snapshot id and sequence number -1 (both are inherited), one footer entry for
each blob. The file is one AGS1 stream with a key of its own, whatever the number of vectors.

Not here: reading (``io.puffin.read``), which rows are deleted, and manifest entries (``table.rows.delete``).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import pyroaring

from icelock.io.files import EncryptedOutputFile
from icelock.io.puffin.read import MAGIC, VECTOR_MAGIC

BLOB_TYPE: Final = "deletion-vector-v1"
ROW_POSITION_ID: Final = 2147483645
_INHERITED: Final = -1
_UINT32: Final = struct.Struct(">I")
_FOOTER_END: Final = struct.Struct("<Ii")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVector:
    """The deleted positions of one data file as a blob; ``cardinality`` is their number."""

    data_file: str
    cardinality: int
    blob: bytes

    @classmethod
    def of(cls, data_file: str, positions: pyroaring.BitMap64) -> DeletionVector:
        """Return the vector of a data file's deleted positions, counted from 0."""
        return cls(data_file=data_file, cardinality=len(positions), blob=_blob(positions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a blob lies in the plain stream, in bytes."""

    offset: int
    length: int


def write_vectors(output: EncryptedOutputFile, vectors: Sequence[DeletionVector]) -> list[Place]:
    """Write a Puffin file and return the place of each vector; the output has its key metadata afterwards.

    Raises:
        FileExistsError: the storage has the file.
        OSError: the storage failed; the stream is aborted, and deleting the file is up to the caller.
        IntegrityError: the storage does not have what was written; likewise.
    """
    places: list[Place] = []
    with output.written() as stream:
        stream.write(MAGIC)
        position = len(MAGIC)
        for vector in vectors:
            stream.write(vector.blob)
            places.append(Place(offset=position, length=len(vector.blob)))
            position += len(vector.blob)
        footer = json.dumps(_footer(vectors, places), separators=(",", ":"), ensure_ascii=False).encode()
        stream.write(MAGIC + footer + _FOOTER_END.pack(len(footer), 0) + MAGIC)
    return places


def _blob(positions: pyroaring.BitMap64) -> bytes:
    shortest = pyroaring.BitMap64(positions)
    shortest.run_optimize()
    body = VECTOR_MAGIC + shortest.serialize()
    return _UINT32.pack(len(body)) + body + _UINT32.pack(zlib.crc32(body))


def _footer(vectors: Sequence[DeletionVector], places: Sequence[Place]) -> dict[str, Any]:
    blobs = [
        {
            "type": BLOB_TYPE,
            "fields": [ROW_POSITION_ID],
            "snapshot-id": _INHERITED,
            "sequence-number": _INHERITED,
            "offset": place.offset,
            "length": place.length,
            "properties": {"referenced-data-file": vector.data_file, "cardinality": str(vector.cardinality)},
        }
        for vector, place in zip(vectors, places, strict=True)
    ]
    return {"blobs": blobs, "properties": {"created-by": _created_by()}}


def _created_by() -> str:
    try:
        return f"icelock {version('icelock')}"
    except PackageNotFoundError:  # run from a source tree
        return "icelock"
