"""Plain tables of versions 1 and 2 beside the encrypted ones: INSERT, DELETE by a filter, CREATE, as far as PyIceberg writes.

1 the table says whether it may take rows (``PlainTable.check_write``): in a catalog that has a KMS only if its settings name it plain.
2 tasks write files (``spark.task.write_plain``). 3 this process commits them, and deletes them if the commit was refused.

Not here: reading, which is that of encrypted tables (``tables``); UPDATE and MERGE, which PyIceberg does not have.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError, ValidationException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, EqualTo, IsNull, Or
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.properties import property_as_bool
from pyspark.sql import DataFrame

from icelock.catalog.base import EncryptedCatalog
from icelock.errors import PolicyError
from icelock.spark.driver.commit import remove
from icelock.spark.driver.distribution import Layout, distributed
from icelock.spark.driver.interrupts import check
from icelock.spark.driver.result import ChangeResult
from icelock.spark.driver.write_here import run_tasks
from icelock.spark.sealed.hpke import Recipient
from icelock.spark.sealed.job import MAIN
from icelock.spark.settings.catalogs import executor_properties
from icelock.spark.settings.options import TABLE, TableName, WriteOptions, distribution_options
from icelock.spark.settings.session import settings_of
from icelock.spark.task.write_plain import PlainWritePlan, write_plain_rows
from icelock.table.plain import PlainTable

_FIELDS: Final = tuple(field.name for field in DATA_FILE_TYPE[2].fields)
_DELETE_FILES: Final = ("total-position-deletes", "total-equality-deletes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWrite:
    """What a statement says of its write: options of Spark's writer, and the branch of the table's name."""

    name: TableName
    branch: str
    snapshot_properties: Mapping[str, str]
    spread: Mapping[str, str]

    @classmethod
    def of(cls, name: TableName, given: Mapping[str, str], branch: str | None) -> PlainWrite:
        """Check options; those that PyIceberg's commits cannot honour are a PolicyError."""
        spread, others = distribution_options(given)
        options = WriteOptions.parse({**others, TABLE: str(name)}, overwrite=False)
        if options.validate_from is not None:
            raise PolicyError(
                f"table {name} is plain, and written by PyIceberg, which cannot validate from a snapshot: leave the option out"
            )
        return cls(name=name, branch=branch or options.branch or MAIN, snapshot_properties=options.snapshot_properties, spread=spread)


def insert(table: PlainTable, rows: DataFrame, write: PlainWrite, replaced: BooleanExpression | None) -> ChangeResult:
    """Add rows, in the place of those that a filter finds, or of the partitions that get rows (``replaced`` is None), in one commit.

    ``AlwaysFalse()`` replaces nothing.

    Raises:
        PolicyError: the table may not take rows, or cannot be written so; nothing was written.
        CommitFailedException, ValidationException: another writer was first; nothing was committed, and no file is left.
        PySparkException: tasks failed.
    """
    table = table.at_one_version()
    table.check_write()
    if replaced is None:
        _check_identity(table, write.name)
    before, files = table.metadata, write_files(table.catalog, table.metadata, table.io.properties, rows, write)  # type: ignore[arg-type]  # an EncryptedCatalog
    try:
        check()
        with table.transaction() as transaction:
            removed = _partitions_of(table, files) if replaced is None else replaced
            if removed != AlwaysFalse():
                transaction.delete(removed, dict(write.snapshot_properties), branch=write.branch)
            add_files(transaction, files, write)
    except (CommitFailedException, ValidationException, PolicyError):  # nothing was committed
        remove(table.io, [file.file_path for file in files])
        raise
    return _result(before, table.metadata, write, files)


def delete(table: PlainTable, found: BooleanExpression, write: PlainWrite) -> ChangeResult:
    """Delete the rows that a filter finds, as PyIceberg does: files that have some of them are written again; errors as ``insert``."""
    table = table.at_one_version()
    table.check_write()
    before = table.metadata
    table.delete(found, dict(write.snapshot_properties), branch=write.branch)
    return _result(before, table.metadata, write, [])


def create(catalog: EncryptedCatalog, transaction: Transaction, rows: DataFrame, write: PlainWrite) -> ChangeResult:
    """Create a table with rows, by the transaction that makes it; errors as ``insert``."""
    before, io = transaction.table_metadata, transaction._table.io
    files = write_files(catalog, before, io.properties, rows, write)
    try:
        check()
        add_files(transaction, files, write)
        made = transaction.commit_transaction()
    except (CommitFailedException, ValidationException, PolicyError, TableAlreadyExistsError):  # nothing was committed
        remove(io, [file.file_path for file in files])
        raise
    return _result(before, made.metadata, write, files)


def write_files(
    catalog: EncryptedCatalog, metadata: TableMetadata, storage: Mapping[str, Any], rows: DataFrame, write: PlainWrite
) -> list[DataFile]:
    """Write rows to data files of a table that is like ``metadata``, by tasks; ``storage`` are the properties of its FileIO."""
    recipient = Recipient.of(os.urandom(32), ("plain", str(uuid.uuid4())))
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


def add_files(transaction: Transaction, files: Sequence[DataFile], write: PlainWrite) -> None:
    """Add data files to a transaction."""
    update = transaction.update_snapshot(dict(write.snapshot_properties), branch=write.branch)
    merged = property_as_bool(
        transaction.table_metadata.properties,
        TableProperties.MANIFEST_MERGE_ENABLED,
        TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
    )
    with update.merge_append() if merged else update.fast_append() as added:
        for file in files:
            added.append_data_file(file)


def _data_file(file: Any) -> DataFile:
    """Return a file that a task told of as an entry of a plain table."""
    made = DataFile.from_args(**{name: getattr(file, name) for name in _FIELDS})
    made.spec_id = file.spec_id
    return made


def _check_identity(table: PlainTable, name: TableName) -> None:
    other = next((field for field in table.spec().fields if not isinstance(field.transform, IdentityTransform)), None)
    if other is not None:
        raise PolicyError(
            f"table {name} is plain, and PyIceberg replaces partitions of columns only, not of {other.transform} ({other.name}): "
            "say which rows are replaced by INSERT INTO ... REPLACE WHERE, or DELETE them first"
        )


def _partitions_of(table: PlainTable, files: Sequence[DataFile]) -> BooleanExpression:
    """Return a filter that finds the rows of the partitions that files are in."""
    schema = table.schema()
    columns = [str(schema.find_column_name(field.source_id)) for field in table.spec().fields]
    if not columns:
        return AlwaysTrue()
    found: BooleanExpression = AlwaysFalse()
    for values in {tuple(file.partition._data) for file in files}:
        one: BooleanExpression = AlwaysTrue()
        for column, value in zip(columns, values, strict=True):
            one = And(one, IsNull(term=column) if value is None else EqualTo(term=column, value=value))
        found = Or(found, one)
    return found


def _result(before: TableMetadata, after: TableMetadata, write: PlainWrite, files: Sequence[DataFile]) -> ChangeResult:
    head = after.snapshot_by_name(write.branch)
    base = before.snapshot_by_name(write.branch)
    if head is None or (base is not None and base.snapshot_id == head.snapshot_id):
        return ChangeResult()
    inserted = sum(int(file.record_count) for file in files)
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
