"""The native scan shows its keys to nobody, and no damage to a file becomes missing rows.

The user's session is set to the worst: ``ignoreCorruptFiles`` and ``ignoreMissingFiles``, with which Spark leaves out what it cannot read.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import IcelockError
from icelock.format.key_metadata import KeyMetadata
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import people
from tests.spark.native_tables import create, native, optional, put, values
from tests.spark.test_event_log import forms

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "name", StringType()))
LOGGERS = ("spark.sql.execution.datasources", "spark.sql.execution.DataSourceScanExec", "spark.scheduler", "spark.executor", "parquet")
FAILED = (IcelockError, PySparkException)


def rows(start: int, count: int = 10) -> list[dict[str, object]]:
    return [{"id": i, "name": f"canary-{i:05d}"} for i in range(start, start + count)]


def keys_of(table) -> list[bytes]:
    found = []
    for task in table.scan().scan_tasks():
        key = KeyMetadata.decode(task.key_metadata.reveal())
        found += [key.dek.reveal(), key.aad_prefix]
    return found


def path_of(task) -> Path:
    return Path(task.path.removeprefix("file://").removeprefix("file:"))


@contextlib.contextmanager
def log_file(spark, path: Path, names: tuple[str, ...] = LOGGERS, level: str = "DEBUG"):
    """Write what Spark and Parquet log at a level into a file."""
    log4j = spark._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)  # noqa: FBT003 - Java's
    config = context.getConfiguration()
    appender = log4j.core.appender.FileAppender.newBuilder().withFileName(str(path)).setName("icelock test").build()
    appender.start()
    at = getattr(log4j.Level, level)
    quiet = "org.apache.parquet.filter2.compat.FilterCompat"
    config.removeLogger(quiet)  # which an earlier read may have set
    added = [log4j.core.config.LoggerConfig(f"org.apache.{name}", at, False) for name in names]  # noqa: FBT003
    for logger in added:
        logger.addAppender(appender, at, None)
        config.addLogger(logger.getName(), logger)
    context.updateLoggers()
    try:
        yield
    finally:
        for logger in added:
            config.removeLogger(logger.getName())
        context.updateLoggers()
        appender.stop()


@pytest.fixture
def careless(spark):
    """Set the user's session to leave out what cannot be read."""
    names = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name in names:
        spark.conf.unset(name)


@pytest.mark.spark43
def test_keys_are_nowhere_to_be_seen(spark, spark_lake, event_log, tmp_path):
    create(spark_lake, SCHEMA, rows(0), rows(10), properties={"write.delete.mode": "merge-on-read"}).delete("id = 3")
    table = spark_lake.catalog().load_table("db.t")
    secrets = [*keys_of(table), *KEYS.values()]
    assert len(secrets) == 2 * 2 + 2
    before = dict(spark.conf.getAll)
    # Other tests' decimals hold the digits that the KMS of tests has for a key.
    logged = {path: path.stat().st_size for path in event_log.rglob("*") if path.is_file()}
    log = tmp_path / "spark.log"
    with log_file(spark, log):
        frame = native(spark).filter("id < 15")
        assert frame.join(native(spark, row_filter="id > 0"), "id").count() == 13
    assert dict(spark.conf.getAll) == before
    execution = frame._jdf.queryExecution()
    modes = ("extended", "formatted", "cost", "codegen", "simple")
    shown = [spark._jvm.PythonSQLUtils.explainString(execution, mode) for mode in modes]
    plans = (execution.logical(), execution.analyzed(), execution.optimizedPlan(), execution.executedPlan())
    shown += [text for plan in plans for text in (plan.toJSON(), plan.toString())]
    shown += [repr(frame), repr(table.scan().scan_tasks()), str(before), log.read_text(errors="replace")]
    shown += [spark._jsc.hadoopConfiguration().get("parquet.crypto.factory.class") or "", spark.sparkContext.getConf().toDebugString()]
    events = [path.read_bytes()[logged.get(path, 0) :] for path in event_log.rglob("*") if path.is_file()]
    assert any(events)
    shown += [event.decode(errors="replace") for event in events]
    text = "\n".join(shown).encode()
    assert b"FileScan icelock" in text
    assert b"Reading File path" in text, "the log is not that of Spark's scan"
    for secret in secrets:
        assert not any(form in text for form in forms(secret))
        assert str(list(secret)).encode() not in text
        signed = [byte - 256 if byte > 127 else byte for byte in secret]  # as Java writes arrays
        assert ", ".join(map(str, signed)).encode() not in text
        assert ",".join(map(str, signed)).encode() not in text


@pytest.mark.spark43
def test_values_of_rows_are_in_no_log(spark, spark_lake, event_log, tmp_path):
    """Spark's log names each file that a task opens, with its partition values; here they are in no path either."""
    hidden = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    create(spark_lake, SCHEMA, rows(0, 3), rows(10, 2), properties=hidden, partition_spec=spec)
    logged = {path: path.stat().st_size for path in event_log.rglob("*") if path.is_file()}
    log = tmp_path / "spark.log"
    with log_file(spark, log, ("spark", "parquet")):
        frame = native(spark)
        assert {row.name for row in frame.collect()} == {row["name"] for row in rows(0, 3) + rows(10, 2)}
        assert frame.filter("name is not null").groupBy("name").count().count() == 5
        assert native(spark, columns=["id", "_partition"]).filter("id = 11").collect()[0]._partition.name == "canary-00011"
    text = log.read_bytes() + b"".join(path.read_bytes()[logged.get(path, 0) :] for path in event_log.rglob("*") if path.is_file())
    assert b"Reading File path" in text
    assert b"partition values: [" in text
    assert b"canary" not in text


# Each compares with a value that only rows have; Spark pushes it down once the subquery has run.
SUBQUERIES = (
    ("select * from q_t where name = (select max(name) from q_t)", 1),
    ("select * from q_t where name > (select min(name) from q_p)", 29),
    ("select * from q_t where id = (select max(id) from q_t)", 1),
    ("select * from q_t where id between (select min(id) from q_p) and (select max(id) from q_p)", 3),
    ("select * from q_t where name in (select name from q_p where id % 2 = 0)", 2),
    ("select q_p.* from q_p join q_t using (name) where q_t.id % 7 = 0", 1),
    ("select * from q_p where name = (select max(name) from q_p)", 1),
)


@pytest.mark.spark43
def test_values_that_queries_find_in_rows_are_in_no_log(spark, spark_lake, event_log, tmp_path):
    """Results of scalar subqueries, dynamic pruning and runtime filters, at INFO."""
    hidden = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    found = [{"id": 7_700_000_000_000_000 + i, "name": f"canary-{i:05d}"} for i in range(30)]
    create(spark_lake, SCHEMA, found)
    create(spark_lake, SCHEMA, *([row] for row in found[:3]), properties=hidden, partition_spec=spec, name="p")
    icelock.spark.attach(spark, "test.db", prefix="q_")
    logged = {path: path.stat().st_size for path in event_log.rglob("*") if path.is_file()}
    log = tmp_path / "spark.log"
    with log_file(spark, log, ("spark", "parquet", "hadoop"), "INFO"):
        for query, count in SUBQUERIES:
            assert len(spark.sql(query).collect()) == count, query
    for name in ("q_t", "q_p"):
        spark.catalog.dropTempView(name)
    text = log.read_bytes() + b"".join(path.read_bytes()[logged.get(path, 0) :] for path in event_log.rglob("*") if path.is_file())
    assert b"Reading File path" in text
    assert b"ScalarSubquery" in text
    assert b"canary" not in text
    assert b"77000000000000" not in text


@pytest.mark.spark43
def test_a_logger_that_the_configuration_names_is_left_alone(spark, spark_lake, tmp_path):
    create(spark_lake, SCHEMA, rows(0))
    said = {}
    for name in ("parquet", "parquet.filter2.compat.FilterCompat"):
        log = tmp_path / name
        with log_file(spark, log, (name,), "INFO"):
            assert native(spark).filter("name = 'canary-00003'").count() == 1
        said[name] = b"Filtering using predicate" in log.read_bytes()
    assert said == {"parquet": False, "parquet.filter2.compat.FilterCompat": True}


def test_kms_is_called_once_for_a_kek(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0), rows(10))
    icelock.spark.register(spark, {"test": spark_lake.properties()})  # a new catalog, with nothing in cache
    spark_lake.calls.take()
    frame = native(spark)
    assert len(frame.collect()) == 20
    assert frame.filter("id = 3").count() == 1
    assert native(spark).filter("id > 3").count() == 16
    assert spark_lake.calls.take() == ["unwrap keyA"]


@pytest.mark.spark43(daily=True)
def test_no_key_is_left_where_files_were_opened(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0))
    assert len(native(spark).collect()) == 10
    jvm = spark._jvm
    factory = jvm.Thread.currentThread().getContextClassLoader().loadClass("icelock.KeyOfThread")
    gateway = spark.sparkContext._gateway
    made = factory.getDeclaredConstructor(gateway.new_array(jvm.Class, 0)).newInstance(gateway.new_array(jvm.Object, 0))
    path = jvm.org.apache.hadoop.fs.Path(table.scan().scan_tasks()[0].path)
    with pytest.raises(Py4JError, match="icelock has no key for"):
        made.getFileDecryptionProperties(jvm.org.apache.hadoop.conf.Configuration(), path)


def damaged(stored: bytes) -> dict[str, bytes]:
    """A file with one thing wrong, by what it is."""
    footer = int.from_bytes(stored[-8:-4], "little")
    flips = {"page header": 20, "page": (len(stored) - footer) // 2, "footer": len(stored) - 8 - footer // 2}
    flips |= {"footer length": len(stored) - 8, "end": len(stored) - 1}
    found = {}
    for name, at in flips.items():
        changed = bytearray(stored)
        changed[at] ^= 1
        found[name] = bytes(changed)
    return {**found, "truncated": stored[:-100], "cut in half": stored[: len(stored) // 2], "empty": b""}


@pytest.mark.spark43
@pytest.mark.usefixtures("careless")
def test_a_damaged_file_is_an_error_and_no_missing_rows(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    first, second = (path_of(task) for task in table.scan().scan_tasks())
    stored, other = first.read_bytes(), second.read_bytes()
    frame = native(spark)
    assert values(frame.select("id")) == sorted(range(20), key=repr)
    for name, content in damaged(stored).items():
        first.write_bytes(content)
        with pytest.raises(FAILED):
            frame.collect()
        if name == "truncated":
            with pytest.raises(FAILED):
                frame.filter("id >= 0").count()
    # Each is whole and belongs to the table, but in the other's place.
    first.write_bytes(other)
    with pytest.raises(FAILED):
        frame.collect()
    with pytest.raises(FAILED):
        frame.filter("id >= 0").count()
    pq.write_table(people(), first)
    with pytest.raises(FAILED):
        frame.collect()
    with pytest.raises(FAILED):
        frame.filter("id >= 0").count()
    first.unlink()
    with pytest.raises(FAILED):
        frame.collect()
    with pytest.raises(FAILED):
        frame.filter("id >= 0").count()
    first.write_bytes(stored)
    assert frame.count() == 20
    assert len(frame.collect()) == 20
    assert frame.count() == 20, "the manifests say so, whatever became of the files"


@pytest.mark.usefixtures("careless")
def test_bytes_after_the_end_of_a_file(spark, spark_lake):
    """Parquet looks for the footer at the end, where the same file once more has its own; the key metadata has the file's length."""
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    first, second = (path_of(task) for task in table.scan().scan_tasks())
    stored = first.read_bytes()
    for added in (b"x", b"PARE", second.read_bytes()):
        first.write_bytes(stored + added)
        with pytest.raises(FAILED):
            native(spark).collect()
    first.write_bytes(stored + stored)
    with pytest.raises(FAILED, match=rf"{first.name} failed authentication: it has {2 * len(stored)} bytes on storage"):
        native(spark).collect()


@pytest.mark.usefixtures("careless")
def test_a_manifest_that_was_changed_is_told_of(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    frame = native(spark)
    for manifest in table.current_snapshot().manifests(table.io):
        path = Path(manifest.manifest_path.removeprefix("file://"))
        stored = bytearray(path.read_bytes())
        stored[len(stored) // 2] ^= 1
        path.write_bytes(stored)
    with pytest.raises(icelock.errors.IntegrityError):
        frame.filter("id = 3").collect()
    with pytest.raises(icelock.errors.IntegrityError):
        native(spark)


NAMES = (
    "_hidden",
    ".dotted",
    "a b",
    "a%2Fb",
    "k=v",
    "h#sh",
    "[a-z]",
    "{x,y}",
    "ünïcode-日本",
    "qu'ote\"",
    "*",
    "p?q",
    "semi;colon&",
    "%",
    "plus+",
)


def test_files_of_any_name_are_read(spark, spark_lake):
    odd = f"{spark_lake.warehouse}/_d/.e/k=1/a b%2F#[x]{{y}}é*"
    create(spark_lake, SCHEMA, rows(0, 1), properties={"write.data.path": odd})
    locations = {put(spark_lake.catalog().load_table("db.t"), rows(number, 1), name): number for number, name in enumerate(NAMES, 1)}
    frame = native(spark, columns=["id", "_file", "_pos"])
    found = {row._file: row.id for row in frame.collect()}
    assert len(found) == len(NAMES) + 1
    assert {location: found[location] for location in locations} == locations
    assert values(native(spark).select("id")) == sorted(range(len(NAMES) + 1), key=repr)
    assert native(spark).count() == len(NAMES) + 1
