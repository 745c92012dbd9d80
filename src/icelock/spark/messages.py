"""Commit messages: what a task tells the driver of its files, as plain values.

A message carries the key metadata of the files its task wrote, so its repr shows a number only. Which messages count is Spark's affair:
those of attempts that were given to ``commit`` (case C-56).

Not here: writing files (``write``), committing them (``commit``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from icelock.metadata.manifest import DataFile

_VERSION: Final = 3


class FilesWritten(WriterCommitMessage):
    """The data files of one task attempt; an empty partition sends one without files. ``retried``: another attempt came before."""

    def __init__(self, files: Sequence[DataFile] = (), *, retried: bool = False) -> None:
        self.retried = retried
        self._files = tuple((file.spec_id, _plain(file)) for file in files)

    @property
    def paths(self) -> list[str]:
        """Where the files are."""
        return [plain["file_path"] for _, plain in self._files]

    @property
    def files(self) -> list[DataFile]:
        """The files as manifest entries."""
        return [_data_file(spec_id, plain) for spec_id, plain in self._files]

    def __repr__(self) -> str:
        return f"FilesWritten({len(self._files)} files)"


def _plain(file: DataFile) -> dict[str, Any]:
    from pyiceberg.manifest import DATA_FILE_TYPE  # noqa: PLC0415 - the driver unpickles without it

    names = (field.name for field in DATA_FILE_TYPE[_VERSION].fields)
    plain = {name: getattr(file, name, None) for name in names}
    return plain | {"content": int(file.content), "file_format": file.file_format.value, "partition": tuple(file.partition._data)}  # noqa: SLF001


def _data_file(spec_id: int, plain: dict[str, Any]) -> DataFile:
    from pyiceberg.manifest import DataFileContent, FileFormat  # noqa: PLC0415
    from pyiceberg.typedef import Record  # noqa: PLC0415

    from icelock.metadata.manifest import DataFile  # noqa: PLC0415

    file = DataFile.from_args(
        **{
            **plain,
            "content": DataFileContent(plain["content"]),
            "file_format": FileFormat(plain["file_format"]),
            "partition": Record(*plain["partition"]),
        }
    )
    file.spec_id = spec_id
    return file
