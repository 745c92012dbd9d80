"""Deletion vectors read as columns: which data files have them, and what is refused (spec, "Scan Planning", "Deletion Vectors")."""

from __future__ import annotations

import math
import re
from typing import Any
from unittest.mock import patch

import polars as pl  # noqa: F401 - few entries are read as columns only if it is in use
import pytest
from pyiceberg import expressions as ex
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.typedef import Record

from icelock.errors import FormatError
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile, ManifestEntry
from icelock.plan import columnar
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_plan_columns import Place

BY_NUMBER, BY_REAL, BY_TIME = 1, 2, 4


@pytest.fixture
def place(lake: TestLake) -> Place:
    return Place(lake)


def entry(path: str, sequence: int = 3, *, spec_id: int = BY_NUMBER, partition: tuple[Any, ...] = (1,), **fields: Any) -> ManifestEntry:
    values: dict[str, Any] = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "record_count": 10}
    key: Any = mint_file_key(SystemEntropy(), 16).closed(100).encode()  # type: ignore[arg-type]
    file = DataFile.from_args(
        **{**values, **fields, "file_path": path, "partition": Record(*partition), "file_size_in_bytes": 100, "key_metadata": key}
    )
    file.spec_id = spec_id
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING, snapshot_id=7, sequence_number=sequence, file_sequence_number=sequence, data_file=file
    )


def vector(path: str, data: str | None, sequence: int = 5, *, offset: int = 4, **fields: Any) -> ManifestEntry:
    own: dict[str, Any] = {"content": DataFileContent.POSITION_DELETES, "file_format": FileFormat.PUFFIN, "referenced_data_file": data}
    return entry(path, sequence, **{**own, "record_count": 2, "content_offset": offset, "content_size_in_bytes": 40, **fields})


def planned(place: Place, data: list[ManifestEntry], *deletes: list[ManifestEntry], few: int = 0) -> dict[str, list[tuple[str, Any]]]:
    """The delete files of each data file, by path and offset; manifests of ``few`` entries are read row by row."""

    def spec_of(entries: list[ManifestEntry]) -> int:
        return entries[0].data_file.spec_id

    manifests = place.write(
        [(spec_of(data), ManifestContent.DATA, data), *((spec_of(found), ManifestContent.DELETES, found) for found in deletes)]
    )
    with patch.object(columnar, "_FEW_OF_ONE", few):
        found, files = place.planner(ex.AlwaysTrue()).planned(manifests)
        return {
            task.path: [(delete.path, delete.content_offset) for delete in task.deletes] for part in files for task in part.tasks(found)
        }


def test_each_data_file_has_its_own_vector_whatever_the_order_of_the_entries(place: Place) -> None:
    data = [entry(f"d{number}") for number in range(4)]
    deletes = [vector("v", "d2", offset=4), vector("v", "d0", offset=44), vector("w", "d3"), vector("w", "gone", offset=44)]
    assert planned(place, data, deletes) == {"d0": [("v", 44)], "d1": [], "d2": [("v", 4)], "d3": [("w", 4)]}


def test_a_vector_takes_the_place_of_position_deletes_but_not_of_equality_deletes(place: Place) -> None:
    positions = entry("p", 5, content=DataFileContent.POSITION_DELETES)
    equality = entry("e", 5, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    found = planned(place, [entry("d0"), entry("d1")], [positions, vector("v", "d0"), equality])
    assert found == {"d0": [("e", None), ("v", 4)], "d1": [("e", None), ("p", None)]}


def test_no_object_is_made_of_a_vector_until_a_task_has_it(place: Place) -> None:
    with patch("icelock.plan.manifest_columns.decode_entries", side_effect=AssertionError("an entry was made")):
        assert planned(place, [entry("d0")], [vector("v", "d0"), vector("v", "d9", offset=44)]) == {"d0": [("v", 4)]}


@pytest.mark.parametrize("few", [0, 3], ids=["columns", "data files row by row"])
def test_a_vector_in_a_partition_of_nan_is_found(place: Place, few: int) -> None:
    """NaN equals NaN, as in Java's ``Double.equals``."""
    here: dict[str, Any] = {"spec_id": BY_REAL, "partition": (math.nan, 1, "a")}
    deletes = [vector("v", f"d{number}", offset=4 + 40 * number, **here) for number in range(3)]
    assert planned(place, [entry("d1", **here)], deletes, few=few) == {"d1": [("v", 44)]}


REFUSED: dict[str, tuple[ManifestEntry, list[list[ManifestEntry]], str]] = {
    "no data file": (entry("d"), [[vector("v", None)]], "deletion vector in v names no data file"),
    "two in one manifest": (entry("d"), [[vector("v", "d"), vector("w", "d")]], "d has two deletion vectors, in v and w"),
    "two in two manifests": (entry("d"), [[vector("v", "d")], [vector("w", "d")]], "d has two deletion vectors, in v and w"),
    "another partition": (
        entry("d"),
        [[vector("v", "d", partition=(2,))]],
        "v deletes rows of d, but is in partition Record[2] of spec 1, not Record[1] of spec 1",
    ),
    "another spec": (
        entry("d", spec_id=BY_REAL, partition=(None, 0, None)),
        [[vector("v", "d", spec_id=BY_TIME, partition=(None, 0, None))]],
        "is in partition Record[None, 0, None] of spec 4, not Record[None, 0, None] of spec 2",
    ),
    "zero of another sign": (
        entry("d", spec_id=BY_REAL, partition=(-0.0, 1, "a")),
        [[vector("v", "d", spec_id=BY_REAL, partition=(0.0, 1, "a"))]],
        "v deletes rows of d, but is in partition",
    ),
    "older than its file": (entry("d", 6), [[vector("v", "d", 5)]], "deletion vector in v has sequence number 5, below that"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_vector_that_cannot_be_of_its_data_file_is_refused(place: Place, case: str) -> None:
    data, deletes, message = REFUSED[case]
    with pytest.raises(FormatError, match=re.escape(message)):
        planned(place, [data], *deletes)


def test_a_second_vector_is_refused_where_one_of_the_two_is_read_row_by_row(place: Place) -> None:
    many = [vector("v", f"d{number}", offset=4 + 40 * number) for number in range(5)]
    with pytest.raises(FormatError, match="d1 has two deletion vectors, in w and v"):
        planned(place, [entry("d1")], many, [vector("w", "d1")], few=3)
