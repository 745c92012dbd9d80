"""Transactions of several operations, and changes of form in and outside them (cases C-05, C-06): one commit, all keys, or nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap64

from icelock.arrow.read.task import read_task
from icelock.arrow.write.row_rewrite import with_lineage
from icelock.arrow.write.writer import write_data_files
from icelock.errors import PolicyError
from icelock.table.rows.file_rewrite import EngineWork
from tests.helpers.table_model import ARROW, LINEAGE, arrow, delete_entries, row, rows_of, verified
from tests.helpers.tables import ids, load
from tests.lakes.sqlite import KEYED, TestLake

RETRY = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5"}
BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))


def make(lake: TestLake, **properties: str) -> Any:
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=BY_N, properties={**KEYED, **RETRY, **properties})
    table.append(arrow(map(row, range(10))))
    return table


def upsert(tx: Any) -> None:
    """An input lacks no column of the table, or rows could not be updated."""
    rows = arrow([(5, 2, "new"), row(103)])
    more = "more" in tx.table_metadata.schema().column_names
    tx.upsert(rows.append_column("more", pa.nulls(2, pa.string())) if more else rows, ["id"])


def branch(tx: Any) -> None:
    tx.manage_snapshots().create_branch(tx.table_metadata.current_snapshot_id, "side").commit()
    tx.append(arrow([row(104)]), branch="side")


STEPS: dict[str, Callable[[Any], Any]] = {
    "append": lambda tx: tx.append(arrow([row(100)])),
    "delete": lambda tx: tx.delete("id = 3"),
    "overwrite": lambda tx: tx.overwrite(arrow([row(101)]), overwrite_filter="id = 4"),
    "dynamic": lambda tx: tx.dynamic_partition_overwrite(arrow([(102, 77, "x")])),
    "upsert": upsert,
    "schema": lambda tx: tx.update_schema().add_column("more", StringType()).commit(),
    "properties": lambda tx: tx.set_properties({"owner": "me"}),
    "tag": lambda tx: tx.manage_snapshots().create_tag(tx.table_metadata.current_snapshot_id, "t").commit(),
    "branch": branch,
}
AFTER = sorted([*(i for i in range(10) if i not in (3, 4)), 100, 101, 102, 103])


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "disturbed"])
@pytest.mark.parametrize("order", [tuple(STEPS), tuple(reversed(STEPS))], ids=["forward", "backward"])
def test_all_operations_in_one_commit(lake: TestLake, mode: str, disturbed: bool, order: tuple[str, ...]) -> None:  # noqa: FBT001
    """Also when another writer commits in between, so that every snapshot is made again."""
    table = make(lake, **{"write.delete.mode": mode, "write.merge.mode": mode})
    with table.transaction() as tx:
        for name in order:
            STEPS[name](tx)
        if disturbed:
            load(lake).append(arrow([(200, 5, "theirs")]))
    fresh = load(lake)
    theirs = [200] if disturbed else []
    assert ids(fresh) == [*AFTER, *theirs]
    assert len(fresh.metadata.metadata_log) == 2 + len(theirs), "the table, the first append, and what was before ours"
    ours = fresh.snapshots()[1 + len(theirs) :]
    assert len(ours) == 6
    keys = {key.key_id for key in fresh.metadata.encryption_keys}
    assert {snapshot.key_id for snapshot in fresh.snapshots()} <= keys
    assert len(keys) == 1 + len(fresh.snapshots()), "a KEK and one list key a snapshot, none of a failed attempt"
    for snapshot in ours:
        assert fresh.scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows > 0, "snapshots inside the transaction can be read"
    assert fresh.properties["owner"] == "me"
    assert "more" in fresh.schema().column_names
    assert set(fresh.metadata.refs) == {"main", "side", "t"}
    assert len({r["_row_id"] for r in fresh.scan(selected_fields=LINEAGE).to_arrow().to_pylist()}) == len(AFTER) + len(theirs)
    verified(fresh)


@pytest.mark.turns(3)
@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(["append", "delete", "overwrite", "dynamic", "upsert"], 2)))
def test_an_operation_sees_those_before_it(lake: TestLake, first: str, second: str) -> None:
    """Two in one transaction do what they do one after another."""
    make(lake)
    with load(lake).transaction() as tx:
        STEPS[first](tx)
        STEPS[second](tx)
    at_once = rows_of(load(lake))
    lake.catalog().drop_table("db.t")
    table = make(lake)
    for name in (first, second):
        with table.transaction() as tx:
            STEPS[name](tx)
    assert rows_of(table) == at_once


def test_a_step_that_fails_leaves_the_others_to_commit(lake: TestLake) -> None:
    table = make(lake)
    with table.transaction() as tx:
        tx.append(arrow([row(100)]))
        with pytest.raises(PolicyError):
            tx.upsert(arrow([row(1), row(1)]), ["id"])
        with pytest.raises(PolicyError):
            tx.append(arrow([row(1)]).append_column("none", pa.array([1])))
        tx.delete("id = 3")
    assert ids(load(lake)) == [0, 1, 2, *range(4, 10), 100]
    verified(load(lake))


def test_a_block_that_fails_leaves_nothing(lake: TestLake) -> None:
    table = make(lake)
    before = lake.files()

    def fail() -> None:
        with table.transaction() as tx:
            tx.append(arrow([row(100)]))
            tx.delete("id = 3")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lake.files() == before
    assert ids(load(lake)) == list(range(10))


# --- changes of form


def change_schema(update: Any) -> None:
    update.add_column("more", StringType(), doc="x")
    update.add_column("d", LongType(), default_value=7)
    update.rename_column("s", "text")
    update.update_column("n", LongType())
    update.move_first("s")


def test_schema_evolution_outside_and_inside_a_transaction(lake: TestLake) -> None:
    table = make(lake)
    with table.update_schema() as update:
        change_schema(update)
    assert table.schema().column_names == ["text", "id", "n", "more", "d"]
    assert set(table.scan().to_arrow()["d"].to_pylist()) == {7}
    with table.transaction() as tx:
        with tx.update_schema() as update:
            update.delete_column("more")
            update.union_by_name(pa.schema([("id", pa.int64()), ("joined", pa.string())]))
        tx.append(pa.table({"id": pa.array([50], pa.int64()), "joined": ["j"]}))
        with tx.update_schema() as update:
            update.make_column_optional("id")
    fresh = load(lake)
    assert fresh.schema().column_names == ["text", "id", "n", "d", "joined"]
    assert fresh.scan(row_filter=EqualTo("joined", "j")).to_arrow().to_pylist() == [
        {"text": None, "id": 50, "n": None, "d": 7, "joined": "j"}
    ]
    assert len(fresh.scan(snapshot_id=fresh.snapshots()[0].snapshot_id).to_arrow()) == 10
    verified(fresh)


def test_partition_and_sort_order_evolution(lake: TestLake) -> None:
    table = make(lake)
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "b")
        update.remove_field("n")
    table.append(arrow([row(20)]))
    with table.transaction() as tx:
        with tx.update_spec() as update:
            update.rename_field("b", "bucket")
        with tx.update_sort_order() as update:
            update.desc("id", IdentityTransform())
        tx.append(arrow([row(30), row(32)]))
        tx.delete("id in (1, 20, 30)")
        with tx.update_spec() as update:
            update.add_identity("n")
        tx.append(arrow([row(40)]))
    fresh = load(lake)
    assert ids(fresh) == [0, *range(2, 10), 32, 40]
    assert [field.name for field in fresh.spec().fields] == ["bucket", "n"]
    assert fresh.sort_order().fields[0].source_id == 1
    assert set(ids(fresh, row_filter="n = 1 and id > 1")) == {r for r in (4, 7, 40) if row(r)[1] == 1}
    fresh.delete("n = 2")
    assert all(r[1] != 2 for r in rows_of(load(lake)))
    verified(load(lake))


def test_properties_and_name_mapping(lake: TestLake) -> None:
    table = make(lake)
    with table.transaction() as tx:
        tx.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json(), "a": "b"})
        with tx.update_schema() as update:
            update.rename_column("s", "text")
    names = {field["field-id"]: field["names"] for field in json.loads(load(lake).properties["schema.name-mapping.default"])}
    assert names[3] == ["s", "text"]
    with table.transaction() as tx:
        tx.remove_properties("a")
    assert "a" not in load(lake).properties
    assert load(lake).properties["encryption.key-id"] == "keyA"


@pytest.mark.parametrize(
    "change",
    [
        lambda tx: tx.set_properties({"encryption.key-id": "keyB"}),
        lambda tx: tx.set_properties({"encryption.data-key-length": "32"}),
        lambda tx: tx.remove_properties("encryption.key-id"),
        lambda tx: tx.upgrade_table_version(2),
        lambda tx: tx.upgrade_table_version(4),
        lambda tx: tx.update_location("/elsewhere"),
        lambda tx: tx.update_statistics(),
        lambda tx: tx.update_snapshot().delete(),
    ],
)
def test_what_is_refused_in_a_transaction(lake: TestLake, change: Any) -> None:
    table = make(lake)
    before = lake.files()
    tx = table.transaction()
    with pytest.raises(PolicyError):
        change(tx)
    tx.commit_transaction()
    assert lake.files() == before
    tx = table.transaction()
    tx.upgrade_table_version(3)
    tx.commit_transaction()
    assert lake.files() == before


# --- changes that an engine worked out


def plan(table: Any, row_filter: str) -> tuple[int, Any, list[Any]]:
    scan = table.scan(row_filter=row_filter)
    return table.current_snapshot().snapshot_id, scan, scan.plan_files()


def rewritten(tx: Any, table: Any, planned: Any, gone: set[int]) -> list[Any]:
    """A task's work in copy-on-write: the file's other rows, with their lineage."""
    scan = table.scan(selected_fields=("*", "_row_id", "_last_updated_sequence_number"))
    rows = pa.Table.from_batches(list(read_task(scan.read_context(), scan._task_builder.build(planned))))
    kept = rows.filter(pa.array([i not in gone for i in rows["id"].to_pylist()]))
    context = with_lineage(tx.staged.write_context())
    return write_data_files(context, kept.to_batches(), task_id=1, entropy=tx.staged.entropy)


def test_a_copy_on_write_change_of_an_engine(lake: TestLake) -> None:
    table = make(lake)
    before = {r["id"]: r["_row_id"] for r in table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()}
    base, _, files = plan(table, "n = 1")
    tx = table.transaction()
    added = [*rewritten(tx, table, files[0], {1}), *tx._write(arrow([row(100)]))]
    tx.change_rows(EngineWork(removed=files, added=added), row_filter="n = 1", base_snapshot_id=base)
    tx.commit_transaction()
    assert ids(load(lake)) == [0, *range(2, 10), 100]
    after = {r["id"]: r["_row_id"] for r in load(lake).scan(selected_fields=LINEAGE).to_arrow().to_pylist()}
    assert {i: after[i] for i in before if i != 1} == {i: before[i] for i in before if i != 1}
    verified(load(lake))


def test_a_merge_on_read_change_of_an_engine(lake: TestLake) -> None:
    table = make(lake)
    base, _, files = plan(table, "n in (1, 2)")
    by_n = {planned.file.partition[0]: planned for planned in files}
    tx = table.transaction()
    whole = BitMap64(range(by_n[2].file.record_count))
    cut = [(by_n[1], BitMap64([0])), (by_n[2], whole)]
    tx.change_rows(EngineWork(deleted=cut), row_filter="n in (1, 2)", base_snapshot_id=base, operation=Operation.DELETE)
    tx.commit_transaction()
    left = [r[0] for r in map(row, range(10)) if r[1] not in (1, 2)]
    assert ids(load(lake)) == sorted([*left, *(i for i in (1, 7) if i != 1)])
    assert len(delete_entries(load(lake))) == 1, "a file all of whose rows go is removed instead"
    base, _, files = plan(load(lake), "n = 1")
    with load(lake).transaction() as tx:
        tx.change_rows(EngineWork(deleted=[(files[0], BitMap64([1]))]), row_filter="n = 1", base_snapshot_id=base)
    assert ids(load(lake)) == sorted(left)
    assert delete_entries(load(lake)) == []
    verified(load(lake))


def test_a_change_of_nothing_is_no_snapshot(lake: TestLake) -> None:
    table = make(lake)
    before = lake.files()
    with table.transaction() as tx:
        tx.change_rows(EngineWork(), row_filter="id = 1", base_snapshot_id=table.current_snapshot().snapshot_id)
    assert lake.files() == before


@pytest.mark.parametrize("when", ["before it is staged", "before it is committed"])
@pytest.mark.parametrize("level", ["serializable", "snapshot"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_an_engine_whose_plan_is_out_of_date(lake: TestLake, when: str, level: str, mode: str) -> None:
    """Another writer deletes a row of a planned file: the change would bring it back, so it is a conflict, whenever it is noticed."""
    table = make(lake, **{"write.delete.mode": mode, "write.update.isolation-level": level})
    base, _, files = plan(table, "n = 1")
    tx = table.transaction()
    added = rewritten(tx, table, files[0], {1})
    change = EngineWork(removed=files, added=added)
    if when == "before it is staged":
        load(lake).delete("id = 7")
        tx = load(lake).transaction()
        with pytest.raises(Exception, match=r"conflict|another writer"):
            tx.change_rows(change, row_filter="n = 1", base_snapshot_id=base)
    else:
        tx.change_rows(change, row_filter="n = 1", base_snapshot_id=base)
        load(lake).delete("id = 7")
        with pytest.raises(Exception, match=r"conflict|another writer"):
            tx.commit_transaction()
    assert ids(load(lake)) == [i for i in range(10) if i != 7]
    assert not Path(added[0].file_path.removeprefix("file://")).exists()


def test_an_engine_whose_files_nobody_touched(lake: TestLake) -> None:
    table = make(lake, **{"write.merge.isolation-level": "snapshot"})
    base, _, files = plan(table, "n = 1")
    tx = table.transaction()
    added = rewritten(tx, table, files[0], {1})
    load(lake).append(arrow([(50, 1, "theirs")]))
    load(lake).delete("n = 0")
    tx.change_rows(
        EngineWork(removed=files, added=added),
        row_filter="n = 1",
        base_snapshot_id=base,
        isolation_property="write.merge.isolation-level",
    )
    tx.commit_transaction()
    assert ids(load(lake)) == sorted([*(i for i in range(2, 10) if row(i)[1] != 0), 50])
    verified(load(lake))


def test_an_overwrite_of_given_files_by_filter(lake: TestLake) -> None:
    table = make(lake)
    with table.transaction() as tx:
        tx.overwrite_with_data_files(tx._write(arrow([row(100)])), "id < 5", snapshot_properties={"by": "me"})
    assert ids(load(lake)) == [*range(5, 10), 100]
    assert len(load(lake).snapshots()) == 2
    verified(load(lake))


def test_a_conflict_of_forms_is_an_error(lake: TestLake) -> None:
    """Two writers add a column; neither is lost unseen."""
    table = make(lake, **{"commit.retry.num-retries": "1"})
    tx = table.transaction()
    with tx.update_schema() as update:
        update.add_column("ours", LongType())
    tx.append(arrow([row(100)]))
    with load(lake).update_schema() as update:
        update.add_column("theirs", LongType())
    before = set(lake.files())
    with pytest.raises(CommitFailedException):
        tx.commit_transaction()
    assert set(lake.files()) < before
    assert load(lake).schema().column_names == ["id", "n", "s", "theirs"]
    verified(load(lake))
