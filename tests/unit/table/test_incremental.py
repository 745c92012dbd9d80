"""Incremental append scans: the rows of append snapshots in a range, with all that a scan can do."""

from __future__ import annotations

from typing import Any

import pytest

from icelock.errors import ExpiredSnapshotError, IntegrityError, PolicyError
from tests.helpers.table_model import ARROW, arrow, row
from tests.lakes.sqlite import KEYED, TestLake


@pytest.fixture
def table(lake: TestLake) -> Any:
    """Appends of 0-4, 10-14 and 20-24; between the last two a delete, an overwrite and a vector."""
    made = lake.catalog().create_table("db.t", ARROW, properties={**KEYED, "write.delete.mode": "merge-on-read"})
    for first in (0, 10):
        made.append(arrow(map(row, range(first, first + 5))))
    made.delete("id = 11")
    made.overwrite(arrow([row(99)]), overwrite_filter="id = 0")
    made.append(arrow(map(row, range(20, 25))))
    return made


def ids(scan: Any) -> list[int]:
    return sorted(scan.to_arrow()["id"].to_pylist())


def test_the_rows_of_append_snapshots_and_no_others(table: Any) -> None:
    snapshots = [s.snapshot_id for s in table.snapshots()]
    assert ids(table.incremental_append_scan()) == [*range(5), *range(10, 15), *range(20, 25)]
    assert ids(table.incremental_append_scan(from_snapshot_id_exclusive=snapshots[0])) == [*range(10, 15), *range(20, 25)]
    assert ids(table.incremental_append_scan(to_snapshot_id_inclusive=snapshots[1])) == [*range(5), *range(10, 15)]
    assert ids(table.incremental_append_scan(from_snapshot_id_exclusive=snapshots[1], to_snapshot_id_inclusive=snapshots[3])) == []
    scan = table.incremental_append_scan().from_snapshot_id_inclusive(snapshots[1]).to_snapshot_id_inclusive(snapshots[2])
    assert ids(scan) == list(range(10, 15)), "a row that was deleted later was added all the same"


def test_filters_columns_limits_batches_and_counts(table: Any) -> None:
    scan = table.incremental_append_scan(row_filter="id >= 12", selected_fields=("s", "_row_id", "id"))
    assert scan.to_arrow().column_names == ["id", "s", "_row_id"]
    assert ids(scan) == [12, 13, 14, *range(20, 25)]
    assert scan.count() == 8
    assert table.incremental_append_scan().count() == 15
    assert sorted(scan.to_arrow_batch_reader().read_all()["id"].to_pylist()) == ids(scan)
    assert table.incremental_append_scan(limit=7).to_arrow().num_rows == 7
    assert table.incremental_append_scan(limit=7).count() == 7
    assert len(list(scan.plan_files())) == len(scan.scan_tasks()) == 2
    assert scan.select("id").to_arrow().column_names == ["id"]
    assert ids(scan.filter("id < 21")) == [12, 13, 14, 20]
    assert len(scan.to_pandas()) == 8
    assert ids(table.incremental_append_scan(row_filter="ID = 3", case_sensitive=False)) == [3]


def test_the_schema_is_the_current_one(table: Any) -> None:
    with table.update_schema() as update:
        update.rename_column("s", "text")
    assert table.incremental_append_scan().to_arrow().column_names == ["id", "n", "text"]


def test_merged_manifests_do_not_hide_what_an_append_added(lake: TestLake) -> None:
    """As in Java and PyIceberg, an append whose manifest a later one merged is still known by its own snapshot's list."""
    settings = {**KEYED, "commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = lake.catalog().create_table("db.t", ARROW, properties=settings)
    for first in range(4):
        table.append(arrow([row(first)]))
    assert len(table.current_snapshot().manifests(table.io)) == 1
    second = table.snapshots()[1].snapshot_id
    assert ids(table.incremental_append_scan(from_snapshot_id_exclusive=second)) == [2, 3]


def test_an_empty_table_and_ranges_that_are_none(lake: TestLake, table: Any) -> None:
    empty = lake.catalog().create_table("db.empty", ARROW, properties=KEYED)
    assert empty.incremental_append_scan().to_arrow().num_rows == 0
    first, second, *_ = [s.snapshot_id for s in table.snapshots()]
    for arguments in (
        {"to_snapshot_id_inclusive": 1},
        {"from_snapshot_id_exclusive": 1},
        {"from_snapshot_id_exclusive": second, "to_snapshot_id_inclusive": first},
    ):
        with pytest.raises(PolicyError, match="snapshot"):
            table.incremental_append_scan(**arguments).to_arrow()
    for begin, end in ((1, second), (second, first)):
        with pytest.raises(PolicyError, match=f"snapshot {begin}.*not an ancestor"):
            table.incremental_append_scan().from_snapshot_id_inclusive(begin).to_snapshot_id_inclusive(end).to_arrow()


def test_an_expired_start_says_where_to_go_on(table: Any) -> None:
    first, second, *_ = [s.snapshot_id for s in table.snapshots()]
    table.maintenance.expire_snapshots().by_ids([first, second]).commit()
    table.refresh()
    with pytest.raises(ExpiredSnapshotError, match=f"begin at {second}"):
        table.incremental_append_scan(from_snapshot_id_exclusive=first).to_arrow()
    assert ids(table.incremental_append_scan(from_snapshot_id_exclusive=second)) == [*range(20, 25)]


def test_changed_bytes_are_found(lake: TestLake, table: Any) -> None:
    for path in sorted(lake.warehouse.rglob("*.parquet")):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(IntegrityError):
        table.incremental_append_scan().to_arrow()
