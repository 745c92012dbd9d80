"""The table that an operation changes, in the driver: what it was planned on, and the scan of it that all its jobs share.

Every job of an operation reads the snapshot that the first one found. An upsert reads the range of its source's keys only, by the key
columns whose order is the same in Spark and Iceberg and whose values cross without loss.

Not here: which rows of a file are deleted (``spark.task.row_rewrite``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

import json
from functools import reduce
from typing import Final

from pyiceberg import types as ice
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.table.refs import SnapshotRefType
from pyspark.sql import datasource as ds
from pyspark.sql import types as sp

from icelock.arrow.write.row_rewrite import DELETE_MODE, MERGE_MODE, DeleteMode
from icelock.errors import CommitError, PolicyError
from icelock.metadata.metadata_columns import FILE, LAST_UPDATED, POS, ROW_ID
from icelock.plan.filters.exact import exact_filter
from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.driver.distribution import Layout
from icelock.spark.sealed.job import DESCRIPTION, MAIN, Job
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.catalogs import check_ref, open_table
from icelock.spark.settings.options import VALIDATE_FROM, TableName
from icelock.spark.settings.session import Settings
from icelock.table.scan import DataScan
from icelock.table.table import Table

_RESERVED: Final = frozenset(field.name for field in (FILE, POS, ROW_ID, LAST_UPDATED))


def describe(settings: Settings, job: Job) -> sp.StructType:
    """Return what a user's process has to know of a table, as the metadata of one column; needs no key.

    A plain table, a filter that does not fit, an invalid mode, or a column with a reserved name is a PolicyError.
    """
    table = open_table(settings, job.table)
    check_branch(table, job.branch, job.table)
    table.io_for(table.metadata)  # refuses a plain table
    schema = table.schema()
    exact_filter(job.row_filter, schema, case_sensitive=True)
    for field in schema.fields:
        if field.name in _RESERVED:
            raise PolicyError(
                f"column {field.name!r} of table {job.table} has a reserved name, and changing rows needs it: rename the column"
            )
    ref = table.metadata.refs.get(job.branch)
    found = {
        "uuid": str(table.metadata.table_uuid),
        "snapshot": None if ref is None else ref.snapshot_id,
        "merge": _merges_on_read(table, MERGE_MODE, job.table),
        "delete": _merges_on_read(table, DELETE_MODE, job.table),
        "columns": [field.name for field in schema.fields],
        "uuids": [field.name for field in schema.fields if isinstance(field.field_type, ice.UUIDType)],
        "identifier": sorted(schema.identifier_field_names()),
        "layout": Layout(schema=schema, spec=table.spec(), sort_order=table.sort_order(), properties=table.metadata.properties).to_json(),
    }
    return _told(json.dumps(found))


def see(settings: Settings, job: Job) -> sp.StructType:
    """Return the present version of a table (``Seen``) as the metadata of one column; needs no key."""
    return _told(Seen.of(open_table(settings, job.table).metadata).to_text())


def _told(text: str) -> sp.StructType:
    return sp.StructType([sp.StructField(DESCRIPTION, sp.StringType(), metadata={DESCRIPTION: text})])


def check_validate_from(table: Table, job: Job) -> None:
    """Check that the table has the snapshot from which on a write is validated; else it is a PolicyError."""
    if job.validate_from is not None and table.metadata.snapshot_by_id(job.validate_from) is None:
        raise PolicyError(
            f"table {job.table} has no snapshot {job.validate_from} (option {VALIDATE_FROM}): read its rows again, and name what was read"
        )


def _merges_on_read(table: Table, name: str, identifier: TableName) -> bool:
    try:
        return DeleteMode.of(table.metadata.properties, name) is DeleteMode.MERGE_ON_READ
    except PolicyError as e:
        raise PolicyError(f"table {identifier}: {e}") from e


def check_branch(table: Table, branch: str, name: TableName) -> None:
    """Check that a branch can be written to, as the main branch always can; no such branch, or a tag, is a PolicyError."""
    if branch != MAIN:
        check_ref(table, branch, SnapshotRefType.BRANCH, name)


def check_same_table(table: Table, uuid: str | None, name: TableName) -> None:
    """Check that a table is still the one that an operation was planned on; another one of that name is a CommitError."""
    if str(table.metadata.table_uuid) != uuid:
        raise CommitError(f"table {name} was replaced by another one while rows were written (uuid {uuid} before): nothing is committed")


def target_scan(table: Table, job: Job) -> DataScan:
    """Return the scan of an operation's rows, on the snapshot that it was planned on, with the table's current columns.

    Another table is a CommitError, a snapshot that was expired a PolicyError.
    """
    base = job.pinned
    check_same_table(table, base.table_uuid, job.table)
    scan = table.scan(row_filter=_row_filter(table, job), selected_fields=job.columns or ("*",))
    return scan if base.snapshot_id is None else scan.pinned(base.snapshot_id)


def _row_filter(table: Table, job: Job) -> BooleanExpression:
    translator = FilterTranslator(table.schema(), table.schema())
    bounds = [
        kind((column,), value)
        for column, (least, greatest) in job.key_range.items()
        for kind, value in ((ds.GreaterThanOrEqual, least), (ds.LessThanOrEqual, greatest))
    ]
    translated = (translator.translate(bound) for bound in bounds)
    return reduce(And, (bound for bound in translated if bound is not None), job.row_filter)
