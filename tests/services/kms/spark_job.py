"""Spark jobs of 16 tasks, each over a table of many files: prints the rows and the calls of the scan and of the append as JSON.

One JVM runs the jobs of all services, which come on standard input, one a line; it takes most of the time to start. ``environment``
has the variables where a service looks for credentials: Spark gives them to the processes that plan, and to those of its tasks.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

import icelock.spark
from tests.helpers.counting_kms import Calls
from tests.helpers.spark import session

TASKS = 16


def main(spark: SparkSession, properties: dict[str, str], calls: Calls) -> dict[str, Any]:
    icelock.spark.register(spark, {"lake": properties})
    frame = spark.read.format("icelock").load("lake.db.t")
    calls.take()
    read = frame.selectExpr("id", "spark_partition_id() task")
    rows = read.selectExpr("count(*)", "count(DISTINCT task)", "count(DISTINCT id)").first()
    scan = calls.take()
    extra = spark.range(0, TASKS, 1, TASKS).selectExpr("id + 1000000 id", "'x' name", "0 part")
    extra.write.format("icelock").mode("append").save("lake.db.t")
    append = calls.take()
    return {"rows": list(rows or ()), "scan": scan, "append": append}


if __name__ == "__main__":
    started = session({"spark.default.parallelism": str(TASKS), "spark.sql.warehouse.dir": sys.argv[1]}, log_level=None)
    given = started.sparkContext.environment
    for line in sys.stdin:
        wanted = json.loads(line)
        with patch.dict(os.environ, wanted["environment"]), patch.dict(given, wanted["environment"]):
            print(json.dumps(main(started.newSession(), wanted["properties"], Calls(Path(wanted["calls"])))), flush=True)
    started.stop()
