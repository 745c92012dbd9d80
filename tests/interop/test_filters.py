"""Which files a filter rules out, by Java Iceberg and by icelock in one session: icelock reads no more of them, and finds SQL's rows.

The files are of one row each. ``{f}`` stands for the namespace of the catalog's functions. The pages of neither engine say which filters
prune, so Java is asked. An OR is of columns that each table is partitioned by as they are, by a transform, and not at all: Spark itself
splits filters between the first kind and the others.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.turns import todays
from tests.interop.session import JAVA_SQL, OUR_SQL

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
COLUMNS = """
    id bigint, n int, s string, flag boolean, f double, dec decimal(10, 2), d date, ts timestamp, ntz timestamp_ntz, b binary,
    st struct<a: int>
"""
ROWS = """
    select id, int(id * 10), concat(name, id), id % 2 = 1, if(id = 4, double('NaN'), id + 0.5D), cast(id * 1.1 as decimal(10, 2)), day,
        timestamp(day) + interval 12 hours, cast(day as timestamp_ntz), binary(string(id)), named_struct('a', int(id))
    from values (1L, 'aa', date'2020-01-01'), (2L, 'bb', date'2020-01-02'), (3L, 'bb', date'2021-01-03'), (4L, 'cc', date'2021-02-04')
        v(id, name, day)
    union all select null, null, null, null, null, null, null, null, null, null, null
"""
FILTERS = {
    "5 < id": [],
    "3 = id": [3],
    "id <> 1": [2, 3, 4],
    "not (id > 1)": [1],
    "id not in (1, 2)": [3, 4],
    "id <=> 3": [3],
    "not (id <=> 3)": [None, 1, 2, 4],
    "id <=> null": [None],
    "id in (cast('1' as bigint), 2, null)": [1, 2],
    "id in (101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 1)": [1],
    "id = 1 or s = 'cc4'": [1, 4],
    "not (id = 1 or n = 20)": [3, 4],
    "id = 1 and (s = 'zz' or n = 10)": [1],
    "cast(n as bigint) = 10": [1],
    "n = '10'": [1],
    "id > 1.5": [2, 3, 4],
    "s like 'bb%'": [2, 3],
    "s like 'bb%3'": [3],
    "startswith(s, 'bb')": [2, 3],
    "s not like 'bb%'": [1, 4],
    "upper(s) = 'BB3'": [3],
    "substr(s, 1, 2) = 'bb'": [2, 3],
    "flag": [1, 3],
    "not flag": [2, 4],
    "flag is not true": [None, 2, 4],
    "f = 2.5": [2],
    "f < 2.5": [1],
    "dec in (1.1, 2.2)": [1, 2],
    "d > '2020-01-02'": [3, 4],
    "year(d) = 2021": [3, 4],
    "date(ts) = date'2020-01-02'": [2],
    "ntz >= timestamp_ntz'2021-01-03 00:00:00'": [3, 4],
    "b = X'32'": [2],
    "2 = st.a": [2],
    "st.a > 3 or id = 1": [1, 4],
    "{f}bucket(4, id) = 0": [1, 2],
    "0 = {f}bucket(4, id)": [1, 2],
    "{f}bucket(4, id) in (0, 1)": [1, 2],
    "{f}bucket(4, id) = 0 or id = 4": [1, 2, 4],
    "{f}bucket(4, id) is null": [None],
    "{f}years(ts) = 51": [3, 4],
    "{f}months(d) < 601": [1, 2],
    "{f}days(ts) = date'2020-01-02' or id = 1": [1, 2],
    "{f}hours(ts) < 0": [],
    "{f}truncate(2, s) in ('bb', 'aa')": [1, 2, 3],
    "{f}truncate(2, id) > 2": [4],
    "{f}truncate(100, dec) = 2": [2],
}
MIXED = {
    "n = 10 or id = 3": [1, 3],
    "id = 3 or n <=> null": [None, 3],
    "n = 10 or s = 'cc4' or f = 2.5": [1, 2, 4],
    "n in (10, 20) or st.a > 3": [1, 2, 4],
    "n is null or dec = 2.2": [None, 2],
    "not (n > 10 and id < 4)": [1, 4],
    "not (n = 10 or id = 3)": [2, 4],
    "not (n <> 10 and s like 'bb%')": [1, 4],
    "(n = 10 and s = 'zz') or id = 4": [4],
    "(n = 10 or id = 3) and (n = 30 or id = 1)": [1, 3],
    "(n = 10 and f < 2) or (n = 20 and f > 3) or (n = 30 and flag)": [1, 3],
    "n = 10 and (n = 20 or id = 1)": [1],
    "n = 10 or not (id < 4)": [1, 4],
    "n = '10' or id > 3.5": [1, 4],
    "n = 10 or upper(s) = 'BB2'": [1, 2],
    "n = 10 or (upper(s) like 'BB%' and id = 2)": [1, 2],
    "n = 10 or {f}bucket(4, id) = 3": [1, 3],
    "n = 10 or {f}truncate(2, s) = 'cc'": [1, 4],
    "{f}days(ts) = date'2020-01-02' or n = 40": [2, 4],
    "d = '2020-01-01' or id = 3": [1, 3],
    "d = '2020-01-01' or s = 'bb3' or ts > '2021-02-01'": [1, 3, 4],
    "d between '2020-01-02' and '2021-01-03' or not (n > 10)": [1, 2, 3],
    "flag or s like 'cc%'": [1, 3, 4],
    "not flag or n = 10": [1, 2, 4],
    "(flag or id = 2) and (d > '2020-06-01' or n = 20)": [2, 3],
    "flag and (d = '2020-01-01' or {f}hours(ts) > 450000)": [1],
    "s = 'aa1' or id = 4": [1, 4],
    "ts < '2020-01-02' or b = X'33'": [1, 3],
    "dec > 4 or d is null": [None, 4],
    "year(d) = 2021 or n = 10": [1, 3, 4],
}
PARTITIONS = {"t": "n, bucket(4, id)", "u": "d, flag, truncate(2, s), days(ts)", "v": "id"}


@pytest.fixture(scope="module")
def tables(engines):
    spark, names = engines.session.spark, {}
    for catalog in (JAVA_SQL, OUR_SQL):
        spark.sql(f"create namespace if not exists {catalog}.filters_{catalog}")
        for short, partitions in PARTITIONS.items():
            names[catalog, short] = f"{catalog}.filters_{catalog}.{short}"
            spark.sql(f"create table {names[catalog, short]} ({COLUMNS}) using iceberg partitioned by ({partitions})")
            spark.sql(f"insert into {names[catalog, short]} {ROWS}")
            assert spark.sql(f"select count(*) from {names[catalog, short]}.files").first()[0] == 5
    yield names
    for name in names.values():
        spark.sql(f"drop table {name}")


def read(spark: Any, table: str, condition: str) -> tuple[int, list[int | None]]:
    """Return how many files a query reads, by the scan's metric, and which ids it finds."""
    frame = spark.sql(f"select id from {table} where {condition.format(f=table.partition('.')[0] + '.system.')}")
    found = sorted((row.id for row in frame.collect()), key=lambda number: -1 if number is None else number)
    plans, files = [frame._jdf.queryExecution().executedPlan()], 0
    while plans:
        plan = plans.pop()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            plans.append(plan.executedPlan())
        metrics = plan.metrics()
        files += sum(metrics.apply(name).value() for name in ("resultDataFiles", "numFiles") if metrics.contains(name))
        plans += [plan.children().apply(index) for index in range(plan.children().size())]
    return files, found


def compare(engines: Any, tables: Any, table: str, condition: str, rows: list[int | None]) -> None:
    """Check that both engines find the rows of a condition, and that icelock reads no more files."""
    java, ours = (read(engines.session.spark, tables[catalog, table], condition) for catalog in (JAVA_SQL, OUR_SQL))
    assert ours[1] == java[1]
    assert ours[1] == rows
    assert ours[0] <= java[0]


@pytest.mark.parametrize("condition", todays("filters", list(FILTERS), 4))
def test_no_more_files_are_read_than_by_java(engines, tables, condition):
    compare(engines, tables, "t", condition, FILTERS[condition])


@pytest.mark.parametrize("condition", todays("mixed filters", list(MIXED), 4))
@pytest.mark.parametrize("table", PARTITIONS)
def test_no_more_files_are_read_for_an_or_than_by_java(engines, tables, table, condition):
    compare(engines, tables, table, condition, MIXED[condition])


def test_rows_that_java_does_not_find(engines, tables):
    """Its bounds leave NaN out, and a null is unequal to a bucket's number there, but in SQL to nothing."""
    files, found = read(engines.session.spark, tables[OUR_SQL, "t"], "f > 2.5")
    assert (files, found) == (2, [3, 4])
    _, found = read(engines.session.spark, tables[OUR_SQL, "t"], "{f}bucket(4, id) <> 0")
    assert found == [3, 4]
