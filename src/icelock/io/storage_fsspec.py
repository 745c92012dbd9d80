"""PyIceberg's FileIO over fsspec, with locations taken as text; see ``io.storage``.

fsspec's ``rm`` treats ``*``, ``?`` and ``[]`` in a name as patterns, and would delete what they match; here a name is one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.io import InputFile, InputStream, OutputFile
from pyiceberg.io.fsspec import FsspecFileIO as IcebergFsspecFileIO
from pyiceberg.io.fsspec import FsspecInputFile, FsspecOutputFile

from icelock.io.locations import check_possible, split_location
from icelock.io.regular import check_regular

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem  # type: ignore[import-untyped]  # PyIceberg asks for it


class _LocalInput(FsspecInputFile):
    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        check_regular(split_location(self.location).path, location=self.location)
        return super().open(seekable)


class _LocalOutput(FsspecOutputFile):
    def to_input_file(self) -> FsspecInputFile:
        return _LocalInput(location=self.location, fs=self._fs)


class FsspecFileIO(IcebergFsspecFileIO):
    """fsspec's file systems, with locations as text."""

    def new_input(self, location: str) -> FsspecInputFile:
        """Return a handle to read a file."""
        kind = _LocalInput if split_location(location).scheme == "file" else FsspecInputFile
        return kind(location=location, fs=self.filesystem_of(location))

    def new_output(self, location: str) -> FsspecOutputFile:
        """Return a handle to write a file."""
        kind = _LocalOutput if split_location(location).scheme == "file" else FsspecOutputFile
        return kind(location=location, fs=self.filesystem_of(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete one file.

        Raises:
            FileNotFoundError: it is not there.
        """
        text = location if isinstance(location, str) else location.location
        filesystem = self.filesystem_of(text)
        filesystem.rm_file(filesystem._strip_protocol(text))  # noqa: SLF001 - fsspec's own way to a path

    def filesystem_of(self, location: str) -> AbstractFileSystem:
        """Return fsspec's file system for a location."""
        check_possible(location)
        parts = split_location(location)
        # Azure's account is the host of the location.
        host = parts.authority.rpartition("@")[2].partition(":")[0].lower() if parts.family == "abfs" else None
        return self.get_fs(parts.scheme, host)

    def _get_fs_from_uri(self, uri: Any, location: str = "") -> AbstractFileSystem:
        return self.filesystem_of(location or uri.geturl())
