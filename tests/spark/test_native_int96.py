"""INT96 timestamps, which Impala, Hive and older Sparks write: in the proleptic calendar and UTC, whatever the session's settings say."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, TimestamptzType

import icelock.spark
from tests.spark.native_tables import TABLE, create, native, optional
from tests.unit.table import test_older_deletes

pytestmark = pytest.mark.spark

SCHEMA = Schema(optional(1, "id", LongType()), optional(2, "t", TimestamptzType()), optional(3, "ts", ListType(4, TimestamptzType())))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Both sides of the calendar's change of 1582, of Spark's own limit of 1900, of what nanoseconds hold; first and last year.
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1500, 2, 28, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1582, 10, 4, 12, tzinfo=UTC),
    datetime(1582, 10, 5, 12, tzinfo=UTC),
    datetime(1582, 10, 14, 12, tzinfo=UTC),
    datetime(1582, 10, 15, 12, tzinfo=UTC),
    datetime(1899, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2262, 4, 12, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
SETTINGS = {
    "spark.sql.parquet.int96RebaseModeInRead": "EXCEPTION",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.session.timeZone": "America/New_York",
}


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def rows() -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "t": m, "ts": [m]} for i, m in enumerate(MOMENTS)], schema=schema_to_pyarrow(SCHEMA))


@contextmanager
def settings(spark: Any, given: dict[str, str]) -> Any:
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def found(frame: Any) -> list[tuple[int, int]]:
    return [(row[0], row[1]) for row in frame.selectExpr("unix_micros(t) t", "unix_micros(ts[0]) u", "id").orderBy("id").collect()]


@pytest.mark.spark43
def test_native_scan(spark, spark_lake, monkeypatch):
    # The helper takes the partition of files that are there.
    create(spark_lake, SCHEMA, [{"id": 99, "t": EPOCH, "ts": [EPOCH]}])
    table = spark_lake.catalog().load_table("db.t")
    real = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda *given, **more: real(*given, use_deprecated_int96_timestamps=True, **more))
    file = test_older_deletes.parquet(table, rows(), "int96")
    with table.transaction() as tx:
        tx.append_data_files([file])
    wanted = [(micros(moment), micros(moment)) for moment in (*MOMENTS, EPOCH)]
    assert found(icelock.spark.read(spark, TABLE, engine="python")) == wanted
    assert found(native(spark)) == wanted
    with settings(spark, SETTINGS):
        assert found(native(spark)) == wanted
        assert found(native(spark).filter("t < timestamp '1700-01-01'")) == wanted[:6]


def test_add_files(spark, spark_lake, tmp_path):
    create(spark_lake, SCHEMA)
    path = Path(tmp_path) / "plain.parquet"
    pq.write_table(rows(), path, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(path).schema.column(1).physical_type == "INT96"
    wanted = [(micros(moment), micros(moment)) for moment in MOMENTS]
    icelock.spark.add_files(spark, TABLE, str(path), reencrypt=True)
    assert found(native(spark)) == wanted
