"""Streams of plain tables of versions 1 and 2, before and after they become encrypted ones; which rows came when is what each test did."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest

from icelock.errors import IntegrityError, PolicyError
from icelock.maintenance import convert
from icelock.spark.driver.open_stream import OpenStream
from icelock.table.read.stream import BEGINNING, StreamLimits
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_stream import ALL, batches, ids, rows, snapshot_ids, stream

ONE = StreamLimits(files=1)


def opened(table: Any) -> OpenStream:
    return OpenStream(lambda: table.catalog.load_table("db.p"), table, "lake.db.p", {})


@pytest.fixture
def plain(lake: TestLake, version: int) -> Any:
    catalog = lake.catalog(**{"icelock.plain-tables": "db.p"})
    made = catalog.create_table("db.p", rows().schema, properties={"icelock.plain": "true", "format-version": str(version)})
    with made.update_spec() as spec:
        spec.add_identity("part")
    return made


@pytest.mark.parametrize("version", [1, 2])
def test_each_appended_row_comes_once(plain: Any) -> None:
    assert plain.format_version in {1, 2}
    assert opened(plain).latest(BEGINNING, ALL) == BEGINNING
    plain.append(rows(1, 2, 11))
    first = opened(plain).latest(BEGINNING, ALL)
    assert (first.snapshot_id, first.position) == (snapshot_ids(plain)[0], 2)
    assert ids(opened(plain).now(), BEGINNING, first) == [1, 2, 11]
    plain.append(rows(3, 21))
    assert batches(opened(plain).now(), start=first) == [[3, 21]]
    assert sorted(batches(opened(plain).now(), ONE, start=first)) == [[3], [21]]
    assert batches(stream(plain, after=first.snapshot_id)) == [[3, 21]]
    assert batches(stream(plain, now=True)) == []
    plain.delete("part = 1")
    plain.append(rows(4))
    with pytest.raises(PolicyError, match="is of operation delete"):
        batches(opened(plain).now(), start=opened(plain).latest(first, ALL))
    assert batches(stream(plain, skip_deletes=True), start=first) == [[3, 4, 21]]


@pytest.mark.parametrize("version", [1, 2])
def test_a_stream_goes_on_over_a_conversion_that_keeps_the_history(plain: Any) -> None:
    plain.append(rows(1, 11, 21))
    plain.append(rows(31))
    query = opened(plain)
    middle = query.latest(BEGINNING, StreamLimits(files=2))
    before = ids(query.now(), BEGINNING, middle)
    convert(plain, key_id="keyA", history="keep")
    assert query.now().head != snapshot_ids(plain)[1], "a snapshot that changes nothing is on top"
    rest = batches(query.now(), start=middle)
    assert sorted([*before, *(one for batch in rest for one in batch)]) == [1, 11, 21, 31]
    assert query.table.encrypted
    query.table.append(rows(41))
    assert batches(query.now(), start=middle) == [sorted([*rest[0], 41])]


@pytest.mark.parametrize("version", [2])
def test_a_stream_ends_where_a_conversion_dropped_the_history(plain: Any) -> None:
    plain.append(rows(1))
    query = opened(plain)
    offset = query.latest(BEGINNING, ALL)
    convert(plain, key_id="keyA")
    with pytest.raises(PolicyError, match="begin with a new checkpoint"):
        query.latest(offset, ALL)
    assert batches(opened(plain.catalog.load_table("db.p")).now()) == [[1]]


@pytest.mark.parametrize("version", [2])
def test_a_stream_of_an_encrypted_table_reads_no_plain_one_in_its_place(plain: Any, lake: TestLake) -> None:
    catalog = lake.catalog()
    table = catalog.create_table("db.e", rows().schema, properties={"encryption.key-id": "keyA"})
    table.append(rows(1))
    query = OpenStream(lambda: catalog.load_table("db.e"), table, "lake.db.e", {})
    offset = query.latest(BEGINNING, ALL)
    plain.append(rows(2))
    forged = plain.metadata.model_copy(update={"table_uuid": table.metadata.table_uuid})
    location = plain.metadata_location.replace(".metadata.json", "-forged.metadata.json")
    with plain.io.new_output(location).create() as out:
        out.write(forged.model_dump_json().encode())
    with contextlib.closing(sqlite3.connect(lake.folder / "catalog.db")) as database, database:
        database.execute("update iceberg_tables set metadata_location = ? where table_name = 'e'", (location,))
    with pytest.raises(IntegrityError, match=r"of table db\.e might have"):
        query.latest(offset, ALL)
