"""``icelock.spark.read``: a table's rows as a DataFrame.

1 the table is loaded and its snapshot is fixed: every query on the DataFrame reads that. 2 files that Spark's own Parquet reader can read
are read by it. 3 the others are read by the data source, and the rows are united. ``explain`` shows the first as ``FileScan icelock`` and
the others as ``BatchScan icelock``.

    engine    "auto" as above; "native" makes it an error when something is left to the data source; "python" reads all by it

In a classic session the user's process plans: it loads the catalog, calls the KMS and keeps the plan, and no Python process is started for
a query of Spark's reader. A Connect session has no JVM at hand and no catalog: there the data source does all.

Not here: what Spark's reader reads (``spark.native.scan``), the data source (``spark.driver.source``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from icelock.errors import PolicyError
from icelock.plan.filters.text import parse_filter
from icelock.spark.driver.run_jobs import Jobs
from icelock.spark.sealed.job import Action, Base, Job
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.settings.rpc import check_wire_of
from icelock.spark.settings.session import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icelock.catalog.base import EncryptedCatalog
    from icelock.spark.settings.session import Settings
    from icelock.table.scan import DataScan

_CATALOGS: Final = "_icelock_catalogs"
_logger = logging.getLogger(__name__)


class Engine(StrEnum):
    """Which reader reads."""

    AUTO = "auto"
    NATIVE = "native"
    PYTHON = "python"


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
    engine: str = Engine.AUTO,
) -> DataFrame:
    """Return the rows of ``catalog.namespace.table`` as they are now, or at a snapshot, a time, a branch or a tag.

    Args:
        spark: a session that ``register`` was called with.
        table: the dotted name; or a scan of a table, which says itself what is read. What Spark's own reader cannot read of a scan needs
            the table's catalog to be registered under the catalog's own name.
        columns: names of columns, nested ones dotted, and of metadata columns (``_file``, ``_pos``, ``_row_id`` ...); all if not given.
        row_filter: which rows, in PyIceberg's language; rows that it leaves undecided are left out. Filters on the DataFrame do as well.
        snapshot_id: of the table.
        as_of_timestamp: ms since 1970, or ISO 8601 with a time zone.
        branch: of the table.
        tag: of the table.
        engine: "auto": by Spark's own Parquet reader what it can read, and the rest by the data source; "native": by the former or not at
            all; "python": by the data source.

    Raises:
        PolicyError: the session is not registered, no such catalog, column, snapshot or ref, a filter that cannot be read, or an engine
            that cannot read this.
        NoSuchTableError: no such table.
        KeyUnavailableError: no KMS, or it refused.
        IntegrityError: a manifest or manifest list was changed.
    """
    chosen = _engine(engine)
    if not isinstance(table, str):
        if any(given is not None for given in (columns, row_filter, snapshot_id, as_of_timestamp, branch, tag)):
            raise PolicyError("a scan says itself what is read: give columns, filter, snapshot or ref to table.scan(...), not to read")
        return _scan_rows(spark, table, chosen)
    settings = settings_of(spark)
    options = ReadOptions.of(table, columns=columns, snapshot_id=snapshot_id, as_of_timestamp=as_of_timestamp, branch=branch, tag=tag)
    expression: BooleanExpression = AlwaysTrue() if row_filter is None else parse_filter(row_filter)
    job = Job(action=Action.ROWS, table=options.table, row_filter=expression, read=options)
    if getattr(spark, "_jsparkSession", None) is None:
        if chosen == Engine.NATIVE:
            raise PolicyError("engine 'native' needs a classic session, and this one is of Spark Connect: leave the engine out")
        return _by_data_source(spark, _fixed(spark, job, options))
    from icelock.spark.settings.catalogs import scan_of, table_of

    scan = scan_of(table_of(session_catalog(spark, settings, options.table), options.table), options).filter(expression)
    return _rows(spark, job, scan, chosen)


def _fixed(spark: SparkSession, job: Job, options: ReadOptions) -> Job:
    """Return a read over Connect with what the table is like now: the server would look again for each query."""
    at_head = all(value is None for value in (options.snapshot_id, options.as_of_ms, options.branch, options.tag))
    return Jobs(spark).fixed(job, snapshot=at_head)


def _scan_rows(spark: SparkSession, scan: DataScan, chosen: Engine) -> DataFrame:
    from icelock.table.scan import CATALOG

    name = TableName(catalog=scan.options.get(CATALOG, ""), identifier=tuple(scan.table_identifier or ()))
    columns = None if "*" in scan.selected_fields else tuple(scan.selected_fields)
    options = ReadOptions(table=name, columns=columns, snapshot_id=scan.snapshot_id if scan.has_own_schema else None)
    job = Job(action=Action.ROWS, table=name, row_filter=scan.exact_filter, read=options)  # its names need no case_sensitive
    check_wire_of(spark, name, scan.io.properties)
    rows = _rows(spark, job, scan, chosen)
    return rows if scan.limit is None else rows.limit(scan.limit)


def _engine(name: str) -> Engine:
    try:
        return Engine(name)
    except ValueError as e:
        raise PolicyError(f"engine {name!r} is none of {', '.join(Engine)}") from e


def _rows(spark: SparkSession, job: Job, scan: DataScan, engine: Engine) -> DataFrame:
    from icelock.spark.native.scan import native_read

    snapshot = scan.snapshot()
    metadata = scan.table_metadata
    base = Base(table_uuid=str(metadata.table_uuid), snapshot_id=None if snapshot is None else snapshot.snapshot_id, merge_on_read=False)
    job = replace(job, base=base, seen=(Seen.of(metadata),))
    if engine == Engine.PYTHON:
        return _by_data_source(spark, job)
    native = native_read(
        spark, scan if snapshot is None else scan.pinned(snapshot.snapshot_id), str(job.table), insisted=engine == Engine.NATIVE
    )
    if native.rows is not None and not native.rest:
        return native.rows
    reason = native.reason or "some of its files are no Parquet files with field ids, or have equality deletes of nested columns or in Avro"
    if engine == Engine.NATIVE and native.rest:
        raise PolicyError(f"table {job.table} cannot be read by Spark's own reader alone: {reason}; leave the engine out")
    if native.rest:
        _logger.info("table %s: %s; the data source reads %s", job.table, reason, "them" if native.rows is not None else "it")
    rest = _by_data_source(spark, replace(job, rest=native.rows is not None))
    return rest if native.rows is None else native.rows.unionAll(rest)


def session_catalog(spark: SparkSession, settings: Settings, name: TableName) -> EncryptedCatalog:
    """Return the catalog of a table, which stays open until ``register`` is called again, its KEKs in cache.

    Raises:
        PolicyError: as ``tables.catalog_of``.
    """
    from icelock.spark.settings.catalogs import catalog_of

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


def _by_data_source(spark: SparkSession, job: Job) -> DataFrame:
    jobs = Jobs(spark)
    if not job.table.catalog:
        raise PolicyError(
            f"table {'.'.join(job.table.identifier)} has no catalog, and Spark's own reader cannot read all of it: load it by a catalog"
        )
    return jobs.read(job)
