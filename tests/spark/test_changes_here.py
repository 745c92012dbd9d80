"""Changes of rows that the user's process plans and commits: what tasks get, what their rows say, which commits of others are conflicts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import types as sp

import icelock.spark
from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from icelock.keys.entropy import SystemEntropy
from icelock.plan.filters.text import parse_filter
from icelock.spark import ChangeResult
from icelock.spark.driver import rewrite_here
from icelock.spark.driver.commit import end_job
from icelock.spark.driver.plan_read import RewritePlanning
from icelock.spark.driver.plan_write import planned_write
from icelock.spark.driver.run_jobs import Jobs
from icelock.spark.driver.target import target_scan
from icelock.spark.sealed.job import Action, Job, Purpose, Staged
from icelock.spark.sealed.splits import KEY_LENGTH, open_split, sealed_rows
from icelock.spark.settings.options import TableName
from icelock.spark.task.row_rewrite import rewrite_files, rewrite_sealed
from icelock.spark.task.write import OPERATION, POSITIONS, write_rows
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, people
from tests.spark.in_process import TABLE, base_of, settings

DELETE, UPDATE, INSERT = 1, 2, 3  # Spark's RowDeltaUtils
SCHEMA = sp.StructType(
    [sp.StructField(name, sp.StringType() if name in {"name", "city", POSITIONS[0]} else sp.LongType())
     for name in ("id", "name", "city", "_row_id", OPERATION, *POSITIONS)]
)  # fmt: skip


def make(lake, *starts, **properties):
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, **properties})
    for start in starts:
        table.append(people(start))
    return table


def load(lake):
    return lake.catalog().load_table("db.t")


def ids(lake):
    return sorted(load(lake).scan().to_arrow().column("id").to_pylist())


def change_job(table, purpose, *, merge_on_read=False, row_filter="true"):
    matching = parse_filter("id >= 0" if row_filter == "true" else row_filter)
    base = base_of(table, merge_on_read=merge_on_read)
    return Job(action=Action.MERGE, table=TableName.parse(TABLE), purpose=purpose, by_position=True, base=base, row_filter=matching)


def change(table, *wanted):
    """Return rows of a change; ``wanted`` are (operation, id, new name)."""
    where = table.scan(selected_fields=("id", "_row_id", "_file", "_pos")).to_arrow().to_pylist()
    known = {row["id"]: row for row in where}
    rows = []
    for operation, number, name in wanted:
        old = known.get(number, {}) if operation != INSERT else {}
        deleted = operation == DELETE
        rows.append({
            "id": None if deleted else number, "name": name, "city": None if deleted else "x", "_row_id": old.get("_row_id"),
            OPERATION: operation, POSITIONS[0]: old.get("_file"), POSITIONS[1]: old.get("_pos"),
        })  # fmt: skip
    schema = pa.schema([(field.name, pa.string() if isinstance(field.dataType, sp.StringType) else pa.int64()) for field in SCHEMA])
    return pa.Table.from_pylist(rows, schema)


def run(lake, job, rows, meanwhile=lambda: None):
    """Do both jobs of a change, as ``JobsHere`` does, without Spark."""
    given, catalog = settings(lake), lake.catalog()
    plan, write = planned_write(given, job, SCHEMA, catalog)
    message = write_rows(plan, iter(rows.to_batches()))
    end = end_job(plan.context(), write, [message], catalog=catalog) if not job.pinned.merge_on_read else None
    if end is None:
        meanwhile()
        return end_job(plan.context(), write, [message], catalog=catalog)
    if isinstance(end, Staged):
        job = replace(job, action=Action.REWRITE)
        _, write = planned_write(given, job, sp.StructType(), catalog)
        table = catalog.load_table("db.t")
        planning = RewritePlanning(given, job, table, target_scan(table, job))
        message = rewrite_files(planning.plan(), planning.splits(end))
        meanwhile()
        end = end_job(planning.plan().write.context(), write, [message], end, catalog=catalog)
    return end


@pytest.mark.parametrize("merge_on_read", [False, True])
@pytest.mark.parametrize("purpose", [Purpose.UPDATE, Purpose.MERGE])
def test_rows_of_a_change_delete_update_and_insert(lake, purpose, merge_on_read):
    table = make(lake, 0, 10)
    before = {row["id"]: row["_row_id"] for row in table.scan(selected_fields=("id", "_row_id")).to_arrow().to_pylist()}
    rows = change(table, (DELETE, 3, None), (UPDATE, 4, "new"), (DELETE, 15, None), (INSERT, 100, "new"), (INSERT, 101, "new"))
    done = run(lake, change_job(table, purpose, merge_on_read=merge_on_read), rows)
    assert ids(lake) == [*range(3), *range(4, 15), *range(16, 20), 100, 101]
    after = {row["id"]: row for row in load(lake).scan(selected_fields=("id", "_row_id", "name")).to_arrow().to_pylist()}
    assert {number for number, row in after.items() if row["name"] == "new"} == {4, 100, 101}
    assert {number: row["_row_id"] for number, row in after.items() if number < 100} == {n: before[n] for n in after if n < 100}
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (2, 1, 2)
    assert (done.files_removed, done.delete_files_added) == ((0, 2) if merge_on_read else (2, 0))
    assert load(lake).current_snapshot().summary.operation.value == "overwrite"


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_a_change_that_only_deletes(lake, merge_on_read):
    table = make(lake, 0)
    rows = change(table, *((DELETE, number, None) for number in range(10)))
    done = run(lake, change_job(table, Purpose.DELETE, merge_on_read=merge_on_read), rows)
    assert (ids(lake), done.rows_deleted, done.files_removed, done.files_added) == ([], 10, 1, 0)
    assert load(lake).current_snapshot().summary.operation.value == "delete"


LEVELS = {Purpose.DELETE: "delete", Purpose.UPDATE: "update", Purpose.MERGE: "merge"}


@pytest.mark.parametrize("merge_on_read", [False, True])
@pytest.mark.parametrize("purpose", list(LEVELS))
def test_each_purpose_has_an_isolation_level_of_its_own(lake, purpose, merge_on_read):
    """Rows that another writer appends meanwhile are a conflict when serializable, if they match the filter; by snapshot they are not."""
    others = {f"write.{name}.isolation-level": "snapshot" for kind, name in LEVELS.items() if kind != purpose}
    table = make(lake, 0, **others)
    job = change_job(table, purpose, merge_on_read=merge_on_read, row_filter="id < 60")
    rows = change(table, (DELETE if purpose == Purpose.DELETE else UPDATE, 3, "new"))
    before = lake.files()
    with pytest.raises(ValidationException, match="added rows that the filter may match"):
        run(lake, job, rows, meanwhile=lambda: load(lake).append(people(50)))
    added = {path for path in set(lake.files()) - set(before) if path.endswith((".parquet", ".puffin"))}
    assert len(added) == 1  # the other writer's
    table = load(lake)
    done = run(lake, replace(job, base=base_of(table, merge_on_read=merge_on_read)), rows, meanwhile=lambda: load(lake).append(people(60)))
    assert done.snapshot_id is not None  # 60 to 69 do not match
    table = load(lake)
    table.transaction().set_properties({f"write.{LEVELS[purpose]}.isolation-level": "snapshot"}).commit_transaction()
    table = load(lake)
    job = replace(job, base=base_of(table, merge_on_read=merge_on_read))
    run(lake, job, change(table, (DELETE, 5, None)), meanwhile=lambda: load(lake).append(people(30)))
    assert 5 not in ids(lake)
    assert 30 in ids(lake)


def test_splits_travel_sealed(lake):
    """C-31, C-32: neither the function that tasks run nor the rows that are in Spark's plan show a key of a file."""
    table = make(lake, 0, 10)
    job = replace(
        change_job(table, Purpose.DELETE, row_filter="name in ('canary-00003', 'canary-00013')"), action=Action.REWRITE, by_position=False
    )
    planning = RewritePlanning(settings(lake), job, table, target_scan(table, job))
    splits, plan, key = planning.splits(None), planning.plan(), bytes(KEY_LENGTH)
    deks = [KeyMetadata.decode(task.key_metadata.reveal()).dek.reveal() for task in table.scan().scan_tasks()]
    sealed = sealed_rows(key, splits, SystemEntropy()).column("split").to_pylist()
    function = cloudpickle.dumps(partial(rewrite_sealed, plan, key))
    assert len(splits) == 2
    for sent in (*sealed, function):
        assert not any(secret in sent for secret in (*deks, *KEYS.values(), job.key))
    assert b".parquet" not in b"".join(sealed)
    assert {task.path for row in sealed for task in open_split(key, row).tasks} == {task.path for split in splits for task in split.tasks}
    wrong = sealed[0][:-1] + bytes([sealed[0][-1] ^ 1])
    with pytest.raises(IntegrityError):
        rewrite_sealed(plan, key, iter([pa.record_batch([pa.array([wrong], pa.binary())], names=["split"])]))
    with pytest.raises(IntegrityError):
        open_split(bytes([1]) * KEY_LENGTH, sealed[0])


@pytest.fixture
def no_data_source(monkeypatch):
    """Spark's Python data source, whose planning takes processes of its own, is not used."""

    def refuse(*_args, **_kwargs):
        pytest.fail("a job of the data source ran")

    monkeypatch.setattr(Jobs, "read", refuse)
    monkeypatch.setattr(Jobs, "_save", refuse)


@pytest.mark.spark
@pytest.mark.spark43
@pytest.mark.usefixtures("no_data_source")
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_no_planning_process_and_no_needless_job(spark, spark_lake, mode):
    table = make(spark_lake, 0, 10, 20, **{f"write.{name}.mode": mode for name in ("delete", "update", "merge")})
    tracker, context = spark.sparkContext.statusTracker(), spark.sparkContext

    def jobs(work):
        group = f"icelock test {work.__name__} {mode}"
        context.setJobGroup(group, "")
        try:
            return work(), len(tracker.getJobIdsForGroup(group))
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)

    def whole():
        return icelock.spark.delete(spark, TABLE, "id >= 20")

    def small():
        return icelock.spark.delete(spark, TABLE, "id = 3")

    def nothing():
        return icelock.spark.delete(spark, TABLE, "id = 1000")

    spark_lake.calls.take()
    assert [(done.rows_deleted, count) for done, count in map(jobs, (whole, small, nothing))] == [(10, 0), (1, 0), (0, 0)]
    assert spark_lake.calls.take() == ["unwrap keyA"] * 3  # once an operation
    changed = spark.createDataFrame([(4, "new", "x"), (40, "new", "x")], "id long, name string, city string")
    done = icelock.spark.upsert(changed, TABLE, ["id"])
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    done = icelock.spark.write_to(changed.limit(1), TABLE).overwrite("id >= 10 and id < 15")
    assert (done.rows_inserted, done.rows_deleted) == (1, 5)
    assert ids(spark_lake) == [*range(3), 4, 4, *range(5, 10), *range(15, 20), 40]
    assert table.metadata.table_uuid == load(spark_lake).metadata.table_uuid


@pytest.mark.spark
@pytest.mark.parametrize("by_tasks", [False, True])
def test_a_file_that_was_changed_stops_a_change_and_nothing_is_left(spark, spark_lake, monkeypatch, by_tasks):
    monkeypatch.setattr(rewrite_here, "SMALL", -1 if by_tasks else 1 << 40)
    table = make(spark_lake, 0, 10)
    path = Path(next(iter(table.scan("id = 3").scan_tasks())).path.removeprefix("file://"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    before = spark_lake.files()
    rows = spark.createDataFrame([(100, "new", "x")], "id long, name string, city string")
    for work in (
        lambda: icelock.spark.delete(spark, TABLE, "name = 'canary-00003' or name = 'canary-00013'"),
        lambda: icelock.spark.write_to(rows, TABLE).overwrite("name = 'canary-00003' or name = 'canary-00013'"),
    ):
        with pytest.raises((IntegrityError, PySparkException)):
            work()
        assert spark_lake.files() == before


@pytest.mark.spark
def test_many_splits_are_tasks_of_their_own(spark, spark_lake, monkeypatch):
    """One a task, in the order of the plan, however many Spark would make of so few rows."""
    monkeypatch.setattr(rewrite_here, "SMALL", -1)
    make(spark_lake, *range(0, 60, 10), **{"read.split.open-file-cost": "1", "read.split.target-size": "1"})
    done = icelock.spark.delete(spark, TABLE, " or ".join(f"id = {number}" for number in range(3, 60, 10)))
    assert (done.rows_deleted, done.files_removed, done.files_added) == (6, 6, 6)
    names = [Path(task.path).name for task in load(spark_lake).scan().scan_tasks()]
    assert sorted(int(name.split("-")[1]) for name in names) == list(range(6))


def test_a_result_as_text_is_the_same():
    done = ChangeResult(snapshot_id=2**60, rows_inserted=1, rows_updated=2, rows_deleted=None, files_added=4)
    assert ChangeResult.from_json(done.to_json()) == done
