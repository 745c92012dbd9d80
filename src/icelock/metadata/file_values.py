"""The manifest entry of a data or delete file as plain values, which go where the entry itself does not: to another process, or to a disk.

They hold the file's key metadata, its bounds and its partition values, so whoever sends or stores them encrypts them.

Not here: how they are sealed (``spark.sealed``, ``table.maintenance.conversion.progress_file``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from icelock.metadata.manifest import DATA_FILE_FIELDS, DataFile


def values_of(file: DataFile) -> dict[str, Any]:
    """Return the fields of a file's entry by name: numbers, text, bytes, and lists and maps of these; partition values as PyIceberg's."""
    values = {name: getattr(file, name, None) for name in DATA_FILE_FIELDS}
    return values | {"content": int(file.content), "file_format": file.file_format.value, "partition": tuple(file.partition._data)}  # noqa: SLF001


def file_of(spec_id: int, values: Mapping[str, Any]) -> DataFile:
    """Return the entry that ``values_of`` was called on, as that of a file which is in no commit yet."""
    file = DataFile.from_args(
        **{
            **values,
            "content": DataFileContent(values["content"]),
            "file_format": FileFormat(values["file_format"]),
            "partition": Record(*values["partition"]),
        }
    )
    file.spec_id = spec_id
    file.fresh = True
    return file
