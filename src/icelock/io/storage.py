"""PyIceberg's two FileIOs, with locations taken as text and only regular local files.

PyIceberg parses a location as a URL and drops what follows ``#`` or ``?``, so that several files of a table become one. It also opens
whatever is at a local path: a named pipe waits for a writer forever, a device has no end. Here the path is what the location says
(``io.locations``), and only regular files are opened for reading.

Not here: users' own FileIO classes, which are used unchanged; keys (``io.file_io``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyarrow.fs import FileSystem, LocalFileSystem
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, load_file_io
from pyiceberg.io.pyarrow import BUFFER_SIZE, ONE_MEGABYTE, PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import Properties

from icelock.errors import FormatError
from icelock.io.locations import check_possible, has_scheme, split_location
from icelock.io.regular import check_regular

_DISTRIBUTED: Final = ("hdfs", "viewfs")


def open_storage(properties: Mapping[str, str], location: str | None = None) -> FileIO:
    """Return the FileIO that PyIceberg would choose for a client's settings and a location; its own two in this module's form.

    Raises:
        ValueError: ``py-io-impl`` does not name a FileIO class.
    """
    # Only the scheme matters; PyIceberg parses the rest as a URL, which fails for some names.
    place = None if location is None else f"{split_location(location).scheme}://"
    io = load_file_io(dict(properties), place)
    if type(io) is PyArrowFileIO:
        return ArrowFileIO(io.properties)
    if type(io).__module__ == "pyiceberg.io.fsspec":
        from icelock.io.storage_fsspec import FsspecFileIO  # noqa: PLC0415 - fsspec may not be installed

        return FsspecFileIO(io.properties)
    return io


class ArrowFile(PyArrowFile):
    """A file on one of Arrow's file systems."""

    @property
    def place(self) -> tuple[FileSystem, str]:
        """The file system, and the path there."""
        return self._filesystem, self._path

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Open the file for reading.

        Raises:
            FileNotFoundError: it is not there.
            FormatError: on a local disk, it is not a regular file.
        """
        if isinstance(self._filesystem, LocalFileSystem):
            check_regular(self._path, location=self.location)
        return super().open(seekable)

    def to_input_file(self) -> ArrowFile:
        """Return the same file for reading."""
        return self


class ArrowFileIO(PyArrowFileIO):
    """Arrow's file systems, with locations as text."""

    @staticmethod
    def parse_location(location: str, properties: Properties | None = None) -> tuple[str, str, str]:
        """Return scheme, authority, and the path in the form of Arrow's file system for that scheme.

        >>> ArrowFileIO.parse_location("s3://bucket/wh#1/a?b/x%20y")
        ('s3', 'bucket', 'bucket/wh#1/a?b/x%20y')
        """
        scheme, authority, path = split_location(location)
        if not has_scheme(location):
            given = properties or {}
            return given.get("DEFAULT_SCHEME", scheme), given.get("DEFAULT_NETLOC", authority), path
        if scheme == "file":
            return scheme, "", path
        return scheme, authority, path if scheme in _DISTRIBUTED else f"{authority}{path}"

    def new_input(self, location: str) -> ArrowFile:
        """Return a handle to read a file."""
        return self._file(location)

    def new_output(self, location: str) -> ArrowFile:
        """Return a handle to write a file."""
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file.

        Raises:
            FileNotFoundError: it is not there.
        """
        check_possible(location if isinstance(location, str) else location.location)
        super().delete(location)

    def _file(self, location: str) -> ArrowFile:
        check_possible(location)
        scheme, authority, path = self.parse_location(location, self.properties)
        try:
            filesystem: Any = self.fs_by_scheme(scheme, authority)
        except ValueError as e:
            raise FormatError(f"{location}: there is no storage for the scheme {scheme!r} ({e}); was the location changed?") from e
        return ArrowFile(location, path, filesystem, int(self.properties.get(BUFFER_SIZE, ONE_MEGABYTE)))
