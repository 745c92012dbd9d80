"""v3 manifests: entries with row lineage and key metadata, read through the parent's key.

PyIceberg reads manifests with the v2 schema, which drops ``first_row_id`` (existing files would silently get new row ids)
and has no key metadata; so the three records are subclassed here with all v3 fields:

    ManifestFile (row of a manifest list)  519 key_metadata, 520 first_row_id
    ManifestEntry                          0 status, 1 snapshot_id, 3 and 4 sequence numbers, 2 data_file
    DataFile                               131 key_metadata, 142 first_row_id, 143-145 deletion vector reference

Reprs leave key metadata out, and pickles are refused: it holds raw data keys (cases C-32, J-05).

Counts, sizes, sequence numbers and row ids are not negative, and counts not impossibly large (spec, "Manifests", "Manifest Lists"). Old
versions of Java Iceberg gave -1 rows to Avro files imported into tables of version 1; such a file cannot be read here, since its rows are
counted. A live entry has sequence numbers of its own unless it inherits those of its manifest, as an added one does (Java
``InheritableMetadataFactory``).

Not here: writing (``metadata.manifest_writer``), the manifest list (``metadata.manifest_list``), whether the bytes are a manifest
(``io.avro.check``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn
from uuid import UUID

from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    PartitionFieldSummary,
)
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import ManifestEntry as IcebergManifestEntry
from pyiceberg.manifest import ManifestFile as IcebergManifestFile

from icelock.errors import FormatError, IcelockError
from icelock.io.avro.check import AvroBlock
from icelock.io.file_io import open_input
from icelock.io.limits import DEFAULT_LIMITS, Limits
from icelock.io.plain_input import RESTORE
from icelock.metadata.entry_reader import RecordKind, decode_records, read_records
from icelock.properties import ENCRYPTED_VERSION

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
_OF_CONTENTS: Final = (
    *("record_count", "column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds", "split_offsets"),
)
"""Fields that say what is in a file."""
DATA_FILE_FIELDS: Final = tuple(field.name for field in DATA_FILE_TYPE[ENCRYPTED_VERSION].fields)
_MANIFEST_FIELDS: Final = tuple(field.name for field in MANIFEST_LIST_FILE_SCHEMAS[ENCRYPTED_VERSION].fields)
_KEY_METADATA: Final = "key_metadata"
_ENUMS: Final = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}


def _refuse_pickle(value: object) -> NoReturn:
    raise TypeError(
        f"{type(value).__name__} is not pickled: its key metadata is a raw data key; pickle its fields where a key must go elsewhere"
    )


def _repr_without_keys(name: str, fields: tuple[str, ...], values: list[Any]) -> str:
    shown = (f"{field}={value!r}" for field, value in zip(fields, values, strict=False) if field != _KEY_METADATA and value is not None)
    return f"{name}({', '.join(shown)})"


class DataFile(IcebergDataFile):
    """A data or delete file of a v3 manifest (spec field ids in format.md "v3 metadata")."""

    __slots__ = ("_spec_id", "file_sequence_number", "fresh", "sequence_number")

    sequence_number: int | None
    file_sequence_number: int | None
    fresh: bool
    """Whether it was just written for a commit, and is not in any yet (``table.commit.staged``)."""

    @classmethod
    def from_args(cls, _table_format_version: int = ENCRYPTED_VERSION, **arguments: Any) -> DataFile:
        """Make a data file from field names; missing fields are None."""
        return cls._bind(DATA_FILE_TYPE[ENCRYPTED_VERSION], **arguments)

    def __init__(self, *data: Any) -> None:
        super().__init__(*data)
        # Not stored in the file's own record but in the entry; Java's DataFile has them too.
        self.sequence_number = None
        self.file_sequence_number = None
        self.fresh = False

    @property
    def first_row_id(self) -> int | None:
        """The ``_row_id`` of the file's first row; None until the manifest list assigns one."""
        return self._data[16]  # type: ignore[no-any-return]

    @first_row_id.setter
    def first_row_id(self, value: int | None) -> None:
        self._data[16] = value

    @property
    def referenced_data_file(self) -> str | None:
        """The data file that a deletion vector belongs to."""
        return self._data[17]  # type: ignore[no-any-return]

    @property
    def content_offset(self) -> int | None:
        """Offset of a deletion vector in the plain Puffin stream, bytes."""
        return self._data[18]  # type: ignore[no-any-return]

    @property
    def content_size_in_bytes(self) -> int | None:
        """Length of a deletion vector in the plain Puffin stream, bytes."""
        return self._data[19]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return _repr_without_keys("DataFile", DATA_FILE_FIELDS, self._data)

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        _refuse_pickle(self)


class ManifestEntry(IcebergManifestEntry):
    """An entry of a v3 manifest."""

    @classmethod
    def from_args(cls, _table_format_version: int = ENCRYPTED_VERSION, **arguments: Any) -> ManifestEntry:
        """Make an entry from field names; missing fields are None."""
        return cls._bind(MANIFEST_ENTRY_SCHEMAS[ENCRYPTED_VERSION].as_struct(), **arguments)


class ManifestFile(IcebergManifestFile):
    """A row of a v3 manifest list."""

    @classmethod
    def from_args(cls, _table_format_version: int = ENCRYPTED_VERSION, **arguments: Any) -> ManifestFile:
        """Make a row from field names; missing fields are None."""
        return cls._bind(MANIFEST_LIST_FILE_SCHEMAS[ENCRYPTED_VERSION].as_struct(), **arguments)

    @property
    def first_row_id(self) -> int | None:
        """The row id that the first new data file of the manifest gets; None for delete manifests."""
        return self._data[15]  # type: ignore[no-any-return]

    @first_row_id.setter
    def first_row_id(self, value: int | None) -> None:
        self._data[15] = value

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:  # type: ignore[override]  # noqa: FBT001, FBT002
        """Read the entries, decrypting the manifest when its row has key metadata.

        Sequence numbers, snapshot id and ``first_row_id`` are inherited as Java's ManifestReader does.

        Raises:
            IntegrityError: the manifest's bytes are not those that were written.
            PolicyError: the manifest is plain in an encrypted table, and the policy does not allow it.
            FormatError: the plain bytes are not a manifest.
        """
        file = open_input(io, self.manifest_path, self.key_metadata)
        next_row_id = self.first_row_id
        entries = []
        for entry in read_records(file, _ENTRIES, Limits.of(io.properties)):
            next_row_id = inherit(entry, self, next_row_id)
            if not discard_deleted or entry.status != ManifestEntryStatus.DELETED:
                entries.append(entry)
        return entries

    def __repr__(self) -> str:
        return _repr_without_keys("ManifestFile", _MANIFEST_FIELDS, self._data)

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        _refuse_pickle(self)


_ENTRIES: Final = RecordKind(
    what="manifest", schema=MANIFEST_ENTRY_SCHEMAS[ENCRYPTED_VERSION], types={-1: ManifestEntry, 2: DataFile}, enums=_ENUMS
)
_ROWS: Final = RecordKind(
    what="manifest list",
    schema=MANIFEST_LIST_FILE_SCHEMAS[ENCRYPTED_VERSION],
    types={-1: ManifestFile, 508: PartitionFieldSummary},
    enums={517: ManifestContent},
)


def checked_entries(manifest: IcebergManifestFile, io: FileIO, *, discard_deleted: bool = True) -> list[IcebergManifestEntry]:
    """Return the entries of a manifest, also of a plain table, all of the content that its list says.

    Raises:
        FormatError: a data file among deletes, or the other way round; a status, content or format that Iceberg does not have.
        IntegrityError, PolicyError: see ``ManifestFile.fetch_manifest_entry``.
    """
    path = manifest.manifest_path
    try:
        entries = manifest.fetch_manifest_entry(io, discard_deleted=discard_deleted)
    except (IcelockError, OSError):
        raise
    except Exception as e:  # PyIceberg's decoders, which read those of plain tables, raise whatever the bytes lead to
        raise FormatError(f"{path} is not a manifest: {e}; {RESTORE}") from e
    for file in (entry.data_file for entry in entries):
        if manifest.content == ManifestContent.DATA and file.content != DataFileContent.DATA:
            raise FormatError(f"{path} is listed as a manifest of data files, but holds {file.file_path} with content {file.content}")
        if manifest.content == ManifestContent.DELETES and file.content == DataFileContent.DATA:
            raise FormatError(f"{path} is listed as a manifest of delete files, but holds the data file {file.file_path}")
    return entries


def read_manifest_rows(file: InputFile, limits: Limits = DEFAULT_LIMITS) -> list[ManifestFile]:
    """Read the rows of a plain or decrypting manifest-list file.

    Raises:
        FormatError: the plain bytes are not a manifest list, or it has invalid numbers; names the file.
    """
    return _checked_rows(read_records(file, _ROWS, limits), file.location)


def stored_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Read the entries of a manifest as they are stored, before they inherit anything; errors are those of ``fetch_manifest_entry``."""
    file = open_input(io, manifest.manifest_path, manifest.key_metadata)
    entries: list[ManifestEntry] = list(read_records(file, _ENTRIES, Limits.of(io.properties)))
    for entry in entries:
        _with_uuids_as_bytes(entry.data_file.partition._data)  # noqa: SLF001 - PyIceberg's Record
    return entries


def file_with(file: DataFile, **fields: Any) -> DataFile:
    """Return the same file with other values of some fields."""
    return DataFile.from_args(**{**dict(zip(DATA_FILE_FIELDS, file._data, strict=True)), **fields})  # noqa: SLF001 - PyIceberg's Record


def set_place(file: IcebergDataFile, *, path: str, size: int, key_metadata: bytes) -> None:
    """Let an entry name a file that was written again: where it lies, its bytes on storage, and the key metadata that opens it."""
    for name, value in (("file_path", path), ("file_size_in_bytes", size), (_KEY_METADATA, key_metadata)):
        file._data[DATA_FILE_FIELDS.index(name)] = value  # noqa: SLF001 - likewise


def set_referenced(file: IcebergDataFile, path: str) -> None:
    """Let the entry of a deletion vector name its data file by another place."""
    file._data[DATA_FILE_FIELDS.index("referenced_data_file")] = path  # noqa: SLF001 - likewise


def set_contents(file: IcebergDataFile, like: DataFile) -> None:
    """Let an entry say of its file's rows and columns what another one does."""
    for position in map(DATA_FILE_FIELDS.index, _OF_CONTENTS):
        file._data[position] = like._data[position]  # noqa: SLF001 - likewise


def decode_entries(stored: bytes, blocks: Iterable[AvroBlock], *, location: str) -> Iterator[ManifestEntry]:
    """Yield the entries of some blocks of a manifest, before inheritance; ``stored`` is the manifest's Avro schema in JSON.

    Raises:
        FormatError: they are not entries; names the file.
    """
    return decode_records(stored, blocks, location=location, kind=_ENTRIES)


def inherit(entry: ManifestEntry, manifest: ManifestFile, next_row_id: int | None) -> int | None:
    """Fill in what the entry inherits; return the row id for the next file (Java ManifestReader.idAssigner).

    Raises:
        FormatError: an invalid number.
    """
    _check_entry(entry, manifest.manifest_path)
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    added = entry.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0
    if entry.sequence_number is None and added:
        entry.sequence_number = manifest.sequence_number
    if entry.file_sequence_number is None and added:
        entry.file_sequence_number = manifest.sequence_number
    data_file: DataFile = entry.data_file  # type: ignore[assignment]
    data_file.spec_id = manifest.partition_spec_id
    _with_uuids_as_bytes(data_file.partition._data)  # noqa: SLF001 - PyIceberg's Record
    data_file.sequence_number = entry.sequence_number
    data_file.file_sequence_number = entry.file_sequence_number
    if manifest.sequence_number != UNASSIGNED_SEQ:  # of the current commit, merged before it is listed
        _check_inherited(entry, manifest.manifest_path)
    if next_row_id is None or entry.status == ManifestEntryStatus.DELETED or data_file.first_row_id is not None:
        return next_row_id
    data_file.first_row_id = next_row_id
    return next_row_id + int(data_file.record_count)


def _with_uuids_as_bytes(values: list[Any]) -> None:
    """Give uuids of a partition the form of PyIceberg's literals, which filters and writers use."""
    for position, value in enumerate(values):
        if isinstance(value, UUID):
            values[position] = value.bytes


def _check_entry(entry: ManifestEntry, location: str) -> None:
    file = entry.data_file
    for name in NEVER_NEGATIVE:
        value = getattr(entry if name in ENTRY_NUMBERS else file, name)
        if value is not None and not 0 <= value <= MOST.get(name, value):
            raise FormatError(
                f"{location}: {file.file_path} has {name} {value}, which is invalid; the manifest's writer is faulty or old; {RESTORE}"
            )


def _check_inherited(entry: ManifestEntry, location: str) -> None:
    file = entry.data_file
    if entry.status != ManifestEntryStatus.DELETED and entry.sequence_number is None:
        raise FormatError(f"{location}: {file.file_path} has no sequence number, so it is unknown which deletes apply to it; {RESTORE}")


def _checked_rows(rows: Iterable[ManifestFile], location: str) -> list[ManifestFile]:
    found = list(rows)
    for row in found:
        for name in _ROW_NUMBERS:
            value = getattr(row, name)
            if value is not None and value < 0:
                raise FormatError(
                    f"{location}: {row.manifest_path} has {name} {value}, which is invalid; the list's writer is faulty; {RESTORE}"
                )
    return found
