"""What producers refuse, and on which version an append is built."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import NoSuchTableError

from icelock.errors import PolicyError
from tests.helpers.tables import ids
from tests.lakes.sqlite import KEYED, TestLake, people


@pytest.mark.parametrize("kind", ["fast_append", "merge_append"])
def test_an_append_that_is_told_to_remove_a_file_is_refused(lake: TestLake, kind: str) -> None:
    """PyIceberg's says nothing and does nothing."""
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 3))
    [task] = table.scan().plan_files()
    files = lake.files()
    with pytest.raises(PolicyError, match=r"an append removes no file .*\.parquet\): use update_snapshot\(\)\.overwrite\(\)"):
        getattr(table.transaction().update_snapshot(), kind)().delete_data_file(task.file)
    assert lake.files() == files
    assert ids(table.refresh()) == [0, 1, 2]


def test_partition_values_are_no_snapshot_properties(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 1), snapshot_properties={"partitioner": "hash"})
    assert table.current_snapshot().summary["partitioner"] == "hash"
    files = lake.files()
    for name in ("partitions.city=town-1", "partition-summaries-included"):
        for use in (table.append, table.overwrite):
            with pytest.raises(PolicyError, match=f"snapshot summary '{name}' would put partition values into metadata.json"):
                use(people(1, 1), snapshot_properties={name: "added-records=1"})
    assert lake.files() == files
    assert ids(lake.catalog().load_table("db.t")) == [0]


def test_an_append_through_a_copy_whose_version_was_expired_is_built_on_the_present_one(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 1))
    stale = lake.catalog().load_table("db.t")
    table.append(people(1, 1))
    table.maintenance.expire_snapshots().by_id(stale.current_snapshot().snapshot_id).commit()
    stale.append(people(2, 1))
    assert ids(stale) == ids(table.refresh()) == [0, 1, 2]
    assert [snapshot.sequence_number for snapshot in table.metadata.snapshots] == [2, 3]
    named = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    assert {f"{lake.warehouse}/{path}" for path in lake.files() if "/snap-" in path} == {path.removeprefix("file://") for path in named}


def test_an_append_whose_list_is_gone_and_whose_table_is_too_says_so(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    table.append(people(0, 1))
    stale = lake.catalog().load_table("db.t")
    lake.catalog().purge_table("db.t")
    with pytest.raises(NoSuchTableError):
        stale.append(people(2, 1))
    assert lake.files() == {}
