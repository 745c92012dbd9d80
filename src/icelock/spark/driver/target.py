"""The table that an operation changes, in the driver: what it was planned on, and the scan of it that all its jobs share.

Every job of an operation reads the snapshot that the first one found. An upsert reads the range of its source's keys only, by the key
columns whose order is the same in Spark and Iceberg and whose values cross without loss.

Not here: which rows of a file are deleted (``spark.task.row_rewrite``), the commit (``spark.driver.commit``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NamedTuple, Self

from pyiceberg import types as ice
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import FileScanTask
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyspark.sql import datasource as ds
from pyspark.sql import types as sp

from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.row_rewrite import DELETE_MODE, MERGE_MODE, UPDATE_MODE, DeleteMode
from icelock.errors import CommitError, PolicyError
from icelock.metadata.metadata_columns import FILE, LAST_UPDATED, POS, ROW_ID
from icelock.plan.filters.exact import exact_filter
from icelock.plan.whole_files import split_by_coverage
from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.driver.distribution import Layout
from icelock.spark.sealed.job import DESCRIPTION, MAIN, Job, PlannedOn, Purpose
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.catalogs import check_ref, open_table
from icelock.spark.settings.options import VALIDATE_FROM, TableName, flag
from icelock.spark.settings.session import Settings
from icelock.spark.settings.write_options import AS_THE_TABLE_SAYS, OUTPUT_SPEC, properties_for
from icelock.table.plain import AnyTable
from icelock.table.read.scan import DataScan
from icelock.table.table import Table

_RESERVED: Final = frozenset(field.name for field in (FILE, POS, ROW_ID, LAST_UPDATED))
_MODES: Final = {
    Purpose.DELETE: DELETE_MODE,
    Purpose.OVERWRITE: DELETE_MODE,
    Purpose.UPDATE: UPDATE_MODE,
    Purpose.MERGE: MERGE_MODE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """What an operation has to know of its table: ``base`` is what it is planned on, ``uuids`` and ``identifier`` are names of columns."""

    base: PlannedOn
    columns: tuple[str, ...]
    uuids: frozenset[str]
    identifier: tuple[str, ...]
    layout: Layout

    def to_json(self) -> str:
        """Return it as text."""
        base = (self.base.table_uuid, self.base.snapshot_id, self.base.merge_on_read)
        return json.dumps([base, self.columns, sorted(self.uuids), self.identifier, self.layout.to_json()])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what ``to_json`` was called on."""
        (table_uuid, snapshot_id, merge_on_read), columns, uuids, identifier, layout = json.loads(text)
        return cls(
            base=PlannedOn(table_uuid=table_uuid, snapshot_id=snapshot_id, merge_on_read=merge_on_read),
            columns=tuple(columns),
            uuids=frozenset(uuids),
            identifier=tuple(identifier),
            layout=Layout.from_json(layout),
        )


def description_of(table: Table, job: Job) -> TableDescription:
    """Return what an operation has to know of its table; needs no key.

    A plain table, no such branch, a filter that does not fit, an invalid mode, or a column with a reserved name is a PolicyError.
    """
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
    return TableDescription(
        base=PlannedOn(
            table_uuid=str(table.metadata.table_uuid),
            snapshot_id=None if ref is None else ref.snapshot_id,
            merge_on_read=_merges_on_read(table, _MODES[job.purpose], job.table),
        ),
        columns=tuple(field.name for field in schema.fields),
        uuids=frozenset(field.name for field in schema.fields if isinstance(field.field_type, ice.UUIDType)),
        identifier=tuple(sorted(schema.identifier_field_names())),
        layout=Layout(schema=schema, spec=output_spec(table, job), sort_order=table.sort_order(), properties=table.metadata.properties),
    )


def description_column(settings: Settings, job: Job) -> sp.StructType:
    """Return ``description_of`` in a column, for a user's process that has no catalog; same errors, and NoSuchTableError."""
    return as_column(description_of(open_table(settings, job.table), job).to_json())


def version_column(settings: Settings, job: Job) -> sp.StructType:
    """Return the present version of a table (``Seen``) in a column; needs no key."""
    return as_column(Seen.of(open_table(settings, job.table).metadata).to_text())


def as_column(text: str) -> sp.StructType:
    """Return a text as the metadata of one column."""
    return sp.StructType([sp.StructField(DESCRIPTION, sp.StringType(), metadata={DESCRIPTION: text})])


def output_spec(table: Table, job: Job) -> PartitionSpec:
    """Return the partition spec that an operation writes with; one that the table cannot be written with is a PolicyError."""
    if job.output_spec is None:
        return table.spec()
    specs, schema = table.metadata.specs(), table.schema()
    found = specs.get(job.output_spec)
    if found is None:
        known = ", ".join(map(str, sorted(specs)))
        raise PolicyError(f"table {job.table} has no partition spec {job.output_spec} (option {OUTPUT_SPEC}); it has {known}")
    gone = [field.name for field in found.fields if field.source_id not in schema.field_ids]
    if gone:
        raise PolicyError(
            f"table {job.table} has no column any more for {gone[0]!r} of partition spec {job.output_spec} (option {OUTPUT_SPEC}): "
            "leave the option out"
        )
    return found


def write_context(table: Table, job: Job) -> WriteContext:
    """Return what tasks of a job need to write files of a table, as the job's options ask; one that does not fit is a PolicyError."""
    context = replace(table.transaction().staged.write_context(), spec=output_spec(table, job))
    return of_job(context, job)


def of_job(context: WriteContext, job: Job) -> WriteContext:
    """Return a table's context as one job has it; options that do not fit are a PolicyError."""
    context = replace(context, operation_id=job.operation_id)
    if not job.of_files:
        return context
    as_it_says = flag(job.of_files.get(AS_THE_TABLE_SAYS), f"option {AS_THE_TABLE_SAYS}") is not False
    order = context.sort_order if as_it_says else UNSORTED_SORT_ORDER
    return replace(context, properties=properties_for(context.properties, job.of_files), sort_order=order)


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


def check_same_table(table: AnyTable, uuid: str | None, name: TableName) -> None:
    """Check that a table is still the one that an operation was planned on; another one of that name is a CommitError."""
    if str(table.metadata.table_uuid) != uuid:
        raise CommitError(f"table {name} was replaced by another one while rows were written (uuid {uuid} before): nothing is committed")


def target_scan(table: Table, job: Job) -> DataScan:
    """Return the scan of an operation's rows, on the snapshot that it was planned on, with the table's current columns.

    Another table is a CommitError, a snapshot that was expired a PolicyError.
    """
    base = job.pinned
    check_same_table(table, base.table_uuid, job.table)
    row_filter = target_filter(table, job)
    scan = table.scan(row_filter=row_filter, selected_fields=job.columns or ("*",))
    return scan if base.snapshot_id is None else scan.pinned(base.snapshot_id)


class TargetFiles(NamedTuple):
    """The files of an operation's scan: those that it removes unread, as all their rows match, and those that it has to look into."""

    whole: Sequence[FileScanTask] = ()
    searched: Sequence[FileScanTask] = ()


def target_files(scan: DataScan, job: Job) -> TargetFiles:
    """Return the files of an operation's scan; of rows that are known by position, all may have to be looked into."""
    if job.pinned.snapshot_id is None:
        return TargetFiles()
    files = scan.plan_files()
    return TargetFiles((), list(files)) if job.by_position else TargetFiles(*split_by_coverage(files, scan.full_schema, scan.exact_filter))


def target_filter(table: Table, job: Job) -> BooleanExpression:
    """Return which rows an operation is about: its filter, within the range of its keys."""
    translator = FilterTranslator(table.schema(), table.schema())
    bounds = [
        kind((column,), value)
        for column, (least, greatest) in job.key_range.items()
        for kind, value in ((ds.GreaterThanOrEqual, least), (ds.LessThanOrEqual, greatest))
    ]
    translated = (translator.translate(bound) for bound in bounds)
    return reduce(And, (bound for bound in translated if bound is not None), job.row_filter)
