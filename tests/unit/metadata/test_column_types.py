"""Types in metadata.json that PyIceberg 0.12 does not read: the texts are those that Java 1.12.0 writes (``Types``, ``toString``)."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.types import GeographyType, GeometryType, PrimitiveType

from icelock.errors import FormatError
from icelock.metadata.canonical_json import canonical_json
from icelock.metadata.column_types import UnreadType, schema_from_json, unread, with_types
from icelock.metadata.table_metadata import parse_metadata, parse_metadata_object

KEPT = (
    "variant",
    "geometry(OGC:CRS84)",
    "geometry(srid:4326)",
    "geometry",
    "geometry('EPSG:3857')",
    "geography(OGC:CRS84, spherical)",
    "geography(EPSG:4326, vincenty)",
    "geography(EPSG:4326)",
    "geography",
    "timestamp_ps",
    "vector(float, 768)",
    "interval[day]",
)


def column(kind: Any, field_id: int = 2, name: str = "v") -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": False, "type": kind}


def nested(kind: str) -> list[dict[str, Any]]:
    """The type by itself and at each place inside another."""
    return [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        column(kind),
        column({"type": "struct", "fields": [column(kind, 4, "x"), column("int", 5, "y")]}, 3, "s"),
        column({"type": "list", "element-id": 7, "element": kind, "element-required": False}, 6, "l"),
        column({"type": "map", "key-id": 9, "key": "string", "value-id": 10, "value": kind, "value-required": False}, 8, "m"),
    ]


def document(fields: list[dict[str, Any]], version: int = 3) -> dict[str, Any]:
    """A table without snapshots in the canonical order."""
    return {
        "format-version": version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:/lake/t",
        "last-sequence-number": 0,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 20,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": -1,
        **({"next-row-id": 0} if version == 3 else {}),
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


@pytest.mark.parametrize("kind", KEPT)
def test_a_file_with_the_type_anywhere_is_loaded_and_written_byte_for_byte(kind):
    stored = document(nested(kind))
    loaded = parse_metadata_object(stored, location="m")
    written = canonical_json(loaded)
    assert json.loads(written)["schemas"] == stored["schemas"]
    assert canonical_json(parse_metadata(written, location="m")) == written


@pytest.mark.parametrize("kind", ["variant", "geometry(OGC:CRS84)", "int256"])
@pytest.mark.parametrize("version", [1, 2])
def test_older_format_versions_too(kind, version):
    stored = document(nested(kind), version)
    if version == 1:
        stored["schema"] = stored["schemas"][0]
        stored["partition-spec"] = []
    assert json.loads(parse_metadata_object(stored, location="m").schema().model_dump_json())["fields"][1]["type"] == kind


@pytest.mark.parametrize("kind", KEPT)
def test_it_survives_text_pickle_copy_and_pyicebergs_visitors(kind):
    text = json.dumps({"type": "struct", "schema-id": 0, "fields": nested(kind)})
    schema = schema_from_json(text)
    for again in (schema_from_json(schema.model_dump_json()), pickle.loads(pickle.dumps(schema)), copy.deepcopy(schema)):  # noqa: S301
        assert again == schema
        assert [str(again.find_type(name)) for name in ("v", "s.x", "l.element", "m.value")] == [kind] * 4
    fresh = assign_fresh_schema_ids(schema)
    assert str(fresh.find_type("v")) == kind
    assert fresh.find_field("m.value").field_id == 10
    assert sorted(schema.select("id", "s.y").column_names) == ["id", "s", "s.y"]


def test_names_are_of_any_case_as_in_java():
    schema = schema_from_json(json.dumps({"type": "struct", "fields": [column("STRING"), column("Decimal(9, 2)", 3, "d")]}))
    assert [str(field.field_type) for field in schema.fields] == ["string", "decimal(9, 2)"]


def test_geometry_and_geography_say_what_java_reads():
    kinds = ("geometry( srid:4326 )", "geography(EPSG:4326, vincenty)", "geography(EPSG:4326)")
    made = [with_types(column(kind))["type"] for kind in kinds]
    assert isinstance(made[0], GeometryType)
    assert made[0].crs == "srid:4326"
    assert isinstance(made[1], GeographyType)
    assert (made[1].crs, made[1].algorithm) == ("EPSG:4326", "vincenty")
    assert made[2].algorithm == "spherical"  # Java GeographyType.DEFAULT_ALGORITHM
    assert with_types(column("geometry(OGC:CRS84)"))["type"] == GeometryType()


@pytest.mark.parametrize(
    "kind", ["", " ", "decimal(10)", "decimal(39, 0)", "fixed", "fixed[x]", "int(4)", "struct", "list", "map", "a b", "1x", "geometry()"]
)
def test_what_is_no_type_is_refused(kind):
    with pytest.raises(FormatError, match="m is not valid table metadata"):
        parse_metadata_object(document([column(kind)]), location="m")


def test_parts_that_are_not_read_are_named():
    schema = schema_from_json(json.dumps({"type": "struct", "fields": nested("variant")}))
    assert [name for name, _ in unread(schema)] == ["v", "s.x", "l.element", "m.value"]


def test_variant_identifies_no_rows():
    stored = document([{**column("variant"), "required": True}])
    stored["schemas"][0]["identifier-field-ids"] = [2]
    with pytest.raises(FormatError, match="identifier-field-ids is 2"):
        parse_metadata_object(stored, location="m")


def test_equality_is_of_texts():
    assert UnreadType("variant") == UnreadType("variant")
    assert UnreadType("variant") != UnreadType("blob")
    assert isinstance(UnreadType("variant"), PrimitiveType)
