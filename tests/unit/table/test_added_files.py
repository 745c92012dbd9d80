"""Which data files a snapshot added, and in which order; expected ones are those that the test wrote, in its order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icelock.plan.filters.text import parse_filter
from icelock.table.read.added_files import added_files
from tests.lakes.sqlite import KEYED

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("part", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": one, "part": one % 3} for one in ids], schema=SCHEMA)


@pytest.fixture
def table(lake):
    return lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)


def counts(table, snapshot) -> list[int]:
    return [task.record_count for task in added_files(table.metadata, table.io, snapshot.snapshot_id)]


def test_files_of_one_snapshot_keep_their_order_whatever_becomes_of_them(table):
    table.append(rows(9))
    with table.update_spec() as spec:
        spec.add_identity("part")
    table.append(rows(0, 1, 2, 3, 4, 6))  # of the partitions 0, 1, 2: three rows, two, and one
    first, second = table.snapshots()
    before = added_files(table.metadata, table.io, second.snapshot_id)
    assert sorted(task.record_count for task in before) == [1, 2, 3]
    assert {task.sequence_number for task in before} == {second.sequence_number}
    assert all(task.key_metadata is not None and task.deletes == () for task in before)
    table.delete("id = 3")
    table.append(rows(10))
    table.maintenance.compact(options={"rewrite-all": "true"})
    table.maintenance.rewrite_manifests()
    table = table.refresh()
    assert added_files(table.metadata, table.io, second.snapshot_id) == before
    assert counts(table, first) == [1]
    table.maintenance.rotate("all")  # each file again, under other keys: other files, as many in the same order
    table = table.refresh()
    after = added_files(table.metadata, table.io, second.snapshot_id)
    assert [task.partition for task in after] == [task.partition for task in before]
    assert not {task.path for task in after} & {task.path for task in before}


def test_a_filter_leaves_out_files_and_moves_none(table):
    with table.update_spec() as spec:
        spec.add_identity("part")
    table.append(rows(0, 1, 2, 3, 4, 6))
    (snapshot,) = table.snapshots()
    every = added_files(table.metadata, table.io, snapshot.snapshot_id)
    some = added_files(table.metadata, table.io, snapshot.snapshot_id, parse_filter("part in (0, 2)"))
    assert some == [task for task in every if task.partition[0] != 1]
    assert len(some) == 2


def test_compactions_add_files_that_were_not_appended_and_deletes_add_none(table):
    table.append(rows(0, 1))
    table.append(rows(2))
    table.delete("id >= 0")
    assert counts(table, table.current_snapshot()) == []
    table.append(rows(3))
    assert counts(table, table.current_snapshot()) == [1]
