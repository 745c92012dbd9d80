"""A Spark job on an encrypted table, the same on every catalog: what differs is configuration.

    spark-submit --master local[2] examples/spark_job.py --catalog lake
    spark-submit --master spark://host:7077 examples/spark_job.py --catalog lake --key-id lake-key

Catalog and key service are in PyIceberg's configuration (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__...``) of the machine where the driver
runs; executors need none. ``--key-id`` names a master key of the key service.

The job makes the table ``job.readings`` or replaces it, reads with a filter, deletes, upserts and travels in time. It compares what it sees
with what it has to see, looks at the first bytes of every file of the table, and prints what it saw as JSON.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark

import icelock
import icelock.spark

TASKS = 3
TABLE = "job.readings"
# Readings 0 to 999 of two stations in turn: reading i is of station i % 2, and its value is 2 i.
WRITTEN = {"rows": 1000, "sum of id": 499_500, "sum of value": 999_000}
# Readings 501, 503 ... 999 of station 1: 250 rows, 750 on the average.
FILTERED = {"rows": 250, "sum of id": 187_500, "sum of value": 375_000}
# Readings 0, 2 ... 98 of station 0 are deleted: 50 rows, 49 on the average.
DELETED = {"rows": 950, "sum of id": 497_050, "sum of value": 994_100}
# Readings 990 to 1009 come with value -1: ten are there (values 19890 in sum), ten are new (ids 10045 in sum).
UPSERTED = {"rows": 960, "sum of id": 507_095, "sum of value": 974_190}


class JobFailedError(Exception):
    """The job saw something that it should not have seen."""


def main(spark: SparkSession, catalog: str, *, key_id: str = "lake-key") -> dict[str, Any]:
    """Run the job on one catalog and return what it saw.

    Raises:
        JobFailedError: something was not as it has to be.
    """
    icelock.spark.register(spark)
    name = f"{catalog}.{TABLE}"
    with icelock.load_catalog(catalog) as lake:
        lake.create_namespace_if_not_exists(TABLE.partition(".")[0])
        write(spark, name, key_id)
        snapshot = lake.load_table(TABLE).metadata.current_snapshot_id
        seen = change_and_read(spark, name, snapshot)
        table = lake.load_table(TABLE)
        files = first_bytes(table)
    check("files in the clear", [location for location, start in files.items() if start not in {b"AGS1", b"PARE"}], [])
    kinds = {kind: list(files.values()).count(kind.encode()) for kind in ("AGS1", "PARE")}
    return {"catalog": catalog, "table": table.location(), **seen, "files": kinds}


def write(spark: SparkSession, name: str, key_id: str) -> None:
    """Make the table with its rows, in one commit of several tasks."""
    writer = icelock.spark.write_to(readings(spark, 0, 1000, F.col("id") * 2), name).partitionedBy("station")
    writer.tableProperty("encryption.key-id", key_id).tableProperty("write.delete.mode", "merge-on-read").createOrReplace()


def change_and_read(spark: SparkSession, name: str, snapshot: int | None) -> dict[str, Any]:
    """Read the table, change it twice, and read each snapshot that comes of it."""
    found = icelock.spark.read(spark, name).filter("station = 'station-1' and id >= 500")
    seen = {"filtered": check("rows that match", counts(found), FILTERED)}
    icelock.spark.delete(spark, name, "station = 'station-0' and id < 100")
    seen["deleted"] = check("rows after the delete", counts(icelock.spark.read(spark, name)), DELETED)
    icelock.spark.upsert(readings(spark, 990, 1010, F.lit(-1).cast("bigint")), name, ["id"])
    seen["upserted"] = check("rows after the upsert", counts(icelock.spark.read(spark, name)), UPSERTED)
    before = spark.read.format("icelock").option("snapshot-id", snapshot).load(name)
    seen["written"] = check("rows of the first snapshot", counts(before), WRITTEN)
    return seen


def readings(spark: SparkSession, start: int, end: int, value: Column) -> DataFrame:
    """Return readings, made by several tasks."""
    station = F.concat(F.lit("station-"), (F.col("id") % 2).cast("string"))
    return spark.range(start, end, 1, TASKS).select("id", station.alias("station"), value.alias("value"))


def counts(frame: DataFrame) -> dict[str, int]:
    """Return number and sums of the rows."""
    row = frame.agg(F.count("*"), F.sum("id"), F.sum("value")).collect()[0]
    return dict(zip(WRITTEN, row, strict=True))


def first_bytes(table: Any) -> dict[str, bytes]:
    """Return the first four bytes, as they are stored, of every manifest list, manifest, data file and delete file."""
    locations = {snapshot.manifest_list for snapshot in table.snapshots()}
    locations |= set(table.inspect.all_manifests()["path"].to_pylist())
    locations |= set(table.inspect.all_files()["file_path"].to_pylist())
    found = {}
    for location in sorted(locations):
        with table.io.new_input(location).open() as stream:
            found[location] = stream.read(4)
    return found


def check(what: str, got: Any, wanted: Any) -> Any:
    """Return what was seen, if it is what it has to be."""
    if got != wanted:
        msg = f"{what}: {got}, and it has to be {wanted}"
        raise JobFailedError(msg)
    return got


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a Spark job on an encrypted table and check what it sees.")
    parser.add_argument("--catalog", action="append", required=True, help="name in PyIceberg's configuration; may be given again")
    parser.add_argument("--key-id", default="lake-key", help="id of the master key")
    arguments = parser.parse_args()
    session = SparkSession.builder.appName("icelock job").getOrCreate()
    try:
        for given in arguments.catalog:
            print(json.dumps(main(session, given, key_id=arguments.key_id)))
    finally:
        session.stop()
