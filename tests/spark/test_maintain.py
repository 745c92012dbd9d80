"""Deletes become vectors, or go into the data, by Spark's tasks; and ``optimize``, whose work on files is theirs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.exceptions import NoSuchTableError

import icelock.spark
from icelock.errors import PolicyError
from icelock.spark.driver import compact_here, find_deleted_here
from tests.helpers.table_model import arrow, row, rows_of
from tests.unit.table.test_compact import make, meanwhile
from tests.unit.table.test_older_deletes import paths
from tests.unit.table.test_rewrite_deletes import vectors, with_older_deletes, without

pytestmark = pytest.mark.spark
TABLE = "test.db.t"


@pytest.fixture
def ran(monkeypatch):
    """The names of the works that tasks did; they do what this process would with so few bytes."""
    seen = []
    for module, limit in ((compact_here, "SMALL"), (find_deleted_here, "SMALL")):
        monkeypatch.setattr(module, limit, -1)
        run = module.run_splits

        def counted(spark, splits, work, run=run):
            seen.append(work.func.__name__)
            return run(spark, splits, work)

        monkeypatch.setattr(module, "run_splits", counted)
    return seen


@pytest.fixture
def table(spark_lake):
    return with_older_deletes(spark_lake)


@pytest.mark.spark43
def test_deletes_become_vectors_by_tasks(spark, sql, table, ran):
    first, second = paths(table)
    assert rows_of(table) == without(0, 4, 7, 9, 12, 15)
    done = icelock.spark.rewrite_deletes(spark, TABLE)
    assert ran == ["find_sealed"]
    assert (done.vectors, done.removed_delete_files, done.rewritten_files) == (2, 2, 0)
    table.refresh()
    assert vectors(table) == {first: 4, second: 2}
    assert rows_of(table) == without(0, 4, 7, 9, 12, 15)
    assert sql("call test.system.rewrite_position_delete_files('db.t')") == [(0, 0, 0, 0)], "nothing is left to do"


def test_the_procedure_lets_tasks_work_too(sql, table, ran):
    assert sql("call test.system.rewrite_position_delete_files('db.t')") == [(2, 2, None, None)]
    assert ran == ["find_sealed"]
    assert rows_of(table.refresh()) == without(0, 4, 7, 9, 12, 15)


def test_deletes_go_into_the_data_by_tasks(spark, table, ran):
    done = icelock.spark.rewrite_deletes(spark, TABLE, into="data")
    assert ran == ["find_sealed", "combine_sealed"]
    assert (done.rewritten_files, done.conflicted_files) == (2, 0)
    table.refresh()
    assert vectors(table) == {}
    assert rows_of(table) == without(0, 4, 7, 9, 12, 15)
    assert sum(task.file.record_count for task in table.scan().plan_files()) == 14


def test_rows_that_others_change_while_tasks_write_stay_changed(spark, spark_lake, ran):
    """The commit leaves out files that were touched; they are compacted again with what was done to them."""
    made, other = make(spark_lake, 6), spark_lake.catalog().load_table("db.t")
    others = meanwhile(lambda: other.delete("id = 17"), lambda: other.upsert(arrow([(5, 1, "changed")]), ["id"]))
    done = icelock.spark.compact(spark, TABLE, options={"rewrite-all": "true"}, progress=others)
    assert ran == ["combine_sealed"] * len(ran)
    assert len(ran) > 1
    assert done.conflicted_files == 0
    expected = {i: row(i) for i in range(60) if i != 17} | {5: (5, 1, "changed")}
    assert rows_of(made.refresh()) == sorted(expected.values())


def test_a_delete_file_that_fails_authentication_changes_nothing(spark, table, ran):
    snapshot = table.refresh().current_snapshot().snapshot_id
    victim = next(d.file_path for task in table.scan().plan_files() for d in task.delete_files).removeprefix("file://")
    with open(victim, "r+b") as stored:  # noqa: PTH123
        stored.seek(-40, 2)
        stored.write(bytes(20))
    with pytest.raises(Exception, match=r"does not authenticate|failed authentication"):
        icelock.spark.rewrite_deletes(spark, TABLE)
    assert ran == ["find_sealed"]
    assert table.refresh().current_snapshot().snapshot_id == snapshot


def test_optimize_lets_tasks_put_files_together(spark, table, ran):
    for _ in range(5):
        table.append(table.scan(row_filter="id = 1").to_arrow().slice(0, 1))
    before = rows_of(table.refresh())
    told = []
    [plan] = icelock.spark.optimize(spark, TABLE, dry_run=True)
    assert ran == []
    [done] = icelock.spark.optimize(spark, "test", told=lambda name, step: told.append((name, step.name)))
    assert [step.outcome.value for step in plan.steps[:1]] == ["would be done"]
    assert ran[0] == "combine_sealed"
    assert told[:2] == [("db.t", "compact"), ("db.t", "rewrite-deletes")]
    assert (done.failed, done.table) == (False, "db.t")
    assert rows_of(table.refresh()) == before
    assert len(list(table.scan().plan_files())) == 1
    [again] = icelock.spark.optimize(spark, "test.db", options={"expire": "false"}, within=timedelta(hours=1))
    assert {step.outcome.value for step in again.steps} <= {"nothing to do", "switched off"}


def test_a_rotation_lets_tasks_write_the_files_again(spark, table, ran):
    """The KEK and its wrapping are the driver's; what tasks write is below the new one, so an expiry removes the old one."""
    told = []
    done = icelock.spark.rotate(spark, TABLE, "data", progress=lambda read, whole: told.append(read == whole))
    assert ran == ["combine_sealed"]
    assert (done.rewritten_files, done.added_files, done.removed_delete_files, done.left_files) == (2, 1, 2, 0)
    assert told == [True]
    assert rows_of(table.refresh()) == without(0, 4, 7, 9, 12, 15)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys} == {"keyA", done.kek}


@pytest.mark.spark43
def test_rotate_by_sql(sql, table, ran):
    """Two snapshots of appends and two of deletes: their lists; two manifests of data and two of deletes; two data and two delete files."""
    [(kek, *was), (new, *would)] = sql("call test.system.rotate(table => 'db.t', level => 'data', to_key => 'keyB', dry_run => true)")
    assert was[:7] == ["keyA", None, "would be wrapped", 4, "main", 12, was[6]]
    assert was[6] > 0
    assert was[7:] == [True, 0, 0, 0, 0]
    assert (new, would) == (None, ["keyB", None, "would be made", 0, "", 0, 0, True, 2, 0, 0, 0])
    assert ran == []
    [(made, *after), (old, *kept)] = sql("call test.system.rotate('db.t', 'DATA', 'keyB')")
    assert ran == ["combine_sealed"]
    assert after == ["keyB", None, "made", 2, "main", None, None, True, 2, 0, 0, 0], "the new files, and equality deletes that went"
    assert (old, kept) == (kek, ["keyB", None, "wrapped", 4, "", None, None, False, 0, 0, 0, 0])
    assert rows_of(table.refresh()) == without(0, 4, 7, 9, 12, 15)
    assert sql("select count(*) from test.db.t") == [(14,)]
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys} == {"keyB", kek, made}
    with pytest.raises(Exception, match="must be one of kek, wrap, lists, data, all"):
        sql("call test.system.rotate('db.t', 'none')")


def test_rotate_of_lists_by_sql(sql, table, ran):
    """The lists of four snapshots; two manifests of data and two of deletes, each once."""
    seen = {one.snapshot_id: rows_of(table, snapshot_id=one.snapshot_id) for one in table.snapshots()}
    [(old, *_), (new, *would)] = sql("call test.system.rotate(table => 'db.t', level => 'lists', dry_run => true)")
    assert (new, would[-4:]) == (None, [0, 0, 4, 4])
    [(made, *after)] = sql("call test.system.rotate('db.t', 'lists')")
    assert made != old, "which nothing needs any more"
    assert after == ["keyA", None, "made", 4, "main", None, None, True, 0, 0, 4, 4]
    assert ran == []
    assert {number: rows_of(table.refresh(), snapshot_id=number) for number in seen} == seen
    assert sql("select count(*) from test.db.t") == [(14,)]


def test_a_rotation_of_all_lets_tasks_write_current_files_that_lost_rows(spark, table, ran):
    """Those that lost rows; others, and those of older snapshots, are copied, so few bytes by the driver: every snapshot has its rows."""
    table.maintenance.rewrite_deletes()
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    table.append(arrow([row(90)]))
    seen = {one.snapshot_id: rows_of(table, snapshot_id=one.snapshot_id) for one in table.snapshots()}
    done = icelock.spark.rotate(spark, TABLE, "all")
    assert ran == ["combine_sealed"]
    assert (done.rotated_snapshots, done.left_files) == (2, 0)
    assert {number: rows_of(table.refresh(), snapshot_id=number) for number in seen} == seen
    assert {key.encrypted_by_id for key in table.metadata.encryption_keys} == {"keyA", done.kek}


@pytest.mark.spark43
def test_optimize_by_sql(sql, table, ran):
    found = sql("call test.system.optimize(table => 'db.t', dry_run => true, options => map('rewrite-deletes', 'false'))")
    assert [(step, outcome) for step, outcome, *_ in found] == [
        ("compact", "nothing to do"),
        ("rewrite-deletes", "switched off"),
        ("rewrite-manifests", "nothing to do"),
        ("expire", "nothing to do"),
        ("leftovers", "nothing to do"),
        ("keys", "nothing to do"),
    ]
    done = {step: outcome for step, outcome, *_ in sql("call test.system.optimize('db.t', within => '2h')")}
    assert done["rewrite-deletes"] == "done"
    assert "find_sealed" in ran
    assert rows_of(table.refresh()) == without(0, 4, 7, 9, 12, 15)


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("test.db.none", {}, "no table and no namespace db.none"),
        ("test..t", {}, "not the name of a table, a namespace or a catalog"),
        ("other", {}, "no catalog 'other'"),
        ("test", {"options": {"compat": "false"}}, "did you mean 'compact'"),
    ],
)
@pytest.mark.usefixtures("spark_lake")
def test_names_and_options_of_optimize_that_are_none(spark, name, more, said):
    with pytest.raises(PolicyError, match=said):
        icelock.spark.optimize(spark, name, **more)


def test_calls_that_are_refused(spark, sql, spark_lake):
    make(spark_lake, 1)
    with pytest.raises(NoSuchTableError):
        icelock.spark.rewrite_deletes(spark, "test.db.none")
    with pytest.raises(Exception, match=r"no table test\.db\.none"):
        sql("call test.system.optimize('db.none')")
    with pytest.raises(Exception, match="no span of time"):
        sql("call test.system.optimize('db.t', within => 'soon')")
