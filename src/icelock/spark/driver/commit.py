"""The end of a job, in the driver: one snapshot, or files for the next job of the operation, or no file left.

``commit``  1 the ticket is redeemed: from here on this module is responsible for the files, those that an earlier job staged included. It
            also has the key that opens the messages. 2 each message opens as its task's. 3 the table is loaded again and must be the same
            one; a new one is staged again. 4 the table's own transaction commits the files. It deletes them if the commit certainly
            failed, keeps them if the outcome is unknown, and retries on other writers' commits without running a task again. 5 if a task
            was retried, the files of its earlier attempts are deleted.
``abort``   Spark calls it when tasks failed, and after a failed commit too. It deletes files only if the ticket was never redeemed: those
            in messages, and those of killed tasks, which have this operation's id in their names.

Not here: how a snapshot is made (``table.transaction``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from icelock.arrow.write.context import WriteContext
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import CommitError, IntegrityError
from icelock.io.listing import delete_files, list_files
from icelock.metadata.canonical_json import schema_json
from icelock.metadata.column_types import schema_from_json
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from icelock.spark.driver.new_table import CREATES, new_table_transaction
from icelock.spark.driver.result import result_of
from icelock.spark.driver.target import TargetFiles, check_same_table, target_files, target_scan
from icelock.spark.sealed.job import MAIN, Action, Job, Purpose, Staged, check_staged, put, put_result, take
from icelock.spark.sealed.messages import FilesWritten, SealedFiles
from icelock.spark.sealed.seen import base_of
from icelock.spark.sealed.ticket import PlannedWrite, Ticket
from icelock.spark.settings.catalogs import open_catalog, open_table, table_of
from icelock.spark.settings.session import Settings
from icelock.table.change_result import ChangeResult
from icelock.table.commit.conflicts import MERGE_ISOLATION, Since, check_same_columns, check_same_names
from icelock.table.epochs import EpochCommittedError
from icelock.table.rows.file_rewrite import EngineWork
from icelock.table.table import Table
from icelock.table.transaction import EncryptedTransaction

_LINEAGE: Final = frozenset({LAST_UPDATED.field_id, ROW_ID.field_id})
# Seconds before each listing. Other tasks of the job may still write when ``abort`` is called: Spark kills them, and destroys their Python
# workers 2 s later (spark.python.task.killTimeout).
_SWEEPS: Final = (0.0, 1.0, 1.5, 1.5)
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
        remove_unreported(context, ())
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
        transaction = _begin(write, staged, context.schema, catalog)
        if job.epoch is not None:
            job.epoch.check(transaction.table_metadata, job.branch)
            if not done.files and job.action == Action.APPEND:
                remove_unreported(context, ())
                return ChangeResult()
        whole = _stage(transaction, job, done, files)
        if job.epoch is not None:
            job.epoch.stage(transaction, job.branch)
    except BaseException:
        remove(context.io, [*(path for earlier in before for path in earlier.paths), *_paths(job, messages)])
        remove(context.io, unreported_files(context))  # of messages that do not open or are missing
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
    remove(context.io, _paths(job, messages))
    sweep(context)


def sweep(context: WriteContext) -> None:
    """Delete all files of an operation, those that killed tasks may still write too."""
    for wait in _SWEEPS:
        time.sleep(wait)
        remove(context.io, unreported_files(context))


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


def remove_unreported(context: WriteContext, reported: Iterable[str]) -> None:
    """Delete the files of a write that no message reported: those of earlier attempts of its tasks."""
    known = set(reported)
    remove(context.io, (location for location in unreported_files(context) if location not in known))


def unreported_files(context: WriteContext) -> list[str]:
    """Return files with a write's id, if the storage can list: killed tasks leave files that no message reports."""
    folder = context.properties.get("write.data.path", f"{context.location.rstrip('/')}/data")
    try:
        files = list_files(context.io, folder)
        return [file.location for file in files if context.operation_id in file.location.rpartition("/")[2]]
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


def _has_next_job(job: Job, done: FilesWritten) -> bool:
    """Whether another job of the operation must remove rows before the commit."""
    if job.action == Action.MERGE:
        return bool(done.positions) and not job.pinned.merge_on_read
    return job.action == Action.STAGE


def _begin(write: PlannedWrite, staged: Staged | None, schema: Schema, catalog: EncryptedCatalog | None) -> EncryptedTransaction:
    """Return the transaction to commit with, on the table as it is now; ``schema`` is that of this job's files."""
    job, name = write.job, write.job.table
    if job.action == Action.REWRITE:
        check_staged(staged, job)
    catalog = catalog or open_catalog(name.catalog, write.properties)
    if write.staged_table is not None:
        transaction: EncryptedTransaction = catalog.resume_create_transaction(name.identifier, write.staged_table)
    elif job.action in CREATES:
        transaction = new_table_transaction(catalog, job, StructType.fromJson(json.loads(write.schema or "")))
        if transaction.staged.write_context().schema.as_struct() != schema.as_struct():
            raise CommitError(
                f"table {name} got other columns while rows were written to replace it, so their field ids are wrong: write them again"
            )
    else:
        table = table_of(catalog, name)
        check_same_table(table, write.table_uuid, name)
        _check_columns(job, schema, table.schema())
        if staged is not None and staged.schema is not None:
            _check_columns(job, schema_from_json(staged.schema), table.schema())
        transaction = table.transaction()
    transaction.staged.prepare_kek(write.keks if staged is None else staged.keks)
    return transaction


def _check_columns(job: Job, written: Schema, now: Schema) -> None:
    """Check that the columns of the written files are still the table's; else it is a ValidationException."""
    name = str(job.table)
    own = Schema(*(field for field in written.fields if field.field_id not in _LINEAGE))
    check_same_columns(own, now, table=name)
    if job.action != Action.APPEND:  # the filter, or the key, names columns
        check_same_names(own, now, own.field_ids, table=name)


def _stage(transaction: EncryptedTransaction, job: Job, done: FilesWritten, files: TargetFiles | None) -> Sequence[FileScanTask]:
    """Stage the snapshot of what tasks did; return the files that it removes unread. A conflict is a ValidationException."""
    properties = job.snapshot_properties
    since = _since(transaction._table, job)
    if job.action == Action.OVERWRITE:
        transaction.overwrite_with_data_files(
            done.files, job.row_filter, snapshot_properties=properties, branch=job.branch, since=since, isolation=job.isolation
        )
    elif job.action == Action.OVERWRITE_PARTITIONS:
        transaction.replace_partitions(done.files, snapshot_properties=properties, branch=job.branch, since=since, isolation=job.isolation)
    elif job.action in {Action.MERGE, Action.REWRITE}:
        scan = target_scan(transaction._table, job)
        found = files or target_files(scan, job)
        _change_rows(transaction, job, done, found, scan.row_filter)
        return found.whole
    else:
        if job.action == Action.REPLACE and since is not None:
            transaction.staged.expect_head(MAIN, since.snapshot_id)
        operation = Operation.OVERWRITE if job.new_table is not None and job.new_table.replaces else Operation.APPEND
        transaction.append_data_files(done.files, snapshot_properties=properties, branch=job.branch, operation=operation)
    return ()


def _change_rows(
    transaction: EncryptedTransaction, job: Job, done: FilesWritten, files: TargetFiles, row_filter: BooleanExpression
) -> None:
    """Stage what the tasks of a delete, an update, a merge or an overwrite by filter did, on the plan that they had."""
    planned = {task.file.file_path: task for task in files.searched}
    _check_seen(done, planned, job)
    # What an upsert's first job found is in both; its second job wrote those files again.
    positions = {path: rows for path, rows in done.positions.items() if path not in set(done.removed)}
    transaction.change_rows(
        EngineWork(
            removed=[*files.whole, *(planned[path] for path in done.removed)],
            added=done.files,
            deleted=[(planned[path], BitMap64.deserialize(rows)) for path, rows in positions.items()],
        ),
        row_filter=row_filter,
        base_snapshot_id=job.pinned.snapshot_id,
        operation=Operation.DELETE if job.purpose == Purpose.DELETE else Operation.OVERWRITE,
        isolation_property=MERGE_ISOLATION if job.purpose == Purpose.MERGE else None,
        snapshot_properties=job.snapshot_properties,
        branch=job.branch,
        since=_since(transaction._table, job),
        isolation=job.isolation,
    )


def _since(table: Table, job: Job) -> Since | None:
    """Return the snapshot that a write of rows from the table itself is validated from: the user's, or the one that was read."""
    if job.validate_from is not None:
        return Since(snapshot_id=job.validate_from)
    return base_of(table.metadata, job.seen, job.branch)


def _check_seen(done: FilesWritten, planned: Mapping[str, FileScanTask], job: Job) -> None:
    """Check that tasks looked into each file of the plan: a file left out would keep its rows."""
    wanted = set(planned)
    seen = {*done.seen, *done.positions}
    if job.by_position:
        wanted &= seen
    if seen != wanted or len(done.seen) != len(set(done.seen)):
        which = ", ".join(sorted(seen ^ wanted)) or "one of them twice"
        raise CommitError(
            f"tasks looked into other files than the plan has ({which}): nothing is committed. Try again once; if it says so again, Spark "
            "found the statement's rows in files that its filters leave out, and trying again does not help: write the condition another "
            "way, and report it"
        )
