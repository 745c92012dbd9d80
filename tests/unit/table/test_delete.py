"""Deletes and overwrites by a filter that cuts through files: what is rewritten, what is marked, what the metadata says."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from icelock.errors import KeyUnavailableError, KmsError, PolicyError
from tests.helpers.table_model import (
    ARROW,
    LINEAGE,
    Model,
    arrow,
    by_id,
    delete_entries,
    live_entries,
    n_is,
    one_of,
    row,
    rows_of,
    verified,
)
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.arrow.writing import parquet_file

BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
COW, MOR = "copy-on-write", "merge-on-read"
ROW_ID, LAST_UPDATED = 2147483540, 2147483539


def make(lake: TestLake, mode: str = COW, *, spec: PartitionSpec = PartitionSpec(), **properties: str) -> Any:  # noqa: B008
    settings = {**KEYED, "write.delete.mode": mode, **properties}
    return lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties=settings)


def append(table: Any, model: Model, first: int, count: int) -> None:
    rows = [row(number) for number in range(first, first + count)]
    table.append(arrow(rows))
    model.add(rows, table)


def paths(table: Any) -> set[str]:
    return {e.data_file.file_path for m, e in live_entries(table) if m.content == ManifestContent.DATA}


def summary(table: Any) -> dict[str, str]:
    found = table.current_snapshot().summary
    return {"operation": found.operation.value, **found.additional_properties}


def long(value: int) -> bytes:
    return struct.pack("<q", value)


@pytest.fixture(params=[COW, MOR])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- copy-on-write


def test_only_files_with_matching_and_other_rows_are_rewritten(lake: TestLake) -> None:
    table, model = make(lake), Model()
    for first in (0, 10, 20):
        append(table, model, first, 10)
    untouched, cut, whole = sorted(paths(table), key=lambda path: _first_id(table, path))
    table.delete("id >= 15")
    model.remove(by_id(15, 99), table)
    left = paths(table)
    assert untouched in left
    assert not {cut, whole} & left
    assert len(left) == 2
    model.check(table)
    assert len(table.snapshots()) == 4
    assert summary(table)["operation"] == "overwrite"
    verified(table)


def _first_id(table: Any, path: str) -> int:
    (lower,) = [e.data_file.lower_bounds[1] for _, e in live_entries(table) if e.data_file.file_path == path]
    return int(struct.unpack("<q", lower)[0])


def test_kept_rows_have_their_lineage_in_stored_columns_with_metrics(lake: TestLake) -> None:
    """As in Java's golden table cow_update: both columns optional, with counts and bounds."""
    table, model = make(lake), Model()
    append(table, model, 0, 10)
    append(table, model, 10, 10)
    table.delete("id in (3, 4, 19)")
    model.remove(one_of(3, 4, 19), table)
    model.check(table)
    files = {e.data_file.record_count: e.data_file for _, e in live_entries(table)}
    assert sorted(files) == [8, 9]
    with parquet_file(files[8]) as opened:
        schema = opened.schema_arrow
        stored = opened.read()
    ids = {int(field.metadata[b"PARQUET:field_id"]): (field.name, field.type, field.nullable) for field in schema}
    assert list(ids) == [1, 2, 3, ROW_ID, LAST_UPDATED]
    assert ids[ROW_ID] == ("_row_id", pa.int64(), True)
    assert ids[LAST_UPDATED] == ("_last_updated_sequence_number", pa.int64(), True)
    assert stored.column("_row_id").to_pylist() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert set(stored.column("_last_updated_sequence_number").to_pylist()) == {1}
    for file, first, last, number in ((files[8], 0, 9, 1), (files[9], 10, 18, 2)):
        rows = file.record_count
        assert (file.value_counts[ROW_ID], file.null_value_counts[ROW_ID]) == (rows, 0)
        assert (file.lower_bounds[ROW_ID], file.upper_bounds[ROW_ID]) == (long(first), long(last))
        assert (file.lower_bounds[LAST_UPDATED], file.upper_bounds[LAST_UPDATED]) == (long(number), long(number))
        assert file.null_value_counts[LAST_UPDATED] == 0


def test_a_summary_of_a_copy_on_write_delete(lake: TestLake) -> None:
    """By hand: 10 rows of which 3 go; the names are those of Java's golden tables."""
    table, model = make(lake), Model()
    append(table, model, 0, 10)
    (old,) = [e.data_file.file_size_in_bytes for _, e in live_entries(table)]
    table.delete("id < 3")
    (new,) = [e.data_file.file_size_in_bytes for _, e in live_entries(table)]
    assert summary(table) == {
        "operation": "overwrite",
        "added-data-files": "1",
        "deleted-data-files": "1",
        "added-records": "7",
        "deleted-records": "10",
        "added-files-size": str(new),
        "removed-files-size": str(old),
        "changed-partition-count": "1",
        "total-data-files": "1",
        "total-delete-files": "0",
        "total-records": "7",
        "total-files-size": str(new),
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
    snapshot = table.current_snapshot()
    assert (snapshot.first_row_id, snapshot.added_rows) == (10, 7), "the new file takes ids, which its rows do not use"


def test_rewritten_files_follow_the_present_spec_schema_and_sort_order(lake: TestLake) -> None:
    table, model = make(lake), Model()
    append(table, model, 0, 12)
    with table.update_schema() as update:
        update.add_column("extra", StringType())
        update.rename_column("s", "text")
    with table.update_spec() as update:
        update.add_field("n", IdentityTransform(), "n")
    table = lake.catalog().load_table("db.t")
    table.delete("id = 7")
    entries = [e.data_file for _, e in live_entries(table)]
    assert sorted(str(file.partition[0]) for file in entries) == ["0", "1", "2", "None"]
    assert {file.spec_id for file in entries} == {table.spec().spec_id}
    rows = table.scan(selected_fields=("*", "_row_id")).to_arrow().to_pylist()
    assert sorted((r["id"], r["n"], r["text"], r["extra"], r["_row_id"]) for r in rows) == [(*row(i), None, i) for i in range(12) if i != 7]
    verified(table)


# --- merge-on-read


def test_the_entry_of_a_deletion_vector(lake: TestLake) -> None:
    """Fields as format.md "Delete files" says, every one."""
    table, model = make(lake, MOR, spec=BY_N), Model()
    append(table, model, 0, 20)
    table.delete("id in (0, 3, 6, 1)")
    model.remove(one_of(0, 3, 6, 1), table)
    model.check(table)
    manifests = table.current_snapshot().manifests(table.io)
    assert [m.content for m in manifests] == [ManifestContent.DATA, ManifestContent.DELETES]
    added = manifests[1]
    assert (added.added_files_count, added.added_rows_count, added.first_row_id) == (2, 4, None)
    assert (added.sequence_number, added.min_sequence_number) == (2, 2)
    by_file = {e.data_file.referenced_data_file: e for e in delete_entries(table)}
    data = {e.data_file.file_path: e.data_file for m, e in live_entries(table) if m.content == ManifestContent.DATA}
    assert {data[path].partition[0]: e.data_file.record_count for path, e in by_file.items()} == {0: 3, 1: 1}
    offset = 4
    for path, entry in by_file.items():
        file = entry.data_file
        assert (entry.status, entry.snapshot_id) == (ManifestEntryStatus.ADDED, table.current_snapshot().snapshot_id)
        assert (entry.sequence_number, entry.file_sequence_number) == (2, 2)
        assert (file.content.value, file.file_format.value) == (1, "PUFFIN")
        assert (file.partition, file.spec_id) == (data[path].partition, data[path].spec_id)
        assert file.content_offset == offset
        offset += file.content_size_in_bytes
        for name in ("column_sizes", "value_counts", "lower_bounds", "split_offsets", "equality_ids", "sort_order_id", "first_row_id"):
            assert getattr(file, name) is None
    puffins = {(e.data_file.file_path, e.data_file.file_size_in_bytes, e.data_file.key_metadata) for e in by_file.values()}
    assert len(puffins) == 1, "one file a commit: entries repeat path, size and key metadata"
    ((path, size, _),) = puffins
    stored = Path(path.removeprefix("file://")).read_bytes()
    assert (stored[:4], len(stored)) == (b"AGS1", size)
    verified(table)


def test_summaries_of_deletion_vectors(lake: TestLake) -> None:
    """Java's names (golden mor_dv): sizes are those of the blobs; a second delete replaces the vector."""
    table, model = make(lake, MOR), Model()
    append(table, model, 0, 20)
    (data_size,) = [e.data_file.file_size_in_bytes for _, e in live_entries(table)]
    table.delete("id < 3")
    one = delete_entries(table)[0].data_file.content_size_in_bytes
    assert summary(table) == {
        "operation": "delete",
        "added-delete-files": "1",
        "added-dvs": "1",
        "added-files-size": str(one),
        "added-position-deletes": "3",
        "changed-partition-count": "1",
        "total-data-files": "1",
        "total-delete-files": "1",
        "total-records": "20",
        "total-files-size": str(data_size + one),
        "total-position-deletes": "3",
        "total-equality-deletes": "0",
    }
    table.delete("id = 10 or id = 2")
    two = delete_entries(table)[0].data_file.content_size_in_bytes
    expected = {
        "added-delete-files": "1",
        "removed-delete-files": "1",
        "added-dvs": "1",
        "removed-dvs": "1",
        "added-files-size": str(two),
        "removed-files-size": str(one),
        "added-position-deletes": "4",
        "removed-position-deletes": "3",
        "total-delete-files": "1",
        "total-position-deletes": "4",
        "total-files-size": str(data_size + two),
    }
    assert {name: summary(table)[name] for name in expected} == expected
    assert [(s.first_row_id, s.added_rows) for s in table.snapshots()] == [(0, 20), (20, 0), (20, 0)]
    assert table.metadata.next_row_id == 20


def test_a_replaced_vector_is_an_entry_of_status_deleted(lake: TestLake) -> None:
    table, model = make(lake, MOR), Model()
    append(table, model, 0, 20)
    table.delete("id < 3")
    first = table.current_snapshot().snapshot_id
    table.delete("id = 10")
    manifests = [m for m in table.current_snapshot().manifests(table.io) if m.content == ManifestContent.DELETES]
    entries = [e for m in manifests for e in m.fetch_manifest_entry(table.io, discard_deleted=False)]
    assert [(e.status.name, e.snapshot_id == first, e.sequence_number, e.data_file.record_count) for e in entries] == [
        ("ADDED", False, 3, 4),
        ("DELETED", False, 2, 3),
    ]
    table.append(arrow([row(99)]))
    kept = [m for m in table.current_snapshot().manifests(table.io) if m.content == ManifestContent.DELETES]
    assert len(kept) == 1, "a manifest without a live file is not listed again"
    verified(table)


def test_the_data_file_stays_as_it_is(lake: TestLake) -> None:
    table, model = make(lake, MOR), Model()
    append(table, model, 0, 20)
    before = {name: data for name, data in lake.files().items() if name.endswith(".parquet")}
    table.delete("id < 3")
    assert {name: data for name, data in lake.files().items() if name.endswith(".parquet")} == before


def test_vectors_of_several_specs_are_in_manifests_of_their_spec(lake: TestLake) -> None:
    table, model = make(lake, MOR), Model()
    append(table, model, 0, 10)
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "b")
    table = lake.catalog().load_table("db.t")
    append(table, model, 10, 10)
    table.delete("id in (1, 11, 12)")
    model.remove(one_of(1, 11, 12), table)
    deletes = [m for m in table.current_snapshot().manifests(table.io) if m.content == ManifestContent.DELETES]
    assert sorted((m.partition_spec_id, m.added_rows_count) for m in deletes) == [(0, 1), (1, 2)]
    assert len({e.data_file.file_path for e in delete_entries(table)}) == 1
    model.check(table)
    verified(table)


def test_a_vector_is_made_for_avro_files_too(lake: TestLake) -> None:
    table, model = make(lake, MOR, **{"write.format.default": "avro"}), Model()
    append(table, model, 0, 20)
    table.delete("n = 1 or id = 4")
    model.remove(n_is(1), table)
    model.remove(one_of(4), table)
    model.check(table)
    verified(table)


# --- both


def test_whole_files_go_by_metadata_alone(lake: TestLake, mode: str) -> None:
    """The data files are not even there."""
    table, model = make(lake, mode, spec=BY_N), Model()
    append(table, model, 0, 20)
    kept = [p for p in lake.warehouse.rglob("*.parquet") if "n=1" not in str(p)]
    moved = [p.rename(p.with_suffix(".away")) for p in lake.warehouse.rglob("*.parquet")]
    table.delete("n = 1")
    model.remove(n_is(1), table)
    assert summary(table)["operation"] == "delete"
    assert len(paths(table)) == len(kept)
    for path in moved:
        path.rename(path.with_suffix(".parquet"))
    model.check(table)


def test_a_dropped_file_takes_its_vector_along(lake: TestLake, mode: str) -> None:
    """No dangling vector, whether the file goes by metadata, by a rewrite or by an overwrite."""
    table, model = make(lake, MOR, spec=BY_N), Model()
    append(table, model, 0, 30)
    table.delete("id in (0, 1, 2, 3, 4)")
    model.remove(one_of(0, 1, 2, 3, 4), table)
    assert len(delete_entries(table)) == 4
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})
    table.delete("n = 0")
    model.remove(n_is(0), table)
    assert len(delete_entries(table)) == 3
    table.delete("n = 1 and id < 10")
    model.remove(one_of(*(i for i in range(10) if row(i)[1] == 1)), table)
    assert len(delete_entries(table)) == (2 if mode == COW else 3)
    table.overwrite(arrow([row(50)]), overwrite_filter="n = 2")
    model.remove(n_is(2), table)
    model.add([row(50)], table)
    model.check(table)
    verified(table)
    table.overwrite(arrow([row(60)]))
    assert delete_entries(table) == []
    assert summary(table)["total-delete-files"] == "0"
    verified(table)


def test_rows_that_were_deleted_before_do_not_count(lake: TestLake, mode: str) -> None:
    """What is left of the file matches as a whole, so the file goes."""
    table, model = make(lake, MOR), Model()
    append(table, model, 0, 10)
    table.delete("id < 8")
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})
    table.delete("id in (8, 9)")
    assert rows_of(table) == []
    assert live_entries(table) == []
    assert summary(table)["operation"] == "delete"
    verified(table)


def test_nothing_matching_makes_no_snapshot_and_no_file(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    before = lake.files()
    for row_filter in ("id = 99", "n > 0 and id > 50", "s = 'canary-99'"):
        table.delete(row_filter)
    table.delete(EqualTo("id", -1))
    assert lake.files() == before
    model.check(table)


def test_an_empty_table(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    table.delete("id = 1")
    assert table.current_snapshot() is None
    table.overwrite(arrow([row(1)]), overwrite_filter="id = 1")
    assert summary(table)["operation"] == "append"


def test_an_overwrite_by_filter_is_one_snapshot(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    append(table, model, 10, 10)
    table.overwrite(arrow([row(100), row(101)]), overwrite_filter="id >= 5 and id < 10")
    model.remove(by_id(5, 9), table)
    model.add([row(100), row(101)], table)
    model.check(table)
    assert len(table.snapshots()) == 3
    assert summary(table)["operation"] == "overwrite"
    assert summary(table)["added-records"] == ("7" if mode == COW else "2")
    verified(table)


def test_all_rows_by_a_filter_that_is_always_true(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    table.delete("true")
    assert rows_of(table) == []
    assert summary(table)["total-records"] == "0"


def test_time_travel_to_before_the_delete(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    for number in (1, 5, 7):
        table.delete(f"id = {number}")
        model.remove(one_of(number), table)
    model.check(table)


def test_a_branch_has_deletes_of_its_own(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "dev").commit()
    table.delete("id < 5", branch="dev")
    table.overwrite(arrow([row(70)]), overwrite_filter="id = 9", branch="dev")
    model.check(table)
    assert [r["id"] for r in table.scan().use_ref("dev").to_arrow().sort_by("id").to_pylist()] == [5, 6, 7, 8, 70]
    verified(table)


def test_several_changes_in_one_transaction(lake: TestLake, mode: str) -> None:
    """Append, delete of appended and of old rows, overwrite: one commit, with three more snapshots and no more wraps."""
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    lake.calls.take()
    with table.transaction() as tx:
        tx.append(arrow([row(i) for i in range(10, 20)]))
        tx.delete("id in (2, 12, 13)")
        tx.delete("id = 1000")
        tx.overwrite(arrow([row(30)]), overwrite_filter="id = 14 or id = 3")
    assert lake.calls.take() == []
    assert [r[0] for r in rows_of(table)] == [i for i in range(20) if i not in (2, 12, 13, 14, 3)] + [30]
    found = table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()
    numbers = {r["id"]: r["_last_updated_sequence_number"] for r in found}
    assert {numbers[i] for i in range(10) if i in numbers} == {1}
    assert {numbers[i] for i in range(10, 20) if i in numbers} == {2}
    assert numbers[30] == 4
    assert len(lake.catalog().load_table("db.t").snapshots()) == 4
    verified(table)


def test_case_sensitivity(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    with pytest.raises(ValueError, match="ID"):
        table.delete("ID = 3")
    table.delete("ID = 3", case_sensitive=False)
    model.remove(one_of(3), table)
    model.check(table)


# --- refusals and failures


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"write.delete.mode": "merge-on-write"}, r"write\.delete\.mode is 'merge-on-write'"),
        ({"write.delete.isolation-level": "repeatable"}, "must be serializable or snapshot"),
    ],
)
def test_settings_that_are_none(lake: TestLake, properties: dict[str, str], match: str) -> None:
    table, model = make(lake), Model()
    append(table, model, 0, 10)
    with table.transaction() as tx:
        tx.set_properties(properties)
    before = lake.files()
    with pytest.raises(PolicyError, match=match):
        table.delete("id = 1")
    assert lake.files() == before
    model.check(table)


def test_a_column_with_the_name_of_a_lineage_column(lake: TestLake) -> None:
    table, model = make(lake), Model()
    append(table, model, 0, 10)
    with table.update_schema() as update:
        update.add_column("_row_id", LongType())
    table = lake.catalog().load_table("db.t")
    before = lake.files()
    with pytest.raises(PolicyError, match="reserved name"):
        table.delete("id = 1")
    assert lake.files() == before


def test_no_kms_and_a_kms_that_refuses(lake: TestLake, mode: str) -> None:
    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    before = lake.files()
    with pytest.raises(KeyUnavailableError, match=r"encryption\.kms-type"):
        lake.without_kms().load_table("db.t").delete("id = 1")
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError, match="keyA"):
        lake.catalog().load_table("db.t").delete("id = 1")
    assert lake.files() == before


@pytest.mark.parametrize("nth", range(3))
def test_a_storage_that_fails_leaves_nothing(lake: TestLake, mode: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th new file cannot be made: data file or Puffin, manifest, manifest or list."""
    from pyiceberg.io.pyarrow import PyArrowFile  # noqa: PLC0415

    table, model = make(lake, mode), Model()
    append(table, model, 0, 10)
    before, made = lake.files(), []
    create = PyArrowFile.create

    def failing(self: PyArrowFile, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002
        made.append(self.location)
        if len(made) == nth + 1:
            msg = "disk full"
            raise OSError(28, msg)
        return create(self, overwrite)

    monkeypatch.setattr(PyArrowFile, "create", failing)
    with pytest.raises(OSError, match="disk full"):
        table.delete("id = 1")
    monkeypatch.undo()
    assert lake.files() == before
    model.check(table)


def test_a_failed_change_leaves_the_rest_of_its_transaction_alone(lake: TestLake) -> None:
    table, model = make(lake), Model()
    append(table, model, 0, 10)
    with table.transaction() as tx:
        tx.append(arrow([row(20)]))
        with pytest.raises(ValueError, match="nowhere"):
            tx.delete("nowhere = 1")
    model.add([row(20)], table)
    model.check(table)
    verified(table)
