"""Partition values of fixed(N) as Java writes them, with their length, and as the schema says: both are read, Java's is written.

Java's form is that of ``ValueWriters.fixedBuffers`` of Iceberg 1.12.0: ``encoder.writeBytes`` under a schema that says fixed.
``tests/interop`` has the same live (partition-fixed).
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import polars as pl  # noqa: F401 - few entries are read as columns only if it is in use
import pytest
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.typedef import Record

from icelock.errors import FormatError
from icelock.keys.entropy import SystemEntropy, mint_file_key
from icelock.metadata.manifest import DataFile, ManifestEntry
from icelock.metadata.stored_schema import forms, inlined, named_once
from tests.fuzz.avro_sites import zigzag
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_plan_columns import SPECS, Place, plain_bytes, seen, stored_again

FOUR = 3  # the place of column "four" in the partition of spec 3
VALUES = [b"\x08abc", b"\x02\x02\x02\x02", None, b"\xff\xff\xff\xff"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    lake = TestLake(tmp_path)
    lake.catalog().create_namespace("db")
    return Place(lake)


def manifest_of(place: Place) -> Any:
    members = []
    for number, value in enumerate(VALUES):
        parts: list[Any] = [None] * len(SPECS[3].fields)
        parts[FOUR] = value
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file:/t/{number}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(*parts),
            record_count=10 + number,
            file_size_in_bytes=1000,
            key_metadata=mint_file_key(SystemEntropy(), 16).closed(1000).encode(),  # type: ignore[arg-type]
        )
        file.spec_id = 3
        members.append(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=7, data_file=file))
    (manifest,) = place.write([(3, ManifestContent.DATA, members)])
    return manifest


def recoded(plain: bytes, change: Any) -> bytes:
    """Write the rows again by what ``change`` makes of the partition's field; the header says fixed as before."""
    container = fastavro.block_reader(io.BytesIO(plain))
    header = json.loads(container.metadata["avro.schema"])
    actual = json.loads(container.metadata["avro.schema"])
    (block,) = container
    body = block.bytes_.getvalue()
    partition_of(actual)[FOUR]["type"] = ["null", "bytes"]
    rows = [fastavro.schemaless_reader(stream, actual, None) for stream in [io.BytesIO(body)] for _ in range(block.num_records)]
    partition_of(actual)[FOUR]["type"] = change
    out = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(out, actual, row)
    text = json.dumps(header).encode()
    parts = [b"Obj\x01", zigzag(1), zigzag(11), b"avro.schema", zigzag(len(text)), text, b"\0", bytes(16)]
    return b"".join([*parts, zigzag(len(rows)), zigzag(out.tell()), out.getvalue(), bytes(16)])


def partition_of(schema: Any) -> Any:
    data_file = next(field for field in schema["fields"] if field["name"] == "data_file")["type"]
    return next(field for field in data_file["fields"] if field["name"] == "partition")["type"]["fields"]


def test_what_is_written_has_javas_lengths_and_a_header_that_says_fixed(place: Place) -> None:
    plain = plain_bytes(place, manifest_of(place))
    container = fastavro.block_reader(io.BytesIO(plain))
    header = json.loads(container.metadata["avro.schema"])
    assert partition_of(header)[FOUR]["type"][1] == {"type": "fixed", "size": 4, "name": "fixed[4]"} | partition_of(header)[FOUR]["type"][1]
    (block,) = container
    for value in VALUES:
        assert value is None or b"\x02\x08" + value in block.bytes_.getvalue()  # branch 1, length 4


@pytest.mark.parametrize("form", ["java", "schema"])
@pytest.mark.parametrize(
    ("row_filter", "left"), [(AlwaysTrue(), 4), (EqualTo("four", b"\x02\x02\x02\x02"), 1), (EqualTo("four", b"none"), 0)]
)
def test_both_forms_are_read_by_both_readers(place: Place, form: str, row_filter: BooleanExpression, left: int) -> None:
    """Without regard to Java's lengths, three of four files were planned, with -1, 1 and -2 rows."""
    manifest = manifest_of(place)
    if form == "schema":
        fixed = {"type": "fixed", "size": 4, "name": "four"}
        manifest = stored_again(place, manifest, recoded(plain_bytes(place, manifest), ["null", fixed]))
    for plan in (place.by_row, place.by_columns):
        tasks = plan([manifest], row_filter)
        assert len(tasks) == left
        for task in tasks:
            number = int(task.path.removeprefix("file:/t/").removesuffix(".parquet"))
            assert (task.record_count, task.partition[FOUR]) == (10 + number, VALUES[number])


@pytest.mark.parametrize("damage", [b"\x02\x06abcd", b"\x02\x0aabcd", b"\x02abcde", b"\x02\x08abc"])
def test_bytes_of_neither_form_are_refused(place: Place, damage: bytes) -> None:
    manifest = manifest_of(place)
    plain = recoded(plain_bytes(place, manifest), ["null", "bytes"]).replace(b"\x02\x08" + VALUES[0], damage)
    at = plain.index(bytes(16)) + 16
    body = plain[at:-16]
    block = body[3:]  # behind one byte of rows and two of length
    other = stored_again(place, manifest, plain[:at] + body[:1] + zigzag(len(block)) + block + bytes(16))
    for plan in (place.by_row, place.by_columns):
        assert seen(plan, [other], AlwaysTrue()) is FormatError
        with pytest.raises(FormatError, match=re.escape(other.manifest_path)):
            plan([other], AlwaysTrue())


FIXED = {"type": "fixed", "name": "f4", "size": 4}


def test_a_type_is_defined_once_and_read_wherever_it_is_named() -> None:
    """Avro: a name may be defined once; Java refuses a schema that defines it again."""
    fields = [{"name": "a", "type": ["null", FIXED]}, {"name": "b", "type": FIXED}]
    twice = {"type": "record", "name": "r", "fields": fields}
    once = {"type": "record", "name": "r", "fields": [fields[0], {"name": "b", "type": "f4"}]}
    assert named_once(twice) == once
    assert inlined(once) == twice
    with pytest.raises(ValueError, match="holds itself"):
        inlined({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]})


def test_an_id_of_two_fields_is_refused_with_the_name_of_each_file():
    fields = [{"name": name, "type": "int", "field-id": 1} for name in ("a", "b")]
    text = json.dumps({"type": "record", "name": "r", "fields": fields}).encode()
    for location in ("one.avro", "two.avro"):
        with pytest.raises(FormatError, match=rf"^{location} has field id 1 twice \('a', 'b'\)"):
            forms(text, location=location)
