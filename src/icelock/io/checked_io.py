"""A storage whose Avro files are checked before PyIceberg reads them.

PyIceberg reads manifests and manifest lists of plain tables of versions 1 and 2; it unpacks them whatever their size, and its decoder in C
trusts lengths. So it gets what ``check`` returns instead of the file's bytes. An Avro file is known by its first bytes, not by its name,
which comes from the table's metadata; other files (Parquet) are passed on unchanged.

Not here: what is checked (``metadata.entry_reader``), encrypted files (``io.file_io``).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.typedef import Properties

from icelock.io.avro.read import MAGIC
from icelock.io.limits import Limits, read_all
from icelock.properties import LIMIT_MANIFEST_BYTES

_NAMED: Final = ".avro"


class CheckedFileIO(FileIO):
    """A storage's FileIO, ``inner``; ``check`` takes an Avro file's bytes, its location and the limits, and returns the bytes to read."""

    def __init__(self, inner: FileIO, check: Callable[[bytes, str, Limits], bytes]) -> None:
        self.inner, self._check = inner, check

    @property
    def properties(self) -> Properties:  # type: ignore[override]  # as ours is never set
        """The storage's current ones: credentials that a catalog lends change."""
        return self.inner.properties

    def new_input(self, location: str) -> InputFile:
        """Return a handle to read a file."""
        return CheckedInputFile(self.inner.new_input(location), self._check, Limits.of(self.properties))

    def new_output(self, location: str) -> OutputFile:
        """Return a handle to write a file."""
        return self.inner.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        self.inner.delete(location.location if isinstance(location, CheckedInputFile) else location)


class CheckedInputFile(InputFile):
    """A file of a ``CheckedFileIO``."""

    def __init__(self, inner: InputFile, check: Callable[[bytes, str, Limits], bytes], limits: Limits) -> None:
        super().__init__(inner.location)
        self._inner, self._check, self._limits = inner, check, limits

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._inner.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        """Open the file.

        Raises:
            FormatError: an Avro file that is damaged, or holds more than the limits allow.
        """
        stream: Any = self._inner.open(seekable)
        if not self.location.endswith(_NAMED) and stream.read(len(MAGIC)) != MAGIC:
            stream.seek(0)
            return stream  # type: ignore[no-any-return]
        with stream:
            data = read_all(stream, self.location, limit=self._limits.manifest_bytes, name=LIMIT_MANIFEST_BYTES)
        return io.BytesIO(self._check(data, self.location, self._limits))
