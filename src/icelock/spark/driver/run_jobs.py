"""Jobs of an operation in the user's process, classic or Connect: each is a read or write of the format with one sealed option.

Nothing here loads a catalog or calls a KMS: that is done by the driver's planning processes, which for Spark Connect are the server's. In a
classic session, writes that commit are planned by the user's process itself (``spark.driver.write_here``).

Not here: what operations there are (``write_to``, ``spark.change_rows``).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from icelock.spark.driver.distribution import Layout, distributed
from icelock.spark.driver.source import NAME
from icelock.spark.jvm.rules import activate
from icelock.spark.sealed.job import DESCRIPTION, JOB, Action, Base, Job, Purpose
from icelock.spark.sealed.seen import Seen, rows_seen
from icelock.spark.settings.session import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

# Writes that commit, and need nothing of a job before them.
_AT_ONCE: Final = frozenset(
    {Action.APPEND, Action.OVERWRITE, Action.OVERWRITE_PARTITIONS, Action.CREATE, Action.REPLACE, Action.CREATE_OR_REPLACE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the user's process knows of a table."""

    base: Base
    columns: tuple[str, ...]
    uuids: frozenset[str]
    identifier: tuple[str, ...]
    layout: Layout


class Jobs:
    """Runs jobs in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._settings = settings_of(spark)
        activate(spark)

    def with_seen(self, job: Job, rows: DataFrame) -> Job:
        """Return a job that writes rows, with what these come from, if they come from its table; unless the user said it.

        Raises:
            PolicyError: they do, and it cannot be told which snapshot.
        """
        return job if job.validate_from is not None else replace(job, seen=rows_seen(rows, job.table, self._settings))

    def read(self, job: Job) -> DataFrame:
        """Return the rows of a job."""
        return self._spark.read.format(NAME).option(JOB, job.seal(self._settings)).load()

    def write(self, job: Job, rows: DataFrame) -> None:
        """Give rows to a job and let it end."""
        rows.write.format(NAME).mode("append").option(JOB, job.seal(self._settings)).save()

    def write_spread(self, job: Job, rows: DataFrame, options: Mapping[str, str], layout: Layout | None = None) -> None:
        """Give rows to a job as the table wants them spread over tasks; in a classic session one that commits is run by this process.

        Args:
            job: which writes rows.
            rows: as they are.
            options: those of ``distribution``.
            layout: of the table, if it is known.
        """
        if job.action in _AT_ONCE and getattr(self._spark, "_jsparkSession", None) is not None:
            from icelock.spark.driver.write_here import write_rows

            write_rows(self._settings, job, rows, options)
            return
        if layout is None:
            from icelock.spark.driver.new_table import new_layout

            layout = self.describe(job).layout if job.new_table is None else new_layout(job, rows.schema, self._properties_of(job))
        self.write(job, distributed(rows, layout, options, case_sensitive=self._settings.case_sensitive))

    def _properties_of(self, job: Job) -> Mapping[str, str]:
        """Return a catalog's properties as far as this process knows them."""
        return self._settings.catalogs.get(job.table.catalog) or {}

    def fixed(self, job: Job, *, snapshot: bool) -> Job:
        """Return a read with the version that its table has now; with ``snapshot`` it reads the main branch's."""
        found: dict[str, Any] = json.loads(self.read(replace(job, action=Action.SEE)).schema[0].metadata[DESCRIPTION])
        seen = Seen.from_text(found["seen"])
        number = found["snapshot"]
        base = Base(table_uuid=seen.table_uuid, snapshot_id=None if number is None else int(number), merge_on_read=False)
        return replace(job, base=base if snapshot else None, seen=(seen,))

    def describe(self, job: Job) -> Described:
        """Return what the table of a job is like now."""
        found: dict[str, Any] = json.loads(self.read(replace(job, action=Action.DESCRIBE)).schema[0].metadata[DESCRIPTION])
        snapshot = found["snapshot"]
        mode = found["merge"] if job.purpose == Purpose.MERGE else found["delete"]
        base = Base(table_uuid=found["uuid"], snapshot_id=None if snapshot is None else int(snapshot), merge_on_read=mode)
        return Described(
            base=base,
            columns=tuple(found["columns"]),
            uuids=frozenset(found["uuids"]),
            identifier=tuple(found["identifier"]),
            layout=Layout.from_json(found["layout"]),
        )

    def rewrite(self, job: Job, *, only_staged: bool = False) -> None:
        """Remove rows, and commit what was staged before; files of a failed operation are removed.

        Args:
            job: of the operation.
            only_staged: do nothing when no job staged anything.
        """
        job = replace(job, action=Action.REWRITE)
        try:
            results = self.read(job)
            if only_staged and not results.schema[0].metadata[DESCRIPTION]:
                return
            self.write(job, results)
        except BaseException:
            # A job that could not be planned took nothing. The first error matters more.
            with contextlib.suppress(Exception):
                _ = self.read(replace(job, action=Action.DISCARD)).schema
            raise
