"""A PyIceberg ``FileIO`` over bytes in memory, one byte of which can be changed.

The property ``memory.store`` names a store of this process. Not here: writing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from pyiceberg.io import FileIO, InputFile

STORE: Final = "memory.store"
_STORES: Final[dict[str, dict[str, bytearray]]] = {}


def make_store(name: str, files: Mapping[str, bytes]) -> dict[str, bytearray]:
    """Keep files by location under a name, and return them to be changed."""
    _STORES[name] = {location: bytearray(data) for location, data in files.items()}
    return _STORES[name]


def drop_store(name: str) -> None:
    """Forget a store."""
    del _STORES[name]


def files_below(folder: Path, location: str) -> dict[str, bytes]:
    """Return the files of a folder by the locations they have below ``location``."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".crc")
    return {f"{location}/{path.relative_to(folder)}": path.read_bytes() for path in files}


class MemoryInput(InputFile):
    """One file; every ``open`` reads the bytes as they are then."""

    def __init__(self, location: str, data: bytearray | None) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data or b"")

    def exists(self) -> bool:
        return self._data is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
        if self._data is None:
            raise FileNotFoundError(self.location)
        return io.BytesIO(bytes(self._data))


class MemoryFileIO(FileIO):
    """Reads the store; nothing can be written."""

    def new_input(self, location: str) -> MemoryInput:
        return MemoryInput(location, _STORES[self.properties[STORE]].get(location))

    def new_output(self, location: str) -> NoReturn:
        raise PermissionError(location)

    def delete(self, location: Any) -> NoReturn:
        raise PermissionError(str(location))
