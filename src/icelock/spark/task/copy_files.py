"""What an executor does for a rotation of keys: files are copied under keys that the task draws. Neither catalog nor KMS is imported.

A task knows the keys of the files that it copies, and where each copy begins to lie: the rest of the place is its own, so that a task which
runs twice never writes to one place.

Not here: which files (``table.maintenance.rotation.copied_files``), the work itself (``io.reencrypt``), jobs (``spark.driver.copy_here``).
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from icelock.spark.sealed.hpke import Place, Recipient, Sender
from icelock.spark.sealed.messages import SealedFiles, seal_part
from icelock.spark.sealed.splits import open_splits
from icelock.spark.task.imports import settle_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What all tasks of the job share: settings of the storage, a location of the table, and bytes of the copies' keys."""

    storage: Mapping[str, str]
    location: str
    data_key_length: int
    sender: Sender


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FileCopy:
    """A file to copy: its place, format and encoded key metadata, and what comes before and after the task's part of the copy's place."""

    path: str
    file_format: str
    key_metadata: bytes
    before: str
    after: str

    def __repr__(self) -> str:
        return f"FileCopy({self.path})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FilesCopied:
    """What a task tells: place, bytes on storage and key metadata of each copy; and whether it had an earlier attempt."""

    copies: Sequence[tuple[str, int, bytes]]
    retried: bool

    @classmethod
    def open(cls, message: SealedFiles, recipient: Recipient, *, task: int) -> FilesCopied:
        """Return what a task told; a message that was changed, or is not this task's, is an IntegrityError."""
        told: FilesCopied = pickle.loads(recipient.open(b"".join(message.parts), Place(task=task)))  # noqa: S301 - as all messages
        return told

    def __repr__(self) -> str:
        return f"FilesCopied({len(self.copies)} files)"


def copy_sealed(plan: CopyPlan, key: bytes, rows: Iterator[pa.RecordBatch]) -> SealedFiles:
    """Copy the files of sealed splits; after an error none of the copies is left.

    Raises:
        IntegrityError, FormatError, OSError: as ``reencrypt_file``; and IntegrityError for a split that was changed.
    """
    from icelock.io.listing import delete_files
    from icelock.io.storage import open_storage

    settle_imports()
    running = TaskContext.get()
    retried = running is not None and running.attemptNumber() > 0
    io, places, done = open_storage(dict(plan.storage), plan.location), list[str](), list[tuple[str, int, bytes]]()
    try:
        for file in (file for split in open_splits(key, rows) for file in split):
            places.append(f"{file.before}{str(uuid.uuid4())[18:]}{file.after}")
            done.append(_copied(plan, io, file, places[-1]))
    except BaseException:
        delete_files(io, places)
        raise
    return SealedFiles([seal_part(FilesCopied(copies=done, retried=retried), plan.sender, part=0, last=True)])


def _copied(plan: CopyPlan, io: FileIO, file: FileCopy, location: str) -> tuple[str, int, bytes]:
    from icelock.format.key_metadata import KeyMetadata
    from icelock.io.reencrypt import reencrypt_file
    from icelock.keys.entropy import SystemEntropy, mint_file_key

    entropy = SystemEntropy()
    made = reencrypt_file(
        io,
        file.path,
        KeyMetadata.decode(file.key_metadata),
        file_format=file.file_format,
        location=location,
        file_key=mint_file_key(entropy, plan.data_key_length),
        entropy=entropy,
    )
    return location, made.encrypted_length or 0, made.encode()
