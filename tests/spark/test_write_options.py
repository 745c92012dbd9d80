"""Write options of Java's ``SparkWriteOptions``: what a file is like, and which other writers' commits are conflicts."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import ValidationException

import icelock.spark
from icelock.errors import PolicyError
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
TABLE = "test.db.t"
# 64 hexadecimal digits of 4 bits each: compressed, they need half the bytes at least, and little more.
TEXTS = "select id, sha2(cast(id as string), 256) as text from range(0, 20000, 1, 1)"


def sizes(sql):
    return [size for (size,) in sql(f"select file_size_in_bytes from {TABLE}.files order by first_row_id")]


@pytest.mark.spark43
def test_format_codec_and_size_of_files_are_those_of_the_options(sql, spark):
    sql(f"create table {TABLE} (id bigint, text string) {KEY}")
    rows = spark.sql(TEXTS)
    rows.writeTo(TABLE).append()
    rows.writeTo(TABLE).option("compression-codec", "uncompressed").append()
    compressed, plain = sizes(sql)
    assert plain > 20_000 * 64
    assert compressed < plain * 0.7
    rows.writeTo(TABLE).option("compression-codec", "zstd").option("compression-level", "19").append()
    assert sizes(sql)[2] < compressed
    icelock.spark.write_to(rows, TABLE).option("write-format", "avro").option("Compression-Codec", "uncompressed").append()
    rows.write.format("icelock").mode("append").option("write-format", "avro").save(TABLE)
    assert sql(f"select file_format, count(*) from {TABLE}.files group by 1 order by 1") == [("AVRO", 2), ("PARQUET", 3)]
    assert sizes(sql)[4] < sizes(sql)[3] * 0.7  # gzip is the default of Avro
    before = len(sizes(sql))
    rows.writeTo(TABLE).option("target-file-size-bytes", "200000").option("compression-codec", "uncompressed").append()
    assert len(sizes(sql)) - before >= 3
    assert sql(f"select count(*), count(distinct id) from {TABLE}") == [(120_000, 20_000)]


def test_the_isolation_level_goes_over_the_table_s(sql, spark):
    sql(f"create table {TABLE} (id bigint, city string) partitioned by (city) {KEY}")
    sql(f"insert into {TABLE} values (1, 'a')")
    ((seen,),) = sql(f"select snapshot_id from {TABLE}.snapshots")
    sql(f"insert into {TABLE} values (2, 'a')")  # another writer's row, in the partition that is replaced
    rows = spark.createDataFrame([(3, "a")], "id bigint, city string")

    def writer(level):
        made = icelock.spark.write_to(rows, TABLE).option("validate-from-snapshot-id", seen)
        return made if level is None else made.option("isolation-level", level)

    with pytest.raises(ValidationException, match="added rows"):
        writer(None).overwritePartitions()
    assert writer("snapshot").overwritePartitions().rows_deleted == 2
    sql(f"alter table {TABLE} set tblproperties ('write.update.isolation-level' = 'snapshot')")
    for overwrite in (lambda made: made.overwritePartitions(), lambda made: made.overwrite("id < 9"), lambda made: made.overwrite("true")):
        with pytest.raises(ValidationException):
            overwrite(writer("serializable"))
    rows.write.format("icelock").mode("overwrite").option("isolation-level", "snapshot").save(TABLE)
    with pytest.raises(PolicyError, match="option isolation-level is 'none'; it must be serializable or snapshot"):
        writer("none")
    assert sql(f"select id from {TABLE}") == [(3,)]


def test_options_that_change_nothing_are_checked(sql, spark):
    sql(f"create table {TABLE} (id bigint, city string) {KEY}")
    given = {
        "check-nullability": "false",
        "check-ordering": "true",
        "delete-format": "parquet",
        "delete-granularity": "file",
        "target-delete-file-size-bytes": "1000",
    }
    rows = spark.createDataFrame([("a", 1)], "city string, id bigint")
    rows.writeTo(TABLE).options(**given).append()
    assert sql(f"select id, city from {TABLE}") == [(1, "a")]
    for name in given:
        with pytest.raises(PolicyError, match=f"option {name} is 'x'; it must be"):
            rows.writeTo(TABLE).option(name, "x").append()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mergeSchema", "true", "ADD COLUMN"),
        ("merge-schema", "true", "ADD COLUMN"),
        ("advisory-partition-size", "1", r"spark\.sql\.adaptive\.advisoryPartitionSizeInBytes"),
        ("output-sort-order-id", "1", r"CALL catalog\.system\.set_write_order"),
        ("compression-strategy", "speed", "ORC"),
        ("write-format", "orc", "cannot encrypt ORC"),
        ("compression-codec", "lzo", r"options compression-codec do not fit: write\.parquet\.compression-codec is 'lzo'"),
        ("target-file-size-bytes", "-1", "must be a whole number above 0"),
        ("use-table-distribution-and-ordering", "no", "must be true or false"),
        ("target-file-size", "1", "did you mean 'target-file-size-bytes'"),
        ("nonsense", "1", r"known: branch, check-nullability.*distribution-mode.*snapshot-property\.NAME.*write-format$"),
    ],
)
def test_other_options_say_what_to_do(sql, spark, name, value, message):
    sql(f"create table {TABLE} (id bigint) {KEY}")
    with pytest.raises(PolicyError, match=message):
        spark.range(1).writeTo(TABLE).option(name, value).append()
    assert sql(f"select count(*) from {TABLE}") == [(0,)]


def test_a_plain_table_takes_those_that_pyiceberg_has(sql, spark):
    sql(f"create table {TABLE} (id bigint) tblproperties ('icelock.plain' = 'true', 'format-version' = '2')")
    rows = spark.range(3)
    rows.writeTo(TABLE).option("write-format", "parquet").option("compression-codec", "gzip").append()
    for name, value in (("write-format", "avro"), ("isolation-level", "snapshot")):
        with pytest.raises(PolicyError, match="written by PyIceberg, which cannot"):
            rows.writeTo(TABLE).option(name, value).append()
    assert sql(f"select count(*) from {TABLE}") == [(3,)]
