"""Changes of rows by Spark's tasks: ``delete``, ``upsert`` and ``add_files``.

``delete``  one job: the driver plans which files may hold matching rows; files whose rows all match are removed by metadata alone, tasks
            rewrite the others.
``upsert``  the source is persisted, so that it is computed once, and joined with the table's keys. One job writes changed and new rows and
            says which rows they replace. By ``write.merge.mode`` its commit adds deletion vectors, or a second job rewrites the files that
            lost rows. Rows of the table whose keys are outside the source's range are not read.

Each makes one snapshot, or none when nothing changes, and returns what it did. Changed rows keep their ``_row_id``. The commit fails with
ValidationException if another writer's commit changed the same rows, or (isolation level serializable) added rows that might have matched.

Not here: the work of tasks (``spark.task.row_rewrite``, ``spark.task.write``), jobs (``spark.driver.jobs_here``; over Connect
``spark.driver.run_jobs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.expressions import BooleanExpression
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp

from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import FILE, POS, ROW_ID
from icelock.plan.filters.text import parse_filter
from icelock.spark.arguments import checked
from icelock.spark.columns.types import contains, quoted
from icelock.spark.driver.run_jobs import Jobs, jobs_of
from icelock.spark.driver.target import TableDescription
from icelock.spark.driver.this_batch import with_offsets
from icelock.spark.sealed.job import MAIN, Action, Job, Purpose
from icelock.spark.settings.options import TableName
from icelock.spark.table_writer import write_to
from icelock.spark.task.write import POSITIONS
from icelock.table.change_result import ChangeResult
from icelock.table.epochs import Epoch

if TYPE_CHECKING:
    from icelock.table.table import Table

_WHERE: Final = (ROW_ID.name, FILE.name, POS.name)
# Types that Spark and Iceberg order alike, and whose values reach Python unchanged.
_RANGED: Final = (sp.IntegerType, sp.LongType, sp.ShortType, sp.ByteType, sp.StringType, sp.DateType)
_MAP: Final = (sp.MapType,)
_CHANGED: Final = "icelock changed"
_ROWS: Final = "icelock rows"
_KEYS: Final = "icelock keys"


@checked
def delete(
    spark: SparkSession,
    table: str,
    delete_filter: str | BooleanExpression,
    *,
    branch: str = MAIN,
    snapshot_properties: Mapping[str, str] | None = None,
) -> ChangeResult:
    """Delete the rows of ``catalog.namespace.table`` that match a filter in PyIceberg's language; rows for which it is NULL are kept.

    Copy-on-write or merge-on-read, by ``write.delete.mode``.

    Raises:
        PolicyError: the session is not registered, or the filter is invalid.
        NoSuchTableError, KeyUnavailableError, CommitFailedException, ValidationException: nothing was committed and no file is left.
        PySparkException: tasks failed, or over Spark Connect anything, with the error in its message; likewise.
    """
    return delete_rows(spark, TableName.parse(table), parse_filter(delete_filter), branch, snapshot_properties)


def delete_rows(  # noqa: PLR0913 - those of ``delete``
    spark: SparkSession,
    table: TableName,
    row_filter: BooleanExpression,
    branch: str,
    snapshot_properties: Mapping[str, str] | None = None,
    loaded: Table | None = None,
) -> ChangeResult:
    """Delete rows as ``delete`` does; ``loaded`` is their table, where a statement has loaded it."""
    job = Job(
        action=Action.REWRITE,
        table=table,
        branch=branch,
        row_filter=row_filter,
        snapshot_properties=dict(snapshot_properties or {}),
        purpose=Purpose.DELETE,
    )
    with jobs_of(spark, table, loaded) as jobs:
        return jobs.remove(replace(job, base=jobs.describe(job).base))


@checked
def upsert(  # noqa: PLR0913 - PyIceberg's parameters
    df: DataFrame,
    table: str,
    join_cols: Sequence[str] | None = None,
    *,
    when_matched_update_all: bool = True,
    when_not_matched_insert_all: bool = True,
    branch: str = MAIN,
    snapshot_properties: Mapping[str, str] | None = None,
    batch: tuple[str, int] | None = None,
) -> ChangeResult:
    """Update the rows of a table whose keys are in a DataFrame and that differ from its rows, and insert the DataFrame's other rows.

    As ``Table.upsert``: ``join_cols`` are the table's identifier fields by default; each key occurs once in the DataFrame and has no null;
    equal rows are not written. ``batch`` are the id of a stream and the number of its batch, for ``foreachBatch``: if the table has
    that batch, nothing is done.

    Raises:
        PolicyError: other columns than the table's, no key, a key twice or with a null, or nothing to do; nothing was changed.
        NoSuchTableError, KeyUnavailableError, CommitFailedException, ValidationException: nothing was committed and no file is left.
        PySparkException: tasks failed, or over Spark Connect anything, with the error in its message; likewise.
    """
    if not when_matched_update_all and not when_not_matched_insert_all:
        raise PolicyError("there is nothing to do: set when_matched_update_all or when_not_matched_insert_all")
    job = Job(
        action=Action.MERGE,
        table=TableName.parse(table),
        branch=branch,
        snapshot_properties=dict(snapshot_properties or {}),
        purpose=Purpose.MERGE,
        by_position=True,
    ).of_batch(None if batch is None else with_offsets(df.sparkSession, Epoch.of(*batch)))
    with jobs_of(df.sparkSession, job.table) as jobs:
        described = jobs.describe(job)
        job = jobs.with_seen(replace(job, base=described.base), df)
        keys = tuple(join_cols or described.identifier)
        source = _source(df, described, keys, table).persist()
        try:
            rows, key_range = _key_range(source, keys)
            if not rows:
                return ChangeResult()
            merge = _Merge(jobs, replace(job, key_range=key_range), source, keys, described)
            return merge.run(rows, update=when_matched_update_all, insert=when_not_matched_insert_all)
        finally:
            source.unpersist()


@checked
def add_files(  # noqa: PLR0913 - as those above
    spark: SparkSession,
    table: str,
    paths: str | Sequence[str],
    *,
    reencrypt: bool = False,
    branch: str = MAIN,
    snapshot_properties: Mapping[str, str] | None = None,
) -> ChangeResult:
    """Append the rows of plain Parquet files, read by Spark, encrypted, and matched by column name; the plain files are kept.

    Raises:
        PolicyError: ``reencrypt`` is not set, a file that Spark would skip, or the session is not registered; nothing was changed.
        NoSuchTableError, KeyUnavailableError, CommitFailedException, ValidationException: nothing was committed and no file is left.
        PySparkException: tasks failed, or over Spark Connect anything, with the error in its message; likewise.
    """
    if not reencrypt:
        raise PolicyError(
            f"table {table}: encrypted tables take no plain files as they are: reencrypt=True reads them and writes their rows encrypted"
        )
    names = [paths] if isinstance(paths, str) else list(paths)
    skipped = [name for name in names if name.rstrip("/").rpartition("/")[2].startswith(("_", "."))]
    if skipped or not names:
        raise PolicyError(f"Spark reads no file whose name begins with _ or a dot: {', '.join(skipped)}" if skipped else "no file is named")
    options = {"mergeSchema": "true", "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    writer = write_to(spark.read.options(**options).parquet(*names), table).option("branch", branch)
    for name, value in (snapshot_properties or {}).items():
        writer.option(f"snapshot-property.{name}", value)
    return writer.append()


class _Merge:
    """The jobs of an upsert."""

    def __init__(self, jobs: Jobs, job: Job, source: DataFrame, keys: tuple[str, ...], described: TableDescription) -> None:
        self._jobs = jobs
        self._job = job
        self._source = source
        self._keys = keys
        self._described = described
        self._columns = described.columns

    def run(self, source_rows: int, *, update: bool, insert: bool) -> ChangeResult:
        matched = self._matched(update=update).persist()
        try:
            parts = []
            if update:
                parts.append(matched.filter(F.col(quoted(_CHANGED))).drop(_CHANGED))
            if insert:
                parts.append(self._unmatched(matched))
            rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
            return self._jobs.write(self._job, rows, {}, self._described.layout, source_rows)
        finally:
            matched.unpersist()

    def _matched(self, *, update: bool) -> DataFrame:
        """Return the source's rows that have a row in the table, with its place and whether it differs."""
        wanted = self._columns if update else self._keys
        target = self._jobs.target(replace(self._job, columns=(*wanted, *_WHERE))).alias("t")
        source = self._source.alias("s")
        same_key = [_of("t", key) == _of("s", key) for key in self._keys]
        kinds = {field.name: field.dataType for field in self._source.schema.fields}
        others = [name for name in wanted if name not in self._keys]
        changed = F.lit(False)  # noqa: FBT003 - a literal
        for name in others:
            changed = changed | _differ(_of("t", name), _of("s", name), kinds[name])
        where = zip(_WHERE, (ROW_ID.name, *POSITIONS), strict=True)
        return source.join(target, same_key, "inner").select(
            *(_of("s", name).alias(name) for name in self._columns),
            *(_of("t", name).alias(wanted_name) for name, wanted_name in where),
            changed.alias(_CHANGED),
        )

    def _unmatched(self, matched: DataFrame) -> DataFrame:
        """Return the source's rows that have no row in the table."""
        found = matched.select(*(F.col(quoted(key)).alias(key) for key in self._keys)).alias("m")
        left = self._source.alias("s").join(found, [_of("s", key) == _of("m", key) for key in self._keys], "left_anti")
        kinds = zip((ROW_ID.name, *POSITIONS), ("bigint", "string", "bigint"), strict=True)
        return left.select(
            *(_of("s", name).alias(name) for name in self._columns), *(F.lit(None).cast(kind).alias(name) for name, kind in kinds)
        )


def _source(df: DataFrame, described: TableDescription, keys: tuple[str, ...], table: str) -> DataFrame:
    """Return the DataFrame with the table's columns in order; UUIDs in lower case, as Spark reads them."""
    if not keys:
        raise PolicyError(f"table {table} has no identifier fields: name the key columns by join_cols")
    given, wanted = df.columns, described.columns
    wrong = [
        *(f"no column {name!r}" for name in wanted if name not in given),
        *(f"column {name!r}" for name in given if name not in wanted),
    ]
    unknown = [key for key in keys if key not in wanted]
    if wrong or len(given) != len(wanted):
        raise PolicyError(
            f"upsert needs a DataFrame with the columns of table {table} ({', '.join(wanted)}); it has {', '.join(wrong) or 'some twice'}"
        )
    if unknown:
        what = "column" if len(unknown) == 1 else "columns"
        raise PolicyError(f"table {table} has no {what} {', '.join(map(repr, unknown))} to join on; it has {', '.join(wanted)}")
    columns = {name: F.col(quoted(name)) for name in wanted}
    return df.select(*((F.lower(column) if name in described.uuids else column).alias(name) for name, column in columns.items()))


def _key_range(source: DataFrame, keys: tuple[str, ...]) -> tuple[int, dict[str, tuple[Any, Any]]]:
    """Return the number of rows, and the least and greatest values of key columns; a key twice, or with a null, is a PolicyError."""
    kinds = {field.name: field.dataType for field in source.schema.fields}
    ranged = [key for key in keys if isinstance(kinds[key], _RANGED)]
    bounds = [bound(quoted(key)).alias(f"{bound.__name__} {key}") for key in ranged for bound in (F.min, F.max)]
    same = source.groupBy(*(F.col(quoted(key)).alias(key) for key in keys)).agg(F.count(F.lit(1)).alias(_ROWS))
    nulls = [F.count_if(F.col(quoted(key)).isNull()).alias(f"nulls {key}") for key in keys]
    found = same.agg(F.count(F.lit(1)).alias(_KEYS), F.max(quoted(_ROWS)).alias(_ROWS), *nulls, *bounds).collect()[0]
    if not found[_KEYS]:
        return 0, {}
    without = [key for key in keys if found[f"nulls {key}"]]
    if without:
        raise PolicyError(f"key column {', '.join(map(repr, without))} of the DataFrame has nulls, which match no row: nothing was changed")
    if found[_ROWS] > 1:
        raise PolicyError(
            f"the key {', '.join(keys)} occurs more than once in the DataFrame: nothing was changed; keep one row for each key"
        )
    return found[_KEYS], {key: (found[f"min {key}"], found[f"max {key}"]) for key in ranged}


def _differ(one: Column, other: Column, kind: sp.DataType) -> Column:
    """Return whether two values differ; nulls are equal. Spark does not compare maps, so nested ones always differ."""
    if isinstance(kind, sp.MapType) and not contains(kind.keyType, _MAP) and not contains(kind.valueType, _MAP):
        one, other = (F.array_sort(F.map_entries(value)) for value in (one, other))
    elif contains(kind, _MAP):
        return F.lit(True)  # noqa: FBT003 - a literal
    return ~one.eqNullSafe(other)


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")
