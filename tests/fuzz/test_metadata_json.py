"""metadata.json with one place changed: the right rows, or an error that is documented, soon.

Each place of a file of Java's and of one of ours is given other values: of other types, beyond all ranges, missing, twice. A reader
may find that the file is no table's, or that it is; what it must not do is to fail in another way, or to show other rows.
``ICELOCK_FUZZ=all`` tries every change of every place.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import icelock
from icelock.errors import IcelockError
from tests.fuzz.metadata_sites import OTHERS, changed, changes, places, with_name_twice
from tests.golden.relocate import catalog_properties, copy_table, metadata_location
from tests.lakes.sqlite import KEYED, TestLake

GOLDEN = "part_parquet"
ALL = os.environ.get("ICELOCK_FUZZ") == "all"
SAMPLE = 200
# FileNotFoundError: a location that leads nowhere (docs of StaticTable).
DOCUMENTED = (IcelockError, FileNotFoundError)
# What may be changed to mean other rows: columns under other names or ids, their defaults, how files name them.
MEANING = ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "properties")
Open = Callable[[str], icelock.StaticTable]


@pytest.fixture
def ours(tmp_path: Path) -> tuple[dict[str, Any], Open]:
    lake = TestLake(tmp_path)
    catalog = lake.catalog()
    catalog.create_namespace("db")
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "part", StringType()),
        NestedField(3, "more", LongType(), initial_default=5, write_default=6),
        identifier_field_ids=[],
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"), PartitionField(1, 1001, BucketTransform(4), "bucket"))
    order = SortOrder(SortField(1, transform=IdentityTransform()))
    mapping = json.dumps([{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["part"]}, {"field-id": 3, "names": ["more"]}])
    more = {
        **KEYED,
        "schema.name-mapping.default": mapping,
        "write.target-file-size-bytes": "1000000",
        "history.expire.max-snapshot-age-ms": "1",
    }
    table = catalog.create_table("db.t", schema, partition_spec=spec, sort_order=order, properties=more)
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "part": ["a", "b"], "more": pa.array([1, 2], pa.int64())}))
    table.append(pa.table({"id": pa.array([3], pa.int64()), "part": ["a"], "more": pa.array([3], pa.int64())}))
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "first").commit()
    location = catalog.load_table("db.t").metadata_location
    number = iter(range(10**6))

    def opened(text: str) -> icelock.StaticTable:
        other = Path(location).parent / f"{next(number)}.metadata.json"
        other.write_text(text, encoding="utf-8")
        return icelock.StaticTable.from_metadata(str(other), lake.properties())

    return json.loads(Path(location).read_text(encoding="utf-8")), opened


@pytest.fixture
def javas(tmp_path: Path) -> tuple[dict[str, Any], Open]:
    copy_table(GOLDEN, tmp_path)
    location = metadata_location(GOLDEN)
    folder = tmp_path / GOLDEN / "table" / "metadata"
    number = iter(range(10**6))

    def opened(text: str) -> icelock.StaticTable:
        name = f"{next(number)}.metadata.json"
        (folder / name).write_text(text, encoding="utf-8")
        return icelock.StaticTable.from_metadata(f"{location.rsplit('/', 1)[0]}/{name}", catalog_properties(GOLDEN, root=tmp_path))

    return json.loads((folder / location.rsplit("/", 1)[1]).read_text(encoding="utf-8")), opened


def read(table: icelock.StaticTable) -> Any:
    table.scan().scan_tasks()
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


def cases(document: dict[str, Any]) -> list[tuple[Any, str, str]]:
    found = [(at, name, changed(document, at, new)) for at, value in places(document) for name, new in changes(value)]
    found += [
        (at, f"twice, then {name}", with_name_twice(document, at, OTHERS[name]))
        for at, _ in places(document)
        if isinstance(at[-1], str)
        for name in ("null", "-1", "text")
    ]
    always = [case for case in found if "schema.name-mapping.default" in case[0]]  # found with this test
    return found if ALL else [*random.Random(13).sample(found, SAMPLE), *always]


@pytest.mark.turns(2)
@pytest.mark.parametrize("whose", ["ours", "javas"])
def test_one_change_gives_the_right_rows_or_a_documented_error(request: pytest.FixtureRequest, whose: str) -> None:
    document, opened = request.getfixturevalue(whose)
    right = read(opened(json.dumps(document)))
    wrong = []
    for at, name, text in cases(document):
        if whose == "javas" and at[-1] == "manifest-list":
            continue  # the tests' own FileIO opens it
        try:
            rows = read(opened(text))
        except DOCUMENTED:
            continue
        except Exception as e:  # noqa: BLE001 - what comes is what is asked
            wrong.append((at, name, type(e).__name__, str(e)[:200]))
            continue
        if rows != right and at[0] not in MEANING:
            wrong.append((at, name, f"{len(rows)} rows", f"not {len(right)}"))
    assert not wrong, "\n".join(map(str, wrong[:40]))
