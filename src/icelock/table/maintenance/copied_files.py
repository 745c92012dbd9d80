"""Files that a rotation of keys copies under keys of their own, and the names by which a later call knows the copies.

A name begins with digests of the rotation's KEK and of the old place: only who knows both can tell of which file it is a copy, and a call
that goes on with a killed one looks no place up but in manifests, which are authentic.

``CombineByCopy`` is how level ``all`` writes the current files of a branch: one from which no row was deleted is copied, so that older
snapshots, which need a copy of it too, can share it. Rows keep what they inherit: the copy has the sequence number and the first row id of
the file.

Not here: which files are copied (``table.maintenance.rotate_data``, ``table.maintenance.rotate_history``), how (``io.reencrypt``).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeVar

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.utils.concurrent import ExecutorFactory

from icelock.format.key_metadata import KeyMetadata
from icelock.io.file_io import EncryptingFileIO
from icelock.io.files import EncryptedInputFile
from icelock.io.listing import delete_files
from icelock.io.parquet_reencrypt import reencrypt_parquet
from icelock.io.puffin.again import move_vectors
from icelock.io.reencrypt import reencrypt
from icelock.metadata.manifest import DataFile
from icelock.table.commit.converted_history import file_with
from icelock.table.maintenance.compact import CombineFiles, CompactWork
from icelock.table.maintenance.compact_plan import PlannedGroup

T = TypeVar("T")
R = TypeVar("R")
_DIGESTS: Final = r"([0-9a-f]{8})-([0-9a-f]{32})-[0-9a-f-]{36}"
MANIFEST_NAME: Final = re.compile(rf"{_DIGESTS}-m\.avro")
DATA_NAME: Final = re.compile(rf"{_DIGESTS}(\.[a-z]+)?")
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


def copy_file(io: EncryptingFileIO, file: Any, location: str, now_at: Callable[[str], str]) -> NewPlace:
    """Copy a data or delete file under a key of its own; vectors name their data files where ``now_at`` says that these lie.

    Raises:
        IntegrityError, FormatError: the file is not what its key metadata says.
        OSError: the storage failed. On any error deleting the new file is up to the caller.
    """
    key = KeyMetadata.decode(file.key_metadata)
    inner = io.inner.new_input(file.file_path)
    if file.file_format == FileFormat.PARQUET:
        made = reencrypt_parquet(inner, key, io.inner.new_output(location), io.manager.mint_file_key(), io.entropy)
    elif file.file_format == FileFormat.PUFFIN:
        made = move_vectors(EncryptedInputFile(inner, key), io.new_encrypted_output(location), now_at)
    else:
        made = reencrypt(EncryptedInputFile(inner, key), io.new_encrypted_output(location))
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
    """A ``CombineFiles`` that copies the files which may be; ``combine`` writes the rows of the others."""

    def __init__(self, io: EncryptingFileIO, kek: str | None, combine: CombineFiles) -> None:
        self._io = io
        self._kek = kek
        self._combine = combine

    def __call__(self, work: CompactWork, groups: Sequence[PlannedGroup]) -> Iterator[list[DataFile] | Exception]:
        """Yield the new files of each group; see ``CombineFiles``."""
        others = [_without_copied(group) for group in groups]
        written = self._combine(work, [group for group in others if group.bins])
        for group, other in zip(groups, others, strict=True):
            files = next(written) if other.bins else []
            yield files if isinstance(files, Exception) else self._with_copies(files, [*filter(may_be_copied, group.files)])

    def _with_copies(self, files: list[DataFile], tasks: Sequence[FileScanTask]) -> list[DataFile] | Exception:
        locations = [location_of_copy(self._kek, task.file.file_path) for task in tasks]
        try:
            return [*files, *at_once(lambda each: self._copy(*each), list(zip(tasks, locations, strict=True)))]
        except BaseException as e:
            delete_files(self._io, [*locations, *(file.file_path for file in files)])
            if not isinstance(e, Exception):
                raise
            return e

    def _copy(self, task: FileScanTask, location: str) -> DataFile:
        before: Any = task.file
        place = copy_file(self._io, before, location, lambda path: path)
        copy = file_with(before, file_path=place.path, file_size_in_bytes=place.length, key_metadata=place.key_metadata)
        copy.spec_id = before.spec_id
        copy.sequence_number = before.sequence_number
        copy.fresh = True
        return copy


def _without_copied(group: PlannedGroup) -> PlannedGroup:
    bins = (tuple(task for task in each if not may_be_copied(task)) for each in group.bins)
    return PlannedGroup(bins=tuple(each for each in bins if each))
