"""Files that are handed to a commit: one that is there, is given twice or is another table's is refused; none of the table's is deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from icelock.errors import PolicyError
from icelock.metadata.manifest import DataFile
from icelock.table.commit.given_partition import check_partitions
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


def misplaced(file: DataFile, values: tuple[Any, ...], spec_id: int | None = None) -> DataFile:
    """A file of another name, by a caller's description whose partition is wrong."""
    names = ("content", "file_format", "record_count", "file_size_in_bytes", "key_metadata")
    arguments = {name: getattr(file, name) for name in names}
    made = DataFile.from_args(**arguments, file_path=f"{file.file_path}.another", partition=Record(*values))
    made.spec_id = file.spec_id if spec_id is None else spec_id
    return made


MISPLACED = {
    "too many": (("town-0", 1), None, r"has 2 partition values, and partition spec 0 wants 1 \(city\)"),
    "too few": ((), None, r"has 0 partition values, and partition spec 0 wants 1 \(city\)"),
    "another type": ((7,), None, "has a int as partition value city, which is no string"),
    "half a character": (("\ud800",), None, "has a str as partition value city, which is no string"),
    "no such spec": (("town-0",), 5, "has partition spec 5, and the table has 0"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", MISPLACED)
def test_a_file_without_a_partition_of_the_table_is_refused(lake: TestLake, table: Any, way: str, wrong: str) -> None:
    before = lake.files()
    values, spec_id, message = MISPLACED[wrong]
    with pytest.raises(PolicyError, match=message), table.transaction() as tx:
        WAYS[way](tx, [misplaced(planned(table)[0], values, spec_id)])
    assert lake.files() == before


VALUES: tuple[tuple[Any, list[Any], list[Any]], ...] = (
    (ice.BooleanType(), [True, None], [1, "true"]),
    (ice.IntegerType(), [-(2**31), 2**31 - 1, None], [2**31, 1.5, "1"]),
    (ice.LongType(), [2**63 - 1], [2**63, 1.5, b"1"]),
    (ice.FloatType(), [1.5, float("nan")], ["1", 1e300]),
    (ice.DoubleType(), [1e300], ["1"]),
    (ice.DateType(), [19_000, date(2024, 1, 2)], ["2024-01-02", 2**31]),
    (ice.TimestampType(), [1_700_000_000_000_000], ["2024-01-02"]),
    (ice.DecimalType(4, 2), [Decimal("12.34")], [Decimal("123.45"), Decimal("1.2"), 1.5]),
    (ice.StringType(), ["", "x"], [b"x", 1]),
    (ice.UUIDType(), [b"0123456789abcdef", UUID(int=1)], [b"short", 1]),
    (ice.FixedType(3), [b"abc"], [b"ab", "abc"]),
    (ice.BinaryType(), [b"", b"ab"], ["ab", 1]),
)


@pytest.mark.parametrize(("kind", "good", "bad"), VALUES, ids=[str(kind) for kind, _, _ in VALUES])
def test_what_is_a_partition_value_of_a_type(lake: TestLake, table: Any, kind: Any, good: list[Any], bad: list[Any]) -> None:
    """The ranges and lengths are those of the specification's types."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    other = lake.catalog().create_table(
        "db.o", Schema(ice.NestedField(1, "p", kind, required=False)), partition_spec=spec, properties=KEYED
    )
    file = planned(table)[0]
    check_partitions(other.metadata, [misplaced(file, (value,)) for value in good], table="db.o")
    for value in bad:
        with pytest.raises(PolicyError, match=re.escape(f"has a {type(value).__name__} as partition value p, which is no {kind}: ")):
            check_partitions(other.metadata, [misplaced(file, (value,))], table="db.o")


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
