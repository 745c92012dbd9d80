"""Filters and nulls: what a filter leaves undecided is neither counted nor deleted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests.lakes.sqlite import KEYED, TestLake

ROWS = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "p": pa.array([1, 2, None, 1, 2, None], pa.int32()),
        "x": pa.array([5, 6, 7, None, 5, 6], pa.int32()),
    }
)
FILTERS = {
    # by hand: SQL's three-valued logic
    "p != 1": [1, 4],
    "p = 1": [0, 3],
    "p not in (1, 3)": [1, 4],
    "not (p in (1, 3))": [1, 4],
    "not (not (p in (1, 3)))": [0, 3],
    "not (p in (1, 3) or x > 5)": [4],
    "not (p = 1 and x = 5)": [1, 2, 4, 5],
    "x not in (5, 6) or p is null": [2, 5],
    "p < 3000000000": [0, 1, 3, 4],
    "x >= 5.5": [1, 2, 5],
    "p is null": [2, 5],
    "p is not null": [0, 1, 3, 4],
    "p < 2": [0, 3],
    "p < 1 or x > 5": [1, 2, 5],
    "x != 5": [1, 2, 5],
    "p != 1 and x is not null": [1, 4],
}


@pytest.fixture
def table(lake: TestLake) -> Any:
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
    made = lake.catalog().create_table("db.t", ROWS.schema, partition_spec=spec, properties=KEYED)
    made.append(ROWS)
    return made


@pytest.mark.parametrize("row_filter", FILTERS)
def test_count_and_rows_agree(table: Any, row_filter: str) -> None:
    scan = table.scan(row_filter=row_filter)
    assert sorted(scan.to_arrow().column("id").to_pylist()) == FILTERS[row_filter]
    assert scan.count() == len(FILTERS[row_filter])


@pytest.mark.parametrize("row_filter", ["p != 1", "p not in (1, 3)", "p = 1", "p is null"])
def test_delete_keeps_rows_that_the_filter_leaves_undecided(table: Any, row_filter: str) -> None:
    table.delete(row_filter)
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [i for i in range(6) if i not in FILTERS[row_filter]]


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("row_filter", FILTERS)
def test_undecided_rows_of_a_file_that_is_cut_are_kept(table: Any, row_filter: str, mode: str) -> None:
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})
    table.delete(row_filter)
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [i for i in range(6) if i not in FILTERS[row_filter]]
