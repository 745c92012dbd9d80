"""An archive of the classes that a Spark session loads (the JDK's class data sharing), so that a JVM of a test starts in less time.

    python -m tests.helpers.class_archive      makes the one of this environment

Each JVM takes 18 s of CPU from its start to the end of a few first queries; 11 s with the archive. The JVM looks itself whether the archive
fits the JDK and the jars (their paths, sizes and times) and goes without it if not, so a stale one changes nothing but time.

Classes of Java Iceberg and of servers are not in it: their class paths are others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

# It lives and dies with the environment whose jars it is of.
ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
# A JVM of a test lives for minutes at most: the optimising compiler and a collector with threads cost more than they bring. With the first
# compiler alone there are 48 MB for its code, which the tests of a lane fill: then it compiles nothing more, and Spark may end the JVM.
QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:-UsePerfData"
# A JVM with another class path would say at each start that the archive does not fit.
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def java_options() -> str:
    """Return the options of a JVM that starts Spark; others may take them too."""
    return f"{QUICK_START} -XX:SharedArchiveFile={ARCHIVE} {_SILENT}" if ARCHIVE.is_file() else QUICK_START


def make() -> None:
    """Run a session that does a little of everything in a process of its own, and keep the classes that it loaded."""
    new = ARCHIVE.with_suffix(".new")
    options = f"{QUICK_START} -XX:ArchiveClassesAtExit={new} {_SILENT}"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "JDK_JAVA_OPTIONS": options, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(
            [sys.executable, "-m", "tests.helpers.class_archive", folder], check=True, env=environment, cwd=Path(__file__).parents[2]
        )
    new.replace(ARCHIVE)


def _use_spark(folder: str) -> None:
    import icelock.spark  # noqa: PLC0415 - tests/conftest.py imports this module
    from tests.helpers.spark import end_jvm, session  # noqa: PLC0415

    spark = session({"spark.sql.warehouse.dir": folder, "spark.eventLog.enabled": "true", "spark.eventLog.dir": Path(folder).as_uri()})
    lake = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": folder,
        "encryption.kms-type": "memory",
        "kms.memory.keys.k": "00" * 16,
    }
    icelock.load_catalog("lake", **lake).create_namespace("db")
    icelock.spark.register(spark, {"lake": lake})
    rows = spark.range(0, 1000, 1, 2).selectExpr("id", "id % 7 as k", "cast(id as string) as s", "array(id) as l", "date'2026-01-01' as d")
    icelock.spark.write_to(rows, "lake.db.t").tableProperty("encryption.key-id", "k").create()
    rows.write.format("icelock").mode("append").save("lake.db.t")
    icelock.spark.delete(spark, "lake.db.t", "id > 10 and id < 20")
    for engine in ("native", "python"):
        found = icelock.spark.read(spark, "lake.db.t", engine=engine).filter("k < 5")
        found.join(rows.select("id").limit(10), "id").groupBy("k").count().orderBy("k").collect()
    icelock.spark.sql(spark, "select count(distinct s) from lake.db.t where id in (1, 2, 3)").collect()
    rows.write.parquet(f"{folder}/plain")
    spark.read.parquet(f"{folder}/plain").toPandas()
    spark.createDataFrame([(1, "a")], "a int, b string").mapInArrow(lambda batches: batches, "a int, b string").collect()
    end_jvm(600)  # it writes the archive


if __name__ == "__main__":
    if sys.argv[1:]:
        _use_spark(sys.argv[1])
    else:
        make()
