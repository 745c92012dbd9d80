"""``icelock.spark.compact``: a compaction by Spark's tasks.

Not here: which files, and commits (``table.maintenance.compact``), jobs (``spark.driver.compact_here``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.sql import SparkSession

from icelock.errors import PolicyError
from icelock.spark.sealed.job import MAIN
from icelock.spark.settings.catalogs import catalog_of, table_of
from icelock.spark.settings.options import TableName
from icelock.spark.settings.session import is_classic, settings_of

if TYPE_CHECKING:
    from pyiceberg.table.sorting import SortOrder

    from icelock.table.maintenance.compact import Compacted, Progress
    from icelock.table.table import Table


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
    """Compact ``catalog.namespace.table`` by Spark's tasks; arguments and what it does are those of ``table.maintenance.compact``.

    Each task reads and writes the files of one new file; with an order Spark sorts each group of files (``max-file-group-size-bytes``).

    Raises:
        PolicyError: the session is not registered, or is one of Spark Connect; or as ``table.maintenance.compact``. Nothing was written.
        NoSuchTableError: no such table.
        PySparkException: tasks failed, with icelock's error in its message; nothing more is committed, and no file of them is left.
        CommitFailedException, ValidationException, CommitStateUnknownException: as ``table.maintenance.compact``.
    """
    name = TableName.parse(table)
    settings = settings_of(spark)
    if not is_classic(spark):
        raise PolicyError(
            "over Spark Connect no Python process stands beside the server's JVM: compact by table.maintenance.compact, in this process"
        )
    with closing(catalog_of(settings, name)) as catalog:
        asked = {"where": where, "sort_by": sort_by, "z_order_by": z_order_by, "options": options, "branch": branch}
        return compact_loaded(spark, table_of(catalog, name), asked, dry_run=dry_run, progress=progress)


def compact_loaded(
    spark: SparkSession, table: Table, asked: Mapping[str, object], *, dry_run: bool = False, progress: Progress | None = None
) -> Compacted:
    """Compact a table that is loaded; ``asked`` are the arguments of ``CompactRequest.of``."""
    from icelock.spark.driver.compact_here import CombineByTasks
    from icelock.table.maintenance.compact import Compaction, CompactRequest

    request = CompactRequest.of(table, **asked)  # type: ignore[arg-type]
    compaction = Compaction(table, request, CombineByTasks(spark, table), progress)
    return compaction.plan() if dry_run else compaction.run()
