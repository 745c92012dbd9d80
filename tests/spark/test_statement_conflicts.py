"""Which commits of others a statement conflicts with: those of rows that it may have looked at, as in Java.

Source: Iceberg's SparkPositionDeltaWrite and SparkWrite take the filters of the table's scan, which Spark's RewriteMergeIntoTable and its
optimizer put there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException

from icelock.spark.driver import jobs_here
from icelock.spark.driver.jobs_here import JobsHere
from icelock.spark.sealed.job import Action, Job
from icelock.table.change_result import ChangeResult
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark

A, B = "date'2026-01-01'", "date'2026-01-02'"
SOURCE: Final = f"(select * from values (2l, {A}, 5), (9l, {A}, 7) as v(id, day, n))"
CLAUSES: Final = "when matched then update set n = t.n + s.n when not matched then insert *"
GONE: Final = "when not matched by source and t.id = 1 then delete"


@pytest.fixture
def days(sql, spark_lake) -> Callable[..., None]:
    """Return a function that makes table ``t``: ids 1 and 2 on the first day, 3 on the second."""

    def make(**properties: str) -> None:
        more = "".join(f", '{name.replace('_', '.')}' = '{value}'" for name, value in properties.items())
        sql(f"create table test.db.t (id bigint, day date, n int) partitioned by (day) {KEY[:-1]}{more})")
        spark_lake.catalog().load_table("db.t").append(rows((1, 1, 10), (2, 1, 20), (3, 2, 30)))

    return make


def rows(*given: tuple[int, int, int]) -> pa.Table:
    """Return rows by id, day of January and number."""
    ids, days, numbers = zip(*given, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [date(2026, 1, day) for day in days], "n": pa.array(numbers, pa.int32())})


@pytest.fixture
def meanwhile(monkeypatch, spark_lake):
    """Return a function that runs a statement, during which another writer commits: when its rows are there, before its own commit."""
    write = jobs_here.write_here

    def run(statement: Callable[[], object], other: Callable[[Any], object]) -> None:
        def written(*given: Any, **more: Any) -> Any:
            messages = write(*given, **more)
            other(spark_lake.catalog().load_table("db.t"))
            return messages

        with monkeypatch.context() as patch:
            patch.setattr(jobs_here, "write_here", written)
            statement()

    return run


def test_only_what_a_merge_may_have_looked_at_is_a_conflict(sql, days, meanwhile):
    def merge(on: str, *clauses: str, source: str = SOURCE) -> Callable[[], object]:
        return lambda: sql(f"merge into test.db.t t using {source} s on {on} {' '.join(clauses) or CLAUSES}")

    def now() -> list[Any]:
        return sql("select id, n from test.db.t order by id")

    days(write_merge_mode="merge-on-read")
    of_the_day = f"t.day = {A} and t.id = s.id"
    meanwhile(merge(of_the_day), lambda table: table.append(rows((4, 2, 40))))
    assert now() == [(1, 10), (2, 25), (3, 30), (4, 40), (9, 7)]
    meanwhile(merge(of_the_day), lambda table: table.delete("id = 3"))
    assert now() == [(1, 10), (2, 30), (4, 40), (9, 14)]
    # The source has rows of one day, so Spark infers that the table's day is that.
    sql(f"create table test.db.s {KEY} as select * from {SOURCE}")
    source = f"(select * from test.db.s where day = {A})"
    meanwhile(merge("t.day = s.day and t.id = s.id", source=source), lambda table: table.append(rows((5, 2, 50))))
    assert now() == [(1, 10), (2, 35), (4, 40), (5, 50), (9, 21)]
    refused: list[tuple[Callable[[], object], Callable[[Any], object]]] = [
        (merge(of_the_day), lambda table: table.append(rows((6, 1, 60)))),
        (merge(of_the_day), lambda table: table.delete("id = 1")),
        (merge(of_the_day, CLAUSES, GONE), lambda table: table.append(rows((7, 2, 70)))),
        (merge(f"t.day = {A} or t.id = s.id", "when matched then delete"), lambda table: table.append(rows((8, 2, 80)))),
    ]
    for statement, other in refused:
        with pytest.raises(ValidationException, match="conflict"):
            meanwhile(statement, other)
    assert now() == [(2, 35), (4, 40), (5, 50), (6, 60), (7, 70), (8, 80), (9, 21)]


def test_new_rows_are_no_conflict_under_snapshot_isolation(sql, days, meanwhile):
    days(**{"write_merge_isolation-level": "snapshot"})
    merge = f"merge into test.db.t t using {SOURCE} s on t.day = {A} and t.id = s.id {CLAUSES}"
    meanwhile(lambda: sql(merge), lambda table: table.append(rows((6, 1, 60))))
    assert sql("select id, n from test.db.t order by id") == [(1, 10), (2, 25), (3, 30), (6, 60), (9, 7)]
    with pytest.raises(ValidationException, match="conflict"):
        meanwhile(lambda: sql(merge), lambda table: table.delete("id = 2"))
    assert sql("select id, n from test.db.t order by id") == [(1, 10), (3, 30), (6, 60), (9, 7)]


EVERY: Final = {1, 2, 3, 4, 5, 6}
WITH_ID: Final = EVERY - {6}
# A condition, and which rows of the table of ``wide`` its filter finds; two rows are on each day, the last ones on none, k 6 without id.
CONDITIONS: Final = {
    f"t.day = {A} and t.id = s.id": {1, 2},
    f"s.id = t.id and t.day in ({A}, {B})": {1, 2, 3, 4},
    f"t.id = s.id and t.day = s.day and s.day = {B}": {3, 4},
    f"t.id = s.id and t.day >= {B}": {3, 4},
    "t.id = s.id and t.day is null": {5},
    f"t.id = s.id and not (t.day <=> {A})": {3, 4, 5},
    "t.id = s.id": WITH_ID,
    f"t.id = s.id and s.day = {A}": WITH_ID,
    f"t.day = {A} or t.id = s.id": EVERY,
    f"t.day = {A} and (t.id = s.id or t.n > 1)": {1, 2},
    f"t.id <=> s.id and coalesce(t.day, {A}) = {A}": EVERY,
    f"t.id = s.id and date_add(t.day, 1) = {B}": {1, 2, 3, 4},
    f"t.day = {A} and t.day = {B} and t.id = s.id": set(),
}


@pytest.fixture
def jobs(monkeypatch) -> list[Job]:
    """The jobs that statements want; none is run."""
    found: list[Job] = []

    def noted(_: JobsHere, job: Job, *__: Any) -> ChangeResult:
        found.append(job)
        return ChangeResult()

    monkeypatch.setattr(JobsHere, "write", noted)
    monkeypatch.setattr(JobsHere, "delete", noted)
    return found


@pytest.fixture
def wide(sql, spark_lake):
    """Table ``t``, of which ``k`` is a row's number; returns a function from jobs to the numbers that their filters find."""
    sql(f"create table test.db.t (k int, id bigint, day date, n int) {KEY}")
    sql(f"insert into test.db.t values (1, 1, {A}, 1), (2, 2, {A}, 2), (3, 1, {B}, 1), (4, 2, {B}, 2), (5, 1, null, 1), (6, null, null, 2)")
    table = spark_lake.catalog().load_table("db.t")
    return lambda job: set(table.scan(row_filter=job.row_filter, selected_fields=("k",)).to_arrow().column("k").to_pylist())


@pytest.mark.spark43
def test_the_filter_is_never_narrower_than_what_the_statement_reads(sql, wide, jobs):
    source = f"(select * from values (1l, {A}, 1), (2l, {B}, 2), (null, {A}, 3) as v(id, day, n))"
    joins = (f"select {number} c, t.k from test.db.t t join {source} s on {on}" for number, on in enumerate(CONDITIONS))
    matched = sql(" union all ".join(joins))
    for number, (on, expected) in enumerate(CONDITIONS.items()):
        also = "" if number % 2 else "when not matched then insert (k) values (7)"
        sql(f"merge into test.db.t t using {source} s on {on} when matched then delete {also}")
        found = wide(jobs.pop())
        assert found == expected, on
        assert {k for c, k in matched if c == number} <= found, on
    sql(f"merge into test.db.t t using {source} s on t.day = {A} and t.id = s.id when not matched by source then delete")
    assert wide(jobs.pop()) == EVERY


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (f"_pos >= 0 and day = {A}", {1, 2}),
        (f"day in ({A}, {B}) and n % 2 = 0", {1, 2, 3, 4}),
        ("id in (select 1l) and day is null", {5, 6}),
    ],
)
def test_filters_of_updates_and_deletes(sql, wide, jobs, where, expected):
    for statement in ("update test.db.t set n = n + 1 where", "delete from test.db.t where n + 1 > 0 and"):
        sql(f"{statement} {where}")
        assert wide(jobs.pop()) == expected, statement


@pytest.mark.spark43
def test_a_table_that_is_its_own_source_is_filtered_by_its_own_columns(sql, wide, jobs):
    sql(f"merge into test.db.t t using test.db.t s on t.id = s.id + 1 and s.day = {A} when matched then delete")
    assert wide(jobs.pop()) == WITH_ID
    sql(f"merge into test.db.t t using test.db.t s on t.id = s.id + 1 and t.day = {A} when matched then delete")
    assert wide(jobs.pop()) == {1, 2}


@pytest.mark.spark43
@pytest.mark.usefixtures("wide")
def test_a_merge_that_only_inserts_is_an_append(sql, jobs):
    """As in Java: Spark makes an INSERT of it, so that nothing of others is a conflict."""
    sql("merge into test.db.t t using (select 9l as id) s on t.id = s.id when not matched then insert (k, id) values (9, s.id)")
    assert jobs.pop().action == Action.APPEND
