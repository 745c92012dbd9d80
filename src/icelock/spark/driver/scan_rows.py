"""The rows of a scan as a DataFrame: Spark's own reader reads the files that it can, the data source the others.

Not here: what Spark's reader reads (``spark.native.scan``), the data source (``spark.driver.source``).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from icelock import telemetry
from icelock.errors import PolicyError
from icelock.spark.driver.run_jobs import Jobs
from icelock.spark.sealed.job import Job, PlannedOn
from icelock.spark.sealed.seen import Seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icelock.table.read.scan import DataScan


class Engine(StrEnum):
    """Who reads: Spark's own reader where it can, it alone, or the data source alone."""

    AUTO = "auto"
    NATIVE = "native"
    PYTHON = "python"


def scan_rows(spark: SparkSession, job: Job, scan: DataScan, engine: Engine = Engine.AUTO) -> DataFrame:
    """Return the rows of a scan; ``job`` asks the data source for the same."""
    from icelock.spark.native.scan import native_read

    snapshot, metadata = scan.snapshot(), scan.table_metadata
    snapshot_id = None if snapshot is None else snapshot.snapshot_id
    base = PlannedOn(table_uuid=str(metadata.table_uuid), snapshot_id=snapshot_id, merge_on_read=False)
    job = replace(job, base=base, seen=(Seen.of(metadata),))
    if engine == Engine.PYTHON:
        return by_data_source(spark, job)
    pinned = scan if snapshot_id is None else scan.pinned(snapshot_id)
    native = native_read(spark, pinned, str(job.table), require_native=engine == Engine.NATIVE)
    if native.rows is not None and not native.rest:
        return native.rows
    reason = native.reason or "some files are not Parquet files with field ids, or have equality deletes of nested columns or in Avro"
    if engine == Engine.NATIVE and native.rest:
        raise PolicyError(f"table {job.table} cannot be read by Spark's own reader alone: {reason}; leave the engine out")
    if native.rest:
        what = "native-scan" if native.rows is None else "native-scan-of-some-files"
        telemetry.fallback("spark", logging.INFO, what=what, why=reason, table=str(job.table))
    rest = by_data_source(spark, replace(job, rest=native.rows is not None))
    return rest if native.rows is None else native.rows.unionAll(rest)


def by_data_source(spark: SparkSession, job: Job) -> DataFrame:
    """Return the rows of a job by the data source; a table without a catalog is a PolicyError."""
    if not job.table.catalog:
        raise PolicyError(
            f"table {'.'.join(job.table.identifier)} has no catalog, and Spark's own reader cannot read all of it: load it from a catalog"
        )
    return Jobs(spark).read(job)
