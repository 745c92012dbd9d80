"""Which delete files apply to which data file: the rules of the spec, one by one, on entries made by hand."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, NestedField, StringType, StructType, UUIDType

from icelock.errors import FormatError
from icelock.metadata.manifest import DataFile, ManifestEntry
from icelock.plan.delete_index import DeleteIndex
from icelock.plan.task import TaskBuilder

BY_CAT = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="cat"), spec_id=1)
VOID = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=VoidTransform(), name="cat"), spec_id=2)
SPECS = {0: UNPARTITIONED_PARTITION_SPEC, 1: BY_CAT, 2: VOID}
TYPES: dict[int, Any] = {1: LongType(), 2: StringType(), 3: DoubleType(), 4: UUIDType()}
PATH = 2147483546


def entry(path: str, sequence: int | None, *, spec_id: int = 1, partition: tuple[Any, ...] = ("a",), **fields: Any) -> ManifestEntry:
    values: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(*partition),
        "record_count": 10,
        "file_size_in_bytes": 100,
    }
    file = DataFile.from_args(**{**values, **fields})
    file.spec_id = spec_id
    made = ManifestEntry.from_args(status=ManifestEntryStatus.EXISTING, snapshot_id=1, data_file=file)
    made.sequence_number = sequence
    return made


def equality(path: str, sequence: int, **fields: Any) -> ManifestEntry:
    return entry(path, sequence, **{"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1], **fields})


def positions(path: str, sequence: int, **fields: Any) -> ManifestEntry:
    return entry(path, sequence, **{"content": DataFileContent.POSITION_DELETES, **fields})


def vector(path: str, sequence: int, data: str | None, **fields: Any) -> ManifestEntry:
    return positions(path, sequence, file_format=FileFormat.PUFFIN, referenced_data_file=data, **fields)


def found(data: ManifestEntry, *deletes: ManifestEntry) -> list[str]:
    index = DeleteIndex(SPECS, TYPES.get)
    for delete in deletes:
        index.add(delete)
    return sorted(file.file_path for file in index.for_data_file(data))


def test_equality_deletes_hit_older_files_and_position_deletes_those_of_the_same_commit_too():
    deletes = [equality(f"e{n}", n) for n in (4, 5, 6)] + [positions(f"p{n}", n) for n in (4, 5, 6)]
    assert found(entry("d", 5), *deletes) == ["e6", "p5", "p6"]
    assert found(entry("d", 3), *deletes) == ["e4", "e5", "e6", "p4", "p5", "p6"]
    assert found(entry("d", 6), *deletes) == ["p6"]
    assert found(entry("d", None), equality("e", 1)) == ["e"], "a file from before sequence numbers has 0"


def test_deletes_hit_their_own_partition_of_their_own_spec():
    deletes = [equality("ea", 9), equality("eb", 9, partition=("b",)), equality("en", 9, partition=(None,)), positions("pa", 9)]
    assert found(entry("d", 1), *deletes) == ["ea", "pa"]
    assert found(entry("d", 1, partition=(None,)), *deletes) == ["en"]
    assert found(entry("d", 1, spec_id=7), *deletes) == []


@pytest.mark.parametrize(("spec_id", "partition"), [(0, ()), (2, (None,))])
def test_equality_deletes_of_an_unpartitioned_spec_hit_every_partition_of_every_spec(spec_id: int, partition: tuple[Any, ...]):
    """Void transforms only make a spec unpartitioned, too (Java PartitionSpec.isUnpartitioned). Position deletes are not global."""
    deletes = [equality("e", 9, spec_id=spec_id, partition=partition), positions("p", 9, spec_id=spec_id, partition=partition)]
    assert found(entry("d", 1), *deletes) == ["e"]
    assert found(entry("d", 1, spec_id=spec_id, partition=partition), *deletes) == ["e", "p"]


def test_partitions_of_nan_are_one_and_zeros_differ_by_sign():
    deletes = [equality("nan", 9, partition=(math.nan,)), equality("zero", 9, partition=(0.0,))]
    assert found(entry("d", 1, partition=(float("nan"),)), *deletes) == ["nan"]
    assert found(entry("d", 1, partition=(0.0,)), *deletes) == ["zero"]
    assert found(entry("d", 1, partition=(-0.0,)), *deletes) == []


def test_a_deletion_vector_stands_for_all_position_deletes_but_not_for_equality_deletes():
    deletes = [vector("dv", 5, "d"), positions("p", 9), positions("named", 9, referenced_data_file="d"), equality("e", 9)]
    assert found(entry("d", 5), *deletes) == ["dv", "e"]
    assert found(entry("other", 5), *deletes) == ["e", "p"]


def test_position_deletes_of_one_file_hit_that_file_only():
    bounds = {"lower_bounds": {PATH: b"d"}, "upper_bounds": {PATH: b"d"}}
    deletes = [positions("named", 9, referenced_data_file="d"), positions("bounded", 9, **bounds)]
    assert found(entry("d", 1), *deletes) == ["bounded", "named"]
    assert found(entry("e", 1), *deletes) == []
    assert found(entry("d", 10), *deletes) == []


def test_position_deletes_whose_paths_lie_elsewhere_are_left_out():
    delete = positions("p", 9, lower_bounds={PATH: b"d2"}, upper_bounds={PATH: b"d5"})
    assert [path for path in ("d1", "d2", "d4", "d5", "d6") if found(entry(path, 1), delete)] == ["d2", "d4", "d5"]


@pytest.mark.parametrize(
    ("deletes", "says"),
    [
        ([vector("v", 9, None)], r"deletion vector in v names no data file"),
        ([vector("v", 9, "d"), vector("w", 9, "d")], r"d has two deletion vectors, in v and w"),
        ([vector("v", 4, "d")], r"deletion vector in v has sequence number 4, below that of its data file d \(5\)"),
        ([vector("v", 9, "d", partition=("b",))], r"v deletes rows of d, but is in partition"),
        ([vector("v", 9, "d", spec_id=0, partition=())], r"v deletes rows of d, but is in partition"),
        ([positions("p", 9, referenced_data_file="d", partition=("b",))], r"p deletes rows of d, but is in partition"),
    ],
)
def test_deletes_that_contradict_their_data_file_are_refused(deletes: list[ManifestEntry], says: str):
    """As Java's DeleteFileIndex."""
    with pytest.raises(FormatError, match=says):
        found(entry("d", 5), *deletes)


def longs(low: int, high: int) -> dict[str, Any]:
    return {"lower_bounds": {1: struct.pack("<q", low)}, "upper_bounds": {1: struct.pack("<q", high)}}


@pytest.mark.parametrize(
    ("data", "delete", "applies"),
    [
        ({}, {}, True),
        (longs(0, 9), longs(9, 20), True),
        (longs(0, 9), longs(10, 20), False),
        (longs(0, 9), {}, True),
        # A file from before the column was promoted has four bytes.
        ({"lower_bounds": {1: struct.pack("<i", 0)}, "upper_bounds": {1: struct.pack("<i", 9)}}, longs(10, 20), False),
        ({"lower_bounds": {1: b"xx"}, "upper_bounds": {1: b"xx"}}, longs(10, 20), True),
        # Nulls on both sides, or counts that are not known, match whatever the bounds.
        ({**longs(0, 9), "null_value_counts": {1: 1}}, {**longs(10, 20), "null_value_counts": {1: 1}}, True),
        ({**longs(0, 9), "null_value_counts": {1: 1}}, {**longs(10, 20), "null_value_counts": {1: 0}}, False),
        ({**longs(0, 9), "null_value_counts": {1: 0}}, {**longs(10, 20), "null_value_counts": {1: 1}}, False),
        ({"null_value_counts": {1: 5}, "value_counts": {1: 5}}, {"null_value_counts": {1: 0}}, False),
        ({"null_value_counts": {1: 0}}, {"null_value_counts": {1: 5}, "value_counts": {1: 5}}, False),
        ({"null_value_counts": {1: 5}, "value_counts": {1: 5}}, {}, True),
    ],
)
def test_equality_deletes_are_left_out_where_metrics_show_no_common_value(data: dict[str, Any], delete: dict[str, Any], applies: bool):  # noqa: FBT001
    # Without null counts a file may have nulls; those with bounds in this table are given counts unless they say otherwise.
    data = {"null_value_counts": {1: 0}, **data} if "lower_bounds" in data else data
    delete = {"null_value_counts": {1: 0}, **delete} if "lower_bounds" in delete else delete
    assert found(entry("d", 1, **data), equality("e", 9, **delete)) == (["e"] if applies else [])


@pytest.mark.parametrize(
    ("field_id", "low", "high"), [(3, struct.pack("<d", 0.0), struct.pack("<d", 1.0)), (4, bytes(16), bytes(15) + b"\1")]
)
def test_bounds_of_floats_and_uuids_leave_nothing_out(field_id: int, low: bytes, high: bytes):
    """NaN lies outside bounds (Java leaves such deletes out), and writers order UUIDs in two ways."""
    counts = {"null_value_counts": {field_id: 0}}
    data = entry("d", 1, lower_bounds={field_id: low}, upper_bounds={field_id: low}, **counts)
    delete = equality("e", 9, equality_ids=[field_id], lower_bounds={field_id: high}, upper_bounds={field_id: high}, **counts)
    assert found(data, delete) == ["e"]


def test_every_column_has_to_be_shared():
    counts = {"null_value_counts": {1: 0, 2: 0}}
    text = {"lower_bounds": {1: struct.pack("<q", 0), 2: b"a"}, "upper_bounds": {1: struct.pack("<q", 9), 2: b"c"}}
    other = {"lower_bounds": {1: struct.pack("<q", 5), 2: b"d"}, "upper_bounds": {1: struct.pack("<q", 6), 2: b"e"}}
    assert found(entry("d", 1, **text, **counts), equality("e", 9, equality_ids=[1], **other, **counts)) == ["e"]
    assert found(entry("d", 1, **text, **counts), equality("e", 9, equality_ids=[1, 2], **other, **counts)) == []


# Tasks

NOW = Schema(NestedField(1, "key", LongType(), required=True), NestedField(9, "x", StringType(), required=False), schema_id=2)
BEFORE = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "x", StringType(), required=False),
    NestedField(3, "st", StructType(NestedField(4, "a", LongType()), NestedField(5, "b", LongType())), required=False),
    NestedField(6, "li", ListType(7, LongType(), element_required=False), required=False),
    schema_id=1,
)


def columns(*ids: int) -> list[str]:
    delete = equality("e", 9, equality_ids=list(ids)).data_file
    task = TaskBuilder([NOW, BEFORE]).build(FileScanTask(entry("d", 1).data_file, {delete}, AlwaysTrue()))
    (one,) = task.deletes
    assert one.equality_ids == ids
    return [str(NestedField.model_validate_json(column)) for column in one.equality_columns]


def test_equality_columns_are_the_scanned_schemas_or_those_of_an_older_one():
    assert columns(1) == ["1: key: optional long"]
    assert columns(1, 2) == ["1: key: optional long", "2: x: optional string"]
    assert columns(5) == ["3: st: optional struct<5: b: optional long>"]


@pytest.mark.parametrize(
    ("ids", "says"), [([], "names no columns"), ([7], "compares field id 7"), ([3], "compares field id 3"), ([99], "id 99")]
)
def test_equality_columns_that_are_no_single_values_are_refused(ids: list[int], says: str):
    delete = equality("e.parquet", 9, equality_ids=ids).data_file
    with pytest.raises(FormatError, match=rf"e\.parquet.*{says}"):
        TaskBuilder([NOW, BEFORE]).build(FileScanTask(entry("d", 1).data_file, {delete}, AlwaysTrue()))
