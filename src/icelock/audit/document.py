"""``Document``: a metadata file as JSON, with only what an audit asks of it.

Source: Iceberg table spec, "Table metadata". Not here: whether it is what the catalog committed (``audit.statements``).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.io import FileIO

from icelock import properties as names
from icelock.audit.fault import Fault
from icelock.audit.storage import StoredBytes
from icelock.io.limits import gunzip

_GZIP: Final = b"\x1f\x8b"
_ENCRYPTED_FROM: Final = 3
_MAIN: Final = "main"
_STATISTICS: Final = ("statistics", "partition-statistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """A snapshot; ``at_ms`` since 1970, ``manifest_list`` empty if it has none (format version 1)."""

    id: int
    at_ms: int
    manifest_list: str
    key_id: str | None
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A metadata file that was read: ``text`` is its bytes, unpacked; ``incoherent`` says where its parts do not go together."""

    text: bytes
    location: str
    uuid: str
    version: int
    properties: Mapping[str, str]
    keys: tuple[Any, ...]
    current: int | None
    snapshots: tuple[SnapshotRow, ...]
    statistics: tuple[Mapping[str, Any], ...]
    older_files: tuple[str, ...]
    last_sequence_number: int
    log_begins_ms: int | None
    incoherent: tuple[str, ...] = ()

    @property
    def master_key_id(self) -> str | None:
        """The table's master key, None if it has none."""
        return self.properties.get(names.ENCRYPTION_KEY_ID) or None

    @property
    def is_encrypted(self) -> bool:
        """Whether it is an encrypted table's."""
        return self.version >= _ENCRYPTED_FROM and self.master_key_id is not None


def read_document(io: FileIO, location: str, *, limit: int) -> Document:
    """Read a metadata file.

    Raises:
        Fault: it is missing, larger than ``limit`` bytes, or no table metadata.
        OSError: the storage failed.
    """
    try:
        with StoredBytes(io, location) as stored:
            if stored.size > limit:
                raise Fault("metadata-damaged", f"it has {stored.size} bytes, and {names.LIMIT_METADATA_BYTES} is {limit}")
            data = stored.read(0, stored.size)
    except FileNotFoundError as e:
        raise Fault("metadata-missing", "the catalog names it, and storage does not have it") from e
    try:
        text = gunzip(data, limit) if data[:2] == _GZIP else data
        return _document(text or b"")
    except (ValueError, KeyError, TypeError, AttributeError, gzip.BadGzipFile, EOFError, zlib.error, RecursionError) as e:
        raise Fault("metadata-damaged", f"it is no table metadata ({type(e).__name__}: {e})") from e


def _document(text: bytes) -> Document:
    body = json.loads(text)
    refs: dict[int, list[str]] = {}
    for name, ref in (body.get("refs") or {}).items():
        refs.setdefault(int(ref["snapshot-id"]), []).append(str(name))
    current = body.get("current-snapshot-id")
    log = body.get("metadata-log") or []
    return Document(
        text=text,
        location=str(body["location"]),
        uuid=str(body.get("table-uuid", "")),
        version=int(body["format-version"]),
        properties={str(name): str(value) for name, value in (body.get("properties") or {}).items()},
        keys=tuple(body.get("encryption-keys") or ()),
        current=None if current in (None, -1) else int(current),
        snapshots=tuple(_snapshot(row, refs) for row in body.get("snapshots") or ()),
        statistics=tuple(dict(row) for name in _STATISTICS for row in body.get(name) or ()),
        older_files=tuple(str(row["metadata-file"]) for row in log),
        last_sequence_number=int(body.get("last-sequence-number", 0)),
        log_begins_ms=int(log[0]["timestamp-ms"]) if log else None,
        incoherent=tuple(_incoherent(body)),
    )


def _incoherent(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what no writer leaves: somebody who edits one part of the file has to know the others."""
    ids = [int(row["snapshot-id"]) for row in body.get("snapshots") or ()]
    yield from (f"it has snapshot {one} {count} times" for one, count in Counter(ids).items() if count > 1)
    refs = {str(name): int(ref["snapshot-id"]) for name, ref in (body.get("refs") or {}).items()}
    yield from (f"it has no snapshot {one}, which {name!r} names" for name, one in refs.items() if one not in ids)
    current = int(body.get("current-snapshot-id") or -1)
    if current != -1 and current not in ids:
        yield f"it has no snapshot {current}, which it says is the current one"
    if _MAIN in refs and refs[_MAIN] != current:
        yield f"its current snapshot is {current}, and the branch main is at {refs[_MAIN]}"


def _snapshot(row: Mapping[str, Any], refs: Mapping[int, list[str]]) -> SnapshotRow:
    number, key_id = int(row["snapshot-id"]), row.get("key-id")
    return SnapshotRow(
        id=number,
        at_ms=int(row["timestamp-ms"]),
        manifest_list=str(row.get("manifest-list") or ""),
        key_id=None if key_id is None else str(key_id),
        refs=tuple(sorted(refs.get(number, ()))),
    )
