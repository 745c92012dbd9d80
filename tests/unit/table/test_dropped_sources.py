"""Columns that a partition spec or sort order uses: those of the default ones cannot be dropped, as in Java's TableMetadata; others can."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from icelock.maintenance import leftovers
from tests.helpers.table_model import verified
from tests.helpers.tables import ids, load
from tests.lakes.sqlite import KEYED, TestLake, people

KEPT = ["id", "name"]


@pytest.fixture(params=["identity", "truncate and bucket"])
def table(request: pytest.FixtureRequest, lake: TestLake) -> Any:
    """Files of a spec whose column ``city`` is gone."""
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    with made.update_spec() as update:
        if request.param == "identity":
            update.add_identity("city")
        else:
            update.add_field("id", BucketTransform(4), "b").add_field("city", TruncateTransform(4), "tr")
    made.append(people())
    made.append(people(10))
    with made.update_spec() as update:
        for field in made.spec().fields:
            update.remove_field(field.name)
    with made.update_schema() as update:
        update.delete_column("city")
    return load(lake)


def rows(start: int, count: int = 10) -> pa.Table:
    return people(start, count).select(KEPT)


@pytest.mark.turns(2)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_such_a_table_can_be_changed(lake: TestLake, table: Any, mode: str) -> None:
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": mode, "write.merge.mode": mode, "commit.manifest.min-count-to-merge": "2"})
    table.append(rows(20))
    table.delete("id in (3, 13)")
    table.upsert(rows(5, 1).set_column(1, "name", pa.array(["other"])), ["id"])
    table.overwrite(rows(30, 1), "id >= 20")
    assert ids(load(lake)) == [i for i in range(20) if i not in (3, 13)] + [30]
    assert load(lake).scan(row_filter="id = 5").to_arrow().column("name").to_pylist() == ["other"]
    verified(load(lake))
    past = load(lake).history()[0].snapshot_id
    assert load(lake).scan(snapshot_id=past, selected_fields=("id", "city")).to_arrow().num_rows == 10
    load(lake).maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert ids(load(lake)) == [i for i in range(20) if i not in (3, 13)] + [30]
    assert leftovers(load(lake)).files == ()


@pytest.mark.usefixtures("table")
def test_and_inspected_with_the_partitions_values(lake: TestLake) -> None:
    inspect = load(lake).inspect
    for name in ("files", "entries", "manifests", "all_files", "data_files", "delete_files", "all_manifests", "snapshots", "history"):
        getattr(inspect, name)()
    last = load(lake).metadata.partition_specs[1].fields[-1].name
    found = {value[last] for value in inspect.partitions().column("partition").to_pylist()}
    assert found == ({"town-0", "town-1", "town-2"} if last == "city" else {"town"})


def test_the_columns_of_the_default_spec_and_order_stay(lake: TestLake) -> None:
    """Java PartitionSpec.checkCompatibility, SortOrder.checkCompatibility; a struct around one of them as well."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "p", StructType(NestedField(3, "x", IntegerType(), required=False)), required=False),
        NestedField(4, "s", StringType(), required=False),
        identifier_field_ids=[1],
    )
    table = lake.catalog().create_table("db.t", schema, properties=KEYED)
    with table.update_spec() as update:
        update.add_field("p.x", BucketTransform(4), "b")
    with table.update_sort_order() as update:
        update.asc("s", IdentityTransform())
    for column, error, message in (
        ("p", ValidationError, "Cannot find source column for partition field"),
        ("p.x", ValidationError, "Cannot find source column for partition field"),
        ("s", ValidationError, "Cannot find source column for sort field"),
        ("id", ValueError, "identifier field"),
    ):
        update = load(lake).update_schema()
        update.delete_column(column)
        with pytest.raises(error, match=message):
            update.commit()
    with (
        pytest.raises(ValueError, match="Cannot create partition with a name that exists in schema: b"),
        load(lake).update_schema() as update,
    ):
        update.add_column("b", LongType())  # Java cannot load such a table
    assert load(lake).schema().column_names == ["id", "p.x", "p", "s"]
