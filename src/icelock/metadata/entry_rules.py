"""Which numbers a manifest and a manifest list may have (spec, "Manifests", "Manifest Lists").

Counts, sizes, sequence numbers and row ids are not negative, and counts not impossibly large. Old versions of Java Iceberg gave -1 rows
to Avro files imported into tables of version 1; such a file cannot be read here, since its rows are counted. A live entry has sequence
numbers of its own unless it inherits those of its manifest, as an added one does (Java ``InheritableMetadataFactory``).

Not here: whether the bytes are a manifest (``io.avro.check``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile

from icelock.errors import FormatError
from icelock.io.plain_input import RESTORE

_Row = TypeVar("_Row", bound=ManifestFile)

ENTRY_NUMBERS: Final = ("snapshot_id", "sequence_number", "file_sequence_number")
FILE_NUMBERS: Final = ("record_count", "file_size_in_bytes", "first_row_id", "content_offset", "content_size_in_bytes")
NEVER_NEGATIVE: Final = ("sequence_number", "file_sequence_number", *FILE_NUMBERS)
MOST: Final = {"record_count": 1 << 42, "first_row_id": 1 << 62}
"""More than any file has, and few enough that row ids, which are sums of them, fit into 64 bits: 2^20 files of 2^42 rows."""
_ROW_NUMBERS: Final = (
    "manifest_length",
    "partition_spec_id",
    "sequence_number",
    "min_sequence_number",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
    "first_row_id",
)


def check_entry(entry: ManifestEntry, location: str) -> None:
    """Check the stored numbers of an entry; ``location`` is the manifest's.

    Raises:
        FormatError: an invalid one; names manifest and file.
    """
    file = entry.data_file
    for name in NEVER_NEGATIVE:
        value = getattr(entry if name in ENTRY_NUMBERS else file, name)
        if value is not None and not 0 <= value <= MOST.get(name, value):
            raise FormatError(
                f"{location}: {file.file_path} has {name} {value}, which is invalid; the manifest's writer is faulty or old; {RESTORE}"
            )


def check_inherited(entry: ManifestEntry, location: str) -> None:
    """Check the sequence number of an entry after inheritance: -1 in a manifest that is not committed yet.

    Raises:
        FormatError: a live entry has no sequence number; names manifest and file.
    """
    file = entry.data_file
    if entry.status != ManifestEntryStatus.DELETED and entry.sequence_number is None:
        raise FormatError(f"{location}: {file.file_path} has no sequence number, so it is unknown which deletes apply to it; {RESTORE}")


def checked_rows(rows: Iterable[_Row], location: str) -> list[_Row]:
    """Check the numbers of a manifest list's rows and return the rows.

    Raises:
        FormatError: an invalid one; names list and manifest.
    """
    found = list(rows)
    for row in found:
        for name in _ROW_NUMBERS:
            value = getattr(row, name)
            if value is not None and value < 0:
                raise FormatError(
                    f"{location}: {row.manifest_path} has {name} {value}, which is invalid; the list's writer is faulty; {RESTORE}"
                )
    return found
