"""A table with columns of types that are not read (variant, types to come) or not written (geometry): the rest of it can be used.

The files are those of a table of structs, whose schema is then said to be of those types: in Parquet a variant is a group of two
binary columns (Parquet spec, "Variant"), and a geometry is WKB in a binary column.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, ListType, LongType, MapType, NestedField, StringType, StructType

from icelock.errors import PolicyError
from icelock.metadata.column_types import schema_from_json
from tests.lakes.sqlite import KEYED, TestLake

POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")  # WKB of POINT (1 2)
VARIANT = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])
NULL = {"metadata": b"\x01\x00\x00", "value": b"\x00"}


def group(field_id: int) -> StructType:
    return StructType(NestedField(field_id, "metadata", BinaryType()), NestedField(field_id + 1, "value", BinaryType()))


STORED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "v", group(20)),
    NestedField(3, "g", BinaryType()),
    NestedField(4, "l", ListType(40, group(41), element_required=False)),
    NestedField(5, "m", MapType(50, StringType(), 51, group(52), value_required=False)),
    NestedField(6, "s", StructType(NestedField(60, "a", LongType()), NestedField(61, "w", BinaryType()))),
)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "v": pa.array([NULL] * 3, VARIANT),
        "g": pa.array([POINT] * 3, pa.binary()),
        "l": pa.array([[NULL]] * 3, pa.list_(VARIANT)),
        "m": pa.array([[("k", NULL)]] * 3, pa.map_(pa.string(), VARIANT)),
        "s": pa.array([{"a": 7, "w": b"x"}] * 3, pa.struct([("a", pa.int64()), ("w", pa.binary())])),
    }
)
TYPES = {"v": "variant", "g": "geometry(OGC:CRS84)", "l": "variant", "m": "variant", "s": "point(3)"}


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", STORED, properties={**KEYED, "write.delete.mode": "copy-on-write"})
    made.append(ROWS)
    said = {**json.loads(made.schema().model_dump_json()), "schema-id": 1}
    for field in said["fields"]:
        kind = field["type"]
        if field["name"] == "l":
            kind["element"] = TYPES["l"]
        elif field["name"] == "m":
            kind["value"] = TYPES["m"]
        elif field["name"] == "s":
            kind["fields"][1]["type"] = TYPES["s"]
        else:
            field["type"] = TYPES.get(field["name"], kind)
    with made.transaction() as transaction:
        transaction._apply((AddSchemaUpdate(schema=schema_from_json(json.dumps(said))), SetCurrentSchemaUpdate(schema_id=-1)), ())
    return lake.catalog().load_table("db.t")


def ids(table: Any) -> list[int]:
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def test_other_columns_are_read(table):
    assert table.scan(selected_fields=("id", "g")).to_arrow().to_pylist() == [{"id": i, "g": POINT} for i in (1, 2, 3)]
    assert table.scan(selected_fields=("s.a",)).to_arrow().to_pylist() == [{"s": {"a": 7}}] * 3
    assert table.scan(row_filter="s.a = 7 and id > 1", selected_fields=("id",)).to_arrow()["id"].to_pylist() == [2, 3]
    assert table.scan().count() == 3
    assert table.scan(row_filter="id > 1 and g is not null").count() == 2
    assert table.scan(snapshot_id=table.history()[0].snapshot_id).to_arrow() == table.scan(
        snapshot_id=table.history()[0].snapshot_id
    ).to_arrow().select(["id", "v", "g", "l", "m", "s"])  # its schema was another


@pytest.mark.parametrize(
    ("selected", "named"),
    [
        (("*",), r"'v' \(variant\), 'l.element' \(variant\), 'm.value' \(variant\), 's.w' \(point\(3\)\). Select others \('id', 'g'\)"),
        (("id", "v"), r"'v' \(variant\). Select others \('id'\)"),
        (("l",), "'l.element'"),
        (("m",), "'m.value'"),
        (("s",), "'s.w'"),
        (("s.w",), "'s.w'"),
    ],
)
def test_what_is_not_read_is_refused_by_name(table, selected, named):
    scan = table.scan(selected_fields=selected)
    for read in (scan.to_arrow, scan.to_arrow_batch_reader, scan.to_pandas):
        with pytest.raises(PolicyError, match=named):
            read()


@pytest.mark.parametrize("row_filter", ["v is null", "v is not null", "v = 1", EqualTo("s.w", b"x")])
def test_it_is_not_filtered_by(table, row_filter):
    with pytest.raises(PolicyError, match=r"column '(v|s\.w)' is of type (variant|point\(3\)), whose values are not read"):
        table.scan(row_filter=row_filter, selected_fields=("id",)).to_arrow()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda table: table.append(pa.table({"id": pa.array([9], pa.int64())})), "'v' is of type variant, which is not written"),
        (lambda table: table.append(ROWS), "'v' is of type variant, which is not written"),
        (lambda table: table.overwrite(ROWS), "'v' is of type variant, which is not written"),
        (lambda table: table.upsert(pa.table({"id": pa.array([1], pa.int64())}), ["id"]), "'v' is of type variant, which is not written"),
        (lambda table: table.delete("id = 1"), r"'v' \(variant\).* delete rows with write.delete.mode=merge-on-read"),
    ],
    ids=["append", "append all", "overwrite", "upsert", "delete"],
)
def test_what_would_lose_its_values_is_refused_before_anything_is_written(lake, table, change, named):
    before = lake.files()
    with pytest.raises(PolicyError, match=named):
        change(table)
    assert lake.files() == before
    assert ids(table) == [1, 2, 3]


def test_rows_are_deleted_where_no_file_is_rewritten(lake, table):
    table.transaction().set_properties({"write.delete.mode": "merge-on-read"}).commit_transaction()
    table.delete("id = 1")
    assert ids(lake.catalog().load_table("db.t")) == [2, 3]
    table.delete("id > 0")  # all of a file
    assert ids(lake.catalog().load_table("db.t")) == []


def stored_types(table: Any) -> dict[str, Any]:
    stored = json.loads(Path(table.metadata_location).read_text(encoding="utf-8"))
    current = next(schema for schema in stored["schemas"] if schema["schema-id"] == stored["current-schema-id"])
    return {field["name"]: field["type"] for field in current["fields"]}


def test_commits_keep_the_types_as_they_are_written(lake, table):
    with table.update_schema() as update:
        update.rename_column("v", "renamed")
        update.add_column("new", StringType())
        update.move_first("v")
    loaded = lake.catalog().load_table("db.t")
    kinds = stored_types(loaded)
    assert list(kinds) == ["renamed", "id", "g", "l", "m", "s", "new"]
    assert (kinds["renamed"], kinds["g"], kinds["l"]["element"], kinds["m"]["value"]) == ("variant", TYPES["g"], "variant", "variant")
    assert kinds["s"]["fields"][1]["type"] == "point(3)"
    with loaded.update_schema() as update:
        for name in ("renamed", "g", "l", "m", "s.w"):
            update.delete_column(name)
    loaded.append(pa.table({"id": pa.array([4], pa.int64()), "new": ["n"]}))
    assert loaded.scan().to_arrow().sort_by("id").to_pylist()[2:] == [
        {"id": 3, "s": {"a": 7}, "new": None},
        {"id": 4, "s": None, "new": "n"},
    ]


def test_nothing_is_partitioned_or_sorted_by_it(table):
    for change in (
        lambda: table.update_spec().add_identity("v").commit(),
        lambda: table.update_spec().add_field("v", "bucket[4]").commit(),
        lambda: table.update_sort_order().asc("v", IdentityTransform()).commit(),
    ):
        with pytest.raises((ValueError, ValidationError), match="variant"):  # PyIceberg's errors
            change()


def test_inspection_and_expiry_go_on(lake, table):
    for name in ("snapshots", "files", "entries", "partitions", "refs", "manifests", "data_files", "all_files"):
        assert getattr(table.inspect, name)().num_rows == 1
    first = table.history()[0].snapshot_id
    table.delete("id > 0")
    table.maintenance.expire_snapshots().by_ids([first]).commit()
    assert len(lake.catalog().load_table("db.t").metadata.snapshots) == 1
