"""``icelock.spark.audit``, ``compact``, ``convert``, ``rewrite_deletes``, ``rotate``, ``optimize``: Spark's tasks do the work on files.

Not here: which files, and commits (``table.maintenance``, ``audit``), jobs (``spark.driver.compact_here``, ``copy_here``,
``find_deleted_here``, ``convert_here``, ``audit_here``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.sql import SparkSession

from icelock.errors import PolicyError
from icelock.spark.arguments import checked
from icelock.spark.jvm.rules import read_again
from icelock.spark.sealed.job import MAIN
from icelock.spark.settings.catalogs import any_table_of, catalog_of, table_of
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import is_classic, settings_of

if TYPE_CHECKING:
    from pyiceberg.table.sorting import SortOrder

    from icelock.audit.report import AuditReport
    from icelock.catalog.base import EncryptedCatalog
    from icelock.table.maintenance.compaction.compact import Compacted, Progress
    from icelock.table.maintenance.compaction.rewrite_deletes import Into, RewrittenDeletes
    from icelock.table.maintenance.conversion.convert_history import History
    from icelock.table.maintenance.conversion.convert_result import Converted
    from icelock.table.maintenance.maintenance_table import MaintenanceTable
    from icelock.table.maintenance.optimize import Clock, Optimized, OptimizeStep
    from icelock.table.maintenance.rotation.rotate import Level, Rotated
    from icelock.table.table import Table


@checked
def compact(  # noqa: PLR0913 - as table.maintenance.compact
    spark: SparkSession,
    table: str,
    *,
    where: BooleanExpression | str = AlwaysTrue(),  # noqa: B008 - has no state
    sort_by: SortOrder | str | None = None,
    z_order_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    branch: str = MAIN,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Compacted:
    """Compact ``catalog.namespace.table`` by Spark's tasks.

    Arguments and what it does are those of ``table.maintenance.compaction.compact``. Each task reads and writes the files of one new file;
    with an order Spark sorts each group of files (``max-file-group-size-bytes``).

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``table.maintenance.compaction.compact``. Nothing was
        written. NoSuchTableError: no such table.
        PySparkException: tasks failed, with icelock's error in its message; nothing more is committed, and no file of them is left.
        CommitFailedException, ValidationException, CommitStateUnknownException: as ``table.maintenance.compaction.compact``.
    """
    with _maintenance(spark, table) as maintenance:
        return maintenance.compact(
            where=where, sort_by=sort_by, z_order_by=z_order_by, options=options, branch=branch, dry_run=dry_run, progress=progress
        )


@checked
def rewrite_deletes(  # noqa: PLR0913 - as table.maintenance.rewrite_deletes
    spark: SparkSession,
    table: str,
    *,
    into: Into = "vectors",
    branch: str = MAIN,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RewrittenDeletes:
    """Put the deletes of ``catalog.namespace.table`` into another form by Spark's tasks.

    Arguments and what it does are those of ``table.maintenance.compaction.rewrite_deletes``. Tasks find the deleted rows, of which the
    calling process makes vectors, and write data files without them.

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``table.maintenance.compaction.rewrite_deletes``.
            Nothing was written.
        NoSuchTableError: no such table.
        PySparkException: tasks failed, with icelock's error in its message; steps that were committed before stay.
        CommitFailedException, ValidationException, CommitStateUnknownException: as ``table.maintenance.compaction.rewrite_deletes``.
    """
    with _maintenance(spark, table) as maintenance:
        return maintenance.rewrite_deletes(into=into, branch=branch, dry_run=dry_run, progress=progress)


@checked
def rotate(  # noqa: PLR0913 - as table.maintenance.rotate
    spark: SparkSession,
    table: str,
    level: Level,
    *,
    to_key: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Rotated:
    """Give ``catalog.namespace.table`` new keys, as ``table.maintenance.rotation.rotate`` does; files are written again by Spark's tasks.

    Keys are the calling process's: tasks get those of the files that they read, and draw those of the files that they write. Level ``all``
    lets them copy the data files and equality deletes of all snapshots; deletion vectors and metadata are the calling process's work.

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``table.maintenance.rotation.rotate``. Nothing was
        changed. NoSuchTableError: no such table.
        KeyUnavailableError, IntegrityError, CommitFailedException, CommitStateUnknownException: as ``table.maintenance.rotation.rotate``.
    """
    with _maintenance(spark, table) as maintenance:
        return maintenance.rotate(level, to_key=to_key, dry_run=dry_run, progress=progress)


@checked
def convert(  # noqa: PLR0913 - as icelock.maintenance.convert
    spark: SparkSession,
    table: str,
    *,
    key_id: str,
    data_key_length: int | None = None,
    history: History = "drop",
    drop_refs: bool = False,
    copy_to: str | None = None,
    progress_file: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Make an encrypted table of the plain ``catalog.namespace.table``, as ``icelock.maintenance.convert`` does, by Spark's tasks.

    Each task writes the rows of a data file; it has the plain file's name, and draws the key of the encrypted one. Delete files, manifests
    and lists of a ``history`` are the calling process's. ``copy_to`` is the new
    table, ``catalog.namespace.table``. ``progress_file`` is on the calling process's machine, and is written after each job.

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``icelock.maintenance.convert``. Nothing was written.
        NoSuchTableError: no such table.
        PySparkException: tasks failed, with icelock's error in its message; the table is as it was, and no file is left.
        CommitFailedException, CommitStateUnknownException: as ``icelock.maintenance.convert``.
    """
    name = TableName.parse(table)
    to = None if copy_to is None else TableName.parse(copy_to)
    with _catalog(spark, name) as catalog, nullcontext(catalog) if to is None else _catalog(spark, to) as to_catalog:
        return convert_loaded(
            spark,
            catalog,
            name,
            key_id=key_id,
            data_key_length=data_key_length,
            history=history,
            drop_refs=drop_refs,
            copy_to=None if to is None else (to_catalog, to.identifier),
            progress_file=progress_file,
            dry_run=dry_run,
            progress=progress,
        )


def convert_loaded(  # noqa: PLR0913 - as convert
    spark: SparkSession,
    catalog: EncryptedCatalog,
    name: TableName,
    *,
    key_id: str,
    data_key_length: int | None,
    history: History,
    drop_refs: bool,
    copy_to: tuple[EncryptedCatalog, tuple[str, ...]] | None,
    dry_run: bool,
    progress_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Do the work of ``convert`` on open catalogs; ``copy_to`` is the new table's, and its name."""
    from icelock.spark.driver.convert_here import ConvertByTasks
    from icelock.table.maintenance.conversion.convert import convert as convert_table

    found = any_table_of(catalog, name)
    to_catalog, to = copy_to or (None, None)
    done = convert_table(
        found,
        key_id=key_id,
        data_key_length=data_key_length,
        history=history,
        drop_refs=drop_refs,
        copy_to=to,
        copy_catalog=to_catalog,
        progress_file=progress_file,
        dry_run=dry_run,
        progress=progress,
        write=ConvertByTasks(spark, found, to_catalog, is_kept=progress_file is not None),
    )
    if not dry_run and to is None:
        read_again(spark, str(name), str(found.metadata.table_uuid))
    return done


@checked
def audit(  # noqa: PLR0913 - as icelock.maintenance.audit
    spark: SparkSession,
    name: str,
    *,
    depth: str | Iterable[str] = "open",
    snapshots: str = "all",
    threads: int = 8,
    most_findings: int = 100,
    progress: Progress | None = None,
) -> AuditReport:
    """Audit ``catalog.namespace.table``, or all tables of ``catalog.namespace`` or of ``catalog``, as ``icelock.maintenance.audit`` does.

    Spark's tasks open data and delete files, with ``threads`` threads a task: the calling process sends each task the keys of its files,
    sealed, and reads metadata, manifest lists and manifests itself. What takes less time than a job, it does too.

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``icelock.maintenance.audit``.
    """
    parsed = TableName.parse_any(name)
    with _catalog(spark, parsed) as catalog:
        return audit_loaded(
            spark, catalog, parsed, depth=depth, snapshots=snapshots, threads=threads, most_findings=most_findings, progress=progress
        )


def audit_loaded(  # noqa: PLR0913 - as audit
    spark: SparkSession,
    catalog: EncryptedCatalog,
    name: TableName,
    *,
    depth: str | Iterable[str],
    snapshots: str,
    threads: int = 8,
    most_findings: int = 100,
    progress: Progress | None = None,
) -> AuditReport:
    """Do the work of ``audit`` on an open catalog."""
    from icelock.audit.options import AuditOptions
    from icelock.audit.run import audit_tables
    from icelock.spark.driver.audit_here import CheckByTasks

    options = AuditOptions.of(depth, snapshots=snapshots, threads=threads, most=most_findings)
    return audit_tables(catalog, ".".join(name.identifier), options, CheckByTasks(spark, catalog), progress=progress)


@checked
def optimize(  # noqa: PLR0913 - as icelock.maintenance.optimize_tables
    spark: SparkSession,
    name: str,
    *,
    within: timedelta | None = None,
    options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    told: Callable[[str, OptimizeStep], None] | None = None,
    clock: Clock = time.monotonic,
) -> tuple[Optimized, ...]:
    """Optimize ``catalog.namespace.table``, or all tables of ``catalog.namespace`` or of ``catalog``, as ``optimize_tables`` does.

    Data files are compacted, and deletes rewritten, by Spark's tasks; the calling process does the rest.

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``optimize_tables``. Nothing was done.
    """
    parsed = TableName.parse_any(name)
    with _catalog(spark, parsed) as catalog:
        return optimize_loaded(spark, catalog, parsed, within=within, options=options, dry_run=dry_run, told=told, clock=clock)


def optimize_loaded(  # noqa: PLR0913 - as optimize
    spark: SparkSession,
    catalog: EncryptedCatalog,
    name: TableName,
    *,
    within: timedelta | None,
    options: Mapping[str, str] | None,
    dry_run: bool,
    told: Callable[[str, OptimizeStep], None] | None = None,
    clock: Clock = time.monotonic,
) -> tuple[Optimized, ...]:
    """Do the work of ``optimize`` on an open catalog."""
    from icelock.maintenance.tables import Upkeep
    from icelock.table.maintenance.optimize import Budget

    tables: list[Table] = []

    def maintenance_of(table: Table) -> MaintenanceTable:
        tables.append(table)
        return by_tasks(spark, table)

    upkeep = Upkeep(
        catalog=catalog,
        options=options,
        budget=Budget(within=within, clock=clock),
        dry_run=dry_run,
        told=told,
        maintenance_of=maintenance_of,
    )
    done = upkeep.of(".".join(name.identifier))
    for table in () if dry_run else tables:
        read_again(spark, str(TableName(catalog=name.catalog, identifier=table.name())), str(table.metadata.table_uuid))
    return done


def by_tasks(spark: SparkSession, table: Table) -> MaintenanceTable:
    """Return the maintenance of a table whose work on files tasks of a classic session do."""
    from icelock.spark.driver.compact_here import CombineByTasks
    from icelock.spark.driver.copy_here import CopyByTasks
    from icelock.spark.driver.find_deleted_here import FindByTasks
    from icelock.table.maintenance.maintenance_table import MaintenanceTable
    from icelock.table.maintenance.workers import Workers

    workers = Workers(combine=CombineByTasks(spark, table), copy=CopyByTasks(spark, table), find_deleted=FindByTasks(spark, table))
    return MaintenanceTable(table, workers)


@contextmanager
def _maintenance(spark: SparkSession, table: str) -> Iterator[MaintenanceTable]:
    name = TableName.parse(table)
    with _catalog(spark, name) as catalog:
        yield by_tasks(spark, table_of(catalog, name))


@contextmanager
def _catalog(spark: SparkSession, name: TableName) -> Iterator[EncryptedCatalog]:
    settings = settings_of(spark)
    if not is_classic(spark):
        raise PolicyError(
            "over Spark Connect no Python process stands beside the server's JVM: use table.maintenance or icelock.maintenance here"
        )
    with closing(catalog_of(settings, name)) as catalog:
        yield catalog
