"""The metadata files that a catalog object used last, so that none is parsed or hashed twice.

A file is known by the SHA-256 of its bytes: it is read from storage every time, and parsed unless the same bytes were parsed or written
here. So a file that was edited or exchanged is noticed as if nothing were kept.

Not here: whether a file is the one that was committed (``catalog.hive.parameters``, ``catalog.sql.facts``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cachetools import LRUCache
from pyiceberg.table.metadata import TableMetadata

from icelock.metadata.canonical_json import metadata_hash
from icelock.metadata.table_metadata import TableMetadataV3
from icelock.single_flight import SingleFlight

_FILES: Final = 16


class MetadataCache:
    """Safe to share between threads. Metadata is immutable, so tables may share it."""

    def __init__(self) -> None:
        self._parsed: SingleFlight[bytes, TableMetadata] = SingleFlight(LRUCache(_FILES))
        # By identity; the object is kept with its hash, so that no other one takes its place.
        self._hashes: SingleFlight[int, tuple[TableMetadata, str]] = SingleFlight(LRUCache(_FILES))

    def get(self, digest: bytes, parse: Callable[[], TableMetadata]) -> TableMetadata:
        """Return the content of the file with this SHA-256, which ``parse`` reads if the file is not known."""
        return self._parsed.get(digest, parse)

    def put(self, digest: bytes, metadata: TableMetadata, *, metadata_hash: str | None) -> None:
        """Keep the content of a file that was written, and Java's hash of it if that is known."""
        self._parsed.put(digest, metadata)
        if metadata_hash is not None:
            self._hashes.put(id(metadata), (metadata, metadata_hash))

    def hash_of(self, metadata: TableMetadataV3) -> str:
        """Return Java's ``metadata_hash``, computed once for an object that is in use."""
        return self._hashes.get(id(metadata), lambda: (metadata, metadata_hash(metadata)))[1]
