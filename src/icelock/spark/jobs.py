"""Jobs of an operation in the user's process, classic or Connect: each is a read or write of the format with one sealed option.

Nothing here loads a catalog or calls a KMS: that is done by the driver's planning processes, which for Spark Connect are the server's.

Not here: what operations there are (``write_to``, ``rows``).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icelock.spark.job import DESCRIPTION, JOB, Action, Base, Job, Purpose
from icelock.spark.jvm import activate
from icelock.spark.settings import settings_of
from icelock.spark.source import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the user's process knows of a table."""

    base: Base
    columns: tuple[str, ...]
    uuids: frozenset[str]
    identifier: tuple[str, ...]


class Jobs:
    """Runs jobs in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._settings = settings_of(spark)
        activate(spark)

    def read(self, job: Job) -> DataFrame:
        """Return the rows of a job."""
        return self._spark.read.format(NAME).option(JOB, job.seal(self._settings)).load()

    def write(self, job: Job, rows: DataFrame) -> None:
        """Give rows to a job and let it end."""
        rows.write.format(NAME).mode("append").option(JOB, job.seal(self._settings)).save()

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
        )

    def cut(self, job: Job, *, only_staged: bool = False) -> None:
        """Remove rows, and commit what was staged before; files of a failed operation are removed.

        Args:
            job: of the operation.
            only_staged: do nothing when no job staged anything.
        """
        job = replace(job, action=Action.CUT)
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
