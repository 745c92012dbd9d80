"""An audit whose files Spark's tasks open: it finds what was planted, as the audit of one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import icelock.spark
from icelock.audit.report import Verdict
from icelock.errors import IntegrityError, PolicyError
from icelock.maintenance import audit
from icelock.spark.driver import audit_here
from icelock.spark.task.check_files import CheckSplit, FilesChecked
from tests.helpers.tables import local
from tests.lakes.sqlite import KEYED, TestLake, people
from tests.unit.audit.test_faults import flip

pytestmark = pytest.mark.spark
TABLE = "test.db.t"


@pytest.fixture
def table(spark_lake: TestLake) -> Any:
    """Six data files of 30 rows, of which one has a deletion vector."""
    made = spark_lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    for start in range(0, 180, 30):
        made.append(people(start, 30))
    made.delete("id = 5")
    return made.refresh()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files the tasks of each job had; jobs do what this process would with so few bytes."""
    seen: list[int] = []
    run = audit_here.run_splits

    def counted(spark: Any, splits: Any, work: Any) -> Any:
        seen.append(sum(len(split.tasks) for split in splits))
        return run(spark, splits, work)

    monkeypatch.setattr(audit_here, "SMALL", -1)
    monkeypatch.setattr(audit_here, "run_splits", counted)
    return seen


def files(table: Any) -> list[Path]:
    return sorted(local(task.file.file_path) for task in table.scan().plan_files())


@pytest.mark.spark43
def test_a_sound_table(spark: Any, table: Any, jobs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_here, "_MOST", 4)
    told: list[tuple[int, int]] = []
    report = icelock.spark.audit(spark, TABLE, depth="bytes", progress=lambda done, expected: told.append((done, expected)))
    assert jobs == [4, 3], "six data files and one of deletes"
    assert (report.verdict, report.tables[0].counts) == (Verdict.SOUND, {})
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6, 7]
    (by_one_process,) = audit(table.catalog, "db.t", depth="bytes").tables
    assert (report.tables[0].files, report.tables[0].keks) == (by_one_process.files, by_one_process.keks)


def test_what_is_wrong_with_files_is_found_by_tasks(spark: Any, sql: Any, table: Any, jobs: list[int]) -> None:
    first, second, third, *_ = files(table)
    flip(first, 200)  # in the first column's pages
    second.unlink()
    third.write_bytes(third.read_bytes() + b"x")
    (deletes,) = (local(table.location()) / "data").glob("*.puffin")
    flip(deletes, deletes.stat().st_size - 1)  # its last block's tag
    planted = {
        ("page-does-not-authenticate", first.name),
        ("file-missing", second.name),
        ("file-length-differs", third.name),
        ("block-does-not-authenticate", deletes.name),
    }
    report = icelock.spark.audit(spark, "test.db", depth="bytes")
    (found,) = report.tables
    assert {(one.code, one.what.rpartition("/")[2]) for one in found.findings} == planted
    assert (found.unseen, report.verdict, jobs) == ((), Verdict.FINDINGS, [7])
    (by_one_process,) = audit(table.catalog, "db.t", depth="bytes").tables
    assert found.findings == by_one_process.findings
    assert {(row[1], row[2].rpartition("/")[2]) for row in sql("call test.system.audit('db.t', 'bytes')")} == planted
    assert {(one.code) for one in icelock.spark.audit(spark, TABLE).tables[0].findings} == {code for code, _ in planted} - {
        "page-does-not-authenticate"  # pages are not looked at
    }


@pytest.mark.parametrize(
    ("size", "parallelism", "tasks"),
    [(0, 2, 2), (511 << 20, 2, 2), (800 << 20, 2, 3), (1 << 40, 2, 8), (1 << 30, 100, 100), (60 << 30, 100, 240)],
)
def test_few_bytes_are_not_cut_into_many_tasks(size: int, parallelism: int, tasks: int) -> None:
    """A task more for each 256 MiB, from one to four for each that the cluster runs at once."""
    assert audit_here.tasks_for(size, parallelism) == tasks


@pytest.mark.usefixtures("jobs")
def test_a_storage_that_fails_in_a_task_is_said(spark: Any, table: Any) -> None:
    first, *_ = files(table)
    first.unlink()
    first.mkdir()
    (found,) = icelock.spark.audit(spark, TABLE).tables
    assert [(one.what.rpartition("/")[2], "a directory" in one.why) for one in found.unseen] == [(first.name, True)]


@pytest.mark.usefixtures("table", "jobs")
def test_a_task_that_tells_of_fewer_files_is_noticed(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = FilesChecked.open

    def fewer(message: Any, recipient: Any, *, task: int) -> FilesChecked:
        return FilesChecked(count=opened(message, recipient, task=task).count - 1, wrong=())

    monkeypatch.setattr(FilesChecked, "open", fewer)
    (found,) = icelock.spark.audit(spark, TABLE).tables
    assert [IntegrityError.__name__ in one.why and "tells of" in one.why for one in found.unseen] == [True]


@pytest.mark.usefixtures("table")
def test_few_bytes_take_no_job(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_here, "run_splits", None)
    assert icelock.spark.audit(spark, TABLE, depth=["bytes", "foreign"]).verdict is Verdict.SOUND


def test_splits_do_not_show_keys() -> None:
    assert repr(CheckSplit([])) == "CheckSplit(0 files)"


@pytest.mark.usefixtures("table")
def test_what_is_refused(spark: Any) -> None:
    with pytest.raises(PolicyError, match="known: metadata"):
        icelock.spark.audit(spark, "test.db", depth="deep")
