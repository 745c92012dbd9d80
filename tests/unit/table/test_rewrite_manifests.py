"""Manifests put together: Java's rules and summary, every entry as it was, beside other writers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

from icelock.errors import PolicyError
from icelock.table.commit import manifest_order
from tests.helpers.table_model import ARROW, arrow, live_entries, row, rows_of, verified
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.table.test_compact import BY_N, MOR, lineage

NO_MERGE = {"commit.manifest-merge.enabled": "false"}


def make(lake: TestLake, appends: int = 8, spec: PartitionSpec = BY_N, **properties: str) -> Any:
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties={**KEYED, **NO_MERGE, **properties})
    for number in range(appends):
        table.append(arrow(map(row, range(10 * number, 10 * number + 10))))
    return table


def manifests(table: Any) -> list[Any]:
    return list(table.current_snapshot().manifests(table.io))


def entries(table: Any) -> set[tuple[Any, ...]]:
    """What a live entry must keep: snapshot, both sequence numbers, path, partition, rows, row id, key."""
    return {
        (
            e.snapshot_id,
            e.sequence_number,
            e.file_sequence_number,
            f.file_path,
            f.content_offset,
            str(f.partition),
            f.first_row_id,
            f.key_metadata,
        )
        for _, e in live_entries(table)
        for f in [e.data_file]
    }


def test_entries_are_kept_in_the_order_of_partitions(lake: TestLake) -> None:
    table = make(lake)
    table.delete("id in (0, 3, 6, 9)")  # rewrites the file of n = 0 of the first append, and removes none
    before, rows, ids = entries(table), rows_of(table), lineage(table)
    there = len(manifests(table))
    done = table.maintenance.rewrite_manifests()
    assert (done.replaced, done.created, done.kept, done.entries) == (there, 1, 0, len(before))
    snapshot = table.current_snapshot()
    assert snapshot.snapshot_id == done.snapshot_id
    assert snapshot.summary.operation.value == "replace"
    names = ("manifests-created", "manifests-kept", "manifests-replaced", "entries-processed", "total-data-files", "total-records")
    assert [snapshot.summary[name] for name in names] == ["1", "0", str(there), str(len(before)), str(len(before)), str(len(rows))]
    assert entries(table) == before
    assert (rows_of(table), lineage(table)) == (rows, ids)
    (manifest,) = manifests(table)
    assert (manifest.existing_files_count, manifest.added_files_count, manifest.deleted_files_count) == (len(before), 0, 0)
    assert manifest.min_sequence_number == min(e[1] for e in before)
    found = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    assert {e.status.name for e in found} == {"EXISTING"}
    values = [e.data_file.partition[0] for e in found]
    assert values == sorted(values, key=lambda n: -1 if n is None else n), "nulls first"
    verified(table)
    assert table.maintenance.rewrite_manifests().snapshot_id is None, "there is nothing left to gain"
    assert len(table.snapshots()) == len(table.metadata.snapshots)


@pytest.mark.parametrize("in_memory", [50_000, 7])
def test_partitions_are_cut_into_manifests_of_the_target_size(lake: TestLake, monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    """Also where not all entries are held at once: the first pass reads partitions, each further one some entries."""
    monkeypatch.setattr(manifest_order, "_IN_MEMORY", in_memory)
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(16), "b"))
    table = make(lake, 6, spec)
    before = entries(table)
    size = sum(m.manifest_length for m in manifests(table))
    with table.transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": str(size // 2 - 1)})
    plan = table.maintenance.rewrite_manifests(dry_run=True)
    done = table.maintenance.rewrite_manifests()
    assert (plan.replaced, plan.created, plan.dry_run, plan.snapshot_id) == (6, 3, True, None)
    assert (done.replaced, done.created) == (6, 3)
    assert entries(table) == before
    spans = [sorted(e.data_file.partition[0] for e in m.fetch_manifest_entry(table.io)) for m in manifests(table)]
    spans.sort()
    assert all(before[-1] <= after[0] for before, after in itertools.pairwise(spans)), "each manifest has partitions of its own"
    assert {m.existing_files_count for m in manifests(table)} <= {len(before) // 3, len(before) // 3 + 1}
    again = [table.maintenance.rewrite_manifests().created for _ in range(3)]
    assert again[1:] == [0, 0], "sorted entries may be so much smaller that once more there are fewer manifests"


def test_data_and_deletes_and_specs_stay_apart_and_removed_entries_go(lake: TestLake) -> None:
    table = make(lake, 3, **MOR)
    with table.update_spec() as change:
        change.add_field("id", BucketTransform(4), "b")
    table.append(arrow(map(row, range(100, 120))))
    table.append(arrow(map(row, range(120, 140))))
    table.delete("id in (1, 11, 101, 121)")
    table.delete("id >= 130")
    before, rows = entries(table), rows_of(table)
    assert any(m.deleted_files_count for m in manifests(table))
    only_old = table.maintenance.rewrite_manifests(spec_id=0)
    assert only_old.snapshot_id is not None
    table.maintenance.rewrite_manifests()
    assert entries(table) == before
    assert rows_of(table) == rows
    assert sorted((int(m.content), m.partition_spec_id, m.deleted_files_count) for m in manifests(table)) == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 0),
        (1, 1, 0),
    ]
    verified(table)


def test_only_what_is_chosen(lake: TestLake) -> None:
    table = make(lake)
    listed = manifests(table)
    chosen = {m.manifest_path for m in listed[:3]}
    done = table.maintenance.rewrite_manifests(rewrite_if=lambda m: m.manifest_path in chosen)
    assert (done.replaced, done.created, done.kept) == (3, 1, len(listed) - 3)
    with pytest.raises(PolicyError, match="rewrite_if is 3; it must be a function"):
        table.maintenance.rewrite_manifests(rewrite_if=3)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="no partition spec 7"):
        table.maintenance.rewrite_manifests(spec_id=7)
    with pytest.raises(PolicyError, match="no branch"):
        table.maintenance.rewrite_manifests(branch="audit")


def test_removed_entries_alone_are_reason_enough(lake: TestLake) -> None:
    table = make(lake, 1, PartitionSpec())
    table.append(arrow([row(100)]))
    table.maintenance.rewrite_manifests()
    table.delete("id = 100")
    assert manifests(table)[0].deleted_files_count == 1
    assert table.maintenance.rewrite_manifests().created == 1
    assert [m.deleted_files_count for m in manifests(table)] == [0]
    table.delete("true")
    done = table.maintenance.rewrite_manifests()
    assert (done.replaced, done.created) == (1, 0), "a manifest without a live file is replaced by nothing"
    assert manifests(table) == []
    table.append(arrow([row(7)]))
    assert rows_of(table) == [row(7)]


@pytest.mark.parametrize("conflict", ["append", "delete", "rewrite"])
def test_others_commit_meanwhile(lake: TestLake, conflict: str) -> None:
    table, other = make(lake), lake.catalog().load_table("db.t")
    acts = {
        "append": lambda: other.append(arrow([row(200)])),
        "delete": lambda: other.delete("id = 12"),
        "rewrite": other.maintenance.rewrite_manifests,
    }
    left = [acts[conflict]]

    def told(_done: int, _all: int) -> None:
        if left:
            left.pop()()

    done = table.maintenance.rewrite_manifests(progress=told)
    numbers = {*range(80)} | ({200} if conflict == "append" else set()) - ({12} if conflict == "delete" else set())
    expected = sorted(map(row, numbers - ({12} if conflict == "delete" else set())))
    assert rows_of(table) == rows_of(lake.catalog().load_table("db.t")) == expected
    assert (done.snapshot_id is None) == (conflict == "rewrite"), "the other one has done it"
    if conflict == "append":
        assert (done.kept, len(manifests(table))) == (1, 2), "the new manifest is kept as it is"
    verified(table)


def test_nothing_is_left_of_a_commit_that_failed(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake)
    before = lake.files()

    def broken(*_args: Any, **_more: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("icelock.table.commit.producer.write_manifest_list", broken)
    with pytest.raises(OSError, match="no space"):
        table.maintenance.rewrite_manifests()
    assert lake.files() == before


def test_bounds_say_whether_manifests_are_in_order() -> None:
    """By hand: nulls first, NaN last, the second field counts where the first has one value."""
    low = manifest_order._sort_key
    span = lambda first, last: (low(first), low(last))  # noqa: E731
    in_order = manifest_order._spans_in_order
    assert in_order([[span(1, 3)], [span(3, 5)], [span(None, 1)]])
    assert not in_order([[span(1, 3)], [span(2, 5)]])
    assert in_order([[span(1, 1), span("a", "c")], [span(1, 1), span("c", "d")], [span(2, 3), span("a", "z")]])
    assert not in_order([[span(1, 1), span("a", "c")], [span(1, 1), span("b", "d")]])
    assert in_order([[span(1.0, float("nan"))], [span(float("nan"), float("nan"))]])
    assert not in_order([[None], [span(1, 1)]])
    assert low(None) < low(-5.0) < low(float("inf")) < low(float("nan"))
