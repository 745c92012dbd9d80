"""``write_to``: Spark's ``df.writeTo``, for encrypted tables, with its method names.

    create  replace  createOrReplace     the table and its rows in one commit; tasks write first, so a failed job leaves no table
    append  overwrite  overwritePartitions

``overwrite`` by a filter is two jobs: one writes the rows, one rewrites the files that lose some of theirs.

Not here: what a job does (``spark.sealed.job``), changes of rows (``spark.change_rows``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.sql import DataFrame

from icelock.errors import PolicyError
from icelock.plan.filters.text import parse_filter
from icelock.spark.arguments import checked
from icelock.spark.driver.distribution import check_options
from icelock.spark.driver.run_jobs import Jobs, jobs_of
from icelock.spark.driver.source import NAME
from icelock.spark.driver.this_batch import with_offsets
from icelock.spark.sealed.job import Action, Job, NewTable, Purpose
from icelock.spark.settings.options import BRANCH, TABLE
from icelock.spark.settings.write_options import (
    AS_THE_TABLE_SAYS,
    OUTPUT_SPEC,
    OVERWRITE_FILTER,
    OVERWRITE_MODE,
    STREAM_EPOCH,
    STREAM_QUERY,
    WriteOptions,
    distribution_options,
)
from icelock.table.change_result import ChangeResult

if TYPE_CHECKING:
    from icelock.table.epochs import Epoch
    from icelock.table.table import Table

LOCATION: Final = "location"
_OF_BATCH: Final = (STREAM_QUERY, STREAM_EPOCH)


@checked
def write_to(df: DataFrame, table: str) -> TableWriter:
    """Return a writer of a DataFrame to ``catalog.namespace.table``, in the shape of ``df.writeTo``.

    Raises:
        PolicyError: the session is not registered, or the name is invalid.
    """
    return TableWriter(df, table)


class TableWriter:
    """Writes a DataFrame; each of the six last methods runs it and makes one snapshot.

    They return what they did, or raise PolicyError, KeyUnavailableError, NoSuchTableError, CommitFailedException or ValidationException, or
    (errors of tasks, Spark Connect) PySpark's exception with one of them in its message. Then nothing was committed and no file is left.
    """

    def __init__(self, df: DataFrame, table: str, loaded: Table | None = None, epoch: Epoch | None = None) -> None:
        self._df = df
        self._loaded = loaded  # the table, where a statement has loaded it
        self._epoch = epoch  # the batch, where a stream writes
        self._jobs = Jobs(df.sparkSession)
        self._options: dict[str, str] = {TABLE: table}
        self._spread: dict[str, str] = {}
        self._properties: dict[str, str] = {}
        self._partitioned_by: tuple[str, ...] = ()
        WriteOptions.parse(self._options, overwrite=False)

    def using(self, provider: str) -> Self:
        """Accept ``icelock`` and ``iceberg``, for code written for ``df.writeTo``.

        Raises:
            PolicyError: another format.
        """
        if provider.lower() not in {NAME, "iceberg"}:
            raise PolicyError(f"write_to creates encrypted Iceberg tables, not {provider!r}")
        return self

    def option(self, name: str, value: object) -> Self:
        """Set an option.

        They are those of ``settings.write_options`` but those that are methods here; ``streaming-query-id`` goes with
        ``streaming-epoch-id``: a batch that the table has is not written.

        Raises:
            PolicyError: another name, or an invalid value.
        """
        spread, _ = distribution_options({name: str(value)})
        if spread:
            spread = {**self._spread, **spread}
            check_options(spread)
            self._spread = spread
            if name.lower() != AS_THE_TABLE_SAYS:
                return self
        if name.lower() in {TABLE, OVERWRITE_FILTER, OVERWRITE_MODE}:
            raise PolicyError(f"write_to has a method for the option {name}")
        options = {**self._options, name: str(value)}
        if name.lower() in _OF_BATCH:  # one is nothing without the other
            self._options = options
            return self
        WriteOptions.parse(options, overwrite=False)
        self._options = options
        return self

    def options(self, **options: object) -> Self:
        """Set several options."""
        for name, value in options.items():
            self.option(name, value)
        return self

    def tableProperty(self, name: str, value: object) -> Self:
        """Set a property of the new table, such as ``encryption.key-id``; ``location`` is where it is, as in Spark."""
        self._properties[name] = str(value)
        return self

    def partitionedBy(self, *transforms: str) -> Self:
        """Set the partitioning of the new table: ``"city"``, ``"days(ts)"``, ``"bucket(16, id)"``, ``"truncate(4, name)"``.

        Names with other characters than letters, digits and ``_`` are in backticks: ``"`total (usd)`"``.
        """
        wrong = [transform for transform in transforms if not isinstance(transform, str)]
        if wrong:
            raise PolicyError(f"partitionedBy takes text such as 'days(ts)', not {type(wrong[0]).__name__}")
        self._partitioned_by = transforms
        return self

    def create(self) -> ChangeResult:
        """Create a table with these rows; it must not exist."""
        return self._make(Action.CREATE)

    def replace(self) -> ChangeResult:
        """Give an encrypted table these rows, columns and partitioning; its history stays."""
        return self._make(Action.REPLACE)

    def createOrReplace(self) -> ChangeResult:
        """Create a table with these rows, or replace it if it exists."""
        return self._make(Action.CREATE_OR_REPLACE)

    def append(self) -> ChangeResult:
        """Add the rows."""
        return self._write(self._job(Action.APPEND))

    def overwrite(self, condition: str | BooleanExpression) -> ChangeResult:
        """Replace the rows that match a filter in PyIceberg's language; ``"true"`` replaces all."""
        everything = isinstance(condition, str) and condition.strip().lower() == "true"
        row_filter = AlwaysTrue() if everything else parse_filter(condition)
        if row_filter == AlwaysTrue():
            return self._write(self._own(Action.OVERWRITE))
        return self._write(replace(self._own(Action.STAGE), row_filter=row_filter, purpose=Purpose.OVERWRITE))

    def overwritePartitions(self) -> ChangeResult:
        """Replace the partitions that get rows."""
        return self._write(self._own(Action.OVERWRITE_PARTITIONS))

    def _job(self, action: Action) -> Job:
        if self._properties or self._partitioned_by:
            raise PolicyError(f"tableProperty and partitionedBy are for a new table, and {action} changes an existing one")
        return self._of_options(action)

    def _own(self, action: Action) -> Job:
        return self._jobs.with_seen(self._job(action), self._df)

    def _make(self, action: Action) -> ChangeResult:
        for name, has in ((BRANCH, "its main branch"), (OUTPUT_SPEC, "one partition spec"), (STREAM_EPOCH, "no batch of a stream")):
            if name in {given.lower() for given in self._options}:
                raise PolicyError(f"a new table has {has} only: leave the option {name} out")
        properties = dict(self._properties)
        location = properties.pop(LOCATION, None)
        new = NewTable(properties=properties, partitioned_by=self._partitioned_by, location=location)
        job = replace(self._of_options(action), new_table=new)
        return self._write(job if action == Action.CREATE else self._jobs.with_seen(job, self._df))

    def _write(self, job: Job) -> ChangeResult:
        with jobs_of(self._df.sparkSession, job.table, self._loaded) as jobs:
            if job.action != Action.STAGE:
                return jobs.write(job, self._df, self._spread)
            described = jobs.describe(job)
            return jobs.write(replace(job, base=described.base), self._df, self._spread, described.layout)

    def _of_options(self, action: Action) -> Job:
        job = Job.of_write(WriteOptions.parse(self._options, overwrite=False), overwrite=False)
        return replace(job.of_batch(with_offsets(self._df.sparkSession, self._epoch or job.epoch)), action=action)
