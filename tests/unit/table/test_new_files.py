"""Files that are handed to a commit: one that is there, is given twice or is another table's is refused; none of the table's is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from icelock.errors import PolicyError
from icelock.metadata.manifest import DataFile
from icelock.table.rows.file_rewrite import EngineWork
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake, people

BY_CITY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "city"))


def rows(table: Any) -> list[int]:
    return sorted(table.scan().to_arrow().column("id").to_pylist())


def planned(table: Any) -> list[DataFile]:
    return [task.file for task in table.scan().plan_files()]


def described(file: DataFile) -> DataFile:
    """The same file, by a caller's own description of it."""
    names = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "key_metadata")
    made = DataFile.from_args(**{name: getattr(file, name) for name in names})
    made.spec_id = file.spec_id
    return made


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", people().schema, partition_spec=BY_CITY, properties=KEYED)
    made.append(people())
    return made


def by_producer(kind: str) -> Callable[[Any, list[DataFile]], None]:
    def add(tx: Any, files: list[DataFile]) -> None:
        with getattr(tx.update_snapshot(), kind)() as producer:
            for file in files:
                producer.append_data_file(file)

    return add


WAYS: dict[str, Callable[[Any, list[DataFile]], None]] = {
    "fast_append": by_producer("fast_append"),
    "merge_append": by_producer("merge_append"),
    "overwrite": by_producer("overwrite"),
    "replace_partitions": by_producer("replace_partitions"),
    "append_data_files": lambda tx, files: tx.append_data_files(files),
    "overwrite_data_files": lambda tx, files: tx.overwrite_data_files(files, []),
    "overwrite_with_data_files": lambda tx, files: tx.overwrite_with_data_files(files, "id = -1"),
    "tx.replace_partitions": lambda tx, files: tx.replace_partitions(files),
    "change_rows": lambda tx, files: tx.change_rows(
        EngineWork(added=files), row_filter="true", base_snapshot_id=tx.table_metadata.current_snapshot_id
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_is", [True, False], ids=["of a plan", "described"])
def test_a_file_of_the_table_is_not_added_again(lake: TestLake, table: Any, way: str, as_is: bool) -> None:  # noqa: FBT001
    before, files = rows(table), lake.files()
    given = planned(table)[:1] if as_is else [described(planned(table)[0])]
    with pytest.raises(PolicyError, match="already, so its rows would be duplicated"), table.transaction() as tx:
        WAYS[way](tx, given)
    assert rows(load(lake)) == before
    assert lake.files() == files


@pytest.mark.parametrize("way", WAYS)
def test_nor_is_one_that_is_given_twice(lake: TestLake, table: Any, way: str) -> None:
    before, tx = rows(table), table.transaction()
    [file] = tx._write(people(100, 1))
    with pytest.raises(PolicyError, match="is given twice"):
        WAYS[way](tx, [file, file])
    assert rows(load(lake)) == before


UNREADABLE: dict[str, Callable[[Any, list[DataFile]], None]] = {
    "overwrite_data_files": lambda tx, files: tx.overwrite_data_files(files, [], overwrite_filter="id ="),
    "change_rows": lambda tx, files: tx.change_rows(
        EngineWork(added=files), row_filter="id =", base_snapshot_id=tx.table_metadata.current_snapshot_id
    ),
}


@pytest.mark.parametrize("way", UNREADABLE)
def test_new_files_are_deleted_when_the_filter_cannot_be_parsed(lake: TestLake, table: Any, way: str) -> None:
    before, tx = lake.files(), table.transaction()
    files = tx._write(people(100, 1))
    with pytest.raises(PolicyError, match="the filter cannot be read"):
        UNREADABLE[way](tx, files)
    assert lake.files() == before


def test_nor_one_that_was_added_by_the_same_transaction_or_the_one_before(lake: TestLake, table: Any) -> None:
    tx = table.transaction()
    files = tx._write(people(100, 1))
    tx.append_data_files(files)
    with pytest.raises(PolicyError, match="already"):
        tx.append_data_files(files)
    assert rows(load(lake)) == list(range(10))
    with table.transaction() as tx:
        files = tx._write(people(100, 1))
        tx.append_data_files(files)
    with pytest.raises(PolicyError, match="already"), table.transaction() as tx:
        by_producer("fast_append")(tx, files)
    assert rows(load(lake)) == [*range(10), 100]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_another_table_is_refused(lake: TestLake, table: Any, way: str) -> None:
    """Its ids are those of the other table: the names of people would be their cities."""
    swapped = pa.table({"id": people().column("id"), "city": people().column("city"), "name": people().column("name")})
    other = lake.catalog().create_table("db.other", swapped.schema, properties=KEYED)
    other.append(swapped)
    before, files = rows(table), lake.files()
    with pytest.raises(PolicyError, match="is not at the table's location"), table.transaction() as tx:
        WAYS[way](tx, planned(other))
    assert rows(load(lake)) == before
    assert lake.files() == files
    assert other.scan().count() == 10


def test_another_writer_added_it_meanwhile(lake: TestLake, table: Any) -> None:
    """A file that a snapshot of before has, put back by two writers."""
    [gone, *_] = planned(table)
    table.delete()
    stale = load(lake)
    with table.transaction() as tx:
        by_producer("fast_append")(tx, [described(gone)])
    there = rows(load(lake))
    with pytest.raises(PolicyError, match="already"), stale.transaction() as tx:
        tx.append_data_files([described(gone)])
    assert rows(load(lake)) == there
    assert len(there) == gone.record_count


def test_files_where_the_properties_say_that_files_go(lake: TestLake, table: Any) -> None:
    with table.transaction() as tx:
        tx.set_properties({"write.data.path": f"{lake.warehouse}/elsewhere"})
    table.append(people(50, 1))
    [file] = [file for file in planned(table) if "elsewhere" in file.file_path]
    table.delete("id = 50")
    with table.transaction() as tx:
        tx.append_data_files([described(file)])
    assert rows(load(lake)) == [*range(10), 50]
