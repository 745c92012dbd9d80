"""Plain tables of versions 1 and 2 beside the encrypted ones: INSERT, DELETE by a filter, CREATE, as far as PyIceberg writes.

1 the table says whether it may take rows (``PlainTable.check_write``): in a catalog that has a KMS only if its settings name it plain.
2 tasks write files (``spark.task.write_plain``). 3 this process commits them, and deletes them if the commit was refused.

Not here: reading, which is that of encrypted tables (``tables``); UPDATE and MERGE, which PyIceberg does not have.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError, ValidationException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.utils.properties import property_as_bool
from pyspark.sql import DataFrame

from icelock.arrow.write.options import PARQUET
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import PolicyError
from icelock.spark.driver.distribution import Layout, distributed
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.run_jobs import rows_seen
from icelock.spark.driver.unreached import remove
from icelock.spark.driver.write_here import run_tasks
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.sealed.job import MAIN
from icelock.spark.sealed.seen import base_of
from icelock.spark.settings.catalogs import executor_properties
from icelock.spark.settings.options import TABLE, TableName
from icelock.spark.settings.session import settings_of
from icelock.spark.settings.write_options import WRITE_FORMAT, WriteOptions, distribution_options, properties_for
from icelock.spark.task.write_plain import PlainWritePlan, write_plain_rows
from icelock.table.change_result import ChangeResult
from icelock.table.plain import PlainTable
from icelock.table.read.scan import DataScan
from icelock.table.rows.plain_rewrite import check_removable, without_rows

_FIELDS: Final = tuple(field.name for field in DATA_FILE_TYPE[2].fields)
_DELETE_FILES: Final = ("total-position-deletes", "total-equality-deletes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWrite:
    """What a statement says of its write: options of Spark's writer, and the branch of the table's name."""

    name: TableName
    branch: str
    snapshot_properties: Mapping[str, str]
    of_files: Mapping[str, str]
    spread: Mapping[str, str]

    @classmethod
    def of(cls, name: TableName, given: Mapping[str, str], branch: str | None) -> PlainWrite:
        """Check options; those that PyIceberg's commits cannot honour are a PolicyError."""
        spread, others = distribution_options(given)
        options = WriteOptions.parse({**others, TABLE: str(name)}, overwrite=False)
        cannot = (
            (options.validate_from, "validate from a snapshot"),
            (options.output_spec, "write with an older spec"),
            (options.isolation, "check another isolation level than serializable"),
            (None if options.of_files.get(WRITE_FORMAT, PARQUET).lower() == PARQUET else WRITE_FORMAT, "write other files than Parquet"),
        )
        for asked, what in cannot:
            if asked is not None:
                raise PolicyError(f"table {name} is plain, and written by PyIceberg, which cannot {what}: leave the option out")
        return cls(
            name=name,
            branch=branch or options.branch or MAIN,
            snapshot_properties=options.snapshot_properties,
            of_files=options.of_files,
            spread=spread,
        )


def insert(table: PlainTable, rows: DataFrame, write: PlainWrite, replaced: BooleanExpression | None) -> ChangeResult:
    """Add rows, in the place of those that a filter finds, or of the partitions that get rows (``replaced`` is None), in one commit.

    ``AlwaysFalse()`` replaces nothing.

    Raises:
        PolicyError: the table may not take rows; nothing was written.
        CommitFailedException, ValidationException: another writer was first; nothing was committed, and no file is left.
        PySparkException: tasks failed.
    """
    table = table.at_one_version()
    table.check_write()
    before, catalog = table.metadata, cast("EncryptedCatalog", table.catalog)
    if replaced != AlwaysFalse():
        _check_own_rows(rows, before, write)
    added = write_files(catalog, before, table.io.properties, rows, write)
    inserted = sum(int(file.record_count) for file in added)
    with _before_commit(table.io, added):
        if replaced is None:
            removed = _of_partitions(table, added, write)
        else:
            removed, kept = _without(table, replaced, write)
            added += kept
        check_removable(removed, table=str(write.name))
    with _deleted_if_refused(table.io, added, write):
        _commit(table, added, removed, write)
    return _result(before, table.metadata, write, inserted, added)


def delete(table: PlainTable, found: BooleanExpression, write: PlainWrite) -> ChangeResult:
    """Delete the rows that a filter finds: files that have some of them are written again, by this process; errors as ``insert``."""
    table = table.at_one_version()
    table.check_write()
    before = table.metadata
    kept: list[DataFile] = []
    with _before_commit(table.io, kept):
        removed, new = _without(table, found, write)
        kept += new
    if not removed:
        return ChangeResult()
    with _deleted_if_refused(table.io, kept, write):
        _commit(table, kept, removed, write)
    return _result(before, table.metadata, write, 0, kept)


def create(catalog: EncryptedCatalog, transaction: Transaction, rows: DataFrame, write: PlainWrite) -> ChangeResult:
    """Create a table with rows, by the transaction that makes it; errors as ``insert``."""
    before, io = transaction.table_metadata, transaction._table.io
    files = write_files(catalog, before, io.properties, rows, write)
    with _before_commit(io, files):
        _add(transaction, files, write)
    with _deleted_if_refused(io, files, write):
        made = transaction.commit_transaction()
    return _result(before, made.metadata, write, sum(int(file.record_count) for file in files), files)


def write_files(
    catalog: EncryptedCatalog, metadata: TableMetadata, storage: Mapping[str, Any], rows: DataFrame, write: PlainWrite
) -> list[DataFile]:
    """Write rows to data files of a table that is like ``metadata``, by tasks; ``storage`` are the properties of its FileIO."""
    recipient = Recipient.new(str(uuid.uuid4()), "plain")
    if write.of_files:
        metadata = metadata.model_copy(update={"properties": properties_for(metadata.properties, write.of_files)})
    sent = executor_properties(storage, catalog.properties)
    plan = PlainWritePlan.of(metadata, sent, sender=recipient.sender)
    order = metadata.sort_order_by_id(metadata.default_sort_order_id) or UNSORTED_SORT_ORDER
    layout = Layout(
        schema=metadata.schema(),
        spec=metadata.spec(),
        sort_order=order,
        properties=metadata.properties,
    )
    case_sensitive = settings_of(rows.sparkSession).case_sensitive
    spread = distributed(rows, layout, write.spread, case_sensitive=case_sensitive)
    messages = run_tasks(spread, partial(write_plain_rows, plan), {})
    written = [message.open(recipient, task=number) for number, message in enumerate(messages)]
    return [_data_file(file) for part in written for file in part.files]


@contextmanager
def _before_commit(io: FileIO, files: list[DataFile]) -> Iterator[None]:
    """Delete files, those that come meanwhile too, on any error, and if the user interrupted the statement."""
    try:
        yield
        check()
    except BaseException:
        remove(io, [file.file_path for file in files])
        raise


@contextmanager
def _deleted_if_refused(io: FileIO, files: Sequence[DataFile], write: PlainWrite) -> Iterator[None]:
    """Delete files if nothing was committed for certain: other errors of a commit leave it unknown, or say that it was made."""
    try:
        yield
    except (CommitFailedException, ValidationException, PolicyError, TableAlreadyExistsError) as e:
        remove(io, [file.file_path for file in files])
        if isinstance(e, ValidationException):
            raise ValidationException(
                f"table {write.name}: another writer committed first, and nothing was committed; run the statement again ({e})"
            ) from e
        raise


def _commit(table: PlainTable, added: Sequence[DataFile], removed: Sequence[DataFile], write: PlainWrite) -> None:
    with table.transaction() as transaction:
        if not removed:
            _add(transaction, added, write)
            return
        with transaction.update_snapshot(dict(write.snapshot_properties), branch=write.branch).overwrite() as change:
            if not added:  # as Java's BaseOverwriteFiles.operation
                change._operation = Operation.DELETE
            for file in removed:
                change.delete_data_file(file)
            for file in added:
                change.append_data_file(file)


def _add(transaction: Transaction, files: Sequence[DataFile], write: PlainWrite) -> None:
    update = transaction.update_snapshot(dict(write.snapshot_properties), branch=write.branch)
    merged = property_as_bool(
        transaction.table_metadata.properties,
        TableProperties.MANIFEST_MERGE_ENABLED,
        TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
    )
    with update.merge_append() if merged else update.fast_append() as added:
        for file in files:
            added.append_data_file(file)


def _check_own_rows(rows: DataFrame, metadata: TableMetadata, write: PlainWrite) -> None:
    """Check that rows of the table itself, which replace others, are of its current snapshot: else what was committed since is lost."""
    base = base_of(metadata, rows_seen(rows, write.name, settings_of(rows.sparkSession)), write.branch)
    head = metadata.snapshot_by_name(write.branch)
    if base is not None and base.snapshot_id != (None if head is None else head.snapshot_id):
        raise ValidationException(
            f"table {write.name}: the rows were read from its snapshot {base.snapshot_id}, and another writer committed since: nothing was "
            "written; read the rows again"
        )


def _planned(table: PlainTable, found: BooleanExpression, write: PlainWrite) -> DataScan:
    scan = table.scan()
    return (scan if write.branch == MAIN else scan.use_ref(write.branch)).filter(found)


def _without(table: PlainTable, found: BooleanExpression, write: PlainWrite) -> tuple[list[DataFile], list[DataFile]]:
    if found == AlwaysFalse() or table.metadata.snapshot_by_name(write.branch) is None:
        return [], []
    return without_rows(_planned(table, found, write), table=str(write.name))


def _of_partitions(table: PlainTable, files: Sequence[DataFile], write: PlainWrite) -> list[DataFile]:
    """Return the table's files in the partitions that other files are in, as in Java those of the current spec."""
    spec_id, partitions = table.metadata.default_spec_id, {_key(file) for file in files}
    planned = (task.file for task in _planned(table, AlwaysTrue(), write).plan_files())
    return [file for file in planned if file.spec_id == spec_id and _key(file) in partitions]


def _key(file: DataFile) -> str:
    return repr(file.partition._data)  # tells 0.0 from -0.0, and NaN from nothing


def _data_file(file: Any) -> DataFile:
    """Return a file that a task told of as an entry of a plain table."""
    made = DataFile.from_args(**{name: getattr(file, name) for name in _FIELDS})
    made.spec_id = file.spec_id
    return made


def _result(before: TableMetadata, after: TableMetadata, write: PlainWrite, inserted: int, files: Sequence[DataFile]) -> ChangeResult:
    head = after.snapshot_by_name(write.branch)
    base = before.snapshot_by_name(write.branch)
    if head is None or (base is not None and base.snapshot_id == head.snapshot_id):
        return ChangeResult()
    totals, old = (({} if one is None or one.summary is None else one.summary.additional_properties) for one in (head, base))
    counted = not any(int(part.get(name, 0)) for part in (totals, old) for name in _DELETE_FILES)
    records, files_now = (int(totals.get(name, 0)) - int(old.get(name, 0)) for name in ("total-records", "total-data-files"))
    return ChangeResult(
        snapshot_id=head.snapshot_id,
        rows_inserted=inserted,
        rows_deleted=inserted - records if counted else None,
        files_added=len(files),
        files_removed=max(0, len(files) - files_now),
    )
