"""``ScanTask``: what an engine needs to read one data file, and nothing else.

The plan knows no engine and the engines know no KMS: each task carries its own file's key metadata and that of its delete
files (case C-31), so a split can go to an executor on its own. All values are plain, so a task is easily sent.

Not here: which files a scan needs (``plan.planner``).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyiceberg.manifest import FileFormat
from pyiceberg.types import NestedField, PrimitiveType, StructType

from icelock import metrics
from icelock.errors import FormatError
from icelock.metadata.schema_paths import path_to
from icelock.secret import SecretBytes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergDataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask

_Made = TypeVar("_Made", "ScanTask", "DeleteFile")

POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A delete file that applies to a task's data file; offsets and lengths count bytes of the plain stream.

    ``content`` is 1 (positions; a deletion vector when the format is PUFFIN) or 2 (equality). For each of ``equality_ids``
    ``equality_columns`` has the column as a field in Iceberg's JSON, with the path to it if it is nested: the table may have dropped
    the column, and the reader knows the current columns only.
    """

    path: str
    file_format: str
    content: int
    key_metadata: SecretBytes | None
    file_size: int
    record_count: int
    equality_ids: tuple[int, ...] | None
    referenced_data_file: str | None
    content_offset: int | None
    content_size: int | None
    equality_columns: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """One data file to read.

    ``key_metadata`` holds the encoded key metadata (None: the file is plain), ``file_size`` the stored bytes, ``partition`` one
    value for each field of the spec in PyIceberg's internal form, ``first_row_id`` the ``_row_id`` of the first row.
    """

    path: str
    file_format: str
    key_metadata: SecretBytes | None
    file_size: int
    record_count: int
    spec_id: int
    partition: tuple[Any, ...]
    deletes: tuple[DeleteFile, ...] = ()
    sequence_number: int | None = None
    first_row_id: int | None = None


def make_tasks(number: int, columns: Mapping[str, Iterable[Any]]) -> list[ScanTask]:
    """Return tasks from columns, one for each field of ``ScanTask``; see ``_from_columns``."""
    return _from_columns(ScanTask, number, columns)


def make_vectors(number: int, columns: Mapping[str, Iterable[Any]]) -> list[DeleteFile]:
    """Return deletion vectors from columns; those are not needed that all vectors have in common."""
    alike = {"file_format": FileFormat.PUFFIN.value, "content": POSITION_DELETES, "equality_ids": None, "equality_columns": ()}
    return _from_columns(DeleteFile, number, {**{name: itertools.repeat(value) for name, value in alike.items()}, **columns})


def _from_columns(kind: type[_Made], number: int, columns: Mapping[str, Iterable[Any]]) -> list[_Made]:
    """Return objects that are filled field by field.

    That is 1.3 µs a task, where the constructor takes 3.0, which is as much again as reading the manifests.
    """
    made = list(map(object.__new__, itertools.repeat(kind, number)))
    for field in dataclasses.fields(kind):
        collections.deque(map(getattr(kind, field.name).__set__, made, columns[field.name]), maxlen=0)
    return made


def in_order(deletes: Iterable[DeleteFile]) -> tuple[DeleteFile, ...]:
    """Return delete files in a fixed order."""
    return tuple(sorted(deletes, key=lambda delete: (delete.path, delete.content_offset or 0)))


class TaskBuilder:
    """Makes the ``ScanTask`` of PyIceberg's tasks; ``schemas`` are the table's, beginning with the scan's.

    An equality column has its name and type from the first schema that has it.
    """

    def __init__(self, schemas: Sequence[Schema]) -> None:
        self._schemas = tuple(schemas)
        self._columns: dict[tuple[int, ...], tuple[str, ...]] = {}

    def build(self, task: FileScanTask) -> ScanTask:
        """Return the task of a data file, with its delete files in a fixed order.

        Raises:
            FormatError: an equality delete file names no columns, or one that no schema has as a single value a row.
        """
        return self.of_file(task.file, self.deletes(task.delete_files))

    @staticmethod
    def of_file(file: IcebergDataFile, deletes: tuple[DeleteFile, ...]) -> ScanTask:
        """Return the task of a data file with these delete files."""
        return ScanTask(
            path=file.file_path,
            file_format=file.file_format.value,
            key_metadata=secret(file.key_metadata),
            file_size=file.file_size_in_bytes,
            record_count=file.record_count,
            spec_id=file.spec_id,
            partition=tuple(file.partition._data),  # noqa: SLF001 - PyIceberg's Record
            deletes=deletes,
            sequence_number=getattr(file, "sequence_number", None),
            first_row_id=getattr(file, "first_row_id", None),
        )

    def deletes(self, files: Iterable[IcebergDataFile]) -> tuple[DeleteFile, ...]:
        """Return delete files in a fixed order."""
        return in_order(map(self._delete_file, files))

    def _delete_file(self, file: IcebergDataFile) -> DeleteFile:
        ids = None if file.equality_ids is None else tuple(file.equality_ids)
        return DeleteFile(
            path=file.file_path,
            file_format=file.file_format.value,
            content=int(file.content),
            key_metadata=secret(file.key_metadata),
            file_size=file.file_size_in_bytes,
            record_count=file.record_count,
            equality_ids=ids,
            referenced_data_file=getattr(file, "referenced_data_file", None),
            content_offset=getattr(file, "content_offset", None),
            content_size=getattr(file, "content_size_in_bytes", None),
            equality_columns=self._equality_columns(ids, file.file_path) if int(file.content) == EQUALITY_DELETES else (),
        )

    def _equality_columns(self, ids: tuple[int, ...] | None, path: str) -> tuple[str, ...]:
        if not ids:
            raise FormatError(f"equality delete file {path} names no columns (equality_ids), so it is unknown what it deletes; rewrite it")
        if ids not in self._columns:
            self._columns[ids] = tuple(self._equality_column(field_id, path).model_dump_json() for field_id in ids)
        return self._columns[ids]

    def _equality_column(self, field_id: int, location: str) -> NestedField:
        """Return the column as an optional field, within its structs without their other fields."""
        for schema in self._schemas:
            path = path_to(schema.fields, field_id)
            if path is not None and isinstance(path.field.field_type, PrimitiveType):
                found = path.field.model_copy(update={"required": False})
                for struct in reversed(path.fields[:-1]):
                    found = struct.model_copy(update={"required": False, "field_type": StructType(found)})
                return found
        raise FormatError(
            f"equality delete file {location} compares field id {field_id}, which no schema of the table has as a single value a row"
        )


def counted(tasks: Iterable[ScanTask]) -> Iterator[ScanTask]:
    """Yield tasks, and add those that were taken to the counters at the end."""
    files = size = 0
    try:
        for task in tasks:
            files += 1
            size += task.file_size
            yield task
    finally:
        metrics.add(files_planned=files, bytes_planned=size)


def secret(value: bytes | None) -> SecretBytes | None:
    """Return key metadata as a secret."""
    return None if value is None else SecretBytes(value)
