"""Spark reads through icelock what Java Iceberg 1.12.0 wrote: every row, now, at every snapshot and at every ref."""

from __future__ import annotations

import pytest

import icelock
import icelock.spark
from tests.golden.relocate import TABLES, catalog_properties, expected, metadata_location
from tests.golden.rows import rows, sorted_json

pytestmark = pytest.mark.spark

# On the second version of Spark: every type, partitions with nested columns, deletion vectors. How files become rows is Python.
SECOND = ("types_parquet", "part_parquet", "mor_dv")


def read(spark, table, **options):
    return rows(spark.read.format("icelock").options(**options).load(table).toArrow())


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.spark43) if name in SECOND else name for name in TABLES])
def test_rows_equal_java_now_and_then(spark, golden, name):
    table = golden(name)
    wanted = expected(name)
    assert read(spark, table) == sorted_json(wanted["rows"])
    for snapshot_id, at_snapshot in wanted["at_snapshot"].items():
        assert read(spark, table, **{"snapshot-id": snapshot_id}) == sorted_json(at_snapshot)


def test_rows_at_refs_equal_java(spark, golden):
    table = golden("refs")
    refs = icelock.StaticTable.from_metadata(metadata_location("refs"), catalog_properties("refs")).metadata.refs
    wanted = expected("refs")["refs"]
    assert len(wanted) > 1
    for ref, at_ref in wanted.items():
        assert read(spark, table, **{str(refs[ref].snapshot_ref_type): ref}) == sorted_json(at_ref)


def test_filters_on_a_partitioned_table_equal_java(spark, golden):
    table = golden("part_parquet")
    wanted = [row for row in expected("part_parquet")["rows"] if row["cat"] == "cat1" and row["id"] < 40]
    got = spark.read.format("icelock").load(table).filter("cat = 'cat1' and id < 40").toArrow()
    assert rows(got) == sorted_json(wanted)
    assert wanted
