"""Who holds no key cannot choose the algorithm of a file that Spark's reader, or the data source, is given (ADR 0013)."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from py4j.protocol import Py4JError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType
from pyspark.errors import PySparkException

import icelock.spark
from icelock.errors import IntegrityError
from icelock.format.key_metadata import KeyMetadata
from tests.spark.native_tables import TABLE, create, native, values
from tests.unit.io.parquet_attack import chosen, head_at, renamed

pytestmark = pytest.mark.spark

FAILED = (IntegrityError, Py4JError, PySparkException)
NAMED = r"failed authentication.*AES_GCM_CTR_V1 as its algorithm"
UNCOMPRESSED = {"write.parquet.compression-codec": "uncompressed"}
ROWS = [{"amount": 1000003 * row} for row in range(500)]


def required(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=True)


AMOUNT = Schema(required(1, "amount", LongType()))


def only_file(table: Any) -> tuple[Path, KeyMetadata]:
    (task,) = table.scan().scan_tasks()
    return Path(task.path.removeprefix("file://")), KeyMetadata.decode(task.key_metadata.reveal())


def refused(query: Callable[[], Any], match: str = NAMED) -> None:
    with pytest.raises(FAILED, match=match):
        print(query())


@pytest.mark.spark43
def test_chosen_values_without_a_key(spark, spark_lake):
    path, _ = only_file(create(spark_lake, AMOUNT, ROWS, properties=UNCOMPRESSED))
    path.write_bytes(chosen(path.read_bytes(), row=100, mask=1 << 40))
    frame = native(spark)
    refused(frame.collect)
    refused(frame.filter("amount > 1000003").count)
    refused(lambda: frame.selectExpr("sum(amount)").collect())
    refused(lambda: icelock.spark.sql(spark, "SELECT max(amount) FROM test.db.t").collect())
    refused(icelock.spark.read(spark, TABLE, engine="python").collect)
    refused(lambda: icelock.spark.delete(spark, TABLE, "amount = 1000003"))


@pytest.mark.spark43
def test_rows_after_deletes(spark, spark_lake):
    """Positions of deleted rows count on the footer that was looked at."""
    table = create(spark_lake, AMOUNT, ROWS, properties={**UNCOMPRESSED, "write.delete.mode": "merge-on-read"})
    table.delete("amount < 1000003")
    path, _ = only_file(table)
    frame = native(spark)
    assert frame.count() == 499
    path.write_bytes(renamed(path.read_bytes()))
    refused(frame.count)
    refused(frame.collect)


@pytest.fixture(params=["rows", "no code", "no vectors", "no nested vectors", "wide"])
def mode(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """Set a session so that Spark reads by other classes, as far as icelock lets it."""
    settings = {
        "rows": ("spark.sql.codegen.maxFields", "1"),
        "no code": ("spark.sql.codegen.wholeStage", "false"),
        "no vectors": ("spark.sql.parquet.enableVectorizedReader", "false"),
        "no nested vectors": ("spark.sql.parquet.enableNestedColumnVectorizedReader", "false"),
    }
    name, value = settings.get(request.param, ("spark.sql.session.timeZone", "UTC"))
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    yield request.param
    spark.conf.set(name, before)


@pytest.mark.turns(3)
def test_other_readers_of_sparks(spark, spark_lake, mode: str):
    columns = 120 if mode == "wide" else 3
    fields = [required(2 * number + 1, f"c{number}", LongType()) for number in range(columns)]
    schema = Schema(*fields, required(1001, "s", StructType(required(1002, "x", LongType()))))
    rows = [{**{field.name: row for field in fields}, "s": {"x": row}} for row in range(300)]
    path, _ = only_file(create(spark_lake, schema, rows, properties=UNCOMPRESSED))
    frame = native(spark)
    assert frame.selectExpr("sum(c0 + s.x)").collect()[0][0] == 299 * 300
    assert len(frame.collect()) == 300
    path.write_bytes(renamed(path.read_bytes()))
    refused(frame.collect)
    refused(lambda: frame.selectExpr("sum(c0 + s.x)").collect())


def test_parts_of_a_file(spark, spark_lake):
    """Most parts have no row group in them; each part is opened for itself."""
    path, _ = only_file(create(spark_lake, AMOUNT, [{"amount": 1000003 * row} for row in range(5000)], properties=UNCOMPRESSED))
    assert path.stat().st_size > 30_000
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: spark.conf.get(name) for name in names}
    for name in names:
        spark.conf.set(name, "5000b")
    try:
        frame = native(spark)
        assert frame.rdd.getNumPartitions() > 3
        assert frame.selectExpr("sum(amount)").collect()[0][0] == 1000003 * 4999 * 2500
        path.write_bytes(renamed(path.read_bytes()))
        refused(frame.collect)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_a_file_that_was_written_so(spark, spark_lake, plaintext_footer):
    """The same rows under the same key, by pyarrow."""
    table = create(spark_lake, AMOUNT, ROWS)
    path, keys = only_file(table)
    length = path.stat().st_size
    schema = pa.schema([pa.field("amount", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})])
    for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1"):
        out = io.BytesIO()
        made = pe.create_encryption_properties(
            footer_key=keys.dek.reveal(),
            aad_prefix=keys.aad_prefix,
            store_aad_prefix=False,
            encryption_algorithm=algorithm,
            plaintext_footer=plaintext_footer,
        )
        pq.write_table(pa.Table.from_pylist(ROWS, schema=schema), out, encryption_properties=made, store_schema=False)
        path.write_bytes(out.getvalue())
        assert len(out.getvalue()) != length
        refused(native(spark).collect, "bytes on storage" if algorithm == "AES_GCM_V1" else NAMED)


def test_a_sample_of_the_bytes_at_the_end(spark, spark_lake):
    """FileCryptoMetaData, the footer's length, nonce and tag, the length of both, the magic: exact rows, or an error.

    Not more than 16 MiB on the footer's length: parquet-java allocates what it says, and Spark ends a JVM that has no memory left.
    """
    path, _ = only_file(create(spark_lake, AMOUNT, ROWS[:3]))
    stored = path.read_bytes()
    frame = native(spark)
    wanted = values(frame)
    head, end = head_at(stored), len(stored)
    draw = random.Random(20261128)
    at_end = [*range(head, head + 20), *draw.sample(range(head + 20, end - 8), 4), *range(end - 8, end)]
    flips = [(at, 1 if at == head + 19 else draw.randrange(1, 256)) for at in at_end]
    free = []
    for at, flip in flips:
        path.write_bytes(stored[:at] + bytes([stored[at] ^ flip]) + stored[at + 1 :])
        try:
            assert values(frame) == wanted, (at, flip)
            free.append(at - head)
        except FAILED:
            pass
    print("changed nothing:", free)
    assert set(free) <= {0, 1, 2, 12, 13, 14, 15}
    path.write_bytes(stored)
    assert values(frame) == wanted
