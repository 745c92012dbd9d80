"""``table.inspect`` on columns that Arrow cannot make inside of structs."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, UUIDType

from tests.lakes.sqlite import KEYED, TestLake

SCHEMA = Schema(
    NestedField(1, "id", UUIDType(), required=False),
    NestedField(2, "n", LongType(), required=False),
    NestedField(3, "more", ListType(4, UUIDType(), element_required=False), required=False),
)
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_ID], ids=["unpartitioned", "by uuid"])
def test_uuids_are_their_bytes(lake: TestLake, spec: PartitionSpec) -> None:
    table = lake.catalog().create_table("db.t", SCHEMA, partition_spec=spec, properties=KEYED)
    low, high = uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes
    ids = pa.array([low, high] if spec is UNPARTITIONED_PARTITION_SPEC else [low, low], pa.uuid())
    more = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), ids)
    table.append(pa.table({"id": ids, "n": pa.array([1, 2], pa.int64()), "more": more}))
    last = high if spec is UNPARTITIONED_PARTITION_SPEC else low
    for view in (table.inspect.files, table.inspect.entries, table.inspect.data_files, table.inspect.all_files):
        [row] = view().to_pylist()
        metrics: dict[str, Any] = row["readable_metrics"]
        assert (metrics["id"]["lower_bound"], metrics["id"]["upper_bound"]) == (low, last)
        assert (metrics["n"]["lower_bound"], metrics["n"]["upper_bound"]) == (1, 2)
        partition = row["partition"] if "partition" in row else row["data_file"]["partition"]
        assert partition == ({} if spec is UNPARTITIONED_PARTITION_SPEC else {"id": low})
    assert table.schema() == SCHEMA, "the table itself has its types"
