"""``ScanTask``: what an engine needs to read one data file, and nothing else.

The plan knows no engine and the engines know no KMS: each task carries its own file's key metadata and that of its delete
files (cases C-31), so a split can go to an executor on its own.

Not here: which files a scan needs (PyIceberg's ``ManifestGroupPlanner``, driven by ``table.scan``).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from icelock.secret import SecretBytes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergDataFile
    from pyiceberg.table import FileScanTask


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A delete file that applies to a task's data file; offsets and lengths count bytes of the plain stream."""

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

    @classmethod
    def from_iceberg(cls, task: FileScanTask) -> ScanTask:
        """Make a task from PyIceberg's, whose data file is a v3 ``DataFile``."""
        file = task.file
        return cls(
            path=file.file_path,
            file_format=file.file_format.value,
            key_metadata=_secret(file.key_metadata),
            file_size=file.file_size_in_bytes,
            record_count=file.record_count,
            spec_id=file.spec_id,
            partition=tuple(file.partition._data),  # noqa: SLF001 - PyIceberg's Record
            deletes=tuple(_delete_file(delete) for delete in sorted(task.delete_files, key=lambda delete: delete.file_path)),
            sequence_number=getattr(file, "sequence_number", None),
            first_row_id=getattr(file, "first_row_id", None),
        )


def _secret(value: bytes | None) -> SecretBytes | None:
    return None if value is None else SecretBytes(value)


def _delete_file(file: IcebergDataFile) -> DeleteFile:
    return DeleteFile(
        path=file.file_path,
        file_format=file.file_format.value,
        content=int(file.content),
        key_metadata=_secret(file.key_metadata),
        file_size=file.file_size_in_bytes,
        record_count=file.record_count,
        equality_ids=None if file.equality_ids is None else tuple(file.equality_ids),
        referenced_data_file=getattr(file, "referenced_data_file", None),
        content_offset=getattr(file, "content_offset", None),
        content_size=getattr(file, "content_size_in_bytes", None),
    )
