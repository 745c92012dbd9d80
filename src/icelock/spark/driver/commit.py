"""The end of a job, in the driver: one snapshot, or files for the next job of the operation, or no file left.

``commit``  1 the ticket is redeemed: from here on this module is responsible for the files, those that an earlier job staged included. It
            also has the key that opens the messages. 2 each message opens as its task's. 3 the table is loaded again and must be the same
            one; a new one is staged again. 4 the table's own transaction commits the files. It deletes them if the commit certainly
            failed, keeps them if the outcome is unknown, and retries on other writers' commits without running a task again. 5 if a task
            was retried, the files of its earlier attempts are deleted.
``abort``   Spark calls it when tasks failed, and after a failed commit too. It deletes files only if the ticket was never redeemed: those
            in messages, and those of killed tasks, which have this operation's id in their names.

Not here: what is committed (``spark.driver.snapshot``), how a snapshot is made (``table.transaction``).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyiceberg.io import FileIO
from pyspark.sql.datasource import WriterCommitMessage

from icelock.catalog.base import EncryptedCatalog
from icelock.errors import CommitError, IntegrityError
from icelock.io.listing import delete_files, list_files
from icelock.spark.driver.snapshot import begin, stage
from icelock.spark.sealed.job import Action, Job
from icelock.spark.sealed.messages import FilesWritten, SealedFiles
from icelock.spark.sealed.staged import Staged, check_staged, put, take
from icelock.spark.sealed.ticket import PlannedWrite, Ticket
from icelock.spark.settings.catalogs import open_table
from icelock.spark.settings.session import Settings
from icelock.spark.task.write import WritePlan

# Seconds before each listing. Other tasks of the job may still write when ``abort`` is called: Spark kills them, and destroys their Python
# workers 2 s later (spark.python.task.killTimeout).
_SWEEPS: Final = (0.0, 1.0, 1.5, 1.5)
_logger = logging.getLogger(__name__)


def commit_write(
    plan: WritePlan, ticket: Ticket, messages: Sequence[WriterCommitMessage | None], catalog: EncryptedCatalog | None = None
) -> None:
    """Commit a job's files in one snapshot, or keep them for the next job; ``catalog`` is the table's, if open.

    Raises:
        CommitError: a message is missing, or the table was replaced by another.
        IntegrityError: a message is not what a task of this job sent.
        CommitFailedException: other writers won each time.
        ValidationException: another writer's commit conflicts with this one.
    """
    write = ticket.redeem()
    staged = take(write.job) if write.job.action == Action.REWRITE else None
    before = [] if staged is None else [staged.written]
    try:
        tasks = _opened(write.job, messages)
        done = FilesWritten.together([*before, *tasks], retried=any(task.retried for task in tasks))
        if write.job.action == Action.REWRITE:
            check_staged(staged, write.job)
        if _has_next_job(write, done):
            put(write.job, Staged(written=done, keks=write.keks, schema=plan.schema))
            return
        schemas = (plan.schema, *([staged.schema] if staged is not None and staged.schema is not None else []))
        transaction = begin(write, keks=write.keks if staged is None else staged.keks, schemas=schemas, catalog=catalog)
        stage(transaction, write.job, done)
    except BaseException:
        io = plan.context().io
        remove(io, [*(path for earlier in before for path in earlier.paths), *_paths(write.job, messages)])
        remove(io, unreported_files(io, plan))  # of messages that do not open or are missing
        raise
    transaction.commit_transaction()
    if done.retried:
        io = plan.context().io
        committed = set(done.paths)
        remove(io, (location for location in unreported_files(io, plan) if location not in committed))


def abort_write(plan: WritePlan, ticket: Ticket, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a write whose commit never began, and those staged for it."""
    try:
        write = ticket.redeem()
    except CommitError:
        _logger.debug("the commit of write %s had begun, and is responsible for its files", plan.operation_id)
        return
    io = plan.context().io
    remove(io, _paths(write.job, messages))
    for wait in _SWEEPS:
        time.sleep(wait)
        remove(io, unreported_files(io, plan))


def discard_staged(settings: Settings, job: Job) -> None:
    """Delete the files that a job staged and no other job took."""
    staged = take(job)
    if staged is not None:
        remove(open_table(settings, job.table).storage, staged.written.paths)


def remove(io: FileIO, locations: Iterable[str]) -> None:
    """Delete files; the debug log lists those that are left."""
    left = delete_files(io, locations)
    if left:
        _logger.debug("files of a failed write are left, they belong to no table: %s", ", ".join(left))


def unreported_files(io: FileIO, plan: WritePlan) -> list[str]:
    """Return files with this write's id, if the storage can list: killed tasks leave files that no message reports."""
    folder = plan.properties.get("write.data.path", f"{plan.location.rstrip('/')}/data")
    try:
        return [file.location for file in list_files(io, folder) if plan.operation_id in file.location.rpartition("/")[2]]
    except Exception as e:  # noqa: BLE001 - the job's own error matters more
        _logger.debug("could not list %s for files of a failed write: %s", folder, e)
        return []


def _opened(job: Job, messages: Sequence[WriterCommitMessage | None]) -> list[FilesWritten]:
    """Open the messages; they are in the order of Spark's partitions."""
    recipient = job.recipient
    opened: list[FilesWritten] = []
    for task, message in enumerate(messages):
        if not isinstance(message, SealedFiles):
            raise CommitError(f"expected the files of {len(messages)} tasks, got {type(message).__name__} from one: nothing is committed")
        opened.append(message.open(recipient, task=task))
    return opened


def _paths(job: Job, messages: Sequence[WriterCommitMessage | None]) -> Iterator[str]:
    """Yield the files of those messages that open."""
    recipient = job.recipient
    for task, message in enumerate(messages):
        if isinstance(message, SealedFiles):
            with contextlib.suppress(IntegrityError):
                yield from message.open(recipient, task=task).paths


def _has_next_job(write: PlannedWrite, done: FilesWritten) -> bool:
    """Whether another job of the operation must remove rows before the commit."""
    if write.job.action == Action.MERGE:
        return bool(done.positions) and not write.job.pinned.merge_on_read
    return write.job.action == Action.STAGE
