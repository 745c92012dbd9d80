"""Reads of a job in the driver: a table's description, its rows with their places, the work of removing rows.

Not here: reads that users ask for (``spark.driver.plan_read``), writes (``spark.driver.plan_write``).
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from icelock.spark.columns.types import spark_schema
from icelock.spark.driver.commit import discard_staged
from icelock.spark.driver.plan_read import Given, Loaded, PlanningReader, load, plan_read
from icelock.spark.driver.plan_rewrite import RewritePlanning, result_schema
from icelock.spark.driver.target import describe, see, target_scan
from icelock.spark.sealed.job import Action, Job
from icelock.spark.sealed.staged import peek
from icelock.spark.settings.catalogs import open_table
from icelock.spark.settings.options import ReadOptions
from icelock.spark.settings.session import Settings


def job_schema(settings: Settings, job: Job) -> tuple[StructType, Loaded | None]:
    """Return the schema of a job's rows, which is all that some jobs do; and for a job that reads rows what they are loaded from."""
    if job.action == Action.DESCRIBE:
        return describe(settings, job), None
    if job.action == Action.SEE:
        return see(settings, job), None
    if job.action == Action.DISCARD:
        discard_staged(settings, job)
        return result_schema(staged=False), None
    if job.action == Action.REWRITE:
        return result_schema(staged=peek(job) is not None), None
    if job.read is not None:
        return load(settings, job.read, Given.of(job))
    scan = target_scan(open_table(settings, job.table), job)
    return spark_schema(scan.projection(), table=str(job.table)), None


def job_reader(settings: Settings, job: Job, schema: StructType, loaded: Loaded | None) -> DataSourceReader:
    """Return the reader of a job."""
    if job.action == Action.REWRITE:
        return RewritePlanning(settings, job)
    if job.read is not None:
        return plan_read(settings, job.read, schema, loaded, Given.of(job))
    table = open_table(settings, job.table)
    empty = job.pinned.snapshot_id is None
    return PlanningReader(settings, ReadOptions(table=job.table), table, target_scan(table, job), schema, empty=empty)
