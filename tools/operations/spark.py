"""Recipes of Spark: the data source's reads and writes, the table writer, and the functions of ``icelock.spark``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import icelock.spark
from icelock.errors import PolicyError
from tests.lakes.sqlite import KEYED, TestLake
from tools.operations import statements
from tools.operations.place import Place
from tools.operations.recipe import Outcome, Recipe, recipes
from tools.operations.table import deleted_by_vector, updated

CATALOG = "test"
# Options of Java's that any write takes.
OF_JAVA = {
    "check-nullability": "true",
    "check-ordering": "true",
    "compression-codec": "gzip",
    "compression-level": "5",
    "delete-format": "puffin",
    "delete-granularity": "file",
    "isolation-level": "snapshot",
    "target-delete-file-size-bytes": "1000000",
    "target-file-size-bytes": "1000000",
    "use-table-distribution-and-ordering": "false",
    "write-format": "avro",
}
KEEPS_ALL = {"min-input-files": "2", "expire": "false", "leftovers": "false"}


class SparkPlace(Place):
    """A table that a Spark session knows as ``test.db.t``."""

    spark: SparkSession

    def __init__(self, lake: TestLake, namespace: str = "db", *, metadata: str | None = None) -> None:
        super().__init__(lake, namespace, metadata=metadata)
        self.full = f"{CATALOG}.{self.name}"

    def rows(self, start: int = 90) -> DataFrame:
        return self.spark.createDataFrame(self.other(start).to_pandas(), "id long, name string, city string")

    def reader(self) -> Any:
        return self.spark.read.format("icelock")

    def writer(self, mode: str) -> Any:
        return self.rows().write.format("icelock").mode(mode)

    def changed(self) -> DataFrame:
        return self.spark.createDataFrame(updated().to_pandas(), "id long, name string, city string")


def written_with(name: str, value: str) -> Callable[[Any], object]:
    return lambda p: p.writer("append").option(name, value).save(p.full)


def keyed(writer: Any) -> Any:
    for name, value in KEYED.items():
        writer = writer.tableProperty(name, value)
    return writer


def made(use: Callable[[Any], object], *, there: bool) -> Callable[[Any], object]:
    """Return a use of a writer that makes a table."""
    return lambda p: use(keyed(icelock.spark.write_to(p.rows(), p.full if there else f"{p.full}new")))


def streamed(place: Any) -> None:
    rows = (
        place.spark.readStream.format("icelock")
        .option("start-snapshot-id", str(place.table.current_snapshot().snapshot_id))
        .load(place.full)
    )
    rows.writeStream.format("noop").start().processAllAvailable()


def streamed_table(place: Any) -> None:
    rows = place.spark.readStream.option("start-snapshot-id", str(place.table.current_snapshot().snapshot_id)).table(place.full)
    rows.writeStream.format("noop").start().processAllAvailable()


def stream_writer(place: Any) -> Any:
    folder = place.lake.folder / "lines"
    folder.mkdir()
    (folder / "lines.json").write_text('{"id": 7, "name": "a", "city": "b"}', encoding="utf-8")
    rows = place.spark.readStream.schema("id long, name string, city string").json(str(folder))
    return rows.writeStream.option("checkpointLocation", str(place.lake.folder / "checkpoint")).trigger(availableNow=True)


def written_once(place: Any) -> None:
    writer = place.writer("append").option("streaming-query-id", "q").option("streaming-epoch-id", "0")
    writer.save(place.full)
    writer.save(place.full)
    assert place.table.refresh().scan(row_filter="id >= 90").count() == len(place.rows().collect())


def into_the_data(place: Any) -> None:
    deleted_by_vector(place)
    assert icelock.spark.rewrite_deletes(place.spark, place.full, into="data").added_files


def writer_of(place: Any) -> Any:
    return icelock.spark.write_to(place.rows(), place.full)


READS = [
    *recipes(
        "read",
        Outcome.READS,
        {
            "as-of-timestamp": lambda p: (
                p.reader().option("as-of-timestamp", str(p.table.snapshots()[1].timestamp_ms)).load(p.full).count()
            ),
            "branch": lambda p: p.reader().option("branch", "side").load(p.full).count(),
            "columns": lambda p: p.reader().option("columns", "id").load(p.full).count(),
            "compute-updates": lambda p: p.reader().option("compute-updates", "true").load(f"{p.full}.changes").count(),
            "identifier-columns": lambda p: p.reader().option("identifier-columns", "id").load(f"{p.full}.changes").count(),
            "net-changes": lambda p: p.reader().option("net-changes", "true").load(f"{p.full}.changes").count(),
            "end-snapshot-id": lambda p: (
                (p.reader().option("start-snapshot-id", str(p.first)).option("end-snapshot-id", str(p.table.snapshots()[1].snapshot_id)))
                .load(p.full)
                .count()
            ),
            "end-timestamp": lambda p: (
                p.reader().option("start-snapshot-id", str(p.first)).option("end-timestamp", str(2**53)).load(p.full).count()
            ),
            "start-snapshot-id": lambda p: p.reader().option("start-snapshot-id", str(p.first)).load(p.full).count(),
            "start-timestamp": lambda p: p.reader().option("start-timestamp", str(2**53)).load(p.full).count(),
            "snapshot-id": lambda p: p.reader().option("snapshot-id", str(p.first)).load(p.full).count(),
            "table": lambda p: p.reader().option("table", p.full).load().filter("id > 3").collect(),
            "tag": lambda p: p.reader().option("tag", "first").load(p.full).count(),
        },
    ),
    Recipe("readStream", streamed_table, Outcome.READS),
    Recipe("readStream/format", streamed, Outcome.READS),
]
WRITES = [
    *recipes(
        "write",
        Outcome.ENCRYPTED,
        {
            **{name: written_with(name, value) for name, value in OF_JAVA.items()},
            "branch": lambda p: p.writer("append").option("branch", "side").save(p.full),
            "mode=append": lambda p: p.writer("append").save(p.full),
            "mode=overwrite": lambda p: p.writer("overwrite").save(p.full),
            "output-spec-id": lambda p: p.writer("append").option("output-spec-id", str(p.table.spec().spec_id)).save(p.full),
            "overwrite-filter": lambda p: p.writer("overwrite").option("overwrite-filter", "id >= 0").save(p.full),
            "overwrite-mode": lambda p: p.writer("overwrite").option("overwrite-mode", "dynamic").save(p.full),
            "streaming-epoch-id": written_once,
            "streaming-query-id": written_once,
            "table": lambda p: p.writer("append").option("table", p.full).save(),
            "validate-from-snapshot-id": lambda p: (
                p.writer("overwrite").option("validate-from-snapshot-id", str(p.table.current_snapshot().snapshot_id)).save(p.full)
            ),
        },
    ),
    *recipes(
        "write",
        Outcome.REFUSED,
        {
            "mode=error": lambda p: p.writer("error").save(p.full),
            "mode=ignore": lambda p: p.writer("ignore").save(p.full),
        },
        PySparkException,
    ),
    Recipe("writeStream", lambda p: stream_writer(p).toTable(p.full).awaitTermination(), Outcome.ENCRYPTED),
    Recipe("writeStream/format", lambda p: stream_writer(p).format("icelock").start(p.full).awaitTermination(), Outcome.ENCRYPTED),
]
WRITER = [
    *recipes(
        "TableWriter",
        Outcome.ENCRYPTED,
        {
            "append": lambda p: writer_of(p).append(),
            "create": made(lambda writer: writer.create(), there=False),
            "createOrReplace": made(lambda writer: writer.createOrReplace(), there=False),
            "createOrReplace/there": made(lambda writer: writer.createOrReplace(), there=True),
            "overwrite": lambda p: writer_of(p).overwrite("id < 4"),
            "overwrite/all": lambda p: writer_of(p).overwrite("true"),
            "overwritePartitions": lambda p: writer_of(p).overwritePartitions(),
            "replace": made(lambda writer: writer.replace(), there=True),
        },
    ),
    *recipes(
        "TableWriter",
        Outcome.READS,
        {
            "option": lambda p: writer_of(p).option("branch", "side"),
            "options": lambda p: writer_of(p).options(branch="side"),
            "partitionedBy": lambda p: writer_of(p).partitionedBy("city"),
            "tableProperty": lambda p: writer_of(p).tableProperty("owner", "me"),
            "using": lambda p: writer_of(p).using("iceberg"),
        },
    ),
    Recipe("TableWriter.create/there", made(lambda writer: writer.create(), there=True), Outcome.REFUSED, TableAlreadyExistsError),
    Recipe("TableWriter.replace/not there", made(lambda writer: writer.replace(), there=False), Outcome.REFUSED, NoSuchTableError),
    Recipe(
        "TableWriter.create/version 2",
        made(lambda writer: writer.tableProperty("format-version", "2").create(), there=False),
        Outcome.REFUSED,
        PolicyError,
    ),
]
FUNCTIONS = [
    *recipes(
        "spark",
        Outcome.ENCRYPTED,
        {
            "add_files/reencrypt": lambda p: icelock.spark.add_files(p.spark, p.full, p.plain_file, reencrypt=True),
            "compact": lambda p: icelock.spark.compact(p.spark, p.full, options={"rewrite-all": "true"}),
            "compact/sorted": lambda p: icelock.spark.compact(p.spark, p.full, sort_by="id desc", options={"rewrite-all": "true"}),
            "delete": lambda p: icelock.spark.delete(p.spark, p.full, "id = 3"),
            "merge": lambda p: icelock.spark.merge(p.spark, p.full, p.changed(), ["id"]).when_matched_update().execute(),
            "optimize": lambda p: icelock.spark.optimize(p.spark, p.full, options=KEEPS_ALL),
            "rewrite_deletes": into_the_data,
            "rotate": lambda p: icelock.spark.rotate(p.spark, p.full, "data"),
            "upsert": lambda p: icelock.spark.upsert(p.changed(), p.full, ["id"]),
        },
    ),
    *recipes(
        "spark",
        Outcome.READS,
        {
            "attach": lambda p: icelock.spark.attach(p.spark, f"{CATALOG}.db", prefix="attached_", replace=True),
            "audit": lambda p: icelock.spark.audit(p.spark, p.full, depth="bytes"),
            "read": lambda p: icelock.spark.read(p.spark, p.full).count(),
            "read/native": lambda p: icelock.spark.read(p.spark, p.full, row_filter="id > 3", engine="native").collect(),
            "read/python": lambda p: icelock.spark.read(p.spark, p.full, columns=["id"], branch="side", engine="python").collect(),
            "register": lambda p: icelock.spark.register(p.spark, {CATALOG: p.lake.properties()}),
            "sql": lambda p: icelock.spark.sql(p.spark, f"select count(*) from {p.full}").collect(),  # noqa: S608 - Spark's SQL
            "write_to": writer_of,
        },
    ),
    *recipes(
        "spark",
        Outcome.REFUSED,
        {
            "add_files": lambda p: icelock.spark.add_files(p.spark, p.full, p.plain_file),
            "convert": lambda p: icelock.spark.convert(p.spark, p.full, key_id="keyA"),
            "sql/insert": lambda p: icelock.spark.sql(p.spark, f"insert into {p.full} select * from {p.full}"),  # noqa: S608 - likewise
            "write_to/not a name": lambda p: icelock.spark.write_to(p.rows(), "t"),
        },
        PolicyError,
    ),
]


def to_spark(place: SparkPlace) -> object:
    with pytest.deprecated_call():
        return place.table.scan(row_filter="id > 3").to_spark(place.spark).collect()


SCAN = recipes("DataScan", Outcome.READS, {"to_spark": to_spark})
RECIPES = [*READS, *SCAN, *WRITES, *WRITER, *FUNCTIONS, *statements.RECIPES]
