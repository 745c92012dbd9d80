"""A job of an operation, which the user's process passes to the driver's planning processes as one sealed option.

``read``, ``write_to``, ``delete`` and ``upsert`` run Spark jobs through the data source. The option ``job`` says what to do: the pickled
``Job``, sealed with AES-GCM under the session's key, in base64. So neither filter values nor the operation's key are in a plan, in the
event log or in Spark Connect's record of options, and an option that was made elsewhere does not open.

The operation's key seals what its first job leaves for the second, and never goes to executors. The key pair for messages from tasks is
derived from it; tasks get the public key (``spark.sealed.hpke``).

What is left for the second job (``Staged``) is a file that never leaves the driver's machine, as that of a ``spark.sealed.ticket``, but its
path follows from the operation's id, so that the planning processes of another job find it. It holds the new files with their keys and the
rows that they replace. Folder 0700, file 0600. So is what a commit did (``put_result``), for a Connect client that asks for it.

Not here: what users give as options (``spark.settings.options``).
"""

from __future__ import annotations

import base64
import pickle
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from icelock.errors import CommitError, IntegrityError, PolicyError
from icelock.format import aes_gcm
from icelock.format.encrypted_key import EncryptedKey
from icelock.keys.entropy import SystemEntropy
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.sealed.messages import FilesWritten
from icelock.spark.sealed.seen import Seen, seen_in
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.session import Settings
from icelock.spark.settings.write_options import WriteOptions
from icelock.table.epochs import Epoch

JOB: Final = "job"
MAIN: Final = "main"
DESCRIPTION: Final = "icelock"
_AAD: Final = b"icelock spark job"
_LEFT_AAD: Final = b"icelock spark "
_STAGED: Final = "staged"
_RESULT: Final = "result"
_KEY_LENGTH: Final = 32


class Action(StrEnum):
    """What one job does."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite partitions"
    CREATE = "create"
    REPLACE = "replace"
    CREATE_OR_REPLACE = "create or replace"
    DESCRIBE = "describe"  # describes the table in the schema; no rows
    SEE = "see"  # likewise, for a read
    ROWS = "rows"  # reads the table's rows, or those that Spark's own reader cannot
    TARGET = "target"  # reads the table's rows, with where they are
    STAGE = "stage"  # writes rows that replace those of a filter; the next job removes these, and commits
    MERGE = "merge"  # writes rows that replace others at known positions; the next job removes these, unless merge-on-read does
    REWRITE = "rewrite"  # removes rows, and commits
    DISCARD = "discard"  # forgets what a job staged
    RESULT = "result"  # tells in the schema what the operation did; no rows


class Purpose(StrEnum):
    """Why rows are removed: Java's operations, each with an isolation level of its own."""

    DELETE = "delete"
    OVERWRITE = "overwrite"
    UPDATE = "update"
    MERGE = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOn:
    """What an operation was planned on: a table, and the branch's snapshot (None: it had none)."""

    table_uuid: str
    snapshot_id: int | None
    merge_on_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table to create or replace.

    Args:
        properties: of the table.
        partitioned_by: transforms as text, such as ``days(ts)``.
        location: None: the catalog's.
        replaces: whether one that is there is, or would have been, replaced: then the first snapshot is an overwrite, as in Java.
    """

    properties: Mapping[str, str]
    partitioned_by: tuple[str, ...]
    location: str | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.

    Args:
        action: what it does.
        table: the table.
        branch: of the table.
        row_filter: which rows it changes or reads.
        snapshot_properties: for the snapshot's summary.
        base: what the operation was planned on, if that matters.
        columns: of a read; None: all.
        key_range: least and greatest values of the key columns in the source of an upsert; other rows of the table do not match.
        read: what to read, for rows.
        rest: whether to read only the files that Spark's own reader cannot (``spark.native.plan.is_native``).
        new_table: for the actions that create or replace one.
        purpose: of the operation.
        by_position: whether the rows to remove are known by file and position (MERGE), else all that match ``row_filter`` are removed.
        seen: the versions that the rows of a write come from, or that a read reads.
        validate_from: the snapshot that the user says the rows come from.
        output_spec: the id of the partition spec to write with; None: the table's current one.
        isolation: the isolation level to check other writers' commits by; None: the table's, for the operation.
        of_files: options of files, which go over the table's properties (``settings.write_options``).
        epoch: the batch of a stream that it writes, which is written once.
        tells: whether the commit leaves what it did for a job that asks for it.
        operation_id: shared by the jobs of an operation; part of the names of its files.
        key: of the operation.
    """

    action: Action
    table: TableName
    branch: str = MAIN
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    base: PlannedOn | None = None
    columns: tuple[str, ...] | None = None
    key_range: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    read: ReadOptions | None = None
    rest: bool = False
    new_table: NewTable | None = None
    purpose: Purpose = Purpose.OVERWRITE
    by_position: bool = False
    seen: tuple[Seen, ...] = ()
    validate_from: int | None = None
    output_spec: int | None = None
    isolation: str | None = None
    of_files: Mapping[str, str] = field(default_factory=dict)
    epoch: Epoch | None = None
    tells: bool = False
    operation_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    key: bytes = field(default_factory=lambda: SystemEntropy().random_bytes(_KEY_LENGTH), repr=False)

    @classmethod
    def of_read(cls, options: ReadOptions, row_filter: BooleanExpression | None = None) -> Self:
        """Return the job of a read."""
        return cls(action=Action.ROWS, table=options.table, read=options, row_filter=AlwaysTrue() if row_filter is None else row_filter)

    @classmethod
    def of_write(cls, options: WriteOptions, *, overwrite: bool) -> Self:
        """Return the job of ``df.write.format("icelock")``; rows of the table itself without a known version are a PolicyError."""
        action = Action.APPEND
        if overwrite:
            action = Action.OVERWRITE_PARTITIONS if options.dynamic else Action.OVERWRITE
        return cls(
            action=action,
            table=options.table,
            branch=options.branch or MAIN,
            row_filter=options.overwrite_filter or AlwaysTrue(),
            snapshot_properties=options.snapshot_properties,
            validate_from=options.validate_from,
            output_spec=options.output_spec,
            isolation=options.isolation,
            of_files=options.of_files,
            seen=seen_in(options.rows_read, options.table) if options.validate_from is None else (),
        ).of_batch(options.epoch)

    def of_batch(self, epoch: Epoch | None) -> Self:
        """Return the same job for a batch of a stream, or (None) for none."""
        if epoch is None:
            return self
        return replace(self, epoch=epoch, snapshot_properties={**self.snapshot_properties, **epoch.summary})

    def seal(self, settings: Settings) -> str:
        """Return the job as the value of an option."""
        sealed = _seal(settings.session_key, pickle.dumps(self), _AAD)
        return base64.b64encode(sealed).decode("ascii")

    @classmethod
    def open(cls, settings: Settings, text: str) -> Job:
        """Return the job of an option's value; one that another session sealed is a PolicyError."""
        try:
            opened = aes_gcm.decrypt(settings.session_key, base64.b64decode(text), _AAD)
        except (IntegrityError, ValueError) as e:
            raise PolicyError(
                f"option {JOB} is set only by icelock.spark's own functions, in the session that uses it: call them again"
            ) from e
        job: Job = pickle.loads(opened)  # noqa: S301 - authenticated
        return job

    @property
    def recipient(self) -> Recipient:
        """What opens the messages of this job's tasks; tasks get its ``sender``."""
        return Recipient.of(self.key, (self.operation_id, self.action))

    @property
    def pinned(self) -> PlannedOn:
        """What the operation was planned on."""
        if self.base is None:
            raise PolicyError(f"a job to {self.action} needs a base")
        return self.base


def _seal(key: bytes, plain: bytes, aad: bytes) -> bytes:
    """Return ``plain`` encrypted with a fresh nonce."""
    return aes_gcm.encrypt(key, SystemEntropy().random_bytes(aes_gcm.NONCE_LENGTH), plain, aad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Uncommitted files; ``written.positions`` are the rows that they replace (empty: those of a filter). ``schema`` is Iceberg's JSON."""

    written: FilesWritten
    keks: tuple[EncryptedKey, ...]
    schema: str | None = None


def put(job: Job, staged: Staged) -> None:
    """Keep what a job staged for the next one."""
    _put(_path(job), job, pickle.dumps(staged))


def peek(job: Job) -> Staged | None:
    """Return what a job of this operation staged, if any."""
    found = _get(_path(job), job)
    staged: Staged | None = None if found is None else pickle.loads(found)  # noqa: S301 - authenticated
    return staged


def take(job: Job) -> Staged | None:
    """Return what was staged, and delete it: the caller becomes responsible for the files."""
    staged = peek(job)
    if staged is not None:
        _forget(_path(job))
    return staged


def put_result(job: Job, result: str) -> None:
    """Keep what an operation did, as text, for the process that asks for it."""
    _put(_path(job, _RESULT), job, result.encode())


def take_result(job: Job) -> str | None:
    """Return what an operation did, and delete it; None if that is not known."""
    found = _get(_path(job, _RESULT), job)
    if found is not None:
        _forget(_path(job, _RESULT))
    return None if found is None else found.decode()


def check_staged(staged: Staged | None, job: Job) -> None:
    """Check that the second job of an operation has what the first left; a delete by a filter has one job.

    Else it is a CommitError: removing the old rows without the new ones would lose them.
    """
    if staged is None and (job.by_position or job.purpose != Purpose.DELETE):
        raise CommitError(
            f"{_path(job)} is gone, so nothing is committed: the operation ended before, or the driver's temporary folder was emptied"
        )


def _path(job: Job, name: str = _STAGED) -> Path:
    return Path(tempfile.gettempdir()) / f"icelock-job-{job.operation_id}" / name


def _put(path: Path, job: Job, content: bytes) -> None:
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_seal(job.key, content, _LEFT_AAD + path.name.encode()))


def _get(path: Path, job: Job) -> bytes | None:
    try:
        sealed = path.read_bytes()
    except FileNotFoundError:
        return None
    return aes_gcm.decrypt(job.key, sealed, _LEFT_AAD + path.name.encode())


def _forget(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
