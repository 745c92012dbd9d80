"""Dates and times of before 1900 in conditions: every comparison, in every statement, finds the rows of the proleptic Gregorian calendar.

Spark's filters have values of java.sql unless told otherwise, whose calendar is the Julian one until 4 October 1582, followed by the 15th,
and whose zones have no local mean time. Expected rows are those of Python's own dates, which are proleptic Gregorian as Spark SQL's are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import Any

import pytest

import icelock.spark
from tests.helpers.second_spark import on_second
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark

T = "test.db.t"
DATES = [
    *(date(1, 1, 1), date(1500, 2, 28), date(1500, 3, 1), date(1582, 10, 4), date(1582, 10, 5), date(1582, 10, 10), date(1582, 10, 14)),
    *(date(1582, 10, 15), date(1883, 11, 18), date(1900, 1, 1), date(1969, 12, 31), date(2020, 2, 29)),
]
# The first is in the year 0 of UTC when it is midnight in Kolkata, so it is 30 hours later.
TIMES = [datetime.combine(day, datetime.min.time()) + timedelta(hours=30 if day.year == 1 else 0, microseconds=7) for day in DATES]
COLUMNS = {"date": ("d", DATES), "timestamp": ("ts", TIMES), "timestamp_ntz": ("ntz", TIMES)}
SHIFTED = {kind: COLUMNS[kind] for kind in ("date", "timestamp")}  # Spark's own types never changed those without a zone
LAST = {"date": DATES[-1], "timestamp": TIMES[-1], "timestamp_ntz": TIMES[-1]}
COMPARISONS: dict[str, Callable[[Any, Any, Any], bool]] = {
    "{c} = {v}": lambda x, v, _: x == v,
    "{c} <=> {v}": lambda x, v, _: x == v,
    "{c} < {v}": lambda x, v, _: x < v,
    "{c} <= {v}": lambda x, v, _: x <= v,
    "{c} > {v}": lambda x, v, _: x > v,
    "{c} >= {v}": lambda x, v, _: x >= v,
    "{c} in ({v}, {last})": lambda x, v, last: x in (v, last),
    "{c} not in ({v}, {last})": lambda x, v, last: x not in (v, last),
    "not {c} = {v}": lambda x, v, _: x != v,
    "not {c} < {v}": lambda x, v, _: x >= v,
}


def text(kind: str, value: object) -> str:
    return f"{kind}'{value}'"


def questions(kind: str) -> list[tuple[str, set[int]]]:
    """Return conditions on a column, with the ids of the rows that they are true for; the row with the id i has the i-th value."""
    column, values = COLUMNS[kind]
    found = []
    for value in values:
        for form, holds in COMPARISONS.items():
            condition = form.format(c=column, v=text(kind, value), last=text(kind, LAST[kind]))
            found.append((condition, {id_ for id_, x in enumerate(values) if holds(x, value, LAST[kind])}))
    return found


@pytest.fixture
def zone(spark, request) -> Iterator[str]:
    """The time zone of the session, and that of the JVM, which is that of java.sql."""
    name = getattr(request, "param", "America/Los_Angeles")
    zones = spark._jvm.java.util.TimeZone
    before = zones.getDefault()
    spark.conf.set("spark.sql.session.timeZone", name)
    zones.setDefault(zones.getTimeZone(name))
    yield name
    zones.setDefault(before)
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def values_of(id_: int) -> str:
    return f"{text('date', DATES[id_])}, {text('timestamp', TIMES[id_])}, {text('timestamp_ntz', TIMES[id_])}"


@pytest.fixture
def times(sql, spark, zone):  # noqa: ARG001 - the zone is set
    """View ``times`` of one row for each value."""
    rows = ", ".join(f"({id_}, {values_of(id_)})" for id_ in range(len(DATES)))
    spark.sql(f"select * from values {rows} as t(id, d, ts, ntz)").createOrReplaceTempView("times")
    yield sql
    spark.catalog.dropTempView("times")


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("zone", "kind"),
    on_second(
        # What has no zone would show a wrong one in any that is not UTC.
        [*((zone, kind) for zone in ("UTC", "America/Los_Angeles", "Asia/Kolkata") for kind in SHIFTED), ("Asia/Kolkata", "timestamp_ntz")],
        *((("America/Los_Angeles", kind)) for kind in SHIFTED),
    ),
    indirect=["zone"],
)
def test_each_comparison_selects_and_deletes_its_rows(times, kind):
    """The rows of each value are there once for each comparison, so that one statement tries all of them."""
    asked = questions(kind)
    times(f"create table {T} (k int, id int, d date, ts timestamp, ntz timestamp_ntz) {KEY}")
    times(f"insert into {T} select cast(r.id as int), t.* from times t cross join range({len(asked)}) r order by 1")
    wanted = {(k, id_) for k, (_, ids) in enumerate(asked) for id_ in ids}
    where = " or ".join(f"(k = {k} and {condition})" for k, (condition, _) in enumerate(asked))
    assert set(times(f"select k, id from {T} where {where}")) == wanted
    delete = f"delete from {T} where {where}"
    assert "DeleteFromTable" in times(f"explain {delete}")[0][0]  # by one filter, which says exactly which rows go
    times(delete)
    every = {(k, id_) for k in range(len(asked)) for id_ in range(len(DATES))}
    assert set(times(f"select k, id from {T}")) == every - wanted


HARD = [DATES.index(date(1500, 3, 1)), DATES.index(date(1582, 10, 10)), DATES.index(date(1582, 10, 15))]


@pytest.fixture
def files(times):
    """Table ``t`` with a file for each value, and a column ``v`` of zeros; returns the function for statements."""
    times(f"create table {T} (id int, d date, ts timestamp, v int) partitioned by (id) {KEY}")
    times(f"insert into {T} select id, d, ts, 0 from times")
    return times


def branch(sql, name: str) -> str:
    sql(f"call test.system.create_branch('db.t', '{name}')")
    return f"{T}.branch_{name}"


@pytest.mark.spark43
def test_no_file_is_passed_over(files, spark):
    """By the filters of the native scan, of Parquet's row groups, and of Python's data sources."""
    wanted = {}
    for kind, (column, values) in SHIFTED.items():
        for id_ in HARD:
            wanted[f"{column} = {text(kind, values[id_])}"] = [id_]
            wanted[f"{column} < {text(kind, values[id_])}"] = list(range(id_))

    def found(table: str) -> dict[str, list[int]]:
        rows = files(" union all ".join(f'select "{what}" what, id from {table} where {what}' for what in wanted))
        return {what: sorted(id_ for asked, id_ in rows if asked == what) for what in wanted}

    assert found(T) == wanted
    spark.read.format("icelock").load(T).createOrReplaceTempView("by_python")
    try:
        hard = list(wanted)[::2]
        rows = files(" union all ".join(f'select "{what}" what, id from by_python where {what}' for what in hard))
        assert {what: sorted(id_ for asked, id_ in rows if asked == what) for what in hard} == {what: wanted[what] for what in hard}
    finally:
        spark.catalog.dropTempView("by_python")


def test_update_and_merge_find_their_rows(files):
    for kind, (column, values) in SHIFTED.items():
        among = ", ".join(text(kind, values[id_]) for id_ in HARD)
        target = branch(files, f"update_{column}")
        files(f"update {target} set v = 1 where {column} in ({among})")
        assert sorted(files(f"select id from {target} where v = 1")) == [(id_,) for id_ in HARD]
        target = branch(files, f"merge_{column}")
        source = " union all ".join(f"select {text(kind, values[id_])} {column}" for id_ in HARD)
        files(
            f"merge into {target} t using ({source}) s on t.{column} = s.{column} and t.{column} in ({among}) "
            f"when matched then update set v = 1 when not matched then insert (id, {column}, v) values (-1, s.{column}, 1)"
        )
        assert sorted(files(f"select id from {target} where v = 1")) == [(id_,) for id_ in HARD]


def test_upsert_finds_its_rows(files, spark):
    for column, id_ in (("ts", HARD[0]), ("d", HARD[1])):
        rows = spark.sql(f"select {id_} id, d, ts, 1 v from values ({values_of(id_)}) as t(d, ts, ntz)")
        branch(files, f"upsert_{column}")
        done = icelock.spark.upsert(rows, T, [column], branch=f"upsert_{column}")
        assert (done.rows_updated, done.rows_inserted) == (1, 0), column


def test_overwrites_replace_their_rows(files):
    for kind, (column, values) in SHIFTED.items():
        for id_ in HARD:
            target = branch(files, f"replace_{column}_{id_}")
            row = f"{id_}, {text('date', DATES[id_])}, {text('timestamp', TIMES[id_])}, 1"
            files(f"insert into {target} replace where {column} = {text(kind, values[id_])} select {row}")
            assert sorted(files(f"select id, v from {target}")) == [(other, int(other == id_)) for other in range(len(DATES))]
    files(f"create table test.db.days (v int, d date) partitioned by (d) {KEY}")
    files("insert into test.db.days select 0, d from times")
    files("insert overwrite test.db.days partition (d = date'1582-10-10') select 1")
    assert sorted(files("select d, v from test.db.days")) == [(day, int(day == date(1582, 10, 10))) for day in DATES]
