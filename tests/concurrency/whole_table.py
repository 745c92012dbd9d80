"""A table after many writers: nothing lost, nothing doubled, nothing left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LINEAGE = ("id", "_row_id", "_last_updated_sequence_number")


def assert_whole(table: Any, *, of_the_server: tuple[str, ...] = ()) -> None:
    """Check keys, row ids and files; reads every manifest list and every manifest once, and all rows.

    ``of_the_server`` are ends of names of files that a catalog's server writes and may leave.
    """
    metadata = table.metadata
    assert len({snapshot.snapshot_id for snapshot in metadata.snapshots}) == len(metadata.snapshots)
    _assert_one_line(metadata)
    _assert_keys(metadata)
    _assert_row_ids(table)
    reached = _reached(table)
    there = {str(path) for path in Path(_local(table.location())).rglob("*") if path.is_file()}
    assert {path for path in there - reached if not path.endswith(of_the_server)} == set(), "left over"
    assert reached - there == set(), "missing"


def ids(table: Any) -> list[int]:
    return sorted(table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist())


def in_order(table: Any) -> list[Any]:
    return sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)


def _assert_one_line(metadata: Any) -> None:
    """Every snapshot is the child of the one before."""
    line = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
    assert [snapshot.sequence_number for snapshot in line] == list(range(1, len(line) + 1))
    assert [snapshot.parent_snapshot_id for snapshot in line] == [None, *(snapshot.snapshot_id for snapshot in line[:-1])]
    assert metadata.current_snapshot_id == line[-1].snapshot_id


def _assert_keys(metadata: Any) -> None:
    keys = {key.key_id: key for key in metadata.encryption_keys}
    lists = {snapshot.key_id for snapshot in metadata.snapshots}
    assert len(lists) == len(metadata.snapshots)
    assert set(keys) == lists | {keys[key_id].encrypted_by_id for key_id in lists}, "every key is used, every used one is there"
    assert len(keys) == len(lists) + 1, "one KEK"


def _assert_row_ids(table: Any) -> None:
    ranges = [(s.first_row_id, s.first_row_id + s.added_rows) for s in in_order(table)]
    assert [first for first, _ in ranges] == [0, *(end for _, end in ranges[:-1])], "ranges touch and do not overlap"
    assert table.metadata.next_row_id == ranges[-1][1]
    rows = table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()
    assert len({row["_row_id"] for row in rows}) == len(rows)
    assert all(0 <= row["_row_id"] < ranges[-1][1] for row in rows)


def _reached(table: Any) -> set[str]:
    """What metadata, its log and its snapshots name; every list and manifest is opened on the way."""
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    manifests = {}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)})
    for path, manifest in manifests.items():
        found.add(path)
        found.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False))
    return {_local(location) for location in found}


def _local(location: str) -> str:
    return location.removeprefix("file://").removeprefix("file:")
