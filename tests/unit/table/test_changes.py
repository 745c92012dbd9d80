"""Changes between snapshots, worked out by hand: every kind of commit in both modes, bounds, net changes, identifiers, what is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysFalse, EqualTo
from pyiceberg.table import FileScanTask
from pyiceberg.types import IntegerType
from pyroaring import BitMap64

from icelock.errors import ExpiredSnapshotError, IntegrityError, PolicyError
from icelock.table.changes import output, telling
from icelock.table.rows.file_rewrite import EngineWork
from tests.helpers.changelog import told
from tests.helpers.table_model import delete_entries
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
MODES = ("copy-on-write", "merge-on-read")
EVERY = {"rewrite-all": "true"}


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "v": value} for number, value in pairs], SCHEMA)


def make(lake: TestLake, mode: str = "copy-on-write", **more: Any) -> Any:
    modes = {f"write.{what}.mode": mode for what in ("delete", "update", "merge")}
    return lake.catalog().create_table("db.t", SCHEMA, properties={**KEYED, **modes}, **more)


def snapshot(table: Any) -> int:
    return int(table.current_snapshot().snapshot_id)


@pytest.mark.parametrize("mode", MODES)
def test_each_kind_of_commit(lake: TestLake, mode: str) -> None:
    """The same in both modes: what is moved along in a copy-on-write file is no change, and compaction changes nothing."""
    table = make(lake, mode)
    table.append(rows((1, "a"), (2, "b"), (3, "c")))
    table.append(rows((4, "d"), (5, None)))
    table.delete("id = 2")
    table.upsert(rows((1, "A"), (3, "c"), (9, "i")), join_cols=["id"])
    table.overwrite(rows((7, "g")), overwrite_filter="id = 5")
    table.maintenance.compact(options=EVERY)
    table.delete("id = 9")
    table.maintenance.rewrite_manifests()
    table.delete("id > 0")
    kinds = [str(one.summary.operation.value) for one in table.snapshots()]
    assert kinds.count("replace") == (2 if len(kinds) == 9 else 1)
    assert told(table.changes()) == [
        (1, "a", "INSERT", 0),
        (2, "b", "INSERT", 0),
        (3, "c", "INSERT", 0),
        (4, "d", "INSERT", 1),
        (5, None, "INSERT", 1),
        (2, "b", "DELETE", 2),
        (9, "i", "INSERT", 3),
        (1, "a", "UPDATE_BEFORE", 3),
        (1, "A", "UPDATE_AFTER", 3),
        (5, None, "DELETE", 4),
        (7, "g", "INSERT", 4),
        (9, "i", "DELETE", 5),
        *((number, value, "DELETE", 6) for number, value in told_rows(table.changes(), 6)),
    ]
    assert sorted(told_rows(table.changes(), 6)) == [(1, "A"), (3, "c"), (4, "d"), (7, "g")]
    assert told(table.changes(net_changes=True)) == []


def test_a_file_that_came_with_deletes_of_its_own_rows(lake: TestLake) -> None:
    """As an engine makes it that writes a row, and then its deletion, into one commit: the row never was in the table."""
    table = make(lake)
    table.append(rows((1, "a")))
    with table.transaction() as tx:
        tx.staged.prepare_kek()
        (file,) = tx._write(rows((2, "b"), (3, "c"), (4, "d")))
        file.spec_id = 0
        work = EngineWork(added=[file], deleted=[(FileScanTask(file), BitMap64([1]))])
        tx.change_rows(work, row_filter=AlwaysFalse(), base_snapshot_id=snapshot(table))
    table.refresh()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    assert len([entry for entry in delete_entries(table) if entry.data_file.record_count == 1]) == 1
    assert told(table.changes()) == [(1, "a", "INSERT", 0), (2, "b", "INSERT", 1), (4, "d", "INSERT", 1)]
    first = table.snapshots()[0].snapshot_id
    assert told(table.changes(start_snapshot_id=first, net_changes=True)) == [(2, "b", "INSERT", 0), (4, "d", "INSERT", 0)]
    table.delete("id = 4")
    assert told(table.changes(start_snapshot_id=table.snapshots()[1].snapshot_id)) == [(4, "d", "DELETE", 0)]


def told_rows(changes: Any, ordinal: int) -> list[tuple[Any, Any]]:
    return [one[:2] for one in told(changes) if one[-1] == ordinal]


def test_names_and_types_are_java_s(lake: TestLake) -> None:
    """MetadataColumns.CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID."""
    table = make(lake)
    table.append(rows((1, "a")))
    found = table.changes().to_arrow()
    assert found.schema.field("_change_type") == pa.field("_change_type", pa.string(), nullable=False)
    assert found.schema.field("_change_ordinal").type == pa.int32()
    assert found.schema.field("_commit_snapshot_id").type == pa.int64()
    assert found.column("_commit_snapshot_id").to_pylist() == [snapshot(table)]
    assert found.column_names == ["id", "v", "_change_type", "_change_ordinal", "_commit_snapshot_id"]
    assert table.changes().schema == found.schema == table.changes().to_arrow_batch_reader().schema
    assert len(table.changes().to_pandas()) == 1


@pytest.mark.parametrize("mode", MODES)
def test_net_changes_are_the_first_state_and_the_last(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    table.append(rows((1, "a"), (2, "b"), (3, "c"), (4, "d")))
    start = snapshot(table)
    table.upsert(rows((1, "A"), (2, "B"), (8, "h"), (9, "i")), join_cols=["id"])  # 0
    table.upsert(rows((1, "AA"), (2, "b"), (8, "H")), join_cols=["id"])  # 1: row 2 is as it was
    table.maintenance.compact(options=EVERY)
    table.delete("id = 9")  # 2: came and went
    table.delete("id = 3")  # 3
    assert sorted(told(table.changes(start_snapshot_id=start, net_changes=True))) == [
        (1, "AA", "UPDATE_AFTER", 1),
        (1, "a", "UPDATE_BEFORE", 0),
        (3, "c", "DELETE", 3),
        (8, "H", "INSERT", 1),
    ]
    assert sorted(told(table.changes(start_snapshot_id=start, net_changes=True, updates=False))) == [
        (1, "AA", "INSERT", 1),
        (1, "a", "DELETE", 0),
        (3, "c", "DELETE", 3),
        (8, "H", "INSERT", 1),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_identifiers_make_pairs_of_rows_with_new_row_ids(lake: TestLake, mode: str) -> None:
    """A delete and an insert in one snapshot have two row ids: two changes by them, an update by the identifier; an equal row is none."""
    table = make(lake, mode)
    table.append(rows((1, "a"), (2, "b"), (3, "c")))
    start = snapshot(table)
    table.overwrite(rows((1, "A"), (2, "b"), (5, "e")), overwrite_filter="id < 4")
    plain, by_id = table.changes(start_snapshot_id=start), table.changes(start_snapshot_id=start, identifier_fields=["id"])
    assert sorted(told(plain)) == [(1, "A", "INSERT", 0), (1, "a", "DELETE", 0), (3, "c", "DELETE", 0), (5, "e", "INSERT", 0)]
    assert told(by_id) == [
        (3, "c", "DELETE", 0),
        (5, "e", "INSERT", 0),
        (1, "a", "UPDATE_BEFORE", 0),
        (1, "A", "UPDATE_AFTER", 0),
    ]
    assert told(table.changes(start_snapshot_id=start, identifier_fields=["id"], selected_fields=("v",)))[2:] == [
        ("a", "UPDATE_BEFORE", 0),
        ("A", "UPDATE_AFTER", 0),
    ]


def test_identifiers_that_are_not_unique_are_refused(lake: TestLake) -> None:
    table = make(lake)
    table.append(rows((1, "a"), (1, "b"), (2, "c")))
    start = snapshot(table)
    table.overwrite(rows((1, "x")), overwrite_filter="id > 0")
    with pytest.raises(PolicyError, match="do not tell rows apart"):
        table.changes(start_snapshot_id=start, identifier_fields=["id"]).to_arrow()
    assert len(told(table.changes(start_snapshot_id=start))) == 4
    with pytest.raises(PolicyError, match="'nope' is no column"):
        table.changes(identifier_fields=["nope"])


def test_identifiers_over_several_snapshots(lake: TestLake) -> None:
    table = make(lake)
    table.append(rows((1, "a"), (2, "b")))
    start = snapshot(table)
    for value in ("x", "y"):
        table.overwrite(rows((1, value), (2, "b")), overwrite_filter="id > 0")
    assert told(table.changes(start_snapshot_id=start, identifier_fields=["id"], net_changes=True)) == [
        (1, "a", "UPDATE_BEFORE", 0),
        (1, "y", "UPDATE_AFTER", 1),
    ]


def test_bounds_are_java_s(lake: TestLake) -> None:
    """The start is left out and the end is in; a time is the last snapshot not after it, as a start too if it is exactly that."""
    table = make(lake)
    for number in range(4):
        table.append(rows((number, "v")))
    ids, times = zip(*((one.snapshot_id, one.timestamp_ms) for one in table.snapshots()), strict=True)
    assert list(times) == sorted(set(times)), "snapshots of one millisecond cannot be told apart by time"

    def found(**bounds: Any) -> list[int]:
        return [one[0] for one in told(table.changes(**bounds))]

    assert found() == [0, 1, 2, 3]
    assert found(start_snapshot_id=ids[1]) == [2, 3]
    assert found(end_snapshot_id=ids[1]) == [0, 1]
    assert found(start_snapshot_id=ids[0], end_snapshot_id=ids[2]) == [1, 2]
    assert found(start_snapshot_id=ids[3]) == []
    assert found(start_timestamp=times[1]) == [2, 3]
    assert found(start_timestamp=times[1] + 1) == [2, 3]
    assert found(start_timestamp=times[1] - 1) == [1, 2, 3]
    assert found(start_timestamp=times[0] - 1) == [0, 1, 2, 3]
    assert found(start_timestamp=times[3] + 1) == []
    assert found(end_timestamp=times[2] - 1) == [0, 1]
    assert found(end_timestamp=times[2]) == [0, 1, 2]
    assert found(end_timestamp=times[0] - 1) == []
    assert found(start_timestamp=times[0], end_timestamp=times[2]) == [1, 2]
    assert found(start_timestamp=datetime.fromtimestamp(times[1] / 1000, UTC)) == [2, 3]
    for wrong, message in [
        ({"start_snapshot_id": ids[0], "start_timestamp": times[0]}, "both given"),
        ({"end_snapshot_id": ids[0], "end_timestamp": times[0]}, "both given"),
        ({"start_timestamp": times[1], "end_timestamp": times[1]}, "is not before"),
        ({"start_timestamp": datetime.fromtimestamp(0)}, "without a time zone"),  # noqa: DTZ006 - that is the case
        ({"start_snapshot_id": ids[2], "end_snapshot_id": ids[1]}, "is not an ancestor of the end"),
        ({"start_snapshot_id": 5}, "is not an ancestor of the end.* and is not in the table's metadata"),
        ({"end_snapshot_id": 5}, "the end, snapshot 5, is not in the table's metadata"),
        ({"branch": "b"}, "has no branch 'b'"),
    ]:
        with pytest.raises(PolicyError, match=message):
            table.changes(**wrong)


def test_branches_and_rollback(lake: TestLake) -> None:
    table = make(lake)
    table.append(rows((1, "a")))
    base = snapshot(table)
    table.manage_snapshots().create_branch(base, "side").commit()
    table.append(rows((2, "side")), branch="side")
    table.append(rows((3, "main")))
    gone = snapshot(table)
    side = table.metadata.refs["side"].snapshot_id
    assert [one[0] for one in told(table.changes(branch="side"))] == [1, 2]
    assert [one[0] for one in told(table.changes(branch="side", start_snapshot_id=base))] == [2]
    assert [one[0] for one in told(table.changes(end_snapshot_id=side, start_snapshot_id=base))] == [2]
    assert [one[0] for one in told(table.changes())] == [1, 3]
    with pytest.raises(PolicyError, match="not an ancestor of branch side"):
        table.changes(branch="side", end_snapshot_id=gone)
    table.manage_snapshots().rollback_to_snapshot(base).commit()
    table.append(rows((4, "after")))
    assert [one[0] for one in told(table.changes(start_snapshot_id=base))] == [4]
    with pytest.raises(PolicyError, match="no changes lead from one to the other"):
        table.changes(start_snapshot_id=gone)
    assert [one[0] for one in told(table.changes(end_snapshot_id=gone))] == [1, 3]


def expire(table: Any, *snapshots: int) -> None:
    table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()


def test_expired_snapshots_are_named_with_the_way_on(lake: TestLake) -> None:
    table = make(lake)
    for number in range(4):
        table.append(rows((number, "v")))
    table.delete("id = 0")
    a, b, c, *_ = ids = [one.snapshot_id for one in table.snapshots()]
    table.manage_snapshots().create_tag(a, "kept").commit()
    expire(table, b, c)
    with pytest.raises(
        ExpiredSnapshotError, match=f"between the start, snapshot {a}.*{c} is not there any more.*at snapshot {ids[-1]} once.*begin at {c}"
    ):
        table.changes(start_snapshot_id=a)
    with pytest.raises(ExpiredSnapshotError, match=f"the start, snapshot {b}, and snapshots after it were expired"):
        table.changes(start_snapshot_id=b)
    with pytest.raises(ExpiredSnapshotError, match="snapshots at and before start_timestamp"):
        table.changes(start_timestamp=1)
    assert told(table.changes(start_snapshot_id=c)) == [(3, "v", "INSERT", 0), (0, "v", "DELETE", 1)]
    assert told(table.changes()) == told(table.changes(start_snapshot_id=c)), "without a start, the oldest that is left is the first in"


@pytest.mark.parametrize("mode", MODES)
def test_files_that_went_with_an_expired_snapshot(lake: TestLake, mode: str) -> None:
    """The oldest snapshot that is left replaced files which are gone; one that only adds a vector needs none of them."""
    table = make(lake, mode)
    table.append(rows((1, "a"), (2, "b")))
    table.append(rows((3, "c"), (4, "d")))
    table.delete("id = 1")
    first, second, third = (one.snapshot_id for one in table.snapshots())
    expire(table, first, second)
    if mode == "merge-on-read":
        assert told(table.changes()) == [(1, "a", "DELETE", 0)]
        return
    with pytest.raises(
        ExpiredSnapshotError, match=rf"snapshot {third} took away files of the snapshot before it.*give start_snapshot_id={third}"
    ):
        table.changes().to_arrow()
    assert told(table.changes(start_snapshot_id=third)) == []


def test_a_filter_tells_the_changes_of_the_rows_that_match(lake: TestLake) -> None:
    """A row that no longer matches was deleted, one that does now was inserted, as if the table had the matching rows only."""
    table = make(lake)
    table.append(rows((1, "a"), (2, "b"), (3, "a")))
    start = snapshot(table)
    table.upsert(rows((1, "b"), (2, "a"), (3, "aa")), join_cols=["id"])
    assert sorted(told(table.changes(start_snapshot_id=start, row_filter="v = 'a'"))) == [
        (1, "a", "DELETE", 0),
        (2, "a", "INSERT", 0),
        (3, "a", "DELETE", 0),
    ]
    assert len(told(table.changes(start_snapshot_id=start, row_filter=EqualTo("id", 1)))) == 2
    assert told(table.changes(row_filter="id > 100")) == []
    with pytest.raises(PolicyError):
        table.changes(row_filter="nope = 1").to_arrow()


def test_columns_and_metadata_columns(lake: TestLake) -> None:
    table = make(lake)
    table.append(rows((1, "a"), (2, "b")))
    start = snapshot(table)
    table.upsert(rows((2, "B")), join_cols=["id"])
    changes = table.changes(start_snapshot_id=start, selected_fields=("_row_id", "v", "_change_type", "_file"))
    assert [list(one.values())[:2] for one in changes.to_arrow().to_pylist()] == [["b", 1], ["B", 1]]
    assert changes.to_arrow().column_names == ["v", "_row_id", "_file", "_change_type", "_change_ordinal", "_commit_snapshot_id"]
    assert told(table.changes(start_snapshot_id=start, selected_fields=("id",))) == [(2, "UPDATE_BEFORE", 0), (2, "UPDATE_AFTER", 0)]
    with pytest.raises(PolicyError, match="_deleted says nothing"):
        table.changes(selected_fields=("id", "_deleted"))
    with pytest.raises(PolicyError, match="nope"):
        table.changes(selected_fields=("nope",))


def test_an_update_that_sets_what_was_there_is_no_change(lake: TestLake) -> None:
    """Rows with their id and a new sequence number, as ``UPDATE t SET v = v`` writes them: equal in every column, nested ones too."""
    kinds = pa.schema(
        [
            ("id", pa.int64()),
            ("x", pa.float64()),
            ("s", pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.float32()))])),
        ]
    )
    nan = float("nan")
    before = [
        {"id": 1, "x": nan, "s": {"a": [1, None], "b": [("k", nan)]}},
        {"id": 2, "x": 0.0, "s": None},
        {"id": 3, "x": 1.0, "s": {"a": [], "b": []}},
    ]
    table = lake.catalog().create_table("db.t", kinds, properties=KEYED)
    table.append(pa.Table.from_pylist(before, kinds))
    start = snapshot(table)
    after = [before[0], {"id": 2, "x": -0.0, "s": None}, {"id": 3, "x": 1.0, "s": {"a": [], "b": None}}]
    replaced = table.changes(start_snapshot_id=start)
    table.overwrite(pa.Table.from_pylist(after, kinds), overwrite_filter="id > 0")
    assert replaced.to_arrow().num_rows == 0, "changes are of the version that was asked"
    found = table.changes(start_snapshot_id=start, identifier_fields=["id"], selected_fields=("id", "s.a"))
    assert told(found) == [
        (2, None, "UPDATE_BEFORE", 0),
        (2, None, "UPDATE_AFTER", 0),
        (3, {"a": []}, "UPDATE_BEFORE", 0),
        (3, {"a": []}, "UPDATE_AFTER", 0),
    ]


def test_the_schema_is_that_of_the_end(lake: TestLake) -> None:
    table = make(lake)
    table.append(rows((1, "a"), (2, "b")))
    start = snapshot(table)
    table.upsert(rows((1, "A")), join_cols=["id"])
    middle = snapshot(table)
    with table.update_schema() as update:
        update.rename_column("v", "w")
        update.add_column("n", IntegerType())
    table = load(lake)
    table.delete("id = 2")
    assert table.changes(end_snapshot_id=middle).schema.names[:2] == ["id", "v"]
    assert told(table.changes(start_snapshot_id=start)) == [
        (1, "a", None, "UPDATE_BEFORE", 0),
        (1, "A", None, "UPDATE_AFTER", 0),
        (2, "b", None, "DELETE", 1),
    ]
    with table.update_schema() as update:
        update.delete_column("w")
    assert told(load(lake).changes(start_snapshot_id=start)) == [(2, None, "DELETE", 1)], (
        "what differs only in a column that is gone is equal"
    )


def test_an_empty_table(lake: TestLake) -> None:
    table = make(lake)
    assert table.changes().to_arrow().num_rows == 0
    assert table.changes(branch="main", start_timestamp=1).to_arrow().num_rows == 0


@pytest.mark.parametrize("by", ["row id", "identifier"])
def test_more_pairs_than_may_wait_at_once(lake: TestLake, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(output, "_MOST_WAITING", 7)
    monkeypatch.setattr(output, "_LEAST_WAITING", 1)
    table = make(lake)
    table.append(rows(*((n, "a") for n in range(60))))
    start = snapshot(table)
    if by == "row id":
        table.upsert(rows(*((n, f"b{n}") for n in range(0, 60, 2)), (100, "new")), join_cols=["id"])
    else:
        table.overwrite(rows(*((n, f"b{n}") for n in range(0, 60, 2)), (100, "new")), overwrite_filter="id != 1000")
    found = told(table.changes(start_snapshot_id=start, identifier_fields=[] if by == "row id" else ["id"]))
    pairs = [((n, "a", "UPDATE_BEFORE", 0), (n, f"b{n}", "UPDATE_AFTER", 0)) for n in range(0, 60, 2)]
    alone = [(100, "new", "INSERT", 0)] + ([] if by == "row id" else [(n, "a", "DELETE", 0) for n in range(1, 60, 2)])
    assert sorted(found) == sorted([*itertools.chain.from_iterable(pairs), *alone])
    updates = [one for one in found if one[2].startswith("UPDATE")]
    assert all(one[0] == other[0] for one, other in zip(updates[::2], updates[1::2], strict=True))


def test_a_changed_byte_in_a_removed_file(lake: TestLake) -> None:
    table = make(lake)
    table.append(rows((1, "a"), (2, "b")))
    path = next(iter(table.scan().plan_files())).file.file_path.removeprefix("file://")
    table.delete("id = 1")
    start = table.snapshots()[0].snapshot_id
    with open(path, "r+b") as file:  # noqa: PTH123
        file.seek(60)
        byte = file.read(1)
        file.seek(60)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(IntegrityError):
        table.changes(start_snapshot_id=start).to_arrow()


def test_only_ids_are_read_of_what_was_moved(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy-on-write of one row of many: the columns of the others are compared by nobody."""
    table = make(lake)
    table.append(rows(*((n, "a") for n in range(1000))))
    start = snapshot(table)
    table.upsert(rows((5, "b")), join_cols=["id"])
    monkeypatch.setattr(telling, "matched", lambda *_: pytest.fail("values were compared"))
    texts, compared = output.row_texts, []
    monkeypatch.setattr(output, "row_texts", lambda columns, rows: compared.append(rows) or texts(columns, rows))
    assert told(table.changes(start_snapshot_id=start)) == [(5, "a", "UPDATE_BEFORE", 0), (5, "b", "UPDATE_AFTER", 0)]
    assert sum(compared) == 2
