"""Dynamic overwrite: exactly the partitions of the rows, under any transform, and nobody else's rows lost."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

from icelock.errors import PolicyError
from tests.helpers.table_model import ARROW, LINEAGE, Row, arrow, delete_entries, live_entries, row, rows_of, verified
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake

BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
RETRY = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5"}


def make(lake: TestLake, spec: PartitionSpec = BY_N, **properties: str) -> Any:
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties={**KEYED, **RETRY, **properties})
    table.append(arrow(map(row, range(20))))
    return table


def of_partition(n: int | None) -> list[Row]:
    return [row(number) for number in range(20) if row(number)[1] == n]


def test_partitions_of_the_rows_are_replaced_and_no_other(lake: TestLake) -> None:
    table = make(lake)
    new: list[Row] = [(100, 1, "x"), (101, None, None)]
    table.dynamic_partition_overwrite(arrow(new), {"by": "me"})
    assert rows_of(table) == sorted([*of_partition(0), *of_partition(2), *new])
    assert len(table.snapshots()) == 2
    summary = table.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    assert summary.additional_properties["replace-partitions"] == "true", "as Java's ReplacePartitions"
    assert summary.additional_properties["by"] == "me"
    assert summary.additional_properties["deleted-records"] == str(len(of_partition(1)) + len(of_partition(None)))
    assert table.scan(row_filter="id < 20", selected_fields=LINEAGE).to_arrow()["_last_updated_sequence_number"].unique().to_pylist() == [1]
    verified(table)


def test_a_new_partition_is_added_as_an_overwrite(lake: TestLake) -> None:
    table = make(lake)
    table.dynamic_partition_overwrite(arrow([(100, 77, "x")]))
    assert len(rows_of(table)) == 21
    assert table.current_snapshot().summary.operation.value == "overwrite"
    verified(table)


def test_no_rows_change_nothing(lake: TestLake) -> None:
    table = make(lake)
    before = lake.files()
    table.dynamic_partition_overwrite(ARROW.empty_table())
    assert lake.files() == before
    assert len(load(lake).snapshots()) == 1


def test_an_unpartitioned_table_is_refused(lake: TestLake) -> None:
    table = make(lake, PartitionSpec())
    before = lake.files()
    with pytest.raises(PolicyError, match="no partitions to replace"):
        table.dynamic_partition_overwrite(arrow([row(1)]))
    assert lake.files() == before


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(lake: TestLake) -> None:
    table = make(lake)
    before = lake.files()
    with pytest.raises(PolicyError, match="more"):
        table.dynamic_partition_overwrite(arrow([row(1)]).append_column("more", pa.array([1])))
    assert lake.files() == before


def test_deletion_vectors_of_the_partition_go_with_it(lake: TestLake) -> None:
    table = make(lake, **{"write.delete.mode": "merge-on-read"})
    table.delete("id in (1, 2)")  # of partitions 1 and 2
    assert len(delete_entries(table)) == 2
    table.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    (left,) = delete_entries(table)
    assert left.data_file.partition[0] == 2
    assert rows_of(table) == sorted([*of_partition(0), *(r for r in of_partition(2) if r[0] != 2), *of_partition(None), (100, 1, "x")])
    verified(table)


def test_files_of_an_older_spec_stay(lake: TestLake) -> None:
    """As Java's ReplacePartitions: a partition is one of a spec; what an older spec wrote is in none of the new one's."""
    table = make(lake)
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(1), "b")
    table.append(arrow([(50, 1, "later")]))
    table.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    assert rows_of(table) == [*map(row, range(20)), (100, 1, "x")]
    assert {m.partition_spec_id for m, _ in live_entries(table)} == {0, 1}
    verified(table)


@pytest.mark.parametrize(
    "transform", [BucketTransform(3), TruncateTransform(4), IdentityTransform()], ids=["bucket", "truncate", "identity"]
)
def test_transforms_that_pyiceberg_refuses(lake: TestLake, transform: Any) -> None:
    """By hand: the rows whose partition value, as the manifests say, is that of a new row are gone; all others are there."""
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties=KEYED)
    table.append(arrow(map(row, range(20))))
    apply = transform.transform(ice.LongType())
    table.dynamic_partition_overwrite(arrow([(5, 1, "x"), (106, 1, "y")]))
    replaced = {apply(5), apply(106)}
    assert [r[0] for r in rows_of(table)] == sorted([*(i for i in range(20) if apply(i) not in replaced), 5, 106])
    verified(table)


def test_several_partition_fields_are_one_tuple(lake: TestLake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"), PartitionField(1, 1001, BucketTransform(2), "b"))
    table = make(lake, spec)
    bucket = BucketTransform(2).transform(ice.LongType())
    table.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    gone = {r[0] for r in of_partition(1) if bucket(r[0]) == bucket(100)}
    assert 0 < len(gone) < len(of_partition(1))
    assert [r[0] for r in rows_of(table)] == [*(i for i in range(20) if i not in gone), 100]


TYPES: list[tuple[Any, Any, Any, Any]] = [
    (ice.BooleanType(), pa.bool_(), True, False),
    (ice.IntegerType(), pa.int32(), -5, 7),
    (ice.LongType(), pa.int64(), -(2**62), 2**62),
    (ice.FloatType(), pa.float32(), 0.1, math.inf),
    (ice.DoubleType(), pa.float64(), math.nan, -math.inf),
    (ice.DoubleType(), pa.float64(), -0.0, 1.5),
    (ice.DecimalType(9, 2), pa.decimal128(9, 2), decimal.Decimal("-1.10"), decimal.Decimal("1000.00")),
    (ice.DecimalType(30, 4), pa.decimal128(30, 4), decimal.Decimal("-12345678901234567890.1234"), decimal.Decimal("0.0000")),
    (ice.DateType(), pa.date32(), dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    (ice.TimeType(), pa.time64("us"), dt.time(0, 0, 1), dt.time(23, 59, 59, 999999)),
    (ice.TimestampType(), pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59), dt.datetime(2024, 2, 29)),  # noqa: DTZ001
    (ice.TimestamptzType(), pa.timestamp("us", "UTC"), dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
    (ice.TimestampNanoType(), pa.timestamp("ns"), -1, 10**18 + 1),
    (ice.StringType(), pa.string(), "a/b c", "\U0001f511"),
    (ice.UUIDType(), pa.uuid(), uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes),
    (ice.FixedType(3), pa.binary(3), b"\x00\x01\x02", b"\xff\xff\xff"),
    (ice.BinaryType(), pa.binary(), b"", b"\xff"),
]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("kind", "arrow_type", "first", "second"), TYPES, ids=[f"{t[0]}-{n}" for n, t in enumerate(TYPES)])
def test_partition_values_of_every_type_are_known_again(lake: TestLake, kind: Any, arrow_type: Any, first: Any, second: Any) -> None:
    """Values that were written in one commit and come back from the manifest are those that a later write makes."""
    schema = Schema(ice.NestedField(1, "id", ice.LongType(), required=False), ice.NestedField(2, "p", kind, required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = lake.catalog().create_table("db.t", schema, partition_spec=spec, properties=KEYED)

    def rows(ids: list[int], values: list[Any]) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array(values, arrow_type)})

    table.append(rows([1, 2, 3], [first, second, None]))
    table.dynamic_partition_overwrite(rows([11], [first]))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [2, 3, 11]
    load(lake).dynamic_partition_overwrite(rows([13], [None]))
    assert sorted(load(lake).scan().to_arrow()["id"].to_pylist()) == [2, 11, 13]
    load(lake).dynamic_partition_overwrite(rows([12, 14], [second, first]))
    assert sorted(load(lake).scan().to_arrow()["id"].to_pylist()) == [12, 13, 14]
    verified(load(lake))


def test_rows_of_a_partition_that_is_a_uuid_are_found_and_deleted(lake: TestLake) -> None:
    schema = Schema(ice.NestedField(1, "id", ice.LongType(), required=False), ice.NestedField(2, "p", ice.UUIDType(), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = lake.catalog().create_table("db.t", schema, partition_spec=spec, properties=KEYED)
    one, two = uuid.UUID(int=1), uuid.UUID(int=2**127)
    table.append(pa.table({"id": [1, 2], "p": pa.array([one.bytes, two.bytes], pa.uuid())}))
    assert table.scan(row_filter=EqualTo("p", two)).to_arrow()["id"].to_pylist() == [2]
    table.delete(EqualTo("p", one))
    assert table.scan().to_arrow()["id"].to_pylist() == [2]


def test_by_day(lake: TestLake) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day"))
    table = lake.catalog().create_table("db.t", schema, partition_spec=spec, properties=KEYED)
    hour = 3_600_000_000
    table.append(pa.table({"id": [1, 2, 3], "at": pa.array([-1, 5 * hour, 23 * hour])}).cast(schema))
    table.dynamic_partition_overwrite(pa.table({"id": [4], "at": pa.array([hour])}).cast(schema))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 4]


def test_manifests_of_other_partitions_are_not_read(lake: TestLake) -> None:
    """By their summaries; the same manifests are listed again, untouched."""
    table = make(lake)
    for n in (5, 6, None):
        table.append(arrow([(100 + (n or 0), n, "x")]))
    before = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}
    table.dynamic_partition_overwrite(arrow([(200, 6, "y")]))
    after = {m.manifest_path for m in table.current_snapshot().manifests(table.io)}
    assert len(before) == 4
    assert len(before - after) == 1
    table.dynamic_partition_overwrite(arrow([(300, None, "z")]))
    assert [r[0] for r in rows_of(table) if r[0] >= 100] == [105, 200, 300]
    verified(table)


# --- two writers


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
def test_rows_that_came_into_another_partition_are_no_conflict(lake: TestLake, level: str) -> None:
    stale = make(lake, **{"write.update.isolation-level": level})
    load(lake).append(arrow([(50, 2, "theirs")]))
    load(lake).delete("n = 0")
    stale.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    assert rows_of(load(lake)) == sorted([*of_partition(2), *of_partition(None), (50, 2, "theirs"), (100, 1, "x")])
    verified(load(lake))


def test_rows_that_came_into_the_same_partition_are_a_conflict_when_serializable(lake: TestLake) -> None:
    stale = make(lake)
    load(lake).append(arrow([(50, 1, "theirs")]))
    before = lake.files()
    with pytest.raises(ValidationException, match="added rows"):
        stale.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    assert lake.files() == before
    assert len(rows_of(load(lake))) == 21


def test_they_are_replaced_under_snapshot_isolation(lake: TestLake) -> None:
    """As Java with isolation level snapshot: only lost rows are a conflict."""
    stale = make(lake, **{"write.update.isolation-level": "snapshot"})
    load(lake).append(arrow([(50, 1, "theirs")]))
    stale.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    assert [r for r in rows_of(load(lake)) if r[1] == 1] == [(100, 1, "x")]
    verified(load(lake))


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_another_deleted_there_are_a_conflict(lake: TestLake, level: str, mode: str) -> None:
    stale = make(lake, **{"write.update.isolation-level": level, "write.delete.mode": mode})
    load(lake).delete("id = 1")
    before = lake.files()
    with pytest.raises(ValidationException, match="rows"):
        stale.dynamic_partition_overwrite(arrow([(100, 1, "x")]))
    assert lake.files() == before
    assert [r[0] for r in rows_of(load(lake))] == [0, *range(2, 20)]


def test_an_engine_that_planned_on_an_older_snapshot_is_checked_at_once(lake: TestLake) -> None:
    table = make(lake)
    planned = table.current_snapshot().snapshot_id
    table.append(arrow([(50, 1, "theirs")]))
    tx = table.transaction()
    files = tx._write(arrow([(100, 1, "x")]))
    with pytest.raises(ValidationException, match="added rows"):
        tx.replace_partitions(files, base_snapshot_id=planned)
    assert len(rows_of(load(lake))) == 21
    verified(load(lake))
