"""icelock's errors of a query in a classic session: raised as what they are, by whatever runs the query, and nothing else is touched."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import functions as F  # noqa: N812

import icelock.spark
from icelock.errors import FormatError, IntegrityError, KeyUnavailableError, PolicyError
from icelock.spark.jvm import errors as errors_of_jvm
from tests.helpers.turns import todays
from tests.lakes.sqlite import people
from tests.spark.native_tables import TABLE, create, native, optional

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "name", StringType()))


def rows(start: int, count: int = 10) -> list[dict[str, object]]:
    return [{"id": i, "name": f"name-{i:05d}"} for i in range(start, start + count)]


def path_of(task: Any) -> Path:
    return Path(task.path.removeprefix("file://").removeprefix("file:"))


def flip(path: Path, at: int) -> None:
    stored = bytearray(path.read_bytes())
    stored[at] ^= 1
    path.write_bytes(stored)


@pytest.fixture
def changed(spark_lake) -> Path:
    """A table whose first file was changed; its path."""
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    path = path_of(table.scan().scan_tasks()[0])
    flip(path, path.stat().st_size // 3)
    return path


ACTIONS: dict[str, Callable[[Any, Path], Any]] = {
    "collect": lambda frame, _: frame.collect(),
    "toPandas": lambda frame, _: frame.toPandas(),
    "toArrow": lambda frame, _: frame.toArrow(),
    "count": lambda frame, _: frame.filter("id >= 0 and name <> ''").count(),
    "take": lambda frame, _: frame.orderBy("name").take(1),
    "head": lambda frame, _: frame.orderBy("name").head(),
    "show": lambda frame, _: frame.orderBy("name").show(),
    "tail": lambda frame, _: frame.tail(100),
    "foreach": lambda frame, _: frame.foreach(lambda _: None),
    "foreachPartition": lambda frame, _: frame.foreachPartition(lambda part: list(part) and None),
    "toLocalIterator": lambda frame, _: list(frame.toLocalIterator()),
    "rdd": lambda frame, _: frame.rdd.map(len).collect(),
    "parquet": lambda frame, folder: frame.write.parquet(str(folder / "copy")),
    "noop": lambda frame, _: frame.write.format("noop").mode("overwrite").save(),
    "group": lambda frame, _: frame.groupBy("name").count().collect(),
    "join": lambda frame, _: frame.join(frame.withColumnRenamed("name", "n"), "id").collect(),
    "broadcast": lambda frame, _: frame.sparkSession.range(5).join(F.broadcast(frame), "id").collect(),
    "cache": lambda frame, _: frame.cache().count(),
    "mapInArrow": lambda frame, _: frame.mapInArrow(lambda batches: batches, frame.schema).collect(),
}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:toPandas attempted Arrow optimization")  # which PySpark 4.3 says of any error
@pytest.mark.parametrize("how", [pytest.param("native", marks=pytest.mark.spark43), "python"])
def test_each_action_says_which_file_was_changed(spark, changed, tmp_path, how):
    """Of what the Python data source reads, a third of the actions a day: what raises is the same."""
    frame = icelock.spark.read(spark, TABLE, engine=how)
    actions = list(ACTIONS.items())
    for number, (name, act) in enumerate(actions if how == "native" else todays("actions by Python", actions, 6)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(IntegrityError, match=changed.name) as caught:
            act(frame, folder)
        assert isinstance(caught.value, PySparkException), name
        assert type(caught.value).__module__ == "icelock.errors"
        again = copy.copy(caught.value)
        assert (isinstance(again, IntegrityError), str(again)) == (True, str(caught.value))
    frame.unpersist()


@pytest.mark.spark
def test_each_way_to_read_says_so(spark, changed):
    icelock.spark.attach(spark, "test.db", prefix="errors_of_")
    ways = [
        icelock.spark.sql(spark, "select max(name) from test.db.t where id > 0"),
        spark.sql("select count(distinct name) from errors_of_t"),
        spark.read.format("icelock").load(TABLE),
        native(spark, columns=["name"]).union(spark.range(3).selectExpr("'x' name")),
    ]
    for frame in ways:
        with pytest.raises(IntegrityError, match=changed.name):
            frame.collect()
    spark.catalog.dropTempView("errors_of_t")
    with pytest.raises(IntegrityError, match=changed.name):
        icelock.spark.write_to(native(spark), "test.db.copy").tableProperty("encryption.key-id", "keyA").create()
    with pytest.raises(IntegrityError, match=changed.name):
        native(spark).write.format("icelock").mode("append").save(TABLE)


@pytest.mark.spark
def test_what_can_happen_to_a_file(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    first, second = (path_of(task) for task in table.scan().scan_tasks())
    stored, other = first.read_bytes(), second.read_bytes()
    footer = len(stored) - 8 - int.from_bytes(stored[-8:-4], "little")
    flips = {"module length": 4, "page header": 20, "page": footer // 2, "footer": footer + 40, "crypto metadata": footer + 1}
    flips |= {"footer length": len(stored) - 8, "magic": len(stored) - 1}
    contents = {name: stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :] for name, at in flips.items()}
    contents |= {"cut": stored[:-100], "half": stored[: len(stored) // 2], "empty": b"", "appended": stored + b"x", "swapped": other}
    contents |= {"zeros": bytes(len(stored)), "length zero": bytes(4).join([stored[:4], stored[8:]])}
    frame = native(spark)
    for name, content in contents.items():
        first.write_bytes(content)
        caught = None
        try:
            frame.collect()
        except IntegrityError as e:
            caught = e
        assert first.name in str(caught), name
    pq.write_table(people(), first)
    with pytest.raises(IntegrityError, match=first.name):
        frame.collect()
    first.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{first.name} is not there.*read the table again") as caught:
        frame.collect()
    assert isinstance(caught.value, PySparkException)
    first.write_bytes(stored)
    assert frame.filter("id >= 0").count() == 20


@pytest.mark.spark
@pytest.mark.spark43
def test_errors_of_planning_are_those_that_were_raised(spark, spark_lake):
    table = create(spark_lake, SCHEMA, rows(0), rows(10))
    frame = native(spark)
    small = F.broadcast(native(spark).filter("id = 4"))
    manifests = [Path(m.manifest_path.removeprefix("file://")) for m in table.current_snapshot().manifests(table.io)]
    kept = [path.read_bytes() for path in manifests]
    for path in manifests:
        flip(path, path.stat().st_size // 2)
    for query in (frame.filter("id = 3"), spark.range(9).join(small, "id")):
        with pytest.raises(IntegrityError, match=r"does not authenticate|was changed") as caught:
            query.collect()
        assert caught.value.__cause__ is not None
    for path in manifests:
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"snapshot \d+ of test\.db\.t.*expired.*read the table again"):
        frame.filter("id = 5").collect()
    for path, content in zip(manifests, kept, strict=True):
        path.write_bytes(content)
    assert len(frame.filter("id = 6").collect()) == 1


@pytest.mark.spark
@pytest.mark.spark43
def test_other_errors_stay_as_they_are(spark, spark_lake):
    create(spark_lake, SCHEMA, rows(0))
    frame = native(spark)
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        frame.select("nothing")

    def refuse(batches: Any) -> Any:
        for batch in batches:
            msg = "no\nicelock.errors.IntegrityError: not raised by icelock"
            raise ValueError(msg, batch.num_rows)
        yield

    with pytest.raises((PythonException, Py4JError), match="ValueError") as caught:
        frame.mapInArrow(refuse, frame.schema).collect()
    assert not isinstance(caught.value, IntegrityError)
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO") as caught:
        frame.selectExpr("id / (id - id)").collect()
    assert not isinstance(caught.value, IntegrityError)
    with pytest.raises(PolicyError, match="nothing"):
        icelock.spark.read(spark, TABLE, columns=["nothing"])
    with pytest.raises(PolicyError, match="nothing"):
        spark.read.format("icelock").option("columns", "nothing").load(TABLE).collect()
    with pytest.raises(PolicyError, match=r"column 'nme' does not exist; did you mean 'name'") as caught:
        icelock.spark.delete(spark, TABLE, "nme = 1")
    assert len(str(caught.value)) < 400, "no plan, no traceback"


TASK = """Task 0 in stage 1.0 failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
  File "{place}", line 2, in read
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        ("icelock.errors.IntegrityError: file f was changed", IntegrityError, "file f was changed"),
        ("icelock.errors.FormatError: file f\nis cut", FormatError, "file f\nis cut"),
        ("icelock.errors.KmsError: KMS refused keyA", KeyUnavailableError, "KMS refused keyA"),
        ("FileNotFoundError: [Errno 2] no f", FileNotFoundError, "[Errno 2] no f"),
        ("PermissionError: [Errno 13] f", PermissionError, "[Errno 13] f"),
        ("OSError: [Errno 28] No space left on device", OSError, "[Errno 28] No space left on device"),
        ("OSError: [Errno 30] Read-only file system: 'f'", OSError, "[Errno 30] Read-only file system: 'f'"),
        ("NotADirectoryError: [Errno 20] f", NotADirectoryError, "[Errno 20] f"),
    ],
)
def test_tracebacks_of_workers(raised, kind, said):
    found = errors_of_jvm.in_traceback(TASK.format(raised=raised, place="/lib/icelock/task/read.py"))
    assert isinstance(found, kind)
    assert str(found).startswith(f"{said}\n\nIn Spark's Python worker:\nTraceback")


def test_what_the_user_asked_for_is_refused_in_a_sentence():
    found = errors_of_jvm.in_traceback(TASK.format(raised="icelock.errors.PolicyError: no column 'a',\nbut b", place="read.py"))
    assert isinstance(found, PolicyError)
    assert str(found) == "no column 'a',\nbut b"


@pytest.mark.parametrize(
    "raised",
    [
        "ValueError: icelock.errors.IntegrityError: x",
        "ValueError: x\nicelock.errors.IntegrityError: x",
        "icelock.errors.Unknown: x",
        "icelock.errorsIntegrityError: x",
        "FileNotFoundError: a UDF's own",
        "OSError: [Errno 28] a UDF's own",
        "OSError: a UDF's own",
    ],
)
def test_tracebacks_of_others(raised):
    assert errors_of_jvm.in_traceback(TASK.format(raised=raised, place="/home/icelock.py")) is None
    assert errors_of_jvm.in_traceback("icelock.errors.IntegrityError: said by a column's name") is None
