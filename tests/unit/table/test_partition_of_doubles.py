"""Identity partitions of doubles: all 64 bits of a value come back from manifests, so filters find its files (PyIceberg 0.12 has 32)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from tests.lakes.sqlite import KEYED, TestLake

VALUES = [0.1, 1 / 3, 1e300, -5e-324, 16777217.0]


@pytest.fixture
def table(tmp_path):
    catalog = TestLake(tmp_path).catalog()
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "d", DoubleType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "d"))
    made = catalog.create_table("db.t", schema, partition_spec=spec, properties=KEYED)
    made.append(pa.table({"id": range(len(VALUES)), "d": VALUES}))
    return made


def test_filters_find_the_files_of_every_value(table):
    for number, value in enumerate(VALUES):
        scan = table.scan(row_filter=EqualTo("d", value))
        assert [task.partition for task in scan.scan_tasks()] == [(value,)]
        assert scan.to_arrow()["id"].to_pylist() == [number]


def test_values_survive_a_manifest_that_is_written_again(table):
    table.delete("id = 0")
    assert sorted(task.partition[0] for task in table.scan().scan_tasks()) == sorted(VALUES[1:])
    assert sorted(task.file.partition[0] for task in table.scan().plan_files()) == sorted(VALUES[1:])
    assert sorted(table.scan().to_arrow()["d"].to_pylist()) == sorted(VALUES[1:])
