"""Statements of many threads on one table: no update is lost, as the sums show, and a conflict is a typed error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException

from tests.concurrency.whole_table import assert_whole, in_order
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark

THREADS = 4
KEPT = KEY[:-1] + ", 'write.metadata.previous-versions-max' = '10000'"


def race(*work: Callable[[], int]) -> list[int]:
    """Do all at once; return what each did."""
    with ThreadPoolExecutor(len(work)) as pool:
        return [done.result() for done in [pool.submit(one) for one in work]]


@pytest.fixture
def until_done(spark) -> Callable[[str], int]:
    """Return a function that runs a statement until no other writer is in its way, and returns how often one was."""

    def run(statement: str) -> int:
        for refused in range(40):
            try:
                spark.sql(statement).collect()
            except (ValidationException, CommitFailedException):
                continue
            return refused
        raise AssertionError(f"{statement} never got its turn")

    return run


@pytest.mark.parametrize(("mode", "files"), [("copy-on-write", 4), ("merge-on-read", 1)])
def test_updates_of_different_rows(sql, spark_lake, until_done, mode, files):
    """In files of their own no update is in another's way under snapshot isolation; in one file they are, and none is lost."""
    spread, rounds = ("partitioned by (id)", 2) if files > 1 else ("", 1)
    level = f"'write.update.mode' = '{mode}', 'write.update.isolation-level' = 'snapshot'"
    sql(f"create table test.db.t (id int, n int) {spread} {KEPT}, {level})")
    sql("insert into test.db.t values (0, 0), (1, 10), (2, 20), (3, 30)")

    def updates(number: int) -> int:
        return sum(until_done(f"update test.db.t set n = n + 1 where id = {number}") for _ in range(rounds))

    refused = race(*(lambda number=number: updates(number) for number in range(THREADS)))
    assert sql("select * from test.db.t order by id") == [(row, 10 * row + rounds) for row in range(THREADS)]
    assert files == 1 or refused == [0] * THREADS
    table = spark_lake.catalog().load_table("db.t")
    assert len(in_order(table)) == 1 + THREADS * rounds
    assert_whole(table)


def test_inserts_beside_merges(sql, spark_lake, until_done):
    """Serializable: rows that come are in a merge's way, and it looks again."""
    sql(f"create table test.db.t (id int, n int) {KEPT})")
    sql("insert into test.db.t values (0, 0), (1, 10)")

    def merges(number: int) -> int:
        source = f"(select * from values (0, 1), (1, 1), ({number}, 5) as v(id, n))"
        clauses = "when matched then update set n = t.n + s.n when not matched then insert *"
        return until_done(f"merge into test.db.t t using {source} s on t.id = s.id {clauses}")

    def inserts(number: int) -> int:
        return sum(until_done(f"insert into test.db.t values ({number + step}, 7)") for step in range(2))

    race(lambda: merges(100), lambda: inserts(200), lambda: merges(100), lambda: inserts(300))
    # Both merges added to rows 0 and 1; the first of them made row 100, and the second added to it.
    assert sql("select * from test.db.t order by id") == [(0, 2), (1, 12), (100, 10), (200, 7), (201, 7), (300, 7), (301, 7)]
    assert_whole(spark_lake.catalog().load_table("db.t"))
