"""The sums of ``partitions``: which files are of one partition, as Java's PartitionComparator and Comparators decide it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyiceberg.manifest import DataFileContent

from icelock.table.metadata_tables.partitions import PartitionSums

TIMES = {1: 1000, 2: 2000}
NAN = float("nan")


def entry(snapshot_id, records, content=DataFileContent.DATA, spec_id=0):
    file = SimpleNamespace(record_count=records, file_size_in_bytes=100, content=content, spec_id=spec_id)
    return SimpleNamespace(snapshot_id=snapshot_id, data_file=file)


def sums(*files):
    made = PartitionSums(("x", "y"), TIMES)
    for partition, added in files:
        made.add(partition, added)
    return made


@pytest.mark.parametrize(
    ("partitions", "records"),
    [
        ([{"x": 0.0}, {"x": -0.0}], [1, 2]),  # Double.compare(0.0, -0.0) is not 0
        ([{"x": NAN}, {"x": float("nan")}], [3]),  # and of two NaN it is
        ([{"x": None}, {"x": None, "y": None}], [1, 2]),  # fields of the spec are compared first: how many there are
        ([{"x": None}, {"y": None}], [3]),
        ([{"x": 1}, {"y": 1}], [1, 2]),
    ],
)
def test_which_files_are_of_one_partition(partitions, records):
    made = sums(*((partition, entry(1, number)) for number, partition in enumerate(partitions, 1)))
    assert [row["record_count"] for row in made.rows] == records


def test_sums_of_parts_are_the_sum_of_all():
    files = [
        ({"x": 1}, entry(1, 5)),
        ({"x": 1}, entry(2, 7, spec_id=1)),
        ({"x": 1}, entry(1, 3, DataFileContent.POSITION_DELETES)),
        ({"x": 1}, entry(9, 2, DataFileContent.EQUALITY_DELETES)),  # of a snapshot that expired
    ]
    expected = {
        "partition": {"x": 1},
        "spec_id": 1,  # of the newest
        "record_count": 12,
        "file_count": 2,
        "total_data_file_size_in_bytes": 200,
        "position_delete_record_count": 3,
        "position_delete_file_count": 1,
        "equality_delete_record_count": 2,
        "equality_delete_file_count": 1,
        "last_updated_at": 2_000_000,
        "last_updated_snapshot_id": 2,
    }
    assert sums(*files).rows == [expected]
    merged = PartitionSums(("x", "y"), {})
    for part in (files[2:], files[:1], files[1:2]):
        merged.merge(sums(*part).rows)
    assert merged.rows == [expected]
