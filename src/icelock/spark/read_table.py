"""``icelock.spark.read``: a table's rows as a DataFrame.

1 the table is loaded and its snapshot is fixed for all queries on the DataFrame. 2 Spark's own Parquet reader reads the files that it can.
3 the data source reads the others, and the rows are united. ``explain`` shows the former as ``FileScan icelock``, the latter as
``BatchScan icelock``.

In a classic session the user's process loads the catalog, calls the KMS and keeps the plan, and Spark's reader starts no Python process for
a query. A Connect client has neither JVM nor catalog: there the data source reads everything.

Not here: what Spark's reader reads (``spark.native.scan``), the data source (``spark.driver.source``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from icelock.errors import PolicyError
from icelock.plan.filters.text import parse_filter
from icelock.spark.arguments import checked
from icelock.spark.driver.run_jobs import Jobs
from icelock.spark.driver.scan_rows import Engine, by_data_source, scan_rows
from icelock.spark.sealed.job import Job
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.rpc import check_session_rpc
from icelock.spark.settings.session import is_classic, settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icelock.catalog.base import EncryptedCatalog
    from icelock.spark.settings.session import Settings
    from icelock.table.plain import AnyTable
    from icelock.table.read.scan import DataScan

_CATALOGS: Final = "_icelock_catalogs"
_OPENING: Final = threading.Lock()


@checked
def read(  # noqa: PLR0913 - what a read can say
    spark: SparkSession,
    table: str | DataScan,
    *,
    columns: Sequence[str] | None = None,
    row_filter: str | BooleanExpression | None = None,
    snapshot_id: int | None = None,
    as_of_timestamp: int | str | None = None,
    branch: str | None = None,
    tag: str | None = None,
    start_snapshot_id: int | None = None,
    end_snapshot_id: int | None = None,
    start_timestamp: int | str | None = None,
    end_timestamp: int | str | None = None,
    engine: str = Engine.AUTO,
) -> DataFrame:
    """Return the rows of ``catalog.namespace.table`` as they are now, or at a snapshot, a time, a branch or a tag; or those appended since.

    Args:
        spark: a session that ``register`` was called with.
        table: the dotted name; or a scan, which says itself what to read (if Spark's own reader cannot read all of its files, the table's
            catalog must be registered under its own name).
        columns: names of columns, nested ones dotted, and of metadata columns (``_file``, ``_pos``, ``_row_id`` ...); all by default.
        row_filter: in PyIceberg's language; rows for which it is NULL are left out. Filters on the DataFrame do as well.
        snapshot_id: the snapshot to read.
        as_of_timestamp: ms since 1970, or ISO 8601 with a time zone.
        branch: the branch to read.
        tag: the tag to read.
        start_snapshot_id: reads what append snapshots after this one added, on ``branch`` if given; others are skipped, as in Java.
        end_snapshot_id: the last one of these, the branch's last by default.
        start_timestamp: a time instead, in the forms of ``as_of_timestamp``.
        end_timestamp: likewise.
        engine: "auto": Spark's own Parquet reader reads what it can, the data source the rest; "native": an error if it cannot read all;
            "python": the data source reads all.

    Raises:
        PolicyError: the session is not registered, no such catalog, column, snapshot or ref, an invalid filter, or an engine that cannot
            read this.
        NoSuchTableError: no such table.
        KeyUnavailableError: no KMS, or it refused.
        IntegrityError: a manifest or manifest list was changed.
    """
    at = {
        "snapshot_id": snapshot_id,
        "as_of_timestamp": as_of_timestamp,
        "branch": branch,
        "tag": tag,
        "start_snapshot_id": start_snapshot_id,
        "end_snapshot_id": end_snapshot_id,
        "start_timestamp": start_timestamp,
        "end_timestamp": end_timestamp,
    }
    if not isinstance(table, str):
        if any(given is not None for given in (columns, row_filter, *at.values())):
            raise PolicyError("a scan says itself what is read: give columns, filter, snapshot or ref to table.scan(...), not to read")
        return _scan_rows(spark, table, _engine(engine))
    options = ReadOptions.of(table, columns=columns, **at)
    return read_options(spark, options, AlwaysTrue() if row_filter is None else parse_filter(row_filter), engine)


def read_options(spark: SparkSession, options: ReadOptions, expression: BooleanExpression, engine: str) -> DataFrame:
    """Return what ``read`` returns, for checked options; same errors."""
    chosen = _engine(engine)
    settings = settings_of(spark)
    job = Job.of_read(options, expression)
    if not is_classic(spark):
        if chosen == Engine.NATIVE:
            raise PolicyError("engine 'native' needs a classic session, and this is a Spark Connect session: leave the engine out")
        # Fixed to the table's version now: the server would look again for each query.
        at_head = all(value is None for value in (options.snapshot_id, options.as_of_ms, options.branch, options.tag))
        return by_data_source(spark, Jobs(spark).fixed(job, snapshot=at_head))
    from icelock.spark.settings.catalogs import any_table_of, scan_of

    scan = scan_of(any_table_of(session_catalog(spark, settings, options.table), options.table), options).filter(expression)
    return scan_rows(spark, job, scan, chosen)


def read_loaded(spark: SparkSession, table: AnyTable, options: ReadOptions, snapshot_id: int | None) -> DataFrame:
    """Return the rows of a loaded table in a classic session, at the snapshot with that id, or what the options say; errors as ``read``."""
    from icelock.spark.settings.catalogs import scan_of

    scan = scan_of(table, options)
    job = Job.of_read(options, AlwaysTrue())
    return scan_rows(spark, job, scan if snapshot_id is None else scan.pinned(snapshot_id))


def _scan_rows(spark: SparkSession, scan: DataScan, chosen: Engine) -> DataFrame:
    from icelock.table.described import CATALOG

    name = TableName(catalog=scan.options.get(CATALOG, ""), identifier=tuple(scan.table_identifier or ()))
    columns = None if "*" in scan.selected_fields else tuple(scan.selected_fields)
    options = ReadOptions(table=name, columns=columns, snapshot_id=scan.snapshot_id if scan.has_own_schema else None)
    job = Job.of_read(options, scan.exact_filter)  # its names need no case_sensitive
    check_session_rpc(spark, name, scan.io.properties)
    rows = scan_rows(spark, job, scan, chosen)
    return rows if scan.limit is None else rows.limit(scan.limit)


def _engine(name: str) -> Engine:
    try:
        return Engine(name)
    except ValueError as e:
        raise PolicyError(f"unknown engine {name!r}; use one of {', '.join(Engine)}") from e


def session_catalog(spark: SparkSession, settings: Settings, name: TableName) -> EncryptedCatalog:
    """Return the catalog of a table; it stays open, with its KEKs in cache, until ``register`` is called again."""
    from icelock.spark.settings.catalogs import catalog_of

    with _OPENING:  # statements have threads of their own
        kept: tuple[Settings | None, dict[str, EncryptedCatalog]] = getattr(spark, _CATALOGS, (None, {}))
        if kept[0] is not settings:
            for known in kept[1].values():
                known.close()
            kept = (settings, {})
            setattr(spark, _CATALOGS, kept)
        catalogs = kept[1]
        if name.catalog not in catalogs:
            catalogs[name.catalog] = catalog_of(settings, name)
        return catalogs[name.catalog]
