"""A write in the driver, before any task runs: all that can be refused is refused here.

1 the table exists and is encrypted, or can be created. 2 the columns fit. 3 the KMS opens the KEK; if the table has no live one, it is
minted, by the one wrap of this write. 4 the ticket for the commit is issued.

Not here: the commit (``spark.driver.commit``), how tables are made (``spark.driver.new_table``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql.types import StructType

from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.row_rewrite import with_lineage
from icelock.arrow.write.writer import check_input
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy
from icelock.spark.columns.projection import find
from icelock.spark.columns.types import arrow_schema
from icelock.spark.driver.new_table import CREATES, new_table_transaction, resolved
from icelock.spark.driver.target import check_branch, check_same_table, check_validate_from, of_job, write_context
from icelock.spark.sealed.job import Action, Job
from icelock.spark.sealed.ticket import PlannedWrite, Ticket
from icelock.spark.settings.catalogs import catalog_of, executor_properties, table_of
from icelock.spark.settings.session import Settings
from icelock.spark.task.row_rewrite import RewriteWriter
from icelock.spark.task.write import OPERATION, POSITIONS, TaskWriter, WritePlan
from icelock.table.new_table import CreateTransaction
from icelock.table.table import Table


def plan_write(settings: Settings, job: Job, schema: StructType) -> TaskWriter:
    """Return the data source's writer of one job, with a ticket for its commit; errors are those of ``planned_write``."""
    plan, write = planned_write(settings, job, schema, catalog_of(settings, job.table))
    kind = RewriteWriter if job.action == Action.REWRITE else TaskWriter
    return kind(plan, Ticket.issue(write, SystemEntropy()))


def planned_write(
    settings: Settings, job: Job, schema: StructType, catalog: EncryptedCatalog, table: Table | None = None
) -> tuple[WritePlan, PlannedWrite]:
    """Return what tasks and what the commit of one job need; ``table`` is the job's, if it is loaded.

    Raises:
        PolicyError: a plain table, no such branch, or columns that do not fit.
        KeyUnavailableError: no KMS, or it refused.
        NoSuchTableError: no such table.
        CommitError: the table was replaced since the operation was planned.
    """
    if job.action in CREATES:
        return _plan_new_table(settings, job, schema, catalog)
    table = table or table_of(catalog, job.table)
    write = planned_change(settings, job, table)
    context = write_context(table, job)
    if job.action in {Action.REWRITE, Action.MERGE}:
        context = with_lineage(context)
    if job.action == Action.REWRITE:
        # The reader's planning, another process, opens the KEK: a KMS that refuses stops the job there.
        storage = executor_properties(table.storage.properties, table.catalog.properties)
        return WritePlan.of(context, (), storage, sender=job.recipient.sender), write
    plan = _plan_rows(settings, job, schema, context, table.catalog.properties)
    return plan, replace(write, keks=table.transaction().staged.prepare_kek())


def planned_change(settings: Settings, job: Job, table: Table) -> PlannedWrite:
    """Return what the commit of a change of a table needs; errors are those of ``planned_write``."""
    check_branch(table, job.branch, job.table)
    check_validate_from(table, job)
    if job.base is not None:
        check_same_table(table, job.base.table_uuid, job.table)
    catalog = settings.catalogs.get(job.table.catalog)
    return PlannedWrite(job=job, properties=catalog, table_uuid=str(table.metadata.table_uuid))


def _plan_new_table(settings: Settings, job: Job, schema: StructType, catalog: EncryptedCatalog) -> tuple[WritePlan, PlannedWrite]:
    found = resolved(catalog, job)
    transaction = new_table_transaction(catalog, found, schema)
    context = of_job(transaction.staged.write_context(), job)
    plan = _plan_rows(settings, found, schema, context, catalog.properties)
    write = PlannedWrite(
        job=found,
        properties=settings.catalogs.get(job.table.catalog),
        table_uuid=None,
        keks=transaction.staged.prepare_kek(),
        staged_table=transaction.staged_metadata() if isinstance(transaction, CreateTransaction) else None,
        schema=schema.json(),
    )
    return plan, write


def _plan_rows(settings: Settings, job: Job, schema: StructType, context: WriteContext, catalog: Mapping[str, str]) -> WritePlan:
    """Return the plan of tasks that write rows, after a check that these fit."""
    change = _change(schema) if job.action == Action.MERGE else ()
    rows = StructType(schema.fields[: len(schema.fields) - len(change)])
    columns = _table_columns(context.schema, rows, table=str(job.table), case_sensitive=settings.case_sensitive)
    given = arrow_schema(rows)
    try:
        check_input(context.schema, pa.schema([field.with_name(name) for field, name in zip(given, columns, strict=True)]))
    except PolicyError as e:
        raise PolicyError(f"table {job.table}: {e}") from e
    storage = executor_properties(context.io.properties, catalog)
    return WritePlan.of(context, columns, storage, sender=job.recipient.sender, change=change)


def _change(schema: StructType) -> tuple[str, ...]:
    """Return the columns that say which rows of the table are replaced or deleted, which are the last ones."""
    return (OPERATION, *POSITIONS) if OPERATION in schema.names else POSITIONS


def _table_columns(schema: Schema, given: StructType, *, table: str, case_sensitive: bool) -> list[str]:
    """Return the table's names for the input's columns; unknown names are kept, and refused later, together.

    Two columns of the input for one of the table are a PolicyError.
    """
    names = []
    for field in given.fields:
        found = find(schema.fields, field.name, case_sensitive=case_sensitive)
        names.append(field.name if found is None else found.name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PolicyError(f"table {table}: the input has more than one column for {', '.join(map(repr, twice))}: rename or drop one")
    return names
