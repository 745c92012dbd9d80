"""Functions of a catalog. Values are the specification's (Appendix B, 32-bit hash), Java's documentation's, or worked out by hand."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from importlib.metadata import version

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType
from pyspark.errors import AnalysisException

from tests.lakes.sqlite import KEY
from tests.spark.native_tables import files_read

pytestmark = pytest.mark.spark
NAMES = {"iceberg_version", "years", "months", "days", "hours", "bucket", "truncate"}
SIGN = 2**31 - 1  # a bucket is of the hash without its sign
HASHES = {
    "34": 2017239379,
    "34L": 2017239379,
    "cast(34 as tinyint)": 2017239379,
    "14.20": -500754589,
    "date'2017-11-16'": -653330422,
    "timestamp_ntz'2017-11-16 22:31:08'": -2047944441,
    "timestamp'2017-11-16 22:31:08 UTC'": -2047944441,
    "timestamp'2017-11-16 14:31:08 -08:00'": -2047944441,
    "'iceberg'": 1210000089,
    "X'00010203'": -188683207,
}
TRUNCATED = {
    "10, 1": 0,
    "10, -1": -10,
    "10, -1L": -10,
    "cast(10 as smallint), cast(-1 as tinyint)": -10,
    "50, 10.65": Decimal("10.50"),
    "50, -0.05": Decimal("-0.50"),
    "3, 'iceberg'": "ice",
    "2, '€uro'": "€u",  # characters, not bytes
    "2, X'000102'": b"\x00\x01",
    "9, X'00'": b"\x00",
}


@pytest.mark.spark43
def test_they_are_listed(sql):
    sql("create namespace if not exists test.db")
    for where in ("test", "test.system"):
        shown = {row[0].rpartition(".")[2] for row in sql(f"show user functions in {where}")}
        assert shown >= NAMES, where
    assert sql("show user functions in test.db") == []
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql("show user functions in test.nowhere")


@pytest.mark.spark43
def test_bucket_and_truncate(sql):
    for value, hashed in HASHES.items():
        assert sql(f"select test.system.bucket({SIGN}, {value})") == [((hashed & SIGN) % SIGN,)], value
    assert sql("select test.system.bucket(128, 'abc'), test.bucket(100, 34), test.system.BUCKET(4, cast(null as int))") == [(122, 79, None)]
    for arguments, expected in TRUNCATED.items():
        assert sql(f"select test.system.truncate({arguments})") == [(expected,)], arguments


@pytest.mark.spark43
def test_times(sql):
    before, after = "timestamp'1969-12-31 23:59:59.999999 UTC'", "timestamp_ntz'2017-12-01 10:12:55.038194'"
    for value, expected in {
        before: (-1, -1, dt.date(1969, 12, 31), -1),
        after: (47, 575, dt.date(2017, 12, 1), 420034),
    }.items():
        names = ("years", "months", "days", "hours")
        assert sql(f"select {', '.join(f'test.system.{name}({value})' for name in names)}") == [expected], value
    day = "date'1969-01-01'"
    assert sql(f"select test.system.years({day}), test.system.months({day}), test.system.days({day})") == [(-1, -12, dt.date(1969, 1, 1))]
    assert sql("select test.system.iceberg_version()") == [(f"icelock {version('icelock')}",)]


@pytest.mark.spark43
def test_in_queries(sql, spark):
    """In the code that Spark generates, and without: the buckets are those of the table's partitions."""
    sql(f"create table test.db.t (id bigint, city string) partitioned by (bucket(16, id)) {KEY}")
    sql("insert into test.db.t select id - 50, if(id % 7 = 0, null, concat('town-', id)) from range(100)")
    expected = {(number, BucketTransform(16).transform(LongType())(number)) for number in range(-50, 50)}
    for mode in ("FALLBACK", "NO_CODEGEN"):
        spark.conf.set("spark.sql.codegen.factoryMode", mode)
        spark.conf.set("spark.sql.codegen.wholeStage", str(mode == "FALLBACK"))
        try:
            assert {*sql("select id, test.system.bucket(16, id) from test.db.t")} == expected
            assert sql("select count(*) from test.db.t where test.system.bucket(16, id) != _partition.id_bucket") == [(0,)]
            assert sql("select count(*), count(test.system.truncate(4, city)) from test.db.t") == [(100, 85)]
            assert sql("select test.system.truncate(4, city), count(*) from test.db.t where city is not null group by 1") == [("town", 85)]
        finally:
            spark.conf.unset("spark.sql.codegen.factoryMode")
            spark.conf.unset("spark.sql.codegen.wholeStage")
    for call in ("bucket(4)", "bucket(4L, 1)", "bucket(4, true)", "hours(date'2020-01-01')", "truncate(2, 1.5D)", "iceberg_version(1)"):
        with pytest.raises(AnalysisException):
            sql(f"select test.system.{call}")
    with pytest.raises(AnalysisException, match="ROUTINE"):
        sql("select test.system.nothing(1)")
    with pytest.raises(AnalysisException, match="ROUTINE"):
        sql("select test.db.bucket(4, 1)")


# By the partitioning: conditions, which ids they find, and in how many files of one row each. The buckets of 34, 0, -1 and 41 are 3, 0, 0
# and 2 of 4 (the hash of 34 is in the specification); 2020 begins 50 years, 438288 hours after 1970. Functions that keep the order of
# values are ranges of their column, by which bounds of files prune, too.
RANGES = {
    "truncate(10, id) = 30": ({34}, 1),
    "truncate(10, id) >= 30": ({34, 41}, 2),
    "30 <= truncate(10, id)": ({34, 41}, 2),
    "truncate(10, id) < -9": ({-1}, 1),
    "truncate(10, id) is null": ({None}, 1),
    "truncate(10, id) in (30, 40, 7)": ({34, 41}, 2),
    "truncate(10, id) = 30 or id = 0": ({34, 0}, 2),
    "not (truncate(10, id) = 30)": ({0, -1, 41}, 3),
    "truncate(1, city) = 'y'": ({0, -1}, 2),
    "truncate(1, city) > 'x'": ({0, -1}, 2),
    "years(ts) = 50": ({34}, 1),
    "years(ts) <= 50": ({34, 0, 41}, 3),
    "years(ts) = 52": (set(), 0),
    "months(ts) = 600": ({34}, 1),
    "days(ts) = date'1969-12-31'": ({0}, 1),
    "days(ts) > date'1970-01-01' and city = 'x1'": ({34}, 1),
    "hours(ts) = -1": ({0}, 1),
    "hours(ts) >= 438288": ({34, -1}, 2),
    "hours(ts) = 1 or id = 0": ({0}, 1),
}
BUCKETS = {
    "bucket(4, id) = 3": ({34}, 1),
    "3 = bucket(4, id)": ({34}, 1),
    "bucket(4, id) < 1": ({0, -1}, 2),
    "bucket(4, id) in (2, 3)": ({34, 41}, 2),
    "bucket(4, id) <> 0": ({34, 41}, 2),
    "bucket(4, id) is null": ({None}, 1),
    "bucket(4, id) = 3 or id = 0": ({34, 0}, 2),
    "(bucket(4, id) = 0 and upper(city) = 'Y1') or years(ts) = 50": ({34, 0}, 3),
    "bucket(8, id) = 3": ({34}, 4),
}
PARTITIONED = {
    "bucket(4, id)": BUCKETS,
    "truncate(10, id)": RANGES | {"bucket(4, id) = 3": ({34}, 4)},
    "years(ts)": RANGES,
    "days(ts)": RANGES,
    "city": RANGES,
}


@pytest.mark.turns(3)
@pytest.mark.spark43
@pytest.mark.parametrize("partitioned", PARTITIONED)
def test_files_of_other_partitions_are_not_read(sql, spark, partitioned):
    """As with Java."""
    sql(f"create table test.db.t (id bigint, ts timestamp, city string) partitioned by ({partitioned}) {KEY}")
    for number, moment, city in (
        (34, "2020-01-01 00:00:00", "x1"),
        (0, "1969-12-31 23:59:59", "y1"),
        (-1, "2021-06-01 12:00:00", "y2"),
        (41, "1970-01-01 00:30:00", "x"),
    ):
        sql(f"insert into test.db.t values ({number}, timestamp'{moment} UTC', '{city}')")
    sql("insert into test.db.t values (null, null, 'a')")
    for condition, (ids, files) in PARTITIONED[partitioned].items():
        query = re.sub(r"\b(?=(bucket|truncate|years|months|days|hours)\()", "test.system.", condition)
        found = spark.sql(f"select id from test.db.t where {query}")
        assert files_read(found) == files, condition
        assert {row.id for row in found.collect()} == ids, condition
