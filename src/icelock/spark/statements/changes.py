"""INSERT, DELETE, UPDATE, MERGE and CREATE TABLE AS: rows that Spark gives to this process as a DataFrame.

Not here: writes (``table_writer``), jobs (``spark.driver``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import ROW_ID
from icelock.spark.change_rows import delete_rows
from icelock.spark.columns.filters import FilterTranslator
from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.jobs_here import JobsHere
from icelock.spark.driver.new_table import iceberg_schema
from icelock.spark.driver.target import description_of
from icelock.spark.native.filters import exact_filter_of, pruning_filter
from icelock.spark.sealed.job import MAIN, Action, Job, Purpose
from icelock.spark.settings.options import TABLE
from icelock.spark.settings.write_options import OVERWRITE_FILTER, OVERWRITE_MODE, ROWS_READ, WriteOptions, distribution_options
from icelock.spark.statements import plain_tables
from icelock.spark.statements.asked import Answer, Asked, StatementSession
from icelock.spark.statements.definitions import create_table as create_empty_table
from icelock.spark.statements.definitions import makes_plain, new_table_form, plain_schema, table_properties
from icelock.spark.table_writer import TableWriter, write_to
from icelock.spark.task.write import OPERATION, POSITIONS
from icelock.table.change_result import ChangeResult
from icelock.table.plain import PlainTable

if TYPE_CHECKING:
    from icelock.spark.statements.tables import LoadedTable


def write(session: StatementSession, loaded: LoadedTable, asked: Asked) -> None:
    """Add rows to a table, or put them in the place of others."""
    session.results.put(_insert(loaded, asked["options"], session.rows(asked.given), _replaced(loaded, asked)))


def _insert(loaded: LoadedTable, options: Mapping[str, str], rows: DataFrame, replaced: BooleanExpression | None) -> ChangeResult:
    """Add rows, in the place of those that a filter finds, or of the partitions that get rows (``replaced`` is None)."""
    if isinstance(loaded.table, PlainTable):
        given = plain_tables.PlainWrite.of(loaded.name, options, loaded.at.branch)
        return plain_tables.insert(loaded.table, rows, given, replaced)
    writer = TableWriter(rows, str(loaded.name), loaded.table).options(**options)
    if loaded.at.branch is not None:
        writer.option("branch", loaded.at.branch)
    if replaced is None:
        return writer.overwritePartitions()
    return writer.append() if replaced == AlwaysFalse() else writer.overwrite(replaced)


def save(session: StatementSession, loaded: LoadedTable, asked: Asked) -> None:
    """Write rows as ``df.write.format("icelock")`` asks: the table's columns are found by their names, as everywhere in this format."""
    given = {name: value for name, value in asked["options"].items() if name.lower() not in {"path", TABLE, ROWS_READ}}
    _, known = distribution_options(given)
    options = WriteOptions.parse({**known, TABLE: str(loaded.name)}, overwrite=asked["overwrite"])
    others = {name: value for name, value in given.items() if name.lower() not in {OVERWRITE_FILTER, OVERWRITE_MODE}}
    replaced: BooleanExpression | None = options.overwrite_filter or AlwaysTrue()
    if not asked["overwrite"]:
        replaced = AlwaysFalse()
    elif options.dynamic:
        replaced = _partitions(loaded)
    session.results.put(_insert(loaded, others, session.rows(asked.given), replaced))


def _replaced(loaded: LoadedTable, asked: Asked) -> BooleanExpression | None:
    """Return which rows a write replaces: those that a filter finds, or (None) those of the partitions that get rows."""
    mode = asked["mode"]
    if mode == "append":
        return AlwaysFalse()
    if mode == "overwritePartitions":
        return _partitions(loaded)
    return _where(loaded, asked) if mode == "overwrite" else AlwaysTrue()


def _partitions(loaded: LoadedTable) -> BooleanExpression | None:
    """Return None, for the partitions that get rows; or all rows, as a table without partitions is one."""
    return None if loaded.table.spec().fields else AlwaysTrue()


def delete_where(session: StatementSession, loaded: LoadedTable, asked: Asked) -> None:
    """Delete the rows that a filter finds."""
    if isinstance(loaded.table, PlainTable):
        given = plain_tables.PlainWrite.of(loaded.name, {}, loaded.at.branch)
        session.results.put(plain_tables.delete(loaded.table, _where(loaded, asked), given))
        return
    session.results.put(delete_rows(session.spark, loaded.name, _where(loaded, asked), loaded.at.branch or MAIN, loaded=loaded.table))


def create_table(session: StatementSession, asked: Asked) -> None:
    """Create or replace a table, with the rows of a query if there is one."""
    if len(asked.table.identifier) == 1:
        catalog, name = asked.table.catalog, asked.table.identifier[0]
        raise PolicyError(f"table {asked.table} has no namespace: name it {catalog}.namespace.{name}, such as {catalog}.shop.{name}")
    if asked.given is None:
        create_empty_table(session, asked)
        return
    properties = table_properties(asked["properties"], table=str(asked.table))
    if makes_plain(session, asked, properties):
        session.results.put(_create_plain(session, asked, properties))
        return
    writer = write_to(session.rows(asked.given), str(asked.table)).options(**(asked.get("options") or {}))
    for name, value in properties.items():
        writer.tableProperty(name, value)
    _make(writer.partitionedBy(*asked["partitioned_by"]), asked["mode"])


def _create_plain(session: StatementSession, asked: Asked, properties: dict[str, str]) -> ChangeResult:
    name, rows = asked.table, session.rows(asked.given)
    catalog = session.catalog(name.catalog)
    given = plain_tables.PlainWrite.of(name, asked.get("options") or {}, None)
    form = new_table_form(plain_schema(iceberg_schema(rows.schema), table=str(name)), asked, properties)
    return plain_tables.create(catalog, catalog.create_table_transaction(name.identifier, **form), rows, given)


def _make(writer: TableWriter, mode: str) -> None:
    methods: Mapping[str, Callable[[], Any]] = {
        "create": writer.create,
        "replace": writer.replace,
        "createOrReplace": writer.createOrReplace,
    }
    methods[mode]()


def change_rows(session: StatementSession, loaded: LoadedTable, asked: Asked) -> None:
    """Run an UPDATE, a MERGE, or a DELETE that is more than a filter.

    The rows that Spark gives have an operation, the columns of the new row, and the place of the old one (``TableCommands.java``).
    """
    if isinstance(loaded.table, PlainTable):
        raise PolicyError(
            f"table {loaded.name} is plain, and PyIceberg, which writes plain tables, has no {asked['command']} like this one: "
            "DELETE with columns compared with constants, and INSERT, work; or change it with Iceberg's own Spark runtime"
        )
    spread, others = distribution_options(asked["options"])
    options = WriteOptions.parse({**others, TABLE: str(loaded.name)}, overwrite=False)
    job = Job(
        action=Action.MERGE,
        table=loaded.name,
        branch=loaded.at.branch or options.branch or MAIN,
        row_filter=_found_by(loaded, asked),
        snapshot_properties=options.snapshot_properties,
        purpose=Purpose(asked["command"].lower()),
        by_position=True,
        validate_from=options.validate_from,
        output_spec=options.output_spec,
        isolation=options.isolation,
        of_files=options.of_files,
    ).of_batch(session.results.epoch)
    known = description_of(loaded.table, job)
    job = replace(job, base=replace(known.base, snapshot_id=loaded.snapshot_id))
    rows = session.rows(asked.given)
    with JobsHere(session.spark, loaded.name, loaded.table) as jobs:
        if job.purpose == Purpose.DELETE:
            result = jobs.delete(job, rows, asked["place"])
        else:
            result = jobs.write(job, _changed(loaded, rows, asked), spread, known.layout, asked["source_rows"])
    session.results.put(result)


def _changed(loaded: LoadedTable, rows: DataFrame, asked: Asked) -> DataFrame:
    """Return the rows as tasks take them (``spark.task.write``); where a row is deleted, the new one is all nulls."""
    numbered = rows.toDF(*map(str, range(len(rows.columns))))

    def column(ordinal: int) -> Column:
        return F.col(f"`{ordinal}`")

    shown = spark_schema(loaded.table.schema(), table=str(loaded.name)).fields
    row, names = asked["row"], asked["names"]
    places = dict(zip(names, row, strict=True)) if row is not None else {}
    nothing = F.lit(None)
    return numbered.select(
        *((column(places[field.name]) if field.name in places else nothing.cast(field.dataType)).alias(field.name) for field in shown),
        (column(asked["metadata"][0]) if asked["metadata"] else nothing.cast("bigint")).alias(ROW_ID.name),
        column(0).alias(OPERATION),
        *(column(ordinal).alias(name) for ordinal, name in zip(asked["place"], POSITIONS, strict=True)),
    )


def _found_by(loaded: LoadedTable, asked: Asked) -> BooleanExpression:
    """Return a filter that finds at least the rows that the statement changes."""
    schema = loaded.table.schema()
    return pruning_filter((asked.get("filters") or "[]").encode(), FilterTranslator(schema, schema))


def can_select(_session: StatementSession, loaded: LoadedTable, asked: Asked) -> bool:
    """Whether filters have an Iceberg expression that finds the same rows; otherwise Spark finds them."""
    return _expression(loaded, asked) is not None


def _expression(loaded: LoadedTable, asked: Asked) -> BooleanExpression | None:
    schema = loaded.table.schema()
    return exact_filter_of(asked["filters"].encode(), FilterTranslator(schema, schema))


def _where(loaded: LoadedTable, asked: Asked) -> BooleanExpression:
    found = _expression(loaded, asked)
    if found is None:
        raise PolicyError(
            f"table {loaded.name}: Iceberg has no filter that finds the same rows as this statement's: compare columns with constants"
        )
    return found


def refuse_change(_session: StatementSession, loaded: LoadedTable, asked: Asked) -> None:
    """Refuse to change rows of a table with a column in the place of a metadata column: Spark would take it for a row's place."""
    column = asked["column"]
    raise PolicyError(
        f"table {loaded.name} has a column {column}, which hides the metadata column of that name, by which UPDATE, DELETE and MERGE find "
        f"rows: ALTER TABLE {loaded.name} RENAME COLUMN {column} TO another name"
    )


CHANGES: Final = {
    "refuse change": refuse_change,
    "write": write,
    "save": save,
    "delete": delete_where,
    "change": change_rows,
    "can select": can_select,
}
ANSWERS: Final[Mapping[str, Answer]] = {"create table": create_table}
