"""Deletes in another form: the same rows by one vector for each data file, or deleted rows that are in no file any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.transforms import BucketTransform

from icelock.errors import IntegrityError, PolicyError
from icelock.format.key_metadata import KeyMetadata
from icelock.io.file_io import open_input
from tests.helpers.table_model import arrow, delete_entries, live_entries, row, rows_of, verified
from tests.lakes.sqlite import TestLake
from tests.unit.table.test_compact import ALL, BY_N, data_files, lineage, make, meanwhile
from tests.unit.table.test_older_deletes import commit, equality, parquet, paths, positions, set_mode

CANARY = "canary-secret"


def by_name(table: Any, name: str, values: list[str]) -> Any:
    """Equality deletes on ``s`` with the bounds that Flink writes."""
    field = pa.field("s", pa.string(), metadata={b"PARQUET:field_id": b"3"})
    rows = pa.Table.from_arrays([pa.array(values)], schema=pa.schema([field]))
    bounds = {"lower_bounds": {3: min(values).encode()}, "upper_bounds": {3: max(values).encode()}}
    return parquet(table, rows, name, content=DataFileContent.EQUALITY_DELETES, equality_ids=[3], **bounds)


def vectors(table: Any) -> dict[str, int]:
    """Deleted rows of each data file; only vectors, one for each, may be there."""
    found = [entry.data_file for entry in delete_entries(table)]
    assert {file.file_format.value for file in found} <= {"PUFFIN"}
    assert len({file.referenced_data_file for file in found}) == len(found)
    return {file.referenced_data_file: file.record_count for file in found}


def with_older_deletes(lake: TestLake) -> Any:
    """Ids 0 to 19 in two files: 0, 9 and 15 are deleted by their places, 4, 7 and 12 by their ids."""
    made = make(lake, 2)
    first, second = paths(made)
    commit(made, positions(made, "p1", {first: [0, 9], second: [5]}))
    commit(made, equality(made, "e1", [4, 7, 12, 999]))
    return made


def without(*gone: int, rows: int = 20) -> list[Any]:
    return sorted(row(number) for number in range(rows) if number not in gone)


@pytest.fixture
def table(lake: TestLake) -> Any:
    return make(lake, 2)


def test_every_kind_becomes_one_vector_for_each_data_file(table: Any) -> None:
    first, second = paths(table)
    before = lineage(table)
    commit(table, positions(table, "p1", {first: [0, 9], second: [5]}))
    set_mode(table, "merge-on-read")
    table.delete("id = 4")
    commit(table, equality(table, "e1", [4, 7, 12, 999]))
    plan = table.maintenance.rewrite_deletes(dry_run=True)
    assert (plan.vectors, plan.removed_delete_files, plan.dangling, plan.snapshots) == (2, 3, 0, ())
    done = table.maintenance.rewrite_deletes()
    assert (done.vectors, done.removed_delete_files, done.dangling, len(done.snapshots)) == (2, 3, 0, 1)
    assert vectors(table) == {first: 4, second: 2}, "positions 0, 4, 7, 9 and 2, 5"
    assert rows_of(table) == without(0, 4, 7, 9, 12, 15)
    assert lineage(table) == {key: value for key, value in before.items() if key not in (0, 4, 7, 9, 12, 15)}
    summary = table.current_snapshot().summary
    assert summary.operation.value == "replace"
    names = ("added-dvs", "removed-delete-files", "total-delete-files", "total-position-deletes", "total-equality-deletes", "total-records")
    assert [summary[name] for name in names] == ["2", "3", "2", "6", "0", "20"]
    assert not table.maintenance.rewrite_deletes().snapshots, "there is nothing left to do"
    verified(table)


def test_what_applies_to_no_file_goes(table: Any) -> None:
    """Java's rules for dangling deletes: older than every data file, or of data files that are gone."""
    first, _ = paths(table)
    commit(table, equality(table, "e1", [3]), positions(table, "p1", {first: [1], "file:///gone.parquet": [0]}))
    commit(table, equality(table, "e2", [888]))  # newer than the files, but its value is in none: bounds are not given, so it is read
    table.overwrite(arrow([row(3), row(50)]), overwrite_filter="id >= 0")
    assert rows_of(table) == [row(3), row(50)]
    assert len(delete_entries(table)) == 3
    done = table.maintenance.rewrite_deletes()
    assert (done.vectors, done.removed_delete_files, done.dangling) == (0, 3, 3)
    assert not delete_entries(table)
    assert rows_of(table) == [row(3), row(50)]
    verified(table)


def test_equality_deletes_that_hit_no_row_make_no_vector(table: Any) -> None:
    commit(table, equality(table, "e1", [888]))
    done = table.maintenance.rewrite_deletes()
    assert (done.vectors, done.removed_delete_files) == (0, 1)
    assert not delete_entries(table)
    assert rows_of(table) == without()


def test_a_file_without_a_live_row_goes(table: Any) -> None:
    first, second = paths(table)
    commit(table, equality(table, "e1", [*range(10), 11]))
    done = table.maintenance.rewrite_deletes()
    assert (done.vectors, done.rewritten_files) == (1, 1)
    assert [entry.data_file.file_path for entry in data_files(table)] == [second]
    assert vectors(table) == {second: 1}
    assert rows_of(table) == without(*range(10), 11)
    assert first not in vectors(table)
    verified(table)


def test_compaction_removes_dangling_deletes_when_asked(table: Any) -> None:
    commit(table, equality(table, "e1", [4]))
    assert table.maintenance.compact(options=ALL).rewritten_files == 2
    assert len(delete_entries(table)) == 1, "nobody asked"
    done = table.maintenance.compact(options={"remove-dangling-deletes": "true"})
    assert (done.rewritten_files, done.removed_delete_files, len(done.snapshots)) == (0, 1, 1)
    assert not delete_entries(table)
    assert rows_of(table) == without(4)


def test_deletes_that_are_needed_stay(table: Any) -> None:
    commit(table, equality(table, "e1", [4]))
    assert not table.maintenance.compact(options={"remove-dangling-deletes": "true"}).snapshots
    assert rows_of(table) == without(4)


def haystack(table: Any) -> Iterator[bytes]:
    """Everything that any file of the table holds, decrypted: lists, manifests with removed entries, vectors, values and statistics."""
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            yield repr(manifest).encode()
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                file = entry.data_file
                yield repr(file).encode()
                if file.file_format.value == "PUFFIN":
                    with open_input(table.io, file.file_path, file.key_metadata).open() as stream:
                        yield stream.read()
                elif Path(file.file_path.removeprefix("file://")).exists():
                    key = KeyMetadata.decode(file.key_metadata)
                    properties = pe.create_decryption_properties(footer_key=key.dek.reveal(), aad_prefix=key.aad_prefix)
                    with pq.ParquetFile(file.file_path.removeprefix("file://"), decryption_properties=properties) as stored:
                        yield repr(stored.read().to_pylist()).encode()
                        groups = [stored.metadata.row_group(number) for number in range(stored.num_row_groups)]
                        yield repr([group.column(n).statistics for group in groups for n in range(group.num_columns)]).encode()


def test_after_it_and_expiry_deleted_rows_are_in_no_file(table: Any, lake: TestLake) -> None:
    """One by equality, whose value is in the delete file and its bounds too; one by a vector; one by older position deletes."""
    table.append(arrow([(100, 1, CANARY + "-eq"), (101, 1, "kept"), (102, 1, CANARY + "-dv"), (103, 1, CANARY + "-pos")]))
    path = next(entry.data_file.file_path for entry in data_files(table) if entry.data_file.record_count == 4)
    commit(table, positions(table, "p1", {path: [3]}))
    commit(table, by_name(table, "e1", [CANARY + "-eq"]))
    set_mode(table, "merge-on-read")
    table.delete("id = 102")
    assert CANARY.encode() in b"".join(haystack(table)), "the search finds what is there"
    done = table.maintenance.rewrite_deletes(into="data")
    assert (done.rewritten_files, done.added_files, done.conflicted_files) == (1, 1, 0)
    assert not delete_entries(table)
    expected = sorted([*without(), (101, 1, "kept")])
    assert rows_of(table) == expected
    assert CANARY.encode() in b"".join(haystack(table)), "older snapshots have them"
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert CANARY.encode() not in b"".join(haystack(table))
    assert b"kept" in b"".join(haystack(table))
    assert rows_of(table) == expected
    verified(table)  # every file that is left is one of those that were searched
    assert not table.maintenance.rewrite_deletes(into="data").snapshots, "there is nothing left to do"
    assert not any(CANARY.encode() in data for data in lake.files().values())


@pytest.mark.parametrize("into", ["vectors", "data"])
def test_rows_that_others_delete_meanwhile_stay_deleted(table: Any, lake: TestLake, into: Any) -> None:
    other = lake.catalog().load_table("db.t")
    commit(table, equality(table, "e1", [4, 14]))
    set_mode(table, "merge-on-read")
    other.refresh()
    left = {*range(20)} - {4, 14}

    def delete(*gone: int) -> None:
        other.delete(f"id in ({', '.join(map(str, gone))})")
        left.difference_update(gone)

    def append() -> None:
        other.append(arrow([row(30)]))
        left.add(30)

    done = table.maintenance.rewrite_deletes(into=into, progress=meanwhile(lambda: delete(5, 15), append, lambda: delete(6)))
    assert {5, 15}.isdisjoint(left), "others came in between"
    assert rows_of(table) == sorted(map(row, left))
    assert done.snapshots
    assert not [e for e in delete_entries(table) if e.data_file.equality_ids]
    verified(table)


def test_a_compaction_that_began_before_brings_no_row_back(lake: TestLake) -> None:
    """By hand: planned on 2, equality deletes are 3, 4 makes them a vector; the new files of 2 would have the row, and none deletes it."""
    table, other = make(lake, 6), lake.catalog().load_table("db.t")

    def others() -> None:
        commit(other, equality(other, "e1", [17]))
        other.maintenance.rewrite_deletes()

    table.maintenance.compact(options=ALL, progress=meanwhile(others))
    assert rows_of(table) == without(17, rows=60)
    verified(table)


def test_equality_deletes_of_an_older_spec_that_come_in_hold_for_compacted_rows(lake: TestLake) -> None:
    """The new files are in partitions of the new spec, where deletes of a partition of the old one do not apply."""
    table = make(lake, 6, BY_N)
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(2), "b")
    other = lake.catalog().load_table("db.t")

    def others() -> None:
        victim = next(e.data_file for _, e in live_entries(other) if e.data_file.partition[0] == 17 % 3)
        field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
        rows = pa.Table.from_arrays([pa.array([17])], schema=pa.schema([field]))
        kinds = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]}
        commit(other, parquet(other, rows, "e1", partition=victim.partition, **kinds))
        assert 17 not in {r[0] for r in rows_of(other)}

    table.maintenance.compact(options=ALL, progress=meanwhile(others))
    assert rows_of(table) == without(17, rows=60)


def test_a_damaged_delete_file_changes_nothing(table: Any) -> None:
    commit(table, equality(table, "e1", [4]))
    path = Path(delete_entries(table)[0].data_file.file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    head = table.current_snapshot().snapshot_id
    with pytest.raises(IntegrityError):
        table.maintenance.rewrite_deletes()
    assert table.refresh().current_snapshot().snapshot_id == head
    assert not list(path.parent.glob("*.puffin"))


def test_what_makes_no_sense_is_refused(table: Any) -> None:
    with pytest.raises(PolicyError, match="into is 'avro'"):
        table.maintenance.rewrite_deletes(into="avro")
    with pytest.raises(PolicyError, match="no branch"):
        table.maintenance.rewrite_deletes(branch="audit")
