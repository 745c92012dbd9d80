"""``StaticTable`` reads what Java Iceberg 1.12.0 wrote: every row, now, at every snapshot and at every ref."""

from __future__ import annotations

import pytest

import icelock
from tests.golden.relocate import TABLES, catalog_properties, expected, metadata_location
from tests.golden.rows import rows, sorted_json


def open_table(name: str) -> icelock.StaticTable:
    return icelock.StaticTable.from_metadata(metadata_location(name), catalog_properties(name))


@pytest.mark.parametrize("name", TABLES)
def test_rows_now_equal_java(name: str) -> None:
    assert rows(open_table(name).scan().to_arrow()) == sorted_json(expected(name)["rows"])


@pytest.mark.parametrize("name", TABLES)
def test_rows_at_every_snapshot_equal_java(name: str) -> None:
    """J-08: time travel by id has the snapshot's schema."""
    table = open_table(name)
    at_snapshot = expected(name)["at_snapshot"]
    assert {str(snapshot.snapshot_id) for snapshot in table.snapshots()} == set(at_snapshot)
    for snapshot_id, wanted in at_snapshot.items():
        assert rows(table.scan(snapshot_id=int(snapshot_id)).to_arrow()) == sorted_json(wanted)


@pytest.mark.parametrize("name", TABLES)
def test_rows_at_every_ref_equal_java(name: str) -> None:
    table = open_table(name)
    for ref, wanted in expected(name)["refs"].items():
        assert rows(table.scan().use_ref(ref).to_arrow()) == sorted_json(wanted)


@pytest.mark.parametrize("name", TABLES)
def test_batches_count_and_limit_agree_with_rows(name: str) -> None:
    """C-19: repeated use of one table object."""
    table = open_table(name)
    wanted = len(expected(name)["rows"])
    for _ in range(2):
        assert table.scan().count() == wanted
        assert table.scan().to_arrow_batch_reader().read_all().num_rows == wanted
        assert table.scan(limit=7).to_arrow().num_rows == min(7, wanted)


def test_filter_and_projection_on_a_partitioned_table() -> None:
    table = open_table("part_parquet")
    wanted = [{"id": row["id"], "cat": row["cat"]} for row in expected("part_parquet")["rows"] if row["cat"] == "cat1" and row["id"] < 40]
    got = table.scan(row_filter="cat = 'cat1' and id < 40", selected_fields=("id", "cat")).to_arrow()
    assert rows(got) == sorted_json(wanted)
    assert len(wanted) > 0


def test_a_filter_on_a_dropped_column_works_at_its_snapshot() -> None:
    """J-08: the filter is bound to the snapshot's schema."""
    table = open_table("evolve")
    first = table.snapshots()[0].snapshot_id
    wanted = [row for row in expected("evolve")["at_snapshot"][str(first)] if row["note"] == "note 919"]
    assert rows(table.scan(row_filter="note = 'note 919'", snapshot_id=first).to_arrow()) == sorted_json(wanted)
    assert len(wanted) > 0


@pytest.mark.parametrize("name", TABLES)
def test_row_lineage_equals_java(name: str) -> None:
    """Row ids and last updated sequence numbers, stored or inherited, row by row."""
    table = open_table(name)
    key = table.schema().fields[0].name
    found = table.scan(selected_fields=(key, "_row_id", "_last_updated_sequence_number")).to_arrow()
    assert sorted(list(row.values()) for row in found.to_pylist()) == sorted(expected(name)["row_lineage"])


def test_deletion_vectors_of_java_are_read_and_not_only_ignored() -> None:
    """C-31: tasks carry the key metadata of their delete files."""
    tasks = open_table("mor_dv").scan().scan_tasks()
    vectors = [delete for task in tasks for delete in task.deletes]
    assert {(delete.file_format, delete.content) for delete in vectors} == {("PUFFIN", 1)}
    assert all(delete.key_metadata is not None for delete in vectors)
    assert all(delete.referenced_data_file == task.path for task in tasks for delete in task.deletes)
    assert sum(task.record_count for task in tasks) - sum(delete.record_count for delete in vectors) == len(expected("mor_dv")["rows"])


def test_inspection_shows_no_key() -> None:
    """J-05: Java's metadata tables show raw data keys."""
    table = open_table("types_parquet")
    deks = [
        entry.data_file.key_metadata for m in table.current_snapshot().manifests(table.io) for entry in m.fetch_manifest_entry(table.io)
    ]
    assert all(deks)
    for shown in (table.inspect.files(), table.inspect.entries(), table.inspect.manifests(), table.inspect.all_files()):
        text = repr(shown.to_pylist()).encode()
        assert not any(repr(dek[2:18])[2:-1].encode() in text for dek in deks if dek)
    assert table.inspect.files().column("key_metadata").null_count == table.inspect.files().num_rows
    assert table.inspect.snapshots().num_rows == 3


def test_manifest_and_task_reprs_show_no_key() -> None:
    """C-32."""
    table = open_table("types_parquet")
    manifest = table.current_snapshot().manifests(table.io)[0]
    entry = manifest.fetch_manifest_entry(table.io)[0]
    task = table.scan().scan_tasks()[0]
    for shown in (manifest, entry, entry.data_file, task, table.scan().plan_files()[0].file):
        assert "key_metadata=b" not in repr(shown)
        assert repr(entry.data_file.key_metadata[2:18])[2:-1] not in repr(shown)


@pytest.mark.parametrize("name", ["avro_data", "mor_dv", "maint"])
def test_inspection_works_on_files_without_metrics(name: str) -> None:
    """C-11: PyIceberg's own ``entries`` fails on Avro files and deletion vectors."""
    table = open_table(name)
    live = sum(len(m.fetch_manifest_entry(table.io, discard_deleted=False)) for m in table.current_snapshot().manifests(table.io))
    assert table.inspect.entries().num_rows == live
    assert table.inspect.files().num_rows > 0
