"""Metadata columns of a scan: selected by name only, after the table's own, and never in place of one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType

from tests.lakes.sqlite import KEYED, TestLake, people

BY_CITY = PartitionSpec(PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="city"))


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED, partition_spec=BY_CITY)
    made.append(people())
    made.append(people(100, 3))
    return made


def test_a_star_has_none_of_them(table: Any) -> None:
    assert table.scan().to_arrow().schema.names == ["id", "name", "city"]
    assert table.scan(selected_fields=("*", "_pos")).to_arrow().schema.names == ["id", "name", "city", "_pos"]


def test_they_are_selected_alone_or_with_others(table: Any) -> None:
    found = table.scan(selected_fields=("_row_id", "id"), row_filter="id >= 100").to_arrow()
    assert found.schema.names == ["id", "_row_id"]
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [{"id": 100 + i, "_row_id": 10 + i} for i in range(3)]
    only = table.scan(selected_fields=("_last_updated_sequence_number",)).to_arrow()
    assert sorted(only.column(0).to_pylist()) == [1] * 10 + [2] * 3
    assert table.scan(selected_fields=("_pos",)).count() == 13


def test_file_position_and_spec_say_where_a_row_lies(table: Any) -> None:
    found = table.scan(selected_fields=("id", "_file", "_pos", "_spec_id", "_partition")).to_arrow()
    places = [(row["_file"], row["_pos"]) for row in found.to_pylist()]
    assert len(set(places)) == 13
    assert {path for path, _ in places} == {task.path for task in table.scan().scan_tasks()}
    assert set(found.column("_spec_id").to_pylist()) == {0}
    assert all(row["_partition"] == {"city": f"town-{row['id'] % 3}"} for row in found.to_pylist() if row["id"] < 100)
    assert [found.schema.field(name).nullable for name in ("_file", "_pos", "_spec_id", "_partition")] == [False, False, False, True]


def test_deleted_rows_are_there_where_the_column_is_named(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", people().schema, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    table.append(people())
    table.delete("id in (3, 7)")
    table.append(people(100, 1))
    found = table.scan(selected_fields=("id", "_deleted", "_pos")).to_arrow()
    assert sorted(map(tuple, zip(*found.to_pydict().values(), strict=True))) == [
        *((number, number in {3, 7}, number) for number in range(10)),
        (100, False, 0),
    ]
    assert table.scan(selected_fields=("_deleted",)).to_arrow().to_pylist().count({"_deleted": True}) == 2
    assert table.scan(selected_fields=("id", "_deleted"), row_filter="id in (3, 4)").to_arrow().to_pylist() == [
        {"id": 3, "_deleted": True},
        {"id": 4, "_deleted": False},
    ]
    assert table.scan(selected_fields=("_deleted",)).count() == 9  # counts live rows, whatever is selected
    assert table.scan(selected_fields=("_pos",)).to_arrow().num_rows == 9


def test_partition_has_the_fields_of_all_specs(lake: TestLake) -> None:
    when = pa.array([dt.datetime(2024, 1, 2, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "at": when})
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=DayTransform(), name="at_day"))
    table = lake.catalog().create_table("db.t", rows.schema, properties=KEYED, partition_spec=spec)
    table.append(rows)
    table.update_spec().remove_field("at_day").add_field("id", BucketTransform(4), "id_bucket").commit()
    table.append(rows)
    found = table.scan(selected_fields=("id", "_partition", "_spec_id")).to_arrow().to_pylist()
    assert {(row["_spec_id"], row["id"], *row["_partition"].values()) for row in found} == {
        (0, 1, dt.date(2024, 1, 2), None),
        (0, 2, None, None),
        *((1, i, None, BucketTransform(4).transform(LongType())(i)) for i in (1, 2)),
    }


def test_an_unpartitioned_tables_partition_is_null(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 2))
    assert table.scan(selected_fields=("_partition",)).to_arrow().to_pylist() == [{"_partition": None}] * 2


def test_names_are_found_in_any_case_when_the_scan_says_so(table: Any) -> None:
    assert table.scan(selected_fields=("ID", "_POS"), case_sensitive=False).to_arrow().schema.names == ["id", "_pos"]
    with pytest.raises(ValueError, match="_POS"):
        table.scan(selected_fields=("_POS",)).to_arrow()


def test_a_column_of_the_table_goes_before_a_metadata_column_of_its_name(lake: TestLake) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "_pos": ["mine"]})
    table = lake.catalog().create_table("db.t", rows.schema, properties=KEYED)
    table.append(rows)
    assert table.scan(selected_fields=("_pos",)).to_arrow().to_pylist() == [{"_pos": "mine"}]


def test_old_snapshots_have_them_too(table: Any) -> None:
    first = table.snapshots()[0].snapshot_id
    found = table.scan(selected_fields=("id", "_last_updated_sequence_number"), snapshot_id=first).to_arrow()
    assert found.num_rows == 10
    assert set(found.column("_last_updated_sequence_number").to_pylist()) == {1}
