"""Delete files among themselves: which is which, and which data file one is about.

Not here: which delete files apply to a data file (``plan.delete_index``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent, FileFormat

from icelock.plan.delete_index import PATH_FIELD_ID

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

DeleteFileId = tuple[str, int | None]
"""A delete file: its path, and the offset of the blob when it is a deletion vector."""


def is_vector(file: DataFile) -> bool:
    """Whether a delete file is a deletion vector."""
    return file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN


def delete_file_id(file: DataFile) -> DeleteFileId:
    """Return what tells delete files apart: many deletion vectors lie in one file."""
    return file.file_path, getattr(file, "content_offset", None)


def referenced_data_file(file: DataFile) -> str | None:
    """Return the one data file that position deletes are about: named, or shown by equal bounds (Java ContentFileUtil)."""
    if file.content != DataFileContent.POSITION_DELETES:
        return None
    named: str | None = getattr(file, "referenced_data_file", None)
    if named is not None:
        return named
    lower, upper = (file.lower_bounds or {}).get(PATH_FIELD_ID), (file.upper_bounds or {}).get(PATH_FIELD_ID)
    return lower.decode("utf-8", "replace") if lower is not None and lower == upper else None
