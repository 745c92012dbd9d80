"""What tasks did becomes a staged snapshot: of the table as it is now, which is loaded again and must be the same one.

Not here: the messages, and what an error leaves (``spark.driver.commit``), how a snapshot is made (``table.transaction``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64
from pyspark.sql.types import StructType

from icelock.catalog.base import EncryptedCatalog
from icelock.errors import CommitError
from icelock.metadata.column_types import schema_from_json
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from icelock.spark.driver.new_table import CREATES, new_table_transaction
from icelock.spark.driver.target import TargetFiles, check_same_table, target_files, target_scan
from icelock.spark.sealed.job import MAIN, Action, Job, Purpose, Staged, check_staged
from icelock.spark.sealed.messages import FilesWritten
from icelock.spark.sealed.seen import base_of
from icelock.spark.sealed.ticket import PlannedWrite
from icelock.spark.settings.catalogs import open_catalog, table_of
from icelock.table.commit.conflicts import MERGE_ISOLATION, Since, check_same_columns, check_same_names
from icelock.table.rows.file_rewrite import EngineWork
from icelock.table.table import Table
from icelock.table.transaction import EncryptedTransaction

_LINEAGE: Final = frozenset({LAST_UPDATED.field_id, ROW_ID.field_id})


def begin(write: PlannedWrite, staged: Staged | None, schema: Schema, catalog: EncryptedCatalog | None) -> EncryptedTransaction:
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
        staged_before = [] if staged is None or staged.schema is None else [schema_from_json(staged.schema)]
        for written in (schema, *staged_before):
            _check_columns(job, written, table.schema())
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


def stage(transaction: EncryptedTransaction, job: Job, done: FilesWritten, files: TargetFiles | None) -> Sequence[FileScanTask]:
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
