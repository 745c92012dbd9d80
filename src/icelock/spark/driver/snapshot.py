"""The snapshot that a job ends in: the table's transaction, and what is staged in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64
from pyspark.sql.types import StructType

from icelock.catalog.base import EncryptedCatalog
from icelock.errors import CommitError
from icelock.format.encrypted_key import EncryptedKey
from icelock.metadata.column_types import schema_from_json
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from icelock.plan.whole_files import split_by_coverage
from icelock.spark.driver.new_table import CREATES, new_table_transaction
from icelock.spark.driver.target import check_same_table, target_scan
from icelock.spark.sealed.job import MAIN, Action, Job, Purpose
from icelock.spark.sealed.messages import FilesWritten
from icelock.spark.sealed.seen import base_of
from icelock.spark.sealed.ticket import PlannedWrite
from icelock.spark.settings.catalogs import open_catalog, table_of
from icelock.table.commit.conflicts import MERGE_ISOLATION, Since
from icelock.table.commit.still_fits import check_same_columns, check_same_names
from icelock.table.rows.engine_change import EngineWork
from icelock.table.table import Table
from icelock.table.transaction import EncryptedTransaction

_LINEAGE: Final = frozenset({LAST_UPDATED.field_id, ROW_ID.field_id})


def begin(
    write: PlannedWrite, *, keks: tuple[EncryptedKey, ...], schemas: tuple[str, ...], catalog: EncryptedCatalog | None = None
) -> EncryptedTransaction:
    """Return the transaction to commit with, on the table as it is now.

    ``keks`` were minted for the write; ``schemas`` are those of its files, as Iceberg's JSON, that of this job first.

    Raises:
        CommitError: the table was replaced by another one, or has other columns than a replacement was written for.
        ValidationException: columns of the files are no longer the table's.
    """
    name = write.job.table
    catalog = catalog or open_catalog(name.catalog, write.properties)
    if write.staged_table is not None:
        transaction: EncryptedTransaction = catalog.resume_create_transaction(name.identifier, write.staged_table)
    elif write.job.action in CREATES:
        transaction = new_table_transaction(catalog, write.job, StructType.fromJson(json.loads(write.schema or "")))
        if transaction.staged.write_context().schema.as_struct() != schema_from_json(schemas[0]).as_struct():
            raise CommitError(
                f"table {name} got other columns while rows were written to replace it, so their field ids are wrong: write them again"
            )
    else:
        table = table_of(catalog, name)
        check_same_table(table, write.table_uuid, name)
        for schema in schemas:
            _check_columns(write, schema_from_json(schema), table.schema())
        transaction = table.transaction()
    transaction.staged.prepare_kek(keks)
    return transaction


def _check_columns(write: PlannedWrite, written: Schema, now: Schema) -> None:
    """Check that the columns of the written files are still the table's; else it is a ValidationException."""
    name = str(write.job.table)
    own = Schema(*(field for field in written.fields if field.field_id not in _LINEAGE))
    check_same_columns(own, now, table=name)
    if write.job.action != Action.APPEND:  # the filter, or the key, names columns
        check_same_names(own, now, own.field_ids, table=name)


def stage(transaction: EncryptedTransaction, job: Job, done: FilesWritten) -> None:
    """Stage the snapshot of what tasks did; a conflict with another writer's commit is a ValidationException."""
    properties = job.snapshot_properties
    since = since_of(transaction._table, job)
    if job.action == Action.OVERWRITE:
        transaction.overwrite_with_data_files(done.files, job.row_filter, snapshot_properties=properties, branch=job.branch, since=since)
    elif job.action == Action.OVERWRITE_PARTITIONS:
        transaction.replace_partitions(done.files, snapshot_properties=properties, branch=job.branch, since=since)
    elif job.action in {Action.MERGE, Action.REWRITE}:
        _change_rows(transaction, job, done)
    else:
        if job.action == Action.REPLACE and since is not None:
            transaction.staged.expect_head(MAIN, since.snapshot_id)
        transaction.append_data_files(done.files, snapshot_properties=properties, branch=job.branch)


def _change_rows(transaction: EncryptedTransaction, job: Job, done: FilesWritten) -> None:
    """Stage what the tasks of a delete, an upsert or an overwrite by filter did, on the plan that they had."""
    scan = target_scan(transaction._table, job)
    base = job.pinned.snapshot_id
    merges = job.purpose == Purpose.MERGE
    whole, looked_into = ([], []) if base is None else split_by_coverage(scan.plan_files(), scan.full_schema, scan.exact_filter)
    planned = {task.file.file_path: task for task in (*looked_into, *(whole if merges else ()))}
    _check_seen(done, planned, job)
    # What an upsert's first job found is in both; its second job wrote those files again.
    positions = {path: rows for path, rows in done.positions.items() if path not in set(done.removed)}
    transaction.change_rows(
        EngineWork(
            removed=[*(() if merges else whole), *(planned[path] for path in done.removed)],
            added=done.files,
            deleted=[(planned[path], BitMap64.deserialize(rows)) for path, rows in positions.items()],
        ),
        row_filter=scan.row_filter,
        base_snapshot_id=base,
        operation=Operation.DELETE if job.purpose == Purpose.DELETE else Operation.OVERWRITE,
        isolation_property=MERGE_ISOLATION if merges else None,
        snapshot_properties=job.snapshot_properties,
        branch=job.branch,
        since=since_of(transaction._table, job),
    )


def since_of(table: Table, job: Job) -> Since | None:
    """Return the snapshot that a write of rows from the table itself is validated from: the user's, or the one that was read."""
    if job.validate_from is not None:
        return Since(snapshot_id=job.validate_from)
    return base_of(table.metadata, job.seen, job.branch)


def _check_seen(done: FilesWritten, planned: Mapping[str, FileScanTask], job: Job) -> None:
    """Check that tasks looked into each file of this plan, which is made again here: a file left out would keep its rows."""
    wanted = set(planned)
    seen = {*done.seen, *done.positions}
    if job.purpose == Purpose.MERGE:
        wanted &= seen
    if seen != wanted:
        raise CommitError(
            f"tasks looked into other files than the plan has ({', '.join(sorted(seen ^ wanted))}): nothing is committed; try again"
        )
