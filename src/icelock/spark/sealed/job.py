"""A job of an operation, as the user's process tells it to the driver's planning processes: one sealed option.

Operations beyond reading and writing (``write_to``, ``delete``, ``upsert``) run one or two Spark jobs through the data source. What a job
is to do travels as the option ``job``: the pickled ``Job``, sealed with AES-GCM under the session's key, in base64. So neither
filter values nor the operation's key are in a plan, in the event log, or in Spark Connect's record of options; and no option that was made
elsewhere is taken for one.

The operation's key seals what the first job leaves for the second one (``spark.sealed.staged``) and never goes to executors. The key pair
for what tasks tell the driver is derived from it: its public half goes to them (``spark.sealed.hpke``).

Not here: what users give as options (``spark.settings.options``).
"""

from __future__ import annotations

import base64
import pickle
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from icelock.errors import IntegrityError, PolicyError
from icelock.format import aes_gcm
from icelock.keys.entropy import SystemEntropy
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.options import ReadOptions, TableName

if TYPE_CHECKING:
    from icelock.spark.settings.session import Settings

JOB: Final = "job"
MAIN: Final = "main"
DESCRIPTION: Final = "icelock"
_AAD: Final = b"icelock spark job"
_KEY_LENGTH: Final = 32


class Action(StrEnum):
    """What one job does."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite partitions"
    CREATE = "create"
    REPLACE = "replace"
    CREATE_OR_REPLACE = "create or replace"
    DESCRIBE = "describe"  # tells about the table in its schema; no rows
    SEE = "see"  # likewise, of one that is to be read
    ROWS = "rows"  # reads the table's rows, or those that Spark's own reader cannot
    TARGET = "target"  # reads the table's rows, with where they are
    STAGE = "stage"  # writes rows that replace those of a filter; the next job removes these, and commits
    MERGE = "merge"  # writes rows that replace others at known positions; the next job removes these, unless merge-on-read does
    REWRITE = "rewrite"  # removes rows, and commits
    DISCARD = "discard"  # forgets what a job staged


class Purpose(StrEnum):
    """What an operation that removes rows is for: its isolation level is that of Java's operation."""

    DELETE = "delete"
    OVERWRITE = "overwrite"
    MERGE = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What an operation was planned on: a table, and the snapshot of the branch (None: it had none)."""

    table_uuid: str
    snapshot_id: int | None
    merge_on_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """How a table is to be made; ``partitioned_by`` holds transforms as text, such as ``days(ts)``."""

    properties: Mapping[str, str]
    partitioned_by: tuple[str, ...]


def _operation_id() -> str:
    return str(uuid.uuid4())


def _key() -> bytes:
    return SystemEntropy().random_bytes(_KEY_LENGTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.

    Args:
        action: what it does.
        table: where.
        branch: of the table.
        row_filter: which rows it is about, or which it reads.
        snapshot_properties: go into the snapshot's summary.
        base: what the operation was planned on, where that matters.
        columns: which a read has; None: all.
        key_range: least and greatest value of key columns in the source of an upsert: other rows of the table are not touched.
        read: what a job for rows reads.
        rest: only the files that Spark's own reader cannot read (``spark.native.plan.is_native``).
        new_table: for the actions that make one.
        purpose: of the operation.
        seen: what the rows of a write come from; of a read, what it reads.
        validate_from: the snapshot that the user says the rows come from.
        operation_id: shared by the jobs of an operation; part of the names of its files.
        key: of the operation.
    """

    action: Action
    table: TableName
    branch: str = MAIN
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    base: Base | None = None
    columns: tuple[str, ...] | None = None
    key_range: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    read: ReadOptions | None = None
    rest: bool = False
    new_table: NewTable | None = None
    purpose: Purpose = Purpose.OVERWRITE
    seen: tuple[Seen, ...] = ()
    validate_from: int | None = None
    operation_id: str = field(default_factory=_operation_id)
    key: bytes = field(default_factory=_key, repr=False)

    def seal(self, settings: Settings) -> str:
        """Return the job as the value of an option."""
        sealed = seal(settings.session_key, pickle.dumps(self), _AAD)
        return base64.b64encode(sealed).decode("ascii")

    @classmethod
    def open(cls, settings: Settings, text: str) -> Job:
        """Return the job of an option's value.

        Raises:
            PolicyError: it was not made by this session.
        """
        try:
            opened = aes_gcm.decrypt(settings.session_key, base64.b64decode(text), _AAD)
        except (IntegrityError, ValueError) as e:
            raise PolicyError(
                f"option {JOB} is made by icelock.spark.write_to, delete and upsert in the session that uses it, and by nothing else"
            ) from e
        job: Job = pickle.loads(opened)  # noqa: S301 - authenticated
        return job

    @property
    def recipient(self) -> Recipient:
        """The driver's side of what tasks of this job tell it; tasks get its ``sender``."""
        return Recipient.of(self.key, (self.operation_id, self.action))

    @property
    def pinned(self) -> Base:
        """What the operation was planned on."""
        if self.base is None:
            raise PolicyError(f"a job to {self.action} needs a base")
        return self.base


def seal(key: bytes, plain: bytes, aad: bytes) -> bytes:
    """Return ``plain`` encrypted with a nonce of its own."""
    return aes_gcm.encrypt(key, SystemEntropy().random_bytes(aes_gcm.NONCE_LENGTH), plain, aad)
