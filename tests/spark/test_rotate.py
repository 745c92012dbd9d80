"""Level ``all`` of a rotation by Spark's tasks: files are copied under keys that tasks draw, and a task that runs twice leaves nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

import icelock.spark
from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.maintenance import audit, leftovers
from icelock.spark.driver import copy_here
from icelock.spark.task.copy_files import FilesCopied
from icelock.table.maintenance.rotation.copied_files import DATA_NAME, ToCopy
from tests.helpers.counting_kms import callers_log
from tests.helpers.tables import local
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_compact import MOR, make
from tests.unit.table.test_rotate_all import reached, with_history
from tests.unit.table.test_rotate_lists import every_row

pytestmark = pytest.mark.spark
TABLE = "test.db.t"
WORKER = "pyspark.daemon"
COUNTS = ("rewritten_files", "added_files", "removed_delete_files", "rotated_snapshots", "rewritten_manifests", "left_files", "level")
Work = Callable[[bytes, Iterator[Any]], Any]


class Jobs:
    """The jobs that copied: how many tasks each had; ``around`` is put around the work of each task."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.around: Callable[[Work], Work] = lambda work: work


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs do what this process would with so few bytes."""
    seen, run = Jobs(), copy_here.run_splits

    def counted(spark: Any, splits: Any, work: Work) -> Any:
        seen.tasks.append(len(splits))
        return run(spark, splits, seen.around(work))

    monkeypatch.setattr(copy_here, "SMALL", -1)
    monkeypatch.setattr(copy_here, "run_splits", counted)
    return seen


def copies_on_storage(lake: TestLake) -> set[str]:
    return {name for name in lake.files() if "/data/" in name and DATA_NAME.fullmatch(Path(name).name)}


def data_files(table: Any) -> dict[str, bytes]:
    """Every live data and delete file that a snapshot reaches, with its key metadata."""
    entries = (
        entry.data_file
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )
    return {file.file_path: file.key_metadata for file in entries}


def checked(lake: TestLake, before: Any, rows: dict[int, Any]) -> Any:
    """Every snapshot has the rows that it had, by keys of now; nothing else of the rotation lies on storage."""
    table = lake.catalog().load_table("db.t")
    now = every_row(table)
    assert {number: found for number, found in now.items() if number in rows} == rows
    assert not set(data_files(table)) & set(before)
    assert {str(local(path).relative_to(lake.warehouse)) for path in data_files(table) if DATA_NAME.fullmatch(Path(path).name)} == (
        copies_on_storage(lake)
    )
    (report,) = audit(lake.catalog(), "db.t", depth="bytes").tables
    assert (report.counts, report.unseen) == ({}, ())
    return table


@pytest.mark.spark43
def test_files_of_all_snapshots_are_copied_by_tasks(spark: Any, spark_lake: TestLake, jobs: Jobs, tmp_path: Path) -> None:
    """The same result as without Spark; no executor asks the KMS."""
    (tmp_path / "other").mkdir()
    without = with_history(TestLake.with_namespace(tmp_path / "other")).maintenance.rotate("all")
    telling = spark_lake.properties(**{"encryption.kms-impl": "tests.helpers.counting_kms.TellingKms"})
    icelock.spark.register(spark, {"test": telling})
    table = with_history(spark_lake)
    rows, before, was = every_row(table), data_files(table), reached(table, live=True)
    plan = icelock.spark.rotate(spark, TABLE, "all", dry_run=True)
    assert jobs.tasks == []
    told: list[tuple[int, int]] = []
    done = icelock.spark.rotate(spark, TABLE, "all", progress=lambda read, whole: told.append((read, whole)))
    assert len(jobs.tasks) >= 2, "files of branches, and those of older snapshots"
    found = checked(spark_lake, before, rows)
    assert not set(reached(found, live=True)) & set(was)
    assert {name: getattr(done, name) for name in COUNTS} == {name: getattr(without, name) for name in COUNTS}
    assert (done.left_files, done.rewritten_files, type(done)) == (0, plan.rewritten_files, type(without))
    assert told[-1][0] == told[-1][1]
    keys = [KeyMetadata.decode(key) for key in data_files(found).values()]
    assert len({key.dek for key in keys}) == len(keys), "each file has a key of its own"
    assert {len(key.dek) for key in keys} == {16}
    called = callers_log(spark_lake.folder / "kms-calls.log").read_text().splitlines()
    assert called
    assert not [command for command in called if WORKER in command]
    copied = {path for path in data_files(found) if DATA_NAME.fullmatch(Path(path).name)}
    assert sum(jobs.tasks) == len([path for path in copied if not path.endswith(".puffin")])
    assert sorted((one.id, one.n) for one in spark.table(TABLE).collect()) == sorted(
        (one["id"], one["n"]) for one in found.scan().to_arrow().to_pylist()
    )


def ends_once(how: str) -> Callable[[Work], Work]:
    """The first attempt of each job's first task ends when its copies are written, before it can tell of them."""

    def around(work: Work) -> Work:
        def run(key: bytes, rows: Iterator[Any]) -> Any:
            message = work(key, rows)
            task = TaskContext.get()
            if task is not None and (task.partitionId(), task.attemptNumber()) == (0, 0):
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("its message is lost")
            return message

        return run

    return around


@pytest.mark.parametrize("how", ["killed", "fails"])
def test_a_task_that_runs_twice_counts_once(spark: Any, spark_lake: TestLake, jobs: Jobs, how: str) -> None:
    table = make(spark_lake, 3, **MOR)
    table.delete("id in (4, 13)")
    table.overwrite(table.scan(row_filter="id = 3").to_arrow(), overwrite_filter="id = 3")
    rows, before = every_row(table), data_files(table)
    jobs.around = ends_once(how)
    done = icelock.spark.rotate(spark, TABLE, "all")
    assert (len(jobs.tasks) >= 1, done.left_files) == (True, 0)
    found = checked(spark_lake, before, rows)
    assert found.scan().to_arrow().num_rows == 28


def test_a_job_that_fails_leaves_nothing(spark: Any, spark_lake: TestLake, jobs: Jobs) -> None:
    """Each attempt of a task dies with its copies on storage; the next call does all of it."""
    table = make(spark_lake, 3)
    table.delete("id = 3")
    rows, before = every_row(table), data_files(table)

    def around(work: Work) -> Work:
        def run(key: bytes, batches: Iterator[Any]) -> Any:
            work(key, batches)
            os.kill(os.getpid(), signal.SIGKILL)

        return run

    jobs.around = around
    with pytest.raises(Exception, match="exited unexpectedly"):
        icelock.spark.rotate(spark, TABLE, "all")
    assert copies_on_storage(spark_lake) == set()
    jobs.around = lambda work: work
    assert icelock.spark.rotate(spark, TABLE, "all").left_files == 0
    checked(spark_lake, before, rows)


def test_a_file_that_was_changed_is_not_copied(spark: Any, spark_lake: TestLake, jobs: Jobs) -> None:
    """The task says which, and the table is as it was but for its new KEK."""
    table = make(spark_lake, 3)
    table.delete("id = 3")
    (path,) = [task.file.file_path for task in table.scan(row_filter="id = 13").plan_files()]
    data = bytearray(local(path).read_bytes())
    data[40] ^= 1
    local(path).write_bytes(data)
    snapshots = table.metadata.snapshots
    with pytest.raises(Exception, match=f"{Path(path).name}.*does not authenticate"):
        icelock.spark.rotate(spark, TABLE, "all")
    assert len(jobs.tasks) >= 1
    assert [one for one in table.refresh().metadata.snapshots if one in snapshots] == snapshots
    assert not copies_on_storage(spark_lake) - {str(local(one).relative_to(spark_lake.warehouse)) for one in data_files(table)}


def test_an_expiry_meanwhile_is_no_error(spark: Any, spark_lake: TestLake, jobs: Jobs) -> None:
    """Its file is gone when a task looks for it; the snapshots that are left are done."""
    table = make(spark_lake, 2)
    table.delete("id < 10")
    other = spark_lake.catalog().load_table("db.t")
    older, head = [one.snapshot_id for one in table.snapshots()[:-1]], table.current_snapshot().snapshot_id
    rows = every_row(table)[head]

    def around(work: Work) -> Work:
        if len(jobs.tasks) == 2:  # the first one is about the current files
            other.refresh().maintenance.expire_snapshots().by_ids(older).commit()
        return work

    jobs.around = around
    done = icelock.spark.rotate(spark, TABLE, "all")
    assert (len(jobs.tasks) >= 2, done.left_files) == (True, 0)
    found = spark_lake.catalog().load_table("db.t")
    assert every_row(found)[found.current_snapshot().snapshot_id] == rows
    assert not {one.snapshot_id for one in found.snapshots()} & set(older)
    left = {str(local(file.path).relative_to(spark_lake.warehouse)) for file in leftovers(found, older_than=timedelta(0)).files}
    assert not copies_on_storage(spark_lake) & left


def test_a_task_that_tells_of_fewer_files_is_not_believed() -> None:
    file = type("File", (), {"file_path": "s3://lake/db/t/data/a.parquet"})()
    copies = [ToCopy.of("kek", file), ToCopy.of("kek", file)]
    told = FilesCopied(copies=[("s3://lake/db/t/data/b.parquet", 3, b"key")], retried=False)
    with pytest.raises(IntegrityError, match="given 2 files to copy, and tells of 1"):
        copy_here._places(copies, [[0, 1]], [told])
    assert "key" not in repr(told)


def test_a_place_is_the_drivers_but_for_half_a_uuid() -> None:
    """36 characters of the uuid, 18 of them of the task: the names are those that a later call knows."""
    for name in ("a.parquet", "b", "c.avro"):
        copy = ToCopy.of("kek", type("File", (), {"file_path": f"s3://lake/db/t/data/x=1/{name}"})())
        before, after = copy.halves
        assert copy.location == f"{before}{copy.location[len(before) : len(copy.location) - len(after)]}{after}"
        assert len(copy.location) - len(before) - len(after) == 18
        assert DATA_NAME.fullmatch(copy.location.rpartition("/")[2])
        assert after == (name[1:] if "." in name else "")
