"""Upsert by key: PyIceberg's results, Java's row lineage, one snapshot; and what cannot be decided is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ValidationException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType, UUIDType

from icelock.errors import KmsError, PolicyError
from tests.helpers.table_model import ARROW, LINEAGE, Row, arrow, delete_entries, live_entries, row, rows_of, verified
from tests.helpers.tables import load
from tests.lakes.sqlite import KEYED, TestLake

COW, MOR = "copy-on-write", "merge-on-read"
RETRY = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5"}
BY_N = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))


@pytest.fixture(params=[COW, MOR])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(lake: TestLake, mode: str = COW, spec: PartitionSpec = PartitionSpec(), **properties: str) -> Any:  # noqa: B008
    settings = {**KEYED, **RETRY, "write.merge.mode": mode, **properties}
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties=settings)
    table.append(arrow(map(row, range(10))))
    table.append(arrow(map(row, range(10, 20))))
    return table


def lineage(table: Any) -> dict[int, tuple[int, int]]:
    found = table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()
    assert len({r["_row_id"] for r in found}) == len(found)
    return {r["id"]: (r["_row_id"], r["_last_updated_sequence_number"]) for r in found}


def changed(*ids: int) -> list[Row]:
    return [(number, 9, "changed") for number in ids]


def test_rows_are_updated_and_inserted_in_one_snapshot(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    before = lineage(table)
    result = table.upsert(arrow([*changed(3, 15), row(5), row(100)]), ["id"], snapshot_properties={"by": "me"})
    assert (result.rows_updated, result.rows_inserted) == (2, 1), "row 5 is as it was"
    expected = {r[0]: r for r in [*map(row, range(20)), *changed(3, 15), row(100)]}
    assert rows_of(table) == sorted(expected.values())
    assert len(table.snapshots()) == 3
    assert table.current_snapshot().summary.operation.value == "overwrite"
    assert table.current_snapshot().summary.additional_properties["by"] == "me"
    after = lineage(table)
    assert {i: after[i] for i in before if i not in (3, 15)} == {i: before[i] for i in before if i not in (3, 15)}
    assert {i: after[i] for i in (3, 15)} == {i: (before[i][0], 3) for i in (3, 15)}, "the row id stays, the sequence number is new"
    assert after[100][1] == 3
    assert after[100][0] not in {row_id for row_id, _ in before.values()}
    assert len(delete_entries(table)) == (2 if mode == MOR else 0)
    verified(table)


def test_files_without_a_key_of_the_input_are_not_touched(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    before = {e.data_file.file_path for _, e in live_entries(table)}
    table.upsert(arrow(changed(3)), ["id"])
    after = {e.data_file.file_path for m, e in live_entries(table) if int(m.content) == 0}
    assert len(before & after) == (1 if mode == COW else 2)


def test_no_change_is_no_snapshot(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    before = lake.files()
    result = table.upsert(arrow(map(row, range(20))), ["id"])
    assert (result.rows_updated, result.rows_inserted) == (0, 0)
    assert lake.files() == before
    assert table.upsert(ARROW.empty_table(), ["id"]).rows_inserted == 0
    assert lake.files() == before
    assert len(load(lake).snapshots()) == 2


def test_inserts_alone_are_an_append(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    result = table.upsert(arrow([*changed(3), row(100)]), ["id"], when_matched_update_all=False)
    assert (result.rows_updated, result.rows_inserted) == (0, 1)
    assert rows_of(table) == [*map(row, range(20)), row(100)]
    assert table.current_snapshot().summary.operation.value == "append"


def test_updates_alone(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    result = table.upsert(arrow([*changed(3), row(100)]), ["id"], when_not_matched_insert_all=False)
    assert (result.rows_updated, result.rows_inserted) == (1, 0)
    assert rows_of(table) == sorted([*(row(i) for i in range(20) if i != 3), *changed(3)])
    verified(table)


def test_a_file_all_of_whose_rows_are_updated_goes(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    before = lineage(table)
    table.upsert(arrow(changed(*range(10))), ["id"])
    assert rows_of(table) == [*changed(*range(10)), *map(row, range(10, 20))]
    assert delete_entries(table) == []
    assert {i: n for i, (n, _) in lineage(table).items()} == {i: n for i, (n, _) in before.items()}
    verified(table)


def test_a_row_moves_to_its_new_partition(lake: TestLake, mode: str) -> None:
    table = make(lake, mode, BY_N)
    before = lineage(table)
    table.upsert(arrow([(3, 77, "moved"), (4, None, "stays")]), ["id"])
    assert rows_of(table) == sorted([*(row(i) for i in range(20) if i not in (3, 4)), (3, 77, "moved"), (4, None, "stays")])
    assert lineage(table)[3] == (before[3][0], 3)
    verified(table)


def test_again_and_again(lake: TestLake, mode: str) -> None:
    """Rows that live among deleted ones, and in files that hold stored lineage."""
    table = make(lake, mode, **{"write.delete.mode": mode})
    before = lineage(table)
    table.delete("id in (2, 3, 12)")
    table.upsert(arrow([*changed(3, 4), row(100)]), ["id"])
    table.upsert(arrow([(4, 1, "again"), (100, 1, "again"), (5, None, None)]), ["id"])
    rows = {r[0]: r for r in map(row, range(20)) if r[0] not in (2, 12)}
    rows |= {3: (3, 9, "changed"), 4: (4, 1, "again"), 100: (100, 1, "again"), 5: (5, None, None)}
    assert rows_of(table) == sorted(rows.values())
    after = lineage(table)
    assert {i: after[i][0] for i in after if i not in (3, 100)} == {i: before[i][0] for i in before if i not in (2, 3, 12)}
    assert after[4][1] == 5
    assert after[6] == before[6]
    verified(table)


def test_key_of_two_columns_and_names_without_case(lake: TestLake, mode: str) -> None:
    table = make(lake, mode, BY_N)
    result = table.upsert(arrow([(0, 0, "same key"), (1, 0, "other key")]), ["ID", "N"], case_sensitive=False)
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert [r for r in rows_of(table) if r[0] in (0, 1)] == [(0, 0, "same key"), (1, 0, "other key"), (1, 1, row(1)[2])]
    with pytest.raises(PolicyError, match="column 'ID' does not exist; did you mean 'id'"):
        table.upsert(arrow([row(1)]), ["ID"])


def test_identifier_fields_are_the_key_unless_one_is_given(lake: TestLake, mode: str) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "s", StringType()), identifier_field_ids=[1])
    table = lake.catalog().create_table("db.t", schema, properties={**KEYED, "write.merge.mode": mode})
    rows = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    table.append(pa.Table.from_pylist([{"id": 1, "s": "a"}], rows))
    table.upsert(pa.Table.from_pylist([{"id": 1, "s": "b"}, {"id": 2, "s": "c"}], rows))
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == [{"id": 1, "s": "b"}, {"id": 2, "s": "c"}]


def test_to_a_branch(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()
    table.upsert(arrow([*changed(3), row(100)]), ["id"], branch="b")
    assert rows_of(table) == [*map(row, range(20))]
    found = table.scan().use_ref("b").to_arrow().to_pylist()
    assert sorted(r["id"] for r in found) == [*range(20), 100]
    assert [r["s"] for r in found if r["id"] == 3] == ["changed"]
    verified(table)


def test_in_a_transaction_with_other_operations(lake: TestLake, mode: str) -> None:
    table, other = make(lake, mode), load(lake)
    with table.transaction() as tx:
        tx.append(arrow([row(50), row(51)]))
        assert tx.upsert(arrow([*changed(50, 3), row(60)]), ["id"]).rows_updated == 2
        tx.delete("id = 51")
        other.append(arrow([row(200)]))  # so that the whole is made again
    rows = {r[0]: r for r in [*map(row, range(20)), row(60), row(200), *changed(50, 3)]}
    assert rows_of(load(lake)) == sorted(rows.values())
    assert lineage(load(lake))[200][1] == 3
    verified(load(lake))


# --- what is refused


@pytest.mark.parametrize(
    ("rows", "key", "match"),
    [
        ([row(1), (1, 5, "twice")], ["id"], "row 1 of the input has the same key"),
        ([(None, 1, "x")], ["id"], "nulls"),
        ([(1, None, "x")], ["id", "n"], "nulls"),
        ([row(1)], ["nope"], "column 'nope' does not exist"),
        ([row(1)], [], "needs a key"),
        ([row(1)], None, "needs a key"),
    ],
)
def test_sources_that_are_refused(lake: TestLake, mode: str, rows: Any, key: Any, match: str) -> None:
    table = make(lake, mode)
    before = lake.files()
    with pytest.raises(PolicyError, match=match):
        table.upsert(arrow(rows), key)
    assert lake.files() == before
    assert len(load(lake).snapshots()) == 2


def test_nothing_to_do_is_refused(lake: TestLake) -> None:
    table = make(lake)
    with pytest.raises(PolicyError, match="does nothing"):
        table.upsert(arrow([row(1)]), ["id"], when_matched_update_all=False, when_not_matched_insert_all=False)
    assert len(load(lake).snapshots()) == 2


def test_a_key_that_two_rows_of_the_table_have_is_refused(lake: TestLake, mode: str) -> None:
    """Also when they lie in two files; PyIceberg finds those of one batch only."""
    table = make(lake, mode)
    table.append(arrow([(3, 5, "again")]))
    before = lake.files()
    with pytest.raises(PolicyError, match="two rows of the table"):
        table.upsert(arrow(changed(3, 4)), ["id"])
    assert lake.files() == before
    assert table.upsert(arrow([*changed(3), row(90)]), ["id"], when_matched_update_all=False).rows_inserted == 1


def test_an_input_that_lacks_a_column_may_insert_and_not_update(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    narrow = arrow([*changed(3), row(100)]).drop_columns(["n"])
    before = lake.files()
    with pytest.raises(PolicyError, match=r"lacks column 'n'"):
        table.upsert(narrow, ["id"])
    assert lake.files() == before
    table.upsert(narrow, ["id"], when_matched_update_all=False)
    assert [r for r in rows_of(table) if r[0] in (3, 100)] == [row(3), (100, None, row(100)[2])]


def test_settings_that_are_none(lake: TestLake) -> None:
    for name in ("write.merge.mode", "write.merge.isolation-level"):
        table = lake.catalog().create_table(f"db.t{name[12]}", ARROW, properties={**KEYED, name: "sometimes"})
        before = lake.files()
        with pytest.raises(PolicyError, match=name):
            table.upsert(arrow([row(1)]), ["id"])
        assert lake.files() == before


def test_a_kms_that_is_out_writes_nothing(lake: TestLake, mode: str) -> None:
    table = make(lake, mode)
    before = lake.files()
    lake.calls.deny("unwrap")
    with pytest.raises(KmsError):
        lake.catalog().load_table("db.t").upsert(arrow(changed(3)), ["id"])
    lake.calls.deny("")
    assert lake.files() == before
    assert table.upsert(arrow(changed(3)), ["id"]).rows_updated == 1


# --- keys and values of every kind


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False]),
        (pa.int32(), [-1, 2**31 - 1]),
        (pa.float64(), [0.1, -math.inf, math.inf]),
        (pa.decimal128(9, 2), [decimal.Decimal("-1.10"), decimal.Decimal("1.00")]),
        (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
        (pa.time64("us"), [dt.time(0, 0, 1), dt.time(23, 59, 59, 999999)]),
        (pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 2, 29)]),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), [dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, tzinfo=dt.UTC)]),
        (pa.timestamp("ns"), [-1, 10**18 + 1]),
        (pa.string(), ["", "a", "\U0001f511"]),
        (pa.binary(), [b"", b"\x00", b"\xff"]),
        (pa.binary(3), [b"\x00\x01\x02", b"\xff\xff\xff"]),
        (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes]),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_keys_of_every_type(lake: TestLake, mode: str, kind: Any, values: list[Any]) -> None:
    if kind == pa.uuid():
        made: Any = Schema(NestedField(1, "k", UUIDType()), NestedField(2, "v", LongType()))
    else:
        made = pa.schema([("k", kind), ("v", pa.int64())])
    table = lake.catalog().create_table("db.t", made, properties={**KEYED, "write.merge.mode": mode})

    def rows(keys: list[Any], number: int) -> pa.Table:
        return pa.table({"k": pa.array(keys, kind), "v": pa.array([number] * len(keys), pa.int64())})

    table.append(rows(values[:-1], 1))
    result = table.upsert(rows(values, 2), ["k"])
    assert (result.rows_updated, result.rows_inserted) == (len(values) - 1, 1)
    found = table.scan().to_arrow()
    assert sorted(map(str, found["k"].to_pylist())) == sorted(map(str, rows(values, 2)["k"].to_pylist()))
    assert set(found["v"].to_pylist()) == {2}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), pa.array(["a", "b", "c"], pa.string_view())),
        (pa.binary(), pa.array([b"a", b"b", b"c"], pa.binary_view())),
        (pa.string(), pa.array(["a", "b", "c"]).dictionary_encode()),
        (pa.int64(), pa.RunEndEncodedArray.from_arrays([1, 2, 3], [1, 2, 3])),
        (pa.decimal128(9, 2), pa.array([decimal.Decimal(1), decimal.Decimal(2), decimal.Decimal(3)], pa.decimal32(9, 2))),
        (pa.string(), pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2", "3"]))),
    ],
    ids=str,
)
def test_other_arrow_forms_of_keys_and_values(lake: TestLake, mode: str, kind: Any, values: Any) -> None:
    """What pa.table(polars_frame) gives, and other forms that Arrow cannot take rows of."""
    types = pa.schema([("k", kind), ("v", kind)])
    table = lake.catalog().create_table("db.forms", types, properties={**KEYED, "write.merge.mode": mode})
    table.append(pa.table([values, values], ["k", "v"]))
    before = table.scan().to_arrow().to_pylist()
    assert table.upsert(pa.table([values, values], ["k", "v"]), ["k"]).rows_updated == 0
    moved = pa.concat_arrays([values.slice(1), values.slice(0, 1)])
    result = table.upsert(pa.table([values, moved], ["k", "v"]), ["k"])
    assert (result.rows_updated, result.rows_inserted) == (3, 0)
    assert [row["v"] for row in sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"])] == [
        before[1]["v"],
        before[2]["v"],
        before[0]["v"],
    ]


def test_nan_and_zero_as_keys_are_those_of_spark(lake: TestLake, mode: str) -> None:
    """NaN equals NaN, whatever its bits, and -0.0 equals 0.0; nulls of the table are found by nothing."""
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    table = lake.catalog().create_table("db.t", schema, properties={**KEYED, "write.merge.mode": mode})
    other_nan = pa.array([0x7FF8_0000_0000_0001], pa.uint64()).view(pa.float64())
    table.append(pa.table({"k": pa.concat_arrays([other_nan, pa.array([0.0, None, 5.0])]), "v": [1, 1, 1, 1]}, schema=schema))
    result = table.upsert(pa.table({"k": [math.nan, -0.0], "v": [2, 2]}, schema=schema), ["k"])
    assert (result.rows_updated, result.rows_inserted) == (2, 0)
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [1, 1, 2, 2]
    with pytest.raises(PolicyError, match=r"same key .* as an earlier row"):
        table.upsert(pa.table({"k": [0.0, -0.0], "v": [2, 2]}, schema=schema), ["k"])


def test_values_that_are_the_same_are_not_updated(lake: TestLake, mode: str) -> None:
    """Null and null, NaN and NaN, and nested values."""
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "x y", StructType(NestedField(3, "a b", LongType()), NestedField(4, "f", StringType()))),
        NestedField(5, "l", ListType(6, LongType(), element_required=False)),
        NestedField(7, "m", MapType(8, StringType(), 9, LongType(), value_required=False)),
    )
    table = lake.catalog().create_table("db.t", schema, properties={**KEYED, "write.merge.mode": mode})
    kinds = pa.schema(
        [
            ("id", pa.int64()),
            ("x y", pa.struct([("a b", pa.int64()), ("f", pa.string())])),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    first = [
        {"id": 1, "x y": {"a b": 1, "f": None}, "l": [1, None], "m": [("k", None)]},
        {"id": 2, "x y": None, "l": None, "m": None},
        {"id": 3, "x y": {"a b": None, "f": None}, "l": [], "m": []},
    ]
    table.append(pa.Table.from_pylist(first, kinds))
    assert table.upsert(pa.Table.from_pylist(first, kinds), ["id"]).rows_updated == 0
    second = [
        {"id": 1, "x y": {"a b": 1, "f": "new"}, "l": [1, None], "m": [("k", None)]},
        {"id": 2, "x y": None, "l": [], "m": None},
        {"id": 3, "x y": None, "l": [], "m": []},
    ]
    assert table.upsert(pa.Table.from_pylist(second, kinds), ["id"]).rows_updated == 3
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == second


def test_columns_with_names_of_metadata_columns(lake: TestLake, mode: str) -> None:
    """``_pos`` is a name like others; ``_row_id`` is one that rewritten rows need."""
    schema = pa.schema([("id", pa.int64()), ("_pos", pa.int64())])
    table = lake.catalog().create_table("db.t", schema, properties={**KEYED, "write.merge.mode": mode})
    table.append(pa.table({"id": [1, 2], "_pos": [5, 6]}))
    assert table.upsert(pa.table({"id": [2, 3], "_pos": [7, 8]}), ["id"]).rows_updated == 1
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == [
        {"id": 1, "_pos": 5},
        {"id": 2, "_pos": 7},
        {"id": 3, "_pos": 8},
    ]
    taken = lake.catalog().create_table("db.u", pa.schema([("id", pa.int64()), ("_row_id", pa.int64())]), properties=KEYED)
    taken.append(pa.table({"id": [1], "_row_id": [5]}))
    before = lake.files()
    with pytest.raises(PolicyError, match="reserved name"):
        taken.upsert(pa.table({"id": [1], "_row_id": [6]}), ["id"])
    assert lake.files() == before


# --- two writers


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
def test_other_keys_are_no_conflict(lake: TestLake, mode: str, level: str) -> None:
    stale = make(lake, mode, **{"write.merge.isolation-level": level})
    load(lake).append(arrow([row(100)]))
    load(lake).upsert(arrow(changed(15)), ["id"])
    stale.upsert(arrow(changed(3)), ["id"])
    assert rows_of(load(lake)) == sorted([*(row(i) for i in range(20) if i not in (3, 15)), *changed(3, 15), row(100)])
    verified(load(lake))


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
def test_other_rows_of_one_file(lake: TestLake, mode: str, level: str) -> None:
    """A conflict, as in Java: the file is another one, or has a vector already; nothing is lost."""
    stale = make(lake, mode, **{"write.merge.isolation-level": level})
    load(lake).upsert(arrow(changed(4)), ["id"])
    before = lake.files()
    with pytest.raises(ValidationException, match="conflict"):
        stale.upsert(arrow(changed(3)), ["id"])
    assert lake.files() == before
    assert [r for r in rows_of(load(lake)) if r[0] in (3, 4)] == [row(3), *changed(4)]


@pytest.mark.parametrize("level", ["serializable", "snapshot"])
def test_an_update_of_the_same_row_is_a_conflict(lake: TestLake, mode: str, level: str) -> None:
    """Neither update is lost unseen."""
    stale = make(lake, mode, **{"write.merge.isolation-level": level})
    load(lake).upsert(arrow([(3, 1, "theirs")]), ["id"])
    before = lake.files()
    with pytest.raises(ValidationException, match="conflict"):
        stale.upsert(arrow([(3, 1, "ours")]), ["id"])
    assert lake.files() == before
    assert [r for r in rows_of(load(lake)) if r[0] == 3] == [(3, 1, "theirs")]


def test_a_row_that_another_inserted_is_a_conflict_when_serializable(lake: TestLake, mode: str) -> None:
    stale = make(lake, mode)
    load(lake).append(arrow([(100, 1, "theirs")]))
    before = lake.files()
    with pytest.raises(ValidationException, match="added rows"):
        stale.upsert(arrow([(100, 1, "ours")]), ["id"])
    assert lake.files() == before


def test_many_rows_against_a_model(lake: TestLake, mode: str) -> None:
    """Random upserts of up to 400 rows, more than a filter lists, on 2,000 partitioned rows."""
    chance = random.Random(7)
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
    table = lake.catalog().create_table("db.t", ARROW, partition_spec=spec, properties={**KEYED, "write.merge.mode": mode})
    rows = {number: row(number) for number in range(2000)}
    table.append(arrow(rows.values()))
    ids = {i: row_id for i, (row_id, _) in lineage(table).items()}
    for step in range(3):
        wanted = {number: (number, step, chance.choice(["x", None])) for number in chance.sample(range(2400), 400)}
        result = table.upsert(arrow(wanted.values()), ["id"])
        assert result.rows_updated == sum(rows[i] != r for i, r in wanted.items() if i in rows)
        assert result.rows_inserted == sum(i not in rows for i in wanted)
        rows |= wanted
        assert rows_of(table) == sorted(rows.values(), key=lambda r: r[0])
        now = {i: row_id for i, (row_id, _) in lineage(table).items()}
        assert {i: now[i] for i in ids} == ids
        ids = now
    verified(table)
