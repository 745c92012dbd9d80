"""A write in the driver, before any task runs: what can be refused is refused here.

1 the table is there and encrypted. 2 the columns fit. 3 the KMS is there and gives the KEK; it is minted, by the one wrap of this write,
when the table has no live one. 4 the ticket for the commit is issued.

Not here: the commit (``commit``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from icelock.arrow.write import check_input
from icelock.errors import PolicyError
from icelock.spark.projection import find
from icelock.spark.storage import executor_properties
from icelock.spark.tables import open_table
from icelock.spark.ticket import PlannedWrite, Ticket
from icelock.spark.types import arrow_schema
from icelock.spark.write import TaskWriter, WritePlan

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql.types import StructType

    from icelock.spark.options import WriteOptions
    from icelock.spark.settings import Settings


def plan_write(settings: Settings, options: WriteOptions, schema: StructType, *, overwrite: bool) -> TaskWriter:
    """Return the writer of one job.

    Raises:
        PolicyError: a plain table, or columns that do not fit.
        KeyUnavailableError: no KMS, or it refused.
        NoSuchTableError: no such table.
    """
    table = open_table(settings, options.table)
    transaction = table.transaction()
    context = transaction.write_context()
    columns = table_columns(context.schema, schema, table=str(options.table), case_sensitive=settings.case_sensitive)
    given = arrow_schema(schema)
    try:
        check_input(context.schema, pa.schema([field.with_name(name) for field, name in zip(given, columns, strict=True)]))
    except PolicyError as e:
        msg = f"table {options.table}: {e}"
        raise PolicyError(msg) from e
    minted = transaction.prepare_kek()
    write = PlannedWrite(
        catalog=options.table.catalog,
        properties=settings.catalogs.get(options.table.catalog),
        identifier=options.table.identifier,
        table_uuid=str(table.metadata.table_uuid),
        overwrite=overwrite,
        keks=minted,
    )
    storage = executor_properties(context.io.properties, table.catalog.properties)
    return TaskWriter(WritePlan.of(context, columns, storage), Ticket.issue(write, table.encryption.entropy))


def table_columns(schema: Schema, given: StructType, *, table: str, case_sensitive: bool) -> list[str]:
    """Return the table's names for the input's columns; a name the table lacks stays as it is, to be refused with the others.

    Raises:
        PolicyError: two columns of the input are the same column of the table.
    """
    names = []
    for field in given.fields:
        found = find(schema.fields, field.name, case_sensitive=case_sensitive)
        names.append(field.name if found is None else found.name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"table {table}: the input has more than one column for {', '.join(map(repr, twice))}: rename or drop one"
        raise PolicyError(msg)
    return names
