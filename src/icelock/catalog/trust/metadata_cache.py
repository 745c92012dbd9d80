"""The metadata files that a catalog object used last, so that none is parsed or hashed twice.

A file is known by the SHA-256 of its bytes: it is read from storage every time, and parsed when the bytes are others than those that
were parsed or written here. So a file that was edited or exchanged is noticed as if nothing were kept.

Not here: whether a file is the one that was committed (``catalog.hive.parameters``, ``catalog.sql.facts``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from icelock.metadata.canonical_json import metadata_hash

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from icelock.metadata.table_metadata import TableMetadataV3

_FILES: Final = 16


class MetadataCache:
    """Safe to share between threads. Metadata is immutable, so tables may have it in common."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[bytes, TableMetadata] = OrderedDict()
        # By identity; the object is kept with its hash, so that no other one takes its place.
        self._hashes: OrderedDict[int, tuple[TableMetadata, str]] = OrderedDict()

    def get(self, digest: bytes) -> TableMetadata | None:
        """Return what the file with this SHA-256 holds, if it was one of the last."""
        with self._guard:
            if digest in self._known:
                self._known.move_to_end(digest)
            return self._known.get(digest)

    def put(self, digest: bytes, metadata: TableMetadata, *, metadata_hash: str | None = None) -> None:
        """Keep what a file holds, and Java's hash of it if that is known."""
        with self._guard:
            _keep(self._known, digest, metadata)
            if metadata_hash is not None:
                _keep(self._hashes, id(metadata), (metadata, metadata_hash))

    def hash_of(self, metadata: TableMetadataV3) -> str:
        """Return Java's ``metadata_hash``, computed once for an object that is in use."""
        with self._guard:
            known = self._hashes.get(id(metadata))
        if known is not None:
            return known[1]
        digest = metadata_hash(metadata)
        with self._guard:
            _keep(self._hashes, id(metadata), (metadata, digest))
        return digest


def _keep(kept: OrderedDict[Any, Any], key: object, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _FILES:
        kept.popitem(last=False)
