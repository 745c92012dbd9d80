"""The write option ``output-spec-id``: rows for an older partition spec, as Java's testWriteWithOutputSpec."""

from __future__ import annotations

import pytest

import icelock.spark
from icelock.errors import PolicyError
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
TABLE = "test.db.t"


@pytest.fixture
def town(sql):
    """A table by city (spec 0), then by bucket(4, id) too (spec 1), with a row of spec 0; returns ``sql``."""
    sql(f"create table {TABLE} (id bigint, city string) partitioned by (city) {KEY}")
    sql(f"insert into {TABLE} values (1, 'a')")
    sql("call test.system.add_partition_field('db.t', 'bucket(4, id)')")
    return sql


@pytest.mark.spark43
def test_rows_go_to_the_partitions_of_the_older_spec(town, spark):
    rows = spark.createDataFrame([(number, "ab"[number % 2]) for number in range(2, 8)], "id bigint, city string")
    rows.writeTo(TABLE).option("output-spec-id", "0").append()
    assert town(f"select spec_id, partition.city, record_count, partition.id_bucket_4 from {TABLE}.files order by 2, 3") == [
        (0, "a", 1, None),
        (0, "a", 3, None),
        (0, "b", 3, None),
    ]
    rows.limit(1).write.format("icelock").mode("append").save(TABLE)
    assert town(f"select count(*) from {TABLE}.files where spec_id = 1") == [(1,)]
    one = spark.createDataFrame([(99, "b")], "id bigint, city string")
    one.write.format("icelock").mode("overwrite").option("overwrite-mode", "dynamic").option("output-spec-id", 0).save(TABLE)
    # partition b of spec 0 is replaced, and no file of spec 1
    assert town(f"select id, _spec_id from {TABLE} order by id") == [(1, 0), (2, 0), (2, 1), (4, 0), (6, 0), (99, 0)]
    icelock.spark.write_to(one, TABLE).option("output-spec-id", 0).overwrite("id < 3")
    assert town(f"select id, _spec_id from {TABLE} order by id") == [(4, 0), (6, 0), (99, 0), (99, 0)]


def test_specs_that_rows_cannot_go_to(town, spark):
    rows = spark.createDataFrame([(9, "c")], "id bigint, city string")
    for given, message in (("7", r"no partition spec 7 \(option output-spec-id\); it has 0, 1"), ("x", "must be a whole number")):
        with pytest.raises(PolicyError, match=message):
            rows.writeTo(TABLE).option("output-spec-id", given).append()
    with pytest.raises(PolicyError, match="one partition spec only"):
        icelock.spark.write_to(rows, TABLE).option("output-spec-id", 0).createOrReplace()
    town("call test.system.drop_partition_field('db.t', 'city')")
    town(f"alter table {TABLE} drop column city")
    with pytest.raises(PolicyError, match="no column any more for 'city' of partition spec 0"):
        rows.drop("city").writeTo(TABLE).option("output-spec-id", "0").append()
    assert town(f"select count(*) from {TABLE}") == [(1,)]
