"""On a real standalone master with two workers: every operation, executors that die, speculation, and what a listener hears.

PySpark has one JVM a process, so this comes before the modules that share a session: pytest collects this folder first.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.maintenance import leftovers
from icelock.spark.driver import copy_here, rewrite_here, write_here
from icelock.table.maintenance.rotation.copied_files import DATA_NAME
from tests.helpers.counting_kms import KEYS, callers_log
from tests.helpers.waiting import wait_until
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.spark.standalone import Cluster, connected, connected_again
from tests.spark.tap import Tap
from tests.spark.test_event_log import forms

pytestmark = pytest.mark.spark

TABLE = "test.db.t"
SCHEMA = "id bigint, name string, city string"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
}
UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
TOLD = (
    "jobs",
    "stages?details=true&withSummaries=true",
    "allexecutors",
    "storage/rdd",
    "environment",
    "sql?details=true&planDescription=true&length=1000",
)
REFUSE = {"icelock.spark.plain-rpc": "refuse"}
LAST_BATCH = 2
WORKER = "pyspark.daemon pyspark.worker"
IN_THE_CLEAR = "cross the network in the clear"


@pytest.fixture(scope="module")
def tap():
    tap = Tap()
    yield tap
    tap.close()


@pytest.fixture(scope="module")
def cluster_spark(cluster, tap):
    with connected(cluster, {**SPECULATION, **UI, **tap.conf}) as spark:
        yield spark


@pytest.fixture
def there(cluster_spark, lake):
    """The lake, known to the session on the cluster; its KMS tells which processes call it."""
    icelock.spark.register(cluster_spark, {"test": telling(lake)})
    return lake


def telling(lake: TestLake, **more: str) -> dict[str, str]:
    return lake.properties(**{"encryption.kms-impl": "tests.helpers.counting_kms.TellingKms"}, **more)


def rows(spark, count, parts, meanwhile=None):
    """Return rows whose city is the work folder of the executor; ``meanwhile`` runs in a task before its third batch of 10,000."""

    def run(batches):

        for number, batch in enumerate(batches):
            if number == LAST_BATCH and meanwhile is not None:
                meanwhile(TaskContext.get())
            ids = batch.column(0)
            folder = next(part for part in Path.cwd().parts if part.startswith("work-"))
            columns = {"id": ids, "name": [f"n{i}" for i in ids.to_pylist()], "city": [folder] * len(ids)}
            yield pa.record_batch(columns)

    return spark.range(0, count, 1, parts).mapInArrow(run, SCHEMA)


def ids(spark):
    return sorted(row.id for row in spark.read.format("icelock").load(TABLE).select("id").collect())


def natively(spark):
    """Return the ids as executors read them with Spark's own reader."""
    return sorted(row.id for row in icelock.spark.read(spark, TABLE, engine="native").select("id").collect())


def on_storage(lake):
    return {path for path in lake.files() if path.startswith("db/t/data/")}


def committed(lake):
    table = lake.catalog().load_table("db.t")
    return {"db/" + task.path.partition("/db/")[2] for task in table.scan().scan_tasks()}


def listed(lake):
    found = leftovers(lake.catalog().load_table("db.t"), older_than=timedelta(0)).files
    return {"db/" + file.path.partition("/db/")[2] for file in found}


def callers(lake):
    """Return the command lines of the processes that called the KMS."""
    return callers_log(lake.folder / "kms-calls.log").read_text().splitlines()


def executors_commands(spark):
    """Return the command lines of executors' Python processes."""

    def run(batches):
        command = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode()
        for batch in batches:
            yield pa.record_batch({"command": [command] * batch.num_rows})

    return [row.command for row in spark.range(2).mapInArrow(run, "command string").collect()]


def deks(lake):
    tasks = lake.catalog().load_table("db.t").scan().scan_tasks()
    return {KeyMetadata.decode(task.key_metadata.reveal()).dek.reveal() for task in tasks}


@pytest.fixture
def no_small_files(monkeypatch):
    """Tasks rewrite files that are so small, and write rows that are so few, that the user's process would do it."""
    monkeypatch.setattr(rewrite_here, "SMALL", -1)
    monkeypatch.setattr(write_here, "_FEW_CHANGES", -1)


@pytest.mark.usefixtures("no_small_files")
def test_every_operation_on_both_workers(cluster_spark, there):
    """Executors never talk to the KMS, whatever the operation."""
    spark = cluster_spark
    icelock.spark.write_to(rows(spark, 1000, 4), TABLE).tableProperty("encryption.key-id", "keyA").create()
    assert len(committed(there)) == 4
    df = spark.read.format("icelock").load(TABLE)
    assert df.filter("id >= 990").count() == 10
    assert {row.city for row in df.select("city").distinct().collect()} == {"work-0", "work-1"}
    icelock.spark.delete(spark, TABLE, "id >= 100 and id < 300")
    assert ids(spark) == [*range(100), *range(300, 1000)]
    changes = spark.createDataFrame([(5, "five", "x"), (2000, "new", "x")], SCHEMA)
    icelock.spark.upsert(changes, TABLE, ["id"])
    assert ids(spark) == [*range(100), *range(300, 1000), 2000]
    assert [row.name for row in spark.read.format("icelock").load(TABLE).filter("id in (5, 6, 2000)").orderBy("id").collect()] == [
        "five",
        "n6",
        "new",
    ]
    assert natively(spark) == ids(spark)
    called = callers(there)
    assert len(called) >= 3
    assert not any(WORKER in command for command in called)
    assert all(WORKER in command for command in executors_commands(spark))
    assert listed(there) == set()


def test_an_executor_that_dies_in_the_middle_of_a_write(cluster_spark, cluster, there, tmp_path):
    spark = cluster_spark
    properties = {**KEYED, "write.parquet.row-group-size-bytes": "20000"}
    there.catalog().create_table("db.t", people().schema, properties=properties)
    marks, go = tmp_path / "marks", tmp_path / "go"
    marks.mkdir()

    def wait(task):
        (marks / f"{task.partitionId()}-{task.attemptNumber()}").touch()
        for _ in range(1200):
            if go.exists():
                break
            time.sleep(0.05)

    failed: list[BaseException] = []
    job = threading.Thread(target=lambda: attempt(lambda: icelock.spark.write_to(rows(spark, 60_000, 2, wait), TABLE).append(), failed))
    before = cluster.executors()
    job.start()
    assert wait_until(lambda: {"0-0", "1-0"} <= {mark.name for mark in marks.iterdir()} and len(on_storage(there)) >= 2, 120)
    os.kill(before[0], signal.SIGKILL)
    go.touch()
    job.join(120)
    assert not job.is_alive()
    assert failed == []
    assert ids(spark) == list(range(60_000))
    assert on_storage(there) - committed(there) <= listed(there)
    assert len(committed(there)) == 2
    assert wait_until(lambda: len(cluster.executors()) == 2, 120)
    assert before[0] not in cluster.executors()
    # The new executor gets the classes of Spark's own reader too.
    assert natively(spark) == list(range(60_000))


def test_an_executor_that_dies_in_each_batch_of_a_stream(cluster_spark, cluster, there, tmp_path):
    """Between its reading of a table and its writing of another: the batch's tasks run again elsewhere, and each row comes once."""
    spark = cluster_spark
    marks = tmp_path / "marks"
    marks.mkdir()
    for name in ("db.t", "db.copy"):
        there.catalog().create_table(name, people().schema, properties=KEYED)
    table = there.catalog().load_table("db.t")

    def die_once(batches):
        for batch in batches:
            yield batch
            try:
                (marks / str(min(batch.column("id").to_pylist()) // 100)).touch(exist_ok=False)
            except FileExistsError:
                continue
            command = Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()
            os.kill(int(command[1]), signal.SIGKILL)  # the JVM that started this worker's daemon

    for number in range(2):
        table.append(people(number * 100, 50))
        table.append(people(number * 100 + 50, 50))
        some = spark.readStream.table("test.db.t").mapInArrow(die_once, SCHEMA)
        query = (
            some.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).toTable("test.db.copy")
        )
        query.awaitTermination()
        assert {mark.name for mark in marks.iterdir()} == {str(batch) for batch in range(number + 1)}
    copy = there.catalog().load_table("db.copy")
    assert sorted(copy.scan().to_arrow()["id"].to_pylist()) == list(range(200))
    assert [one.summary.additional_properties["spark.sql.streaming.epochId"] for one in copy.snapshots()] == ["0", "1"]
    assert not any(WORKER in command for command in callers(there))
    assert wait_until(lambda: len(cluster.executors()) == 2, 120)


def test_an_executor_that_dies_while_it_copies_for_a_rotation(cluster_spark, cluster, there, tmp_path, monkeypatch):
    """Its copies were written and nobody was told of them: they are deleted, and each row is there once at each snapshot."""
    spark = cluster_spark
    table = there.catalog().create_table("db.t", people().schema, properties=KEYED)
    for start in range(0, 40, 10):
        table.append(people(start))
    table.overwrite(people(5, 1), overwrite_filter="id = 5")
    before = {one.snapshot_id: sorted(table.scan(snapshot_id=one.snapshot_id).to_arrow()["id"].to_pylist()) for one in table.snapshots()}
    marks, go = tmp_path / "marks", tmp_path / "go"
    marks.mkdir()
    run = copy_here.run_splits

    def copied_then_wait(work, key, batches):
        message, task = work(key, batches), TaskContext.get()
        (marks / f"{task.partitionId()}-{task.attemptNumber()}").touch()
        for _ in range(1200):
            if go.exists():
                break
            time.sleep(0.05)
        return message

    monkeypatch.setattr(copy_here, "SMALL", -1)
    monkeypatch.setattr(copy_here, "run_splits", lambda spark, splits, work: run(spark, splits, partial(copied_then_wait, work)))
    failed: list[BaseException] = []
    job = threading.Thread(target=lambda: attempt(lambda: icelock.spark.rotate(spark, TABLE, "all"), failed))
    executors = cluster.executors()
    job.start()
    assert wait_until(lambda: len({*marks.iterdir()}) >= 2, 120)
    os.kill(executors[0], signal.SIGKILL)
    go.touch()
    job.join(240)
    assert not job.is_alive()
    assert failed == []
    assert "1" in {mark.name.rpartition("-")[2] for mark in marks.iterdir()}, "a task ran twice"
    found = there.catalog().load_table("db.t")
    assert {number: sorted(found.scan(snapshot_id=number).to_arrow()["id"].to_pylist()) for number in before} == before
    assert ids(spark) == list(range(40))
    copies = {path for path in on_storage(there) if DATA_NAME.fullmatch(Path(path).name)}
    assert copies == {path for path in reached(there) if DATA_NAME.fullmatch(Path(path).name)}
    assert not any(WORKER in command for command in callers(there))
    assert wait_until(lambda: len(cluster.executors()) == 2, 120)


def test_copies_of_an_attempt_that_lost_are_deleted(cluster_spark, there, tmp_path, monkeypatch):
    """Speculation's attempt is the second one, and the first one wins: no task that is heard of ran before."""
    spark = cluster_spark
    table = there.catalog().create_table("db.t", people().schema, properties=KEYED)
    for start in range(0, 20, 10):
        table.append(people(start))
    table.overwrite(people(5, 1), overwrite_filter="id = 5")
    marks, run = tmp_path / "marks", copy_here.run_splits
    marks.mkdir()

    def first_attempt_wins(work, job, key, batches):
        message, task = work(key, batches), TaskContext.get()
        (marks / f"{job}-{task.partitionId()}-{task.attemptNumber()}").touch()
        if job == 1 and task.partitionId() == 0:
            for _ in range(6000 if task.attemptNumber() else 1200):
                if task.attemptNumber() == 0 and (marks / "1-0-1").exists():
                    break
                time.sleep(0.05)
        return message

    jobs = count(1)
    monkeypatch.setattr(copy_here, "SMALL", -1)
    monkeypatch.setattr(
        copy_here, "run_splits", lambda spark, splits, work: run(spark, splits, partial(first_attempt_wins, work, next(jobs)))
    )
    assert icelock.spark.rotate(spark, TABLE, "all").left_files == 0
    assert {"1-0-0", "1-0-1"} <= {mark.name for mark in marks.iterdir()}
    assert ids(spark) == list(range(20))
    assert {path for path in on_storage(there) if DATA_NAME.fullmatch(Path(path).name)} == {
        path for path in reached(there) if DATA_NAME.fullmatch(Path(path).name)
    }


def reached(lake):
    """Return the data and delete files that a snapshot needs."""
    table = lake.catalog().load_table("db.t")
    return {
        "db/" + entry.data_file.file_path.partition("/db/")[2]
        for one in table.snapshots()
        for manifest in one.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }


def second_attempt_ends(task, marks):
    """Note that an attempt runs. The first one of partition 0 stays until Spark ends it; the next one waits until the first has come here.

    Where a worker starts slowly, Spark may begin the second attempt before the first has run any of its code.
    """
    (marks / f"{task.partitionId()}-{task.attemptNumber()}").touch()
    if (task.partitionId(), task.attemptNumber()) == (0, 0):
        time.sleep(300)
    elif task.partitionId() == 0:
        for _ in range(2400):
            if (marks / "0-0").exists():
                break
            time.sleep(0.05)


def test_a_task_that_runs_twice_counts_once(cluster_spark, there, tmp_path):
    spark = cluster_spark
    there.catalog().create_table("db.t", people().schema, properties=KEYED)
    marks = tmp_path / "marks"
    marks.mkdir()

    begun = time.monotonic()
    write(rows(spark, 60_000, 2, lambda task: second_attempt_ends(task, marks)))
    assert time.monotonic() - begun < 250
    assert {"0-0", "0-1", "1-0"} <= {mark.name for mark in marks.iterdir()}
    assert ids(spark) == list(range(60_000))
    assert on_storage(there) - committed(there) <= listed(there)


def test_a_native_scan_whose_task_runs_twice_gives_its_rows_once(cluster_spark, there, tmp_path):
    spark = cluster_spark
    table = there.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    for start in (0, 10_000):
        table.append(people(start, 10_000))
    table.delete("id in (7, 10007)")
    marks = tmp_path / "marks"
    marks.mkdir()

    def run(batches):
        for number, batch in enumerate(batches):
            if number == 0:
                second_attempt_ends(TaskContext.get(), marks)
            yield batch

    begun = time.monotonic()
    found = icelock.spark.read(spark, TABLE, columns=["id"], engine="native").mapInArrow(run, "id bigint").collect()
    assert time.monotonic() - begun < 250
    assert {"0-0", "0-1", "1-0"} <= {mark.name for mark in marks.iterdir()}
    assert sorted(row.id for row in found) == [number for number in range(20_000) if number % 10_000 != 7]


def test_what_the_user_interface_tells_holds_no_key(cluster_spark, there):
    """Spark's REST API has what its pages show, of plans, tasks, settings and what executors keep."""
    spark = cluster_spark
    table = there.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    table.append(people())
    table.delete("id = 3")
    found = icelock.spark.read(spark, TABLE, engine="native").cache()
    assert found.filter("id > 5").count() == 4
    icelock.spark.write_to(rows(spark, 100, 2), TABLE).append()
    assert len(ids(spark)) == 109
    told = b"".join(asked(spark, path) for path in TOLD)
    found.unpersist()
    for shown in (b"FileScan icelock", b"BatchScan icelock", b"InMemoryTableScan", b"spark.driver.host"):
        assert shown in told
    keys = deks(there) | set(KEYS.values())
    assert len(keys) == 3 + 2
    for key in keys:
        assert not any(form in told for form in forms(key))


def asked(spark, path):
    """Return what Spark's REST API answers, with the escapes of JSON undone."""
    context = spark.sparkContext
    port = context.uiWebUrl.rpartition(":")[2]
    address = f"http://127.0.0.1:{port}/api/v1/applications/{context.applicationId}/{path}"
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.dumps(json.load(answer), ensure_ascii=False).encode()


@pytest.mark.usefixtures("no_small_files")
def test_a_listener_hears_keys_that_are_read_and_none_that_are_written(cluster_spark, tap, there, caplog):
    """The first half shows that the tap hears; spark.network.crypto.enabled is against that."""
    caplog.set_level(logging.WARNING)
    there.catalog().create_table("db.t", people().schema, properties=KEYED)
    tap.forget()
    write(rows(cluster_spark, 1000, 2))
    icelock.spark.register(cluster_spark, {"test": telling(there)})
    assert tap.heard(b"SealedFiles")
    written = deks(there)
    assert len(written) == 2
    assert not any(tap.heard(dek) for dek in written)
    assert len(ids(cluster_spark)) == 1000
    assert all(tap.heard(dek) for dek in written)
    tap.forget()
    icelock.spark.delete(cluster_spark, TABLE, "id in (7, 507)")
    rewritten = deks(there)
    assert len(rewritten | written) == 4
    assert tap.heard(b"ParallelCollectionPartition")  # in which a task gets its split, sealed; the key for that goes with the function
    assert not any(tap.heard(dek) for dek in written)
    assert not any(tap.heard(dek) for dek in rewritten)


def test_a_plain_wire_is_told_once(cluster_spark, lake, caplog):
    caplog.set_level(logging.WARNING)
    session = cluster_spark.newSession()
    for _ in range(2):
        icelock.spark.register(session, {"test": lake.properties(), "other": lake.properties(**REFUSE)})
    assert [IN_THE_CLEAR in record.message for record in caplog.records] == [True]


def test_a_plain_wire_is_refused_before_anything_happens(cluster_spark, lake, tmp_path):
    spark = cluster_spark
    lake.catalog().create_table("db.t", people().schema, properties=KEYED).append(people())
    icelock.spark.register(spark, {"test": telling(lake, **REFUSE), "gone": {"type": "sql", "uri": "sqlite:////nowhere/x.db", **REFUSE}})
    plain = tmp_path / "plain.parquet"
    pq.write_table(people(50), plain)
    before, _ = lake.files(), lake.calls.take()
    df = spark.createDataFrame([(3, "x", "y")], SCHEMA)
    made = icelock.spark.write_to(df, "test.db.new").tableProperty("encryption.key-id", "keyA")
    there = icelock.spark.write_to(df, TABLE)
    scan = lake.catalog(**REFUSE).load_table("db.t").scan()
    operations: list[Callable[[], object]] = [
        lambda: icelock.spark.read(spark, TABLE),
        lambda: icelock.spark.read(spark, TABLE, engine="python").collect(),
        lambda: icelock.spark.read(spark, scan),
        lambda: spark.read.format("icelock").load(TABLE),
        lambda: spark.read.format("icelock").load("gone.db.t"),
        lambda: write(df),
        lambda: write(df, "overwrite"),
        made.create,
        made.createOrReplace,
        there.append,
        lambda: there.overwrite("id = 3"),
        there.overwritePartitions,
        lambda: icelock.spark.delete(spark, TABLE, "id = 3"),
        lambda: icelock.spark.upsert(df, TABLE, ["id"]),
        lambda: icelock.spark.add_files(spark, TABLE, [str(plain)], reencrypt=True),
    ]
    for operation in operations:
        with pytest.raises((PolicyError, PySparkException), match=IN_THE_CLEAR):
            operation()
    assert lake.files() == before
    assert lake.calls.take() == []


def test_an_encrypted_wire_is_not_told_of_nor_refused_and_executors_come_and_go(cluster_spark, tmp_path, lake, caplog):
    """In a second context of the JVM: executors that dynamic allocation starts after others went have the classes of the scan too."""
    caplog.set_level(logging.WARNING)
    encrypted = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.network.crypto.enabled": "true",
    }
    lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    tap = Tap()
    try:
        with (
            Cluster.start(tmp_path / "cluster", workers=1, settings=encrypted) as cluster,
            connected_again(cluster_spark, cluster, encrypted | tap.conf | DYNAMIC | {"spark.speculation": "false"}) as spark,
        ):
            icelock.spark.register(spark, {"test": lake.properties(**REFUSE)})
            write(rows(spark, 1000, 2))
            lake.catalog().load_table("db.t").delete("id in (7, 907)")
            left = [number for number in range(1000) if number not in (7, 907)]
            assert natively(spark) == left
            first = set(cluster.executors())
            assert first
            assert wait_until(lambda: not cluster.executors(), 120)
            assert natively(spark) == left
            assert ids(spark) == left
            assert set(cluster.executors()).isdisjoint(first)
            assert tap.heard(b"")
            assert not tap.heard(b"icelock")
            assert not any(tap.heard(dek) for dek in deks(lake))
        assert [record.message for record in caplog.records if IN_THE_CLEAR in record.message] == []
    finally:
        tap.close()


def write(df, mode="append"):
    df.write.format("icelock").mode(mode).save(TABLE)


def attempt(work, failed):
    try:
        work()
    except BaseException as e:  # noqa: BLE001 - told to the test
        failed.append(e)
