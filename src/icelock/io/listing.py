"""Files of a storage: listing those below a location, and deleting many.

PyIceberg's ``FileIO`` can do neither. PyIceberg's two implementations, over Arrow and over fsspec, are listed folder by folder, so that
memory grows with the files of one folder alone, of a local disk not even with these; a user's own FileIO can offer `ListsFiles` and
`DeletesMany` (case C-50). An ``EncryptingFileIO`` stands for the storage below it.

Not here: which files belong to a table (``table.maintenance.removal.deletable``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.errors import PolicyError
from icelock.io.file_io import storage_of
from icelock.io.storage import ArrowFileIO

logger = logging.getLogger(__name__)

_DELETED_AT_ONCE: Final = 1000
_FSSPEC_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as its storage lists it: size in stored bytes, ``modified_ms`` since 1970 UTC (None if the storage does not say)."""

    location: str
    size: int
    modified_ms: int | None


@runtime_checkable
class ListsFiles(Protocol):
    """A FileIO that can list."""

    def list_prefix(self, location: str) -> Iterable[StoredFile]:
        """Yield every file below a folder, at any depth; nothing if there is no such folder."""


@runtime_checkable
class DeletesMany(Protocol):
    """A FileIO that deletes many files in few calls."""

    def delete_files(self, locations: Iterable[str]) -> Iterable[str]:
        """Delete the files, and return the locations that could not be deleted; a missing file counts as deleted."""


def list_files(io: FileIO, location: str, *, not_followed: Callable[[str], None] = lambda _: None) -> Iterator[StoredFile]:
    """Yield every file below a location; their locations begin with it.

    Symbolic links to folders of a local storage are not followed: one that leads back would give files endless other paths.
    ``not_followed`` is called with the location of each.

    Raises:
        PolicyError: this FileIO cannot list.
        OSError: the storage failed.
    """
    storage = storage_of(io)
    if isinstance(storage, ListsFiles):
        yield from storage.list_prefix(location)
        return
    folder = _arrow_folder(storage, location) or _fsspec_folder(storage, location)
    if folder is None:
        raise PolicyError(
            f"{type(storage).__name__} cannot list files below {location}: use PyArrowFileIO or FsspecFileIO, or give it list_prefix"
        )
    entries, path = folder
    pending = [(location.rstrip("/"), path)]
    while pending:
        place, path = pending.pop()
        for name, below, file in entries(path):
            if file is _Folder.REAL:
                pending.append((f"{place}/{name}", below))
            elif file is _Folder.LINKED:
                not_followed(f"{place}/{name}")
            else:
                yield StoredFile(location=f"{place}/{name}", size=file[0], modified_ms=file[1])


def written_ms(io: FileIO, location: str) -> int | None:
    """Return when a file was last written, by the storage's clock, in ms since 1970 UTC; None if it does not say, or there is no file.

    Raises:
        OSError: the storage failed.
    """
    storage = storage_of(io)
    if isinstance(storage, PyArrowFileIO):
        scheme, authority, path = ArrowFileIO.parse_location(location, storage.properties)
        modified = storage.fs_by_scheme(scheme, authority).get_file_info(path).mtime_ns
        return None if modified is None else modified // 1_000_000
    fsspec = _fsspec_of(storage, location)
    return None if fsspec is None else _fsspec_time_ms(fsspec.info(fsspec._strip_protocol(location)))  # noqa: SLF001 - fsspec's way to a path


def delete_files(io: FileIO, locations: Iterable[str], *, allowed: Callable[[str], bool] | None = None) -> list[str]:
    """Delete files and return the locations that could not be deleted. A missing file counts as deleted.

    Errors are written to the debug log, not raised: one file's error leaves the others to delete, and callers that clean up after a
    failure keep that failure.

    Args:
        io: the storage.
        locations: the files to delete.
        allowed: is asked for each location right before its deletion: since it was listed, a folder in its path may have become a link.
    """
    storage = storage_of(io)
    locations = list(locations)
    if isinstance(storage, DeletesMany):
        refused = set() if allowed is None else {location for location in locations if not allowed(location)}
        return [*sorted(refused), *_delete_many(storage, [location for location in locations if location not in refused])]

    def delete(location: str) -> bool:
        if allowed is not None and not allowed(location):
            return False
        try:
            storage.delete(location)
        except FileNotFoundError:
            return True
        except Exception as e:  # noqa: BLE001 - storage clients raise what they like
            logger.debug("could not delete %s: %s", location, e)
            return False
        return True

    left: list[str] = []
    for start in range(0, len(locations), _DELETED_AT_ONCE):
        some = locations[start : start + _DELETED_AT_ONCE]
        deleted = map(delete, some) if len(some) == 1 else ExecutorFactory.get_or_create().map(delete, some)
        left += (location for location, done in zip(some, deleted, strict=True) if not done)
    return left


def _delete_many(storage: DeletesMany, locations: list[str]) -> list[str]:
    try:
        return list(storage.delete_files(locations))
    except Exception as e:  # noqa: BLE001 - likewise
        logger.debug("could not delete %s: %s", ", ".join(locations), e)
        return locations


class _Folder(Enum):
    REAL = "a folder"
    LINKED = "a symbolic link to one"


# Name, path, and size and time of a file, or which kind of folder it is.
_Entry = tuple[str, str, tuple[int, int | None] | _Folder]
_Entries = Callable[[str], Iterator[_Entry]]  # of a folder's path


def _arrow_folder(storage: FileIO, location: str) -> tuple[_Entries, str] | None:
    if not isinstance(storage, PyArrowFileIO):
        return None
    scheme, authority, path = ArrowFileIO.parse_location(location, storage.properties)
    filesystem = storage.fs_by_scheme(scheme, authority)
    if scheme == "file":
        return _local_entries, path

    def entries(folder: str) -> Iterator[_Entry]:
        for info in filesystem.get_file_info(FileSelector(folder, allow_not_found=True)):
            if info.type == FileType.Directory:
                yield info.base_name, info.path, _Folder.REAL
            elif info.type == FileType.File:
                modified = info.mtime_ns
                yield info.base_name, info.path, (info.size, None if modified is None else modified // 1_000_000)

    return entries, path


def _local_entries(folder: str) -> Iterator[_Entry]:
    """Yield the entries of a local folder as they are read, whatever their number."""
    try:
        listed = os.scandir(folder)
    except FileNotFoundError:
        return
    with listed:
        for entry in listed:
            try:
                if entry.is_dir():
                    yield entry.name, entry.path, _Folder.LINKED if entry.is_symlink() else _Folder.REAL
                elif entry.is_file():
                    status = entry.stat()
                    yield entry.name, entry.path, (status.st_size, status.st_mtime_ns // 1_000_000)
            except FileNotFoundError:
                continue  # deleted meanwhile


def _fsspec_of(storage: FileIO, location: str) -> Any:
    """Return fsspec's file system of a location, without what it remembers; None if the storage is none of fsspec's."""
    try:
        from pyiceberg.io.fsspec import FsspecFileIO  # noqa: PLC0415 - fsspec may not be installed

        from icelock.io import storage_fsspec  # noqa: PLC0415 - likewise
    except ImportError:
        return None
    if not isinstance(storage, FsspecFileIO):
        return None
    own = storage if isinstance(storage, storage_fsspec.FsspecFileIO) else storage_fsspec.FsspecFileIO(storage.properties)
    filesystem = own.filesystem_of(location)
    filesystem.invalidate_cache()
    return filesystem


def _fsspec_folder(storage: FileIO, location: str) -> tuple[_Entries, str] | None:
    filesystem = _fsspec_of(storage, location)
    if filesystem is None:
        return None

    def entries(folder: str) -> Iterator[_Entry]:
        try:
            listed = filesystem.ls(folder, detail=True)
        except FileNotFoundError:
            return
        for entry in listed:
            path = str(entry["name"]).rstrip("/")
            name = path.rsplit("/", 1)[-1]
            if entry.get("islink") and os.path.isdir(path):  # noqa: PTH112 - as above; only local storage has links
                yield name, path, _Folder.LINKED
            elif entry["type"] == "directory":
                yield name, path, _Folder.REAL
            elif not str(entry["name"]).endswith("/"):  # some storages list a folder as an empty file
                yield name, path, (int(entry["size"]), _fsspec_time_ms(entry))

    return entries, str(filesystem._strip_protocol(location))  # noqa: SLF001 - fsspec's own way to a path


def _fsspec_time_ms(entry: dict[str, Any]) -> int | None:
    for name in _FSSPEC_TIMES:
        value = entry.get(name)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return int(value * 1000)
    return None
