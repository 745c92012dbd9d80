"""DELETE statements that Spark has to find the rows for: which rows go, how many are counted, and that no Python worker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroaring import BitMap64

import icelock.spark
from icelock.errors import IntegrityError
from icelock.spark.driver import jobs_here
from icelock.spark.driver.deleted_rows import deleted_rows
from icelock.spark.statements.session import results_of

pytestmark = pytest.mark.spark

MODES = ["copy-on-write", "merge-on-read"]


def ids(lake):
    return sorted(lake.catalog().load_table("db.t").scan().to_arrow().column("id").to_pylist())


@pytest.fixture(params=MODES)
def table(request, sql):
    """Table ``t`` with the ids 0 to 99 in three partitions, in six files; source ``s`` has 0 to 9 twice, and a null."""
    sql(
        "create table test.db.t (id bigint, part int) partitioned by (part) "
        f"tblproperties ('encryption.key-id' = 'keyA', 'write.delete.mode' = '{request.param}')"
    )
    sql("insert into test.db.t select id, id % 3 from range(0, 50)")
    sql("insert into test.db.t select id, id % 3 from range(50, 100)")
    sql("create or replace temporary view s as select id % 10 as id from range(20) union all select null")
    return request.param


@pytest.fixture
def done(spark, sql):
    """Run a statement; return what it did."""
    return lambda text: results_of(spark).of(lambda: sql(text))


def test_each_row_goes_once_and_is_counted_once(table, done, spark_lake):
    first = done("delete from test.db.t where exists (select 1 from s where s.id + 45 = t.id)")
    assert (first.rows_deleted, ids(spark_lake)) == (10, [*range(45), *range(55, 100)])  # 45 to 54, in all six files
    again = done("delete from test.db.t where id between 40 and 60 and id not in (select id from s where id is not null)")
    assert (again.rows_deleted, ids(spark_lake)) == (11, [*range(40), *range(61, 100)])  # 21 less those 10
    merges_on_read = table == "merge-on-read"
    for result in (first, again):
        assert (result.rows_inserted, result.rows_updated) == (0, 0)
        assert (result.files_added, result.files_removed) == ((0, 0) if merges_on_read else (6, 6))
        assert result.delete_files_added == (6 if merges_on_read else 0)
    assert again.delete_files_removed == (6 if merges_on_read else 0)
    summary = spark_lake.catalog().load_table("db.t").current_snapshot().summary
    assert summary.operation.value == ("delete" if merges_on_read else "overwrite")
    assert summary.additional_properties.get("added-position-deletes") == ("21" if merges_on_read else None)  # 10 of them from before


@pytest.mark.usefixtures("table")
def test_nothing_found_makes_no_snapshot(done, spark_lake):
    before = spark_lake.catalog().load_table("db.t").current_snapshot()
    assert done("delete from test.db.t where id in (select id + 1000 from s)") == icelock.spark.ChangeResult()
    # NOT IN a list with a null is never true.
    assert done("delete from test.db.t where id not in (select id from s)").rows_deleted == 0
    assert spark_lake.catalog().load_table("db.t").current_snapshot() == before


def test_no_python_worker_is_asked(table, done, spark_lake, monkeypatch):
    monkeypatch.setattr(jobs_here, "write_here", None)
    if table == "merge-on-read":
        monkeypatch.setattr(jobs_here, "rewrite_here", lambda _spark, _plan, splits: [] if not splits else pytest.fail("a task"))
    assert done("delete from test.db.t where id in (select id from s) and part = 0").rows_deleted == 4  # 0, 3, 6, 9
    assert ids(spark_lake) == [1, 2, 4, 5, 7, 8, *range(10, 100)]


@pytest.mark.usefixtures("table")
def test_a_file_that_was_changed_deletes_nothing(done, spark_lake):
    found = spark_lake.catalog().load_table("db.t")
    before = found.current_snapshot()
    task = next(task for task in found.scan().scan_tasks() if task.record_count == 17)  # part 0 of the first 50
    file = Path(task.path.removeprefix("file://"))
    content = bytearray(file.read_bytes())
    content[60] ^= 1
    file.write_bytes(content)
    with pytest.raises(IntegrityError):
        done("delete from test.db.t where id in (select id from s)")
    assert spark_lake.catalog().load_table("db.t").current_snapshot() == before


@pytest.mark.spark43
def test_places_of_all_tasks_come_together(spark):
    high = 2**32 + 5
    rows = [("a", 3), ("ä/b", 1), ("a", 2), ("ä/b", high), ("a", 3), ("a", 70_000)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), "file string, position bigint")
    found = deleted_rows(frame.selectExpr("1", "position", "file"), [2, 1])
    positions = {path: list(BitMap64.deserialize(bitmap)) for path, bitmap in found.positions.items()}
    assert positions == {"a": [2, 3, 70_000], "ä/b": [1, high]}
    assert (found.counts.deleted, found.files, found.seen, found.removed) == (5, [], (), ())
    assert deleted_rows(frame.filter("position < 0"), [0, 1]).positions == {}


@pytest.mark.parametrize("row", [(None, 0), pytest.param(("a", None), marks=pytest.mark.spark43)])
def test_a_row_without_a_place_is_an_error(spark, row):
    with pytest.raises(Exception, match="has no place"):
        deleted_rows(spark.createDataFrame([("a", 1), row], "file string, position bigint"), [0, 1])
