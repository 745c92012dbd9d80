"""Deletes on files that have position or equality deletes already, as tables that came from version 2 or from Flink have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat

from icelock.metadata.manifest import DataFile
from icelock.table.commit.row_delta import Change
from tests.helpers.table_model import ARROW, Model, arrow, delete_entries, live_entries, n_is, one_of, row, verified
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.arrow.deleting import POSITION_FIELDS

PATH_ID = 2147483546
COW, MOR = "copy-on-write", "merge-on-read"


class Fixed:
    """A change that is the same on each attempt."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def resolve(self) -> Change:
        return self._change

    def obsolete(self) -> list[str]:
        return []


def commit(table: Any, *files: DataFile) -> None:
    with table.transaction() as tx:
        tx.staged.prepare_kek()
        with tx.update_snapshot().overwrite() as producer:
            producer.apply(Fixed(Change(deletes=files)))


def parquet(table: Any, rows: pa.Table, name: str, **fields: Any) -> DataFile:
    """An encrypted Parquet file by pyarrow alone, and its entry."""
    location = f"{table.location()}/data/{name}.parquet"
    key = table.io.manager.mint_file_key()
    properties = pe.create_encryption_properties(footer_key=key.dek.reveal(), aad_prefix=key.aad_prefix, store_aad_prefix=False)
    with table.storage.new_output(location).create() as stream:
        pq.write_table(rows, stream, encryption_properties=properties, store_schema=False)
    size = len(table.storage.new_input(location))
    if "partition" not in fields:
        (fields["partition"],) = {str(e.data_file.partition): e.data_file.partition for _, e in live_entries(table)}.values()
    file = DataFile.from_args(
        file_path=location,
        file_format=FileFormat.PARQUET,
        record_count=rows.num_rows,
        file_size_in_bytes=size,
        key_metadata=key.closed(size).encode(),
        **fields,
    )
    file.spec_id = 0
    return file


def positions(table: Any, name: str, of: dict[str, Sequence[int]], **fields: Any) -> DataFile:
    pairs = sorted((path, position) for path, found in of.items() for position in found)
    rows = pa.Table.from_arrays(
        [pa.array([p for p, _ in pairs], pa.string()), pa.array([n for _, n in pairs], pa.int64())], schema=POSITION_FIELDS
    )
    return parquet(table, rows, name, content=DataFileContent.POSITION_DELETES, **fields)


def equality(table: Any, name: str, ids: list[int]) -> DataFile:
    field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    rows = pa.Table.from_arrays([pa.array(ids, pa.int64())], schema=pa.schema([field]))
    return parquet(table, rows, name, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", ARROW, properties=KEYED)
    made.append(arrow(map(row, range(10))))
    made.append(arrow(map(row, range(10, 20))))
    return made


@pytest.fixture
def model(table: Any) -> Model:
    found = Model()
    for number, first in ((1, 0), (2, 10)):
        found.rows.update({i: (row(i), number) for i in range(first, first + 10)})
    found._note(table)
    return found


def paths(table: Any) -> tuple[str, str]:
    """The two data files, in the order of their rows."""
    found = {e.data_file.first_row_id: e.data_file.file_path for m, e in live_entries(table) if int(m.content) == 0}
    return found[0], found[10]


def set_mode(table: Any, mode: str) -> None:
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})


SCOPES = {
    "named": lambda path: {"referenced_data_file": path},
    "by bounds": lambda path: {"lower_bounds": {PATH_ID: path.encode()}, "upper_bounds": {PATH_ID: path.encode()}},
}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("mode", [COW, MOR])
def test_position_deletes_of_one_file(table: Any, model: Model, scope: str, mode: str) -> None:
    """A vector takes their positions and they go; so they do when the file is rewritten."""
    first, _ = paths(table)
    commit(table, positions(table, "p1", {first: [0, 9]}, **SCOPES[scope](first)))
    model.remove(one_of(0, 9), table)
    model.check(table)
    set_mode(table, mode)
    table.delete("id = 4")
    model.remove(one_of(4), table)
    model.check(table)
    entries = [e.data_file for e in delete_entries(table)]
    assert [(file.file_format.value, file.record_count) for file in entries] == ([] if mode == COW else [("PUFFIN", 3)])
    summary = table.current_snapshot().summary
    assert (summary["removed-position-delete-files"], summary["removed-position-deletes"]) == ("1", "2")
    verified(table)


@pytest.mark.parametrize("mode", [COW, MOR])
def test_position_deletes_of_several_files_stay(table: Any, model: Model, mode: str) -> None:
    """They are still needed for the other file; the vector has those of its own file in it."""
    first, second = paths(table)
    commit(table, positions(table, "p1", {first: [0, 9], second: [5]}))
    model.remove(one_of(0, 9, 15), table)
    set_mode(table, mode)
    table.delete("id = 4")
    model.remove(one_of(4), table)
    model.check(table)
    entries = {e.data_file.file_format.value: e.data_file.record_count for e in delete_entries(table)}
    assert entries == ({"PARQUET": 3} if mode == COW else {"PARQUET": 3, "PUFFIN": 3})
    table.delete("id >= 10 and id < 18")
    model.remove(one_of(*range(10, 18)), table)
    model.check(table)
    verified(table)


@pytest.mark.parametrize("mode", [COW, MOR])
def test_equality_deletes(table: Any, model: Model, mode: str) -> None:
    """A rewrite applies them, since the new file would be newer; a vector leaves them to the reader."""
    commit(table, equality(table, "e1", [1, 2, 11]))
    model.remove(one_of(1, 2, 11), table)
    model.check(table)
    set_mode(table, mode)
    table.delete("id in (2, 3)")
    model.remove(one_of(3), table)
    model.check(table)
    entries = {e.data_file.content.value: e.data_file.record_count for e in delete_entries(table)}
    assert entries == ({2: 3} if mode == COW else {1: 1, 2: 3})
    table.append(arrow([row(1), row(2)]))
    model.add([row(1), row(2)], table)
    model.check(table)
    table.delete("n = 1")
    model.remove(n_is(1), table)
    model.check(table)
    verified(table)


@pytest.mark.parametrize("mode", [COW, MOR])
def test_rows_that_only_equality_deletes_are_left_of_go_as_a_whole_file(table: Any, model: Model, mode: str) -> None:
    commit(table, equality(table, "e1", list(range(8))))
    model.remove(one_of(*range(8)), table)
    set_mode(table, mode)
    table.delete("id in (8, 9)")
    model.remove(one_of(8, 9), table)
    model.check(table)
    assert table.current_snapshot().summary["deleted-data-files"] == "1"
    assert table.current_snapshot().summary["deleted-records"] == "10"
    verified(table)


def test_all_kinds_at_once(table: Any, model: Model) -> None:
    first, second = paths(table)
    commit(table, positions(table, "p1", {first: [0], second: [0]}), equality(table, "e1", [1, 11]))
    model.remove(one_of(0, 10, 1, 11), table)
    model.check(table)
    set_mode(table, MOR)
    table.delete("id in (2, 12)")
    table.delete("id in (3, 13)")
    model.remove(one_of(2, 12, 3, 13), table)
    model.check(table)
    set_mode(table, COW)
    table.overwrite(arrow([row(50)]), overwrite_filter="id in (4, 14)")
    model.remove(one_of(4, 14), table)
    model.add([row(50)], table)
    model.check(table)
    assert [e.data_file.content.value for e in delete_entries(table)] == [1, 2], "the shared ones: nothing says that they are done with"
    verified(table)
