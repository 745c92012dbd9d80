"""``PlannedTask`` and its ``PlannedFile``: PyIceberg's task and data file of a plan, of which only what most readers ask for is worked out.

A plan of many files is mostly objects: an entry decoded as a whole takes 90 µs, with two dictionaries a column of metrics, and few readers
of a plan look at them. So metrics, split offsets and sort order come from the manifest's plain bytes, which stay in memory as long as a
file of it does, when the first of them is asked for; then for all files of that file's block. A residual takes 200 µs a partition.

Not here: which files (``plan.columnar``), the columns that are decoded at once (``plan.manifest_columns``).
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from icelock.metadata.manifest import DATA_FILE_FIELDS, DataFile, ManifestEntry
from icelock.plan.residuals import Residuals

if TYPE_CHECKING:
    import polars as pl

    from icelock.plan.manifest_columns import ManifestColumns

_OF_FILE: Final = ("file_path", "record_count", "file_size_in_bytes", "key_metadata", "first_row_id")
_STORED: Final = ("row", "status", "snapshot_id", "sequence_number", "file_sequence_number", "file_format", *_OF_FILE)
_CONTENT, _FORMAT, _PARTITION, _PATH, _RECORDS, _SIZE, _KEY, _ROW_ID = map(
    DATA_FILE_FIELDS.index, ("content", "file_format", "partition", *_OF_FILE)
)
_STATUS: Final = tuple(map(ManifestEntryStatus, range(3)))


class Entries:
    """The entries of one manifest, a block of them decoded when one of it is asked for; several threads may ask."""

    def __init__(self, columns: ManifestColumns) -> None:
        self._columns = columns
        self._decoded: dict[int, list[Any]] = {}
        self._turn = threading.Lock()

    def values(self, number: int) -> list[Any]:
        """Return all values of the data file of an entry, by its number in the manifest; always the same list.

        Raises:
            FormatError: see ``ManifestFile.fetch_manifest_entry``.
        """
        with self._turn:
            if number not in self._decoded:
                self._decoded.update((row, entry.data_file._data) for row, entry in self._columns.around(number))  # noqa: SLF001
            return self._decoded[number]


class PlannedTask(FileScanTask):
    """A data file with its deletes; the residual is worked out when it is asked for."""

    def __init__(self, file: IcebergDataFile, delete_files: set[IcebergDataFile], residuals: Residuals) -> None:
        self.file = file
        self.delete_files = delete_files
        self._residuals = residuals

    @property
    def residual(self) -> BooleanExpression:  # type: ignore[override]  # PyIceberg's attribute
        """What is left of the filter to check in the file's rows."""
        return self._residuals.of(self.file.spec_id, self.file.partition)


class PlannedFile(DataFile):
    """A data file of a manifest that was read as columns."""

    __slots__ = ("_entries", "_known", "_number")

    _entries: Entries | None
    _known: list[Any]
    _number: int

    @property
    def _data(self) -> list[Any]:  # type: ignore[override]  # PyIceberg's list of all values
        entries = self._entries
        if entries is not None:
            values = entries.values(self._number)
            values[_ROW_ID] = self._known[_ROW_ID]
            self._known, self._entries = values, None
        return self._known

    @property
    def content(self) -> DataFileContent:
        """Always data."""
        return self._known[_CONTENT]  # type: ignore[no-any-return]

    @property
    def file_path(self) -> str:
        """Where the file is."""
        return self._known[_PATH]  # type: ignore[no-any-return]

    @property
    def file_format(self) -> FileFormat:
        """Its format."""
        return self._known[_FORMAT]  # type: ignore[no-any-return]

    @property
    def partition(self) -> Record:
        """The values of its partition, one for each field of the spec."""
        return self._known[_PARTITION]  # type: ignore[no-any-return]

    @property
    def record_count(self) -> int:
        """Its rows."""
        return self._known[_RECORDS]  # type: ignore[no-any-return]

    @property
    def file_size_in_bytes(self) -> int:
        """Its bytes on storage."""
        return self._known[_SIZE]  # type: ignore[no-any-return]

    @property
    def key_metadata(self) -> bytes | None:
        """The encoded key metadata."""
        return self._known[_KEY]  # type: ignore[no-any-return]

    @property
    def first_row_id(self) -> int | None:
        """The ``_row_id`` of its first row."""
        return self._known[_ROW_ID]  # type: ignore[no-any-return]

    @first_row_id.setter
    def first_row_id(self, value: int | None) -> None:
        self._data[_ROW_ID] = value


def planned_entries(columns: ManifestColumns, frame: pl.DataFrame) -> Iterator[ManifestEntry]:
    """Yield entries of data files, which have inherited what they do; ``frame`` has what ``live`` gives, and ``snapshot_id``.

    The files are filled field by field, as tasks are (``plan.task``).
    """
    stored = {name: frame.get_column(name).to_list() for name in _STORED}
    files = list(map(object.__new__, itertools.repeat(PlannedFile, len(frame))))
    slots: dict[str, Iterable[Any]] = {
        "_known": _known(stored, columns.partitions.of(frame)),
        "_entries": itertools.repeat(Entries(columns)),
        "_number": stored["row"],
        "_spec_id": itertools.repeat(columns.manifest.partition_spec_id),
        "sequence_number": stored["sequence_number"],
        "file_sequence_number": stored["file_sequence_number"],
        "fresh": itertools.repeat(False),  # noqa: FBT003 - a value
    }
    for name, values in slots.items():
        collections.deque(map(getattr(PlannedFile, name).__set__, files, values), maxlen=0)
    statuses = map(_STATUS.__getitem__, stored["status"])
    added_by = columns.manifest.added_snapshot_id
    snapshots = (added_by if own is None else own for own in stored["snapshot_id"])
    return map(ManifestEntry, statuses, snapshots, stored["sequence_number"], stored["file_sequence_number"], files)


def _known(stored: Mapping[str, Sequence[Any]], partitions: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    formats = {name: FileFormat(name) for name in set(stored["file_format"])}
    given: dict[int, Iterable[Any]] = {
        _CONTENT: itertools.repeat(DataFileContent.DATA, len(partitions)),
        _FORMAT: map(formats.__getitem__, stored["file_format"]),
        _PARTITION: itertools.starmap(Record, partitions),
        **{DATA_FILE_FIELDS.index(name): stored[name] for name in _OF_FILE},
    }
    return map(list, zip(*(given.get(position, itertools.repeat(None)) for position in range(len(DATA_FILE_FIELDS))), strict=False))
