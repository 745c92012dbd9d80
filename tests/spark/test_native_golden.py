"""Spark's own Parquet reader on what Java Iceberg 1.12.0 wrote: every row, now, at every snapshot and at every ref.

The tables say that their files are at ``file:/tmp/iceberg-golden``, and the JVM takes them at their word: where that place is missing, it
is made of links for as long as these tests run.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import pytest

import icelock
import icelock.spark
from icelock.errors import PolicyError
from tests.golden.relocate import DATA, TABLES, WRITTEN_AT, catalog_properties, expected, metadata_location
from tests.golden.rows import rows, sorted_json
from tests.helpers.second_spark import on_second

pytestmark = pytest.mark.spark

AVRO = ("avro_data",)
DELETES = Path(__file__).parent.parent / "golden" / "deletes"


@pytest.fixture(scope="module", autouse=True)
def place():
    """Make the tables lie where they say; one run at a time, as two may share the machine (``make test``)."""
    place = Path(WRITTEN_AT.removeprefix("file:"))
    lock = os.open(DATA, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        absent = not place.exists()
        place.mkdir(exist_ok=True)
        made = [place / name for name in TABLES if not (place / name).exists()]
        for link in made:
            link.symlink_to(DATA / link.name / "table")
        yield
        for link in made:
            link.unlink()
        if absent:
            place.rmdir()
    finally:
        os.close(lock)


def engine_of(name: str) -> str:
    return "auto" if name in AVRO else "native"


def is_native(frame) -> bool:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return "FileScan icelock" in plan and "BatchScan" not in plan


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", on_second(TABLES, "types_parquet", "part_parquet", "mor_dv", "evolve"))
def test_rows_equal_java_now_and_then(spark, golden, name):
    table, wanted, engine = golden(name), expected(name), engine_of(name)
    found = icelock.spark.read(spark, table, engine=engine)
    assert is_native(found) == (name not in AVRO)
    assert rows(found.toArrow()) == sorted_json(wanted["rows"])
    assert found.count() == len(wanted["rows"])
    for snapshot_id, at_snapshot in wanted["at_snapshot"].items():
        assert rows(icelock.spark.read(spark, table, snapshot_id=int(snapshot_id), engine=engine).toArrow()) == sorted_json(at_snapshot)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", on_second(TABLES, "types_parquet"))
def test_schema_is_that_of_the_data_source(spark, golden, name):
    table = golden(name)
    assert icelock.spark.read(spark, table, engine=engine_of(name)).schema == spark.read.format("icelock").load(table).schema


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", on_second([name for name in TABLES if expected(name)["row_lineage"]], "mor_dv"))
def test_row_ids_equal_java(spark, golden, name):
    """``row_lineage`` is id, _row_id and _last_updated_sequence_number, or what the table has in place of id."""
    wanted = sorted(expected(name)["row_lineage"])
    key = icelock.StaticTable.from_metadata(metadata_location(name), catalog_properties(name)).schema().fields[0].name
    columns = [key, "_row_id", "_last_updated_sequence_number"]
    found = icelock.spark.read(spark, golden(name), columns=columns, engine=engine_of(name))
    assert sorted(list(row.values()) for row in found.toArrow().to_pylist()) == wanted


def test_rows_at_refs_equal_java(spark, golden):
    table = golden("refs")
    refs = icelock.StaticTable.from_metadata(metadata_location("refs"), catalog_properties("refs")).metadata.refs
    wanted = expected("refs")["refs"]
    assert len(wanted) > 1
    for ref, at_ref in wanted.items():
        found = icelock.spark.read(spark, table, **{str(refs[ref].snapshot_ref_type): ref}, engine="native")
        assert rows(found.toArrow()) == sorted_json(at_ref)


def test_filters_on_a_partitioned_table_equal_java(spark, golden):
    table = golden("part_parquet")
    wanted = [row for row in expected("part_parquet")["rows"] if row["cat"] == "cat1" and row["id"] < 40]
    assert wanted
    found = icelock.spark.read(spark, table, engine="native")
    assert rows(found.filter("cat = 'cat1' and id < 40").toArrow()) == sorted_json(wanted)
    assert rows(icelock.spark.read(spark, table, row_filter="cat = 'cat1' and id < 40", engine="native").toArrow()) == sorted_json(wanted)


def test_a_fileio_of_the_users_own_is_left_to_python_unless_native_is_asked_for(spark, golden, caplog):
    table = golden("refs")
    with caplog.at_level(logging.INFO, logger="icelock"):
        found = icelock.spark.read(spark, table)
    assert "BatchScan icelock" in found._jdf.queryExecution().executedPlan().toString()
    assert [record.getMessage() for record in caplog.records if "py-io-impl" in record.getMessage()]
    assert rows(found.toArrow()) == sorted_json(expected("refs")["rows"])


def test_avro_files_are_refused_by_name(spark, golden):
    table = golden("avro_data")
    with pytest.raises(PolicyError, match="not Parquet files"):
        icelock.spark.read(spark, table, engine="native")
