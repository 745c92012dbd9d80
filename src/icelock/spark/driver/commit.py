"""The end of a job, in the driver: one snapshot, or files for the next job of the operation, or no file left.

``commit_write``  1 the ticket is redeemed: from here on this module is responsible for the files, those that an earlier job staged too. It
                  also has the key that opens the messages. 2 each message opens as its task's. 3 the table is loaded again and must be
                  the same one; a new one is staged again. 4 the table's own transaction commits the files. It deletes them if the commit
                  certainly failed, keeps them if the outcome is unknown, and retries on other writers' commits without running a task
                  again. 5 if a task was retried, the files of its earlier attempts are deleted.
``abort_write``   Spark calls it when tasks failed, and after a failed commit too. It deletes files only if the ticket was never redeemed:
                  those in messages, and those of killed tasks, which have this operation's id in their names.

In a classic session a job has no ticket, and ends by ``end_job`` or ``abort_job``.

Not here: how a snapshot is made (``table.transaction``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from icelock.arrow.write.context import WriteContext
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import CommitError
from icelock.metadata.canonical_json import schema_json
from icelock.spark.driver.result import result_of
from icelock.spark.driver.stage import begin, stage
from icelock.spark.driver.target import TargetFiles
from icelock.spark.driver.unreached import paths_in, remove, remove_all, remove_unreported, sweep
from icelock.spark.sealed.job import Action, Job, Staged, put, put_result, take
from icelock.spark.sealed.messages import FilesWritten, SealedFiles
from icelock.spark.sealed.ticket import PlannedWrite, Ticket
from icelock.spark.settings.catalogs import open_table
from icelock.spark.settings.session import Settings
from icelock.table.change_result import ChangeResult
from icelock.table.epochs import EpochCommittedError

_logger = logging.getLogger(__name__)


def commit_write(context: WriteContext, ticket: Ticket, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit a job's files in one snapshot, or keep them for the next job; arguments and errors are those of ``end_job``."""
    write = ticket.redeem()
    staged = take(write.job) if write.job.action == Action.REWRITE else None
    end = end_job(context, write, messages, staged)
    if isinstance(end, Staged):
        try:
            put(write.job, end)
        except BaseException:
            remove(context.io, end.written.paths)
            raise
    elif write.job.tells:
        try:
            put_result(write.job, end.to_json())
        except OSError as e:
            _logger.warning("snapshot %s was committed, but what it did cannot be told: %s", end.snapshot_id, e)


def end_job(  # noqa: PLR0913 - what a job is, and what is known already
    context: WriteContext,
    write: PlannedWrite,
    messages: Sequence[WriterCommitMessage | None],
    staged: Staged | None = None,
    *,
    found: FilesWritten | None = None,
    catalog: EncryptedCatalog | None = None,
    files: TargetFiles | None = None,
) -> Staged | ChangeResult:
    """Commit a job's files in one snapshot, or return them for the operation's next job; on an error no file is left.

    Args:
        context: what tasks wrote with.
        write: what was planned.
        messages: of the tasks, in their order.
        staged: what the operation's first job has left.
        found: rows to delete that the calling process knows, beside what tasks tell.
        catalog: the table's, if it is open.
        files: that were planned for a job that removes rows; they are planned again if they are not given.

    Raises:
        CommitError: a message is missing, or the table was replaced, or got other columns than a replacement was written for.
        IntegrityError: a message is not what a task of this job sent.
        CommitFailedException: other writers won each time.
        ValidationException: another writer's commit conflicts with this one, or columns of the files are no longer the table's.
    """
    try:
        return _ended(context, write, messages, staged, found, catalog, files)
    except EpochCommittedError as e:
        _logger.info("table %s: %s", write.job.table, e)
        remove_all(context)  # those of earlier attempts of its tasks too, which no transaction knows
        return ChangeResult()


def _ended(  # noqa: PLR0913 - those of ``end_job``
    context: WriteContext,
    write: PlannedWrite,
    messages: Sequence[WriterCommitMessage | None],
    staged: Staged | None,
    found: FilesWritten | None,
    catalog: EncryptedCatalog | None,
    files: TargetFiles | None,
) -> Staged | ChangeResult:
    job = write.job
    before = [known for known in (None if staged is None else staged.written, found) if known is not None]
    try:
        tasks = _opened(job, messages)
        done = FilesWritten.together([*before, *tasks], retried=any(each.retried for each in (*before, *tasks)))
        if _has_next_job(job, done):
            return Staged(written=done, keks=write.keks, schema=schema_json(context.schema))
        transaction = begin(write, staged, context.schema, catalog)
        if job.epoch is not None:
            job.epoch.check(transaction.table_metadata, job.branch)
            if not done.files and job.action == Action.APPEND:
                if done.retried:
                    remove_all(context)
                return ChangeResult()
        whole = stage(transaction, job, done, files)
        if job.epoch is not None:
            job.epoch.stage(transaction, job.branch)
    except BaseException:
        remove(context.io, [*(path for earlier in before for path in earlier.paths), *paths_in(job, messages)])
        remove_all(context)  # of messages that do not open or are missing
        raise
    made = [producer.snapshot_id for producer in transaction.staged.producers]
    metadata = transaction.commit_transaction().metadata
    if done.retried:
        remove_unreported(context, done.paths)
    return result_of(job, done, next(filter(None, map(metadata.snapshot_by_id, made)), None), whole)


def abort_write(context: WriteContext, ticket: Ticket, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a write whose commit never began."""
    try:
        write = ticket.redeem()
    except CommitError:
        _logger.debug("the commit of write %s had begun, and is responsible for its files", context.operation_id)
        return
    abort_job(context, write.job, messages)


def abort_job(context: WriteContext, job: Job, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Delete the files of a job: those in its messages, and those of killed tasks."""
    remove(context.io, paths_in(job, messages))
    sweep(context)


def discard_staged(settings: Settings, job: Job) -> None:
    """Delete the files that a job staged and no other job took."""
    staged = take(job)
    if staged is not None:
        remove(open_table(settings, job.table).storage, staged.written.paths)


def _opened(job: Job, messages: Sequence[WriterCommitMessage | None]) -> list[FilesWritten]:
    """Open the messages; they are in the order of Spark's partitions."""
    recipient = job.recipient
    opened: list[FilesWritten] = []
    for task, message in enumerate(messages):
        if not isinstance(message, SealedFiles):
            raise CommitError(f"expected the files of {len(messages)} tasks, got {type(message).__name__} from one: nothing is committed")
        opened.append(message.open(recipient, task=task))
    return opened


def _has_next_job(job: Job, done: FilesWritten) -> bool:
    """Whether another job of the operation must remove rows before the commit."""
    if job.action == Action.MERGE:
        return bool(done.positions) and not job.pinned.merge_on_read
    return job.action == Action.STAGE
