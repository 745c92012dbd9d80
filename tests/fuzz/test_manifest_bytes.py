"""Manifests whose bytes are not what their schema allows: both readers give the same plan, or both a FormatError that names the file.

Every place of a sound manifest is changed in turn (``avro_sites``); what the change means is not asked, only that the two agree, that
nothing else is raised, and that the changes which no schema allows are refused.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo

from icelock.errors import FormatError
from icelock.io.avro.check import RowCheck
from icelock.io.avro.read import AvroFile
from icelock.io.plain_input import PlainBytes
from icelock.metadata.avro_file import AvroFileWriter, avro_schema
from icelock.metadata.manifest import read_manifest_rows
from icelock.metadata.manifest_list import MANIFEST_LIST_FILE_SCHEMAS, _row
from icelock.plan.manifest_columns import METRICS
from tests.fuzz.avro_sites import CHANGES, changed, sites, zigzag
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_plan_columns import Place, named, plain_bytes, relisted, rewritten, sample, seen, stored_again, with_block

NEVER = {("branch", n) for n in CHANGES["branch"]} | {("boolean", n) for n in CHANGES["boolean"]}
NOT_ASKED_FOR = {"column_sizes", "split_offsets", "equality_ids", "sort_order_id", "referenced_data_file", *METRICS}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    lake = TestLake(tmp_path)
    lake.catalog().create_namespace("db")
    return Place(lake)


def only_block(place: Place, manifest: Any) -> tuple[Any, Any]:
    avro = AvroFile(PlainBytes(location="manifest", data=plain_bytes(place, manifest)))
    (block,) = avro.blocks()
    return avro.schema, block


def test_both_readers_agree_on_every_changed_place(place: Place) -> None:
    manifest = sample(place)
    schema, block = only_block(place, manifest)
    found = sites(schema, block.data, block.rows)
    cases = [(site, replacement) for site in found for replacement in CHANGES.get(site[0], [])]
    refused = 0
    for site, replacement in random.Random(13).sample(cases, 300):
        data = changed(block.data, site, replacement)
        other = with_block(place, manifest, lambda rows, _, data=data: (rows, data))
        by_row = seen(place.by_row, [other], AlwaysTrue())
        by_columns = seen(place.by_columns, [other], AlwaysTrue())
        if by_columns is not FormatError and site[3] & NOT_ASKED_FOR:
            by_columns = by_row  # polars skips these: it knows their lengths only
        assert by_row == by_columns, (site, replacement)
        if isinstance(by_row, type):
            assert by_row is FormatError, (site, replacement)
            refused += 1
        else:
            assert (site[0], replacement) not in NEVER, (site, replacement)
    assert refused > 150


@pytest.mark.turns(3)
@pytest.mark.parametrize("row_filter", [AlwaysTrue(), EqualTo("number", 1)])
@pytest.mark.parametrize("branch", [-1, 2, 5, 63])
def test_a_branch_that_the_union_has_not_is_refused_by_both_readers(place: Place, branch: int, row_filter: BooleanExpression) -> None:
    """All unions of a manifest are of null and one type. PyIceberg takes any positive number for the second."""
    manifest = sample(place)
    schema, block = only_block(place, manifest)
    for site in sites(schema, block.data, block.rows):
        if site[0] == "branch":
            data = changed(block.data, site, zigzag(branch))
            other = with_block(place, manifest, lambda rows, _, data=data: (rows, data))
            for plan in (place.by_columns, place.by_row):
                with pytest.raises(FormatError, match="does not hold rows of the file's schema"):
                    plan([other], row_filter)


NUMBERS = {
    "record_count": -1,
    "file_size_in_bytes": -5,
    "sequence_number": -1,
    "file_sequence_number": -2,
    "first_row_id": -1,
    "status": 3,
    "content": 3,
}


@pytest.mark.parametrize(("name", "value"), [*NUMBERS.items(), ("record_count", 2**63 - 1), ("first_row_id", 2**63 - 1)])
def test_a_number_that_no_entry_has_is_refused_by_both_readers(place: Place, name: str, value: int) -> None:
    """Spec, "Manifests": status is 0, 1 or 2, content 0, 1 or 2; counts, sizes and sequence numbers count from 0; row ids are 64 bits."""

    def change(_entry: list[Any], _file: list[Any], rows: list[Any]) -> None:
        row = rows[1] if name in rows[1] else rows[1]["data_file"]
        row[name] = value

    other = rewritten(place, sample(place), change)
    for plan in (place.by_columns, place.by_row):
        with pytest.raises(FormatError) as refused:
            plan([other], AlwaysTrue())
        assert other.manifest_path in str(refused.value)
        assert name in ("status", "content") or f"{name} {value}" in str(refused.value)


def test_a_live_entry_of_an_older_snapshot_without_a_sequence_number_is_refused(place: Place) -> None:
    """Only added entries inherit it; without it nobody knows which deletes apply."""

    def change(_entry: list[Any], _file: list[Any], rows: list[Any]) -> None:
        rows[2]["status"] = 0

    other = rewritten(place, sample(place), change)
    for plan in (place.by_columns, place.by_row):
        with pytest.raises(FormatError, match="has no sequence number"):
            plan([other], AlwaysTrue())


@pytest.mark.parametrize(
    "name", ["manifest_length", "sequence_number", "added_files_count", "deleted_files_count", "existing_rows_count", "first_row_id"]
)
def test_a_negative_number_in_a_manifest_list_is_refused(place: Place, name: str) -> None:
    manifest = sample(place)
    listed = place.table.io.new_encrypted_output(f"{manifest.manifest_path}-list")
    schema = MANIFEST_LIST_FILE_SCHEMAS[3]
    row = {**_row(relisted(manifest), sequence_number=6), name: -1}
    with AvroFileWriter(listed, avro_schema(schema, "manifest_file"), schema, {}) as writer:
        writer.write(row)
    with pytest.raises(FormatError, match=f"-list: .* has {name} -1"):
        read_manifest_rows(listed.to_input_file())


def test_a_field_twice_in_the_header_is_refused(place: Place) -> None:
    manifest = sample(place)
    plain = plain_bytes(place, manifest)
    entry = zigzag(3) + b"abc" + zigzag(0)
    twice = plain[:4] + zigzag((plain[4] >> 1) + 2) + entry * 2 + plain[5:]
    other = stored_again(place, manifest, twice)
    for plan in (place.by_columns, place.by_row):
        with pytest.raises(FormatError, match="'abc' twice"):
            plan([other], AlwaysTrue())


@pytest.mark.parametrize(("name", "field_id"), [("record_count", 104), ("content", 100), ("partition", 103), ("value_counts", 110)])
def test_a_schema_that_gives_two_fields_one_id_is_refused(place: Place, name: str, field_id: int) -> None:
    def change(_entry: list[Any], file: list[Any], _rows: list[Any]) -> None:
        named(file, name)["field-id"] = field_id

    other = rewritten(place, sample(place), change)
    for plan in (place.by_columns, place.by_row):
        with pytest.raises(FormatError, match=f"has field id {field_id} twice"):
            plan([other], AlwaysTrue())


LIES = [
    ("file_path", 131),
    ("key_metadata", 143),
    ("split_offsets", 108),
    ("lower_bounds", 109),
    ("file_format", 105),
    ("record_count", 140),
]


@pytest.mark.parametrize(("name", "field_id"), LIES)
def test_a_schema_that_gives_a_field_the_id_of_another_is_refused_or_read_alike(place: Place, name: str, field_id: int) -> None:
    def change(_entry: list[Any], file: list[Any], _rows: list[Any]) -> None:
        for field in file:
            if field["field-id"] == field_id:
                field["field-id"] = 9999
        named(file, name)["field-id"] = field_id

    other = rewritten(place, sample(place), change)
    by_row = seen(place.by_row, [other], AlwaysTrue())
    assert by_row == seen(place.by_columns, [other], AlwaysTrue())
    assert by_row is FormatError or isinstance(by_row, tuple)


def test_the_check_agrees_with_the_walk_on_what_is_sound(place: Place) -> None:
    schema, block = only_block(place, sample(place))
    RowCheck(json.dumps(schema), location="f").check(block)
