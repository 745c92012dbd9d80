"""A Spark job of 16 tasks over a table of many files; prints the rows and the calls of the scan and of the append as JSON.

A process of its own: the JVM hands its environment, where some services look for credentials, to the processes it starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from counting_kms import Calls
from pyspark.sql import SparkSession

import icelock.spark

TASKS = 16


def main(properties: dict[str, str], calls: Calls, folder: Path) -> dict[str, Any]:
    builder = SparkSession.builder.master("local[2]").config("spark.default.parallelism", TASKS).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.sql.warehouse.dir", str(folder)).config("spark.sql.shuffle.partitions", "2").getOrCreate()
    icelock.spark.register(spark, {"lake": properties})
    frame = spark.read.format("icelock").load("lake.db.t")
    calls.take()
    read = frame.selectExpr("id", "spark_partition_id() task")
    rows = read.selectExpr("count(*)", "count(DISTINCT task)", "count(DISTINCT id)").first()
    scan = calls.take()
    extra = spark.range(0, TASKS, 1, TASKS).selectExpr("id + 1000000 id", "'x' name", "0 part")
    extra.write.format("icelock").mode("append").save("lake.db.t")
    append = calls.take()
    spark.stop()
    return {"rows": list(rows), "scan": scan, "append": append}


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(json.dumps(main(wanted["properties"], Calls(Path(wanted["calls"])), Path(wanted["folder"]))))
