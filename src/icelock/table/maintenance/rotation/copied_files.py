"""Files that a rotation of keys copies under keys of their own, and the names by which a later call knows the copies.

A name begins with digests of the rotation's KEK and of the old place: only who knows both can tell of which file it is a copy, and a call
that goes on with a killed one looks no place up but in manifests, which are authentic.

``CombineByCopy`` is how level ``all`` writes the current files of a branch: one from which no row was deleted is copied, so that older
snapshots, which need a copy of it too, can share it. Rows keep what they inherit: the copy has the sequence number and the first row id of
the file.

Copies are made by threads of this process (``copy_here``), or by an engine's tasks (``CopyFiles``). A task that runs twice writes each copy
at two places, which differ in the second half of their names' random part: by the first half the driver knows the copies of its job.

Not here: which files are copied (``table.maintenance.rotation.rotate_data``, ``table.maintenance.rotation.rotate_history``), how
(``io.reencrypt``).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.format.key_metadata import KeyMetadata
from icelock.io.file_io import EncryptingFileIO
from icelock.io.files import EncryptedInputFile
from icelock.io.listing import delete_files
from icelock.io.puffin.again import move_vectors
from icelock.io.reencrypt import reencrypt_file
from icelock.metadata.manifest import DataFile, file_with
from icelock.table.maintenance.compaction.compact import CombineFiles, CompactWork
from icelock.table.maintenance.compaction.compact_plan import PlannedGroup

T = TypeVar("T")
R = TypeVar("R")
_DIGESTS: Final = r"([0-9a-f]{8})-([0-9a-f]{32})-[0-9a-f-]{36}"
MANIFEST_NAME: Final = re.compile(rf"{_DIGESTS}-m\.avro")
DATA_NAME: Final = re.compile(rf"{_DIGESTS}(\.[a-z]+)?")
_FIRST_HALF: Final = 60  # of a copy's name: both digests, and the first half of the uuid
SECOND_HALF: Final = 18
_COPIED: Final = (FileFormat.PARQUET, FileFormat.AVRO)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """Where a file lies that was written again, its bytes on storage, and the key metadata that opens it."""

    path: str
    length: int
    key_metadata: bytes


def digest_of(kek: str | None, path: str) -> str:
    """Return the digest of a place before, 32 digits, in the rotation that made a KEK."""
    return sha256(f"{kek}\n{path}".encode()).hexdigest()[:32]


def digest_in(kek: str | None, path: str, form: re.Pattern[str]) -> str | None:
    """Return the digest of the place before that is in the name of a file; None if that rotation did not write it again."""
    name = form.fullmatch(path.rpartition("/")[2])
    return name[2] if name is not None and name[1] == digest_of(kek, "")[:8] else None


def new_name(kek: str | None, path: str, suffix: str) -> str:
    """Return a name that no other file has for what lay at ``path``."""
    return f"{digest_of(kek, '')[:8]}-{digest_of(kek, path)}-{uuid.uuid4()}{suffix}"


def location_of_copy(kek: str | None, path: str) -> str:
    """Return where the copy of a data or delete file goes: beside it."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{new_name(kek, path, name[name.rindex('.') :] if '.' in name else '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCopy:
    """A data or delete file to copy, by its manifest entry, and where the copy goes."""

    file: Any
    location: str

    @classmethod
    def of(cls, kek: str | None, file: Any) -> ToCopy:
        """Return a file with a place for its copy that no other copy has."""
        return cls(file=file, location=location_of_copy(kek, file.file_path))

    @property
    def halves(self) -> tuple[str, str]:
        """The location up to the second half of its uuid, and what follows that: an attempt of a task draws the half between them."""
        folder, _, name = self.location.rpartition("/")
        return f"{folder}/{name[:_FIRST_HALF]}", name[_FIRST_HALF + SECOND_HALF :]


class CopyFiles(Protocol):
    """Copies files under keys of their own: ``copy_here``, or an engine."""

    def __call__(self, io: EncryptingFileIO, groups: Sequence[Sequence[ToCopy]]) -> Generator[list[NewPlace] | Exception]:
        """Yield the copies of each group, in order; or the error that kept it from being copied, without a copy left of it."""


def copy_here(
    io: EncryptingFileIO, groups: Sequence[Sequence[ToCopy]], *, now_at: Callable[[str], str] = lambda path: path
) -> Generator[list[NewPlace] | Exception]:
    """Copy files by threads of this process; see ``CopyFiles``, and for ``now_at`` ``copy_file``."""
    for group in groups:
        places: list[NewPlace] | Exception
        try:
            places = at_once(lambda each: copy_file(io, each, now_at), group)
        except BaseException as e:
            delete_files(io, [each.location for each in group])
            if not isinstance(e, Exception):
                raise
            places = e
        yield places


def copy_file(io: EncryptingFileIO, copy: ToCopy, now_at: Callable[[str], str]) -> NewPlace:
    """Copy a data or delete file under a key of its own; vectors name their data files where ``now_at`` says that these lie.

    Raises:
        IntegrityError, FormatError: the file is not what its key metadata says.
        OSError: the storage failed. On any error deleting the new file is up to the caller.
    """
    file, location = copy.file, copy.location
    key = KeyMetadata.decode(file.key_metadata)
    if file.file_format == FileFormat.PUFFIN:
        made = move_vectors(EncryptedInputFile(io.inner.new_input(file.file_path), key), io.new_encrypted_output(location), now_at)
    else:
        kind, new = file.file_format.value, io.manager.mint_file_key()
        made = reencrypt_file(io.inner, file.file_path, key, file_format=kind, location=location, file_key=new, entropy=io.entropy)
    return NewPlace(path=location, length=made.encrypted_length or 0, key_metadata=made.encode())


def at_once(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return what comes of each item, by threads; all have ended when the first error is raised.

    Raises:
        Exception: whatever ``work`` raises first.
    """
    running = [ExecutorFactory.get_or_create().submit(work, item) for item in items]
    try:
        wait(running)
    finally:
        wait(running)  # an interrupt ends the first one
    return [future.result() for future in running]


def may_be_copied(task: FileScanTask) -> bool:
    """Whether all rows of a planned file are there, and it says which row ids they have."""
    file: Any = task.file
    is_whole = not task.delete_files and file.content == DataFileContent.DATA and file.file_format in _COPIED
    return is_whole and file.key_metadata is not None and file.first_row_id is not None


class CombineByCopy:
    """A ``CombineFiles`` that has the files copied which may be; ``combine`` writes the rows of the others."""

    def __init__(self, io: EncryptingFileIO, kek: str | None, combine: CombineFiles, copy: CopyFiles) -> None:
        self._io = io
        self._kek = kek
        self._combine = combine
        self._copy = copy

    def __call__(self, work: CompactWork, groups: Sequence[PlannedGroup]) -> Iterator[list[DataFile] | Exception]:
        """Yield the new files of each group; see ``CombineFiles``."""
        others = [_without_copied(group) for group in groups]
        copied = [[ToCopy.of(self._kek, task.file) for task in filter(may_be_copied, group.files)] for group in groups]
        written = self._combine(work, [group for group in others if group.bins])
        with closing(self._copy(self._io, [some for some in copied if some])) as copies:
            for other, some in zip(others, copied, strict=True):
                files = next(written) if other.bins else []
                yield files if isinstance(files, Exception) and not some else self._together(files, some, copies)

    def _together(
        self, files: list[DataFile] | Exception, some: Sequence[ToCopy], copies: Iterator[list[NewPlace] | Exception]
    ) -> list[DataFile] | Exception:
        """Return the files of a group with its copies; if one of both has failed, the other one is deleted."""
        written = [] if isinstance(files, Exception) else [file.file_path for file in files]
        try:
            places = next(copies) if some else []
        except BaseException:
            delete_files(self._io, written)
            raise
        if isinstance(files, Exception) or isinstance(places, Exception):
            delete_files(self._io, [*written, *(() if isinstance(places, Exception) else (place.path for place in places))])
            return files if isinstance(files, Exception) else places  # type: ignore[return-value]  # one of both is an error
        return [*files, *(_copied(each.file, place) for each, place in zip(some, places, strict=True))]


def _copied(before: Any, place: NewPlace) -> DataFile:
    """Return the entry of a copy."""
    copy = file_with(before, file_path=place.path, file_size_in_bytes=place.length, key_metadata=place.key_metadata)
    copy.spec_id = before.spec_id
    copy.sequence_number = before.sequence_number
    copy.fresh = True
    return copy


def _without_copied(group: PlannedGroup) -> PlannedGroup:
    bins = (tuple(task for task in each if not may_be_copied(task)) for each in group.bins)
    return PlannedGroup(bins=tuple(each for each in bins if each))
