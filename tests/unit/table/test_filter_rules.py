"""Filters decide by SQL's rules wherever they are given: each operation, partitioned by the column or not, with and without bounds."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import And, EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan, Not, NotEqualTo, NotIn, NotNull
from pyiceberg.expressions.literals import DateLiteral
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)

from icelock.errors import PolicyError
from tests.helpers.turns import todays
from tests.lakes.sqlite import KEYED, TestLake

NAN = float("nan")
MODES = ["copy-on-write", "merge-on-read"]


def table_of(lake: TestLake, kind: Any, values: list[Any], transform: Any = None, mode: str = MODES[0], **more: str) -> Any:
    """Make a table with one row in each of the columns id and x for every value, ids from 0."""
    schema = Schema(ice.NestedField(1, "id", ice.LongType(), required=False), ice.NestedField(2, "x", kind, required=False))
    spec = PartitionSpec() if transform is None else PartitionSpec(PartitionField(2, 1000, transform, "p"))
    properties = {**KEYED, "write.delete.mode": mode, **{name.replace("__", "."): value for name, value in more.items()}}
    made = lake.catalog().create_table("db.t", schema, partition_spec=spec, properties=properties)
    arrow = made.schema().as_arrow()
    made.append(pa.table([pa.array(range(len(values)), pa.int64()), pa.array(values, arrow.field("x").type)], schema=arrow))
    return made


def ids(rows: Any) -> list[int]:
    return sorted(rows.column("id").to_pylist())


def check(table: Any, row_filter: Any, taken: list[int]) -> None:
    """Check scan, count and delete; the delete is on a branch of its own."""
    every = ids(table.scan().to_arrow())
    scan = table.scan(row_filter=row_filter)
    assert (ids(scan.to_arrow()), scan.count()) == (taken, len(taken)), row_filter
    name = uuid.uuid4().hex
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, name).commit()
    table.delete(row_filter, branch=name)
    assert ids(table.scan().use_ref(name).to_arrow()) == [one for one in every if one not in taken], row_filter


INTS = [1, 2, 7, None]
OF_INTS = {
    "x not in (1, 2)": [2],
    "not (x in (1, 2))": [2],
    "x != 1": [1, 2],
    "not (x = 1 or x = 2)": [2],
    "x < 3000000000": [0, 1, 2],
    "not (x >= 1.5)": [0],
    "x is null or x in (7, 8)": [2, 3],
    "x is not nan": [0, 1, 2],
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transform", [None, IdentityTransform(), BucketTransform(2), TruncateTransform(5)], ids=str)
def test_null_is_unknown_whatever_the_partitioning(lake: TestLake, transform: Any, mode: str) -> None:
    table = table_of(lake, ice.IntegerType(), INTS, transform, mode)
    for row_filter, taken in OF_INTS.items():
        check(table, row_filter, taken)


@pytest.mark.parametrize("counts", ["none", "counts", "full"])
def test_a_file_goes_unread_only_if_each_of_its_rows_is_known_to_match(lake: TestLake, counts: str) -> None:
    """Without counts nothing is known of nulls and NaN, bounds of other rows say nothing about them."""
    table = table_of(lake, ice.DoubleType(), [1.0, NAN, None, -0.0, 0.0], write__metadata__metrics__default=counts)
    found = {
        "x < 5": [0, 3, 4],
        "not (x >= 5)": [0, 1, 3, 4],
        "x in (0.0, 1.0)": [0, 3, 4],
        "x not in (0.0, 7.0)": [0, 1],
        "x is not nan": [0, 3, 4],
    }
    for row_filter, taken in found.items():
        check(table, row_filter, taken)


def test_a_negation_finds_nan_in_a_file_whose_bounds_are_elsewhere(lake: TestLake) -> None:
    table = table_of(lake, ice.DoubleType(), [5.0, NAN])
    check(table, "not (x >= 2)", [1])
    check(table, "not (x < 9)", [1])


@pytest.mark.parametrize("mode", MODES)
def test_other_ways_in_decide_likewise(lake: TestLake, mode: str) -> None:
    table = table_of(lake, ice.IntegerType(), INTS, mode=mode)
    first = table.current_snapshot().snapshot_id
    new = pa.table({"id": pa.array([9], pa.int64()), "x": pa.array([9], pa.int32())})
    table.append(new)
    appended = table.incremental_append_scan(from_snapshot_id_exclusive=None, row_filter="x not in (1, 2)")
    assert ids(appended.to_arrow()) == [2, 9]
    assert appended.count() == 2
    assert ids(table.scan(snapshot_id=first, row_filter="x not in (1, 2)").to_arrow()) == [2]
    table.overwrite(new, overwrite_filter="x not in (1, 2)")
    assert ids(table.scan().to_arrow()) == [0, 1, 3, 9]
    with table.transaction() as tx:
        tx.delete(Not(In("x", [9, 10])))
    assert ids(table.scan().to_arrow()) == [3, 9]


@pytest.mark.parametrize("mode", MODES)
def test_a_required_field_of_a_struct_is_null_where_the_struct_is(lake: TestLake, mode: str) -> None:
    """PyIceberg takes a required field for never null, whatever is above it; a delete would take the row."""
    inner = ice.StructType(ice.NestedField(3, "r", ice.LongType(), required=True), ice.NestedField(4, "o", ice.LongType(), required=False))
    table = table_of(lake, inner, [{"r": 1, "o": None}, None, {"r": 5, "o": 6}], mode=mode)
    found = {
        "x.r is not null": [0, 2],
        "x.r is null": [1],
        "x.r != 1": [2],
        "x.r not in (1, 2)": [2],
        "x.o != 7": [2],
        "x.o = 6": [2],
        "x.r < 99999999999999999999": [0, 2],
        "x is null": [1],
    }
    for row_filter, taken in found.items():
        check(table, row_filter, taken)


NS = 1_000_000_000
OF_NANOS = [0, 1, NS + 1, 86_400 * NS, None]


BY_NANOS = [None, IdentityTransform(), YearTransform(), MonthTransform(), DayTransform(), HourTransform(), BucketTransform(4)]
NANOS = [*itertools.product((ice.TimestampNanoType(), ice.TimestamptzNanoType()), BY_NANOS)]


@pytest.mark.turns(3)
@pytest.mark.parametrize(("kind", "transform"), todays("nanoseconds", NANOS, 2), ids=str)
def test_nanoseconds(lake: TestLake, kind: Any, transform: Any) -> None:
    zone = "" if isinstance(kind, ice.TimestampNanoType) else "+00:00"
    table = table_of(lake, kind, OF_NANOS, transform)
    found = {
        f"x = '1970-01-01T00:00:00.000000001{zone}'": [1],
        f"x > '1970-01-01T00:00:00.000000001{zone}'": [2, 3],
        f"x <= '1970-01-01T00:00:01.000000001{zone}'": [0, 1, 2],
        f"x >= '1970-01-02T00:00:00{zone}'": [3],
        f"x not in ('1970-01-01T00:00:00{zone}', '1970-01-01T00:00:01.000000001{zone}')": [1, 3],
        "x is null": [4],
    }
    for row_filter, taken in found.items():
        check(table, row_filter, taken)
    check(table, GreaterThan("x", dt.datetime(1970, 1, 1, second=1)), [2, 3])  # noqa: DTZ001 - stands for both
    check(table, GreaterThanOrEqual("x", dt.date(1970, 1, 2)), [3])


@pytest.mark.turns(3)
@pytest.mark.parametrize("transform", [None, YearTransform(), MonthTransform(), DayTransform(), IdentityTransform()], ids=str)
def test_days_beyond_the_calendar_are_compared(lake: TestLake, transform: Any) -> None:
    table = table_of(lake, ice.DateType(), [dt.date(2024, 1, 1), dt.date(9999, 12, 31), None], transform)
    late, early = DateLiteral(10**9), DateLiteral(-(10**9))
    check(table, LessThan("x", late), [0, 1])
    check(table, GreaterThan("x", early), [0, 1])
    check(table, NotEqualTo("x", late), [0, 1])
    check(table, NotIn("x", [late, early]), [0, 1])
    check(table, LessThan("x", DateLiteral(10**30)), [0, 1])
    check(table, EqualTo("x", late), [])


def test_moments_beyond_the_calendar_are_compared(lake: TestLake) -> None:
    table = table_of(lake, ice.TimestampType(), [dt.datetime(2024, 1, 1), None], HourTransform())  # noqa: DTZ001 - as the column
    check(table, LessThan("x", 9 * 10**18), [0])
    check(table, GreaterThan("x", -(9 * 10**18)), [0])
    check(table, LessThan("x", 10**19), [0])


OF_TYPES = [
    (ice.UUIDType(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes, None], EqualTo("x", str(uuid.UUID(int=2**127))), [1]),
    (ice.UUIDType(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes, None], NotIn("x", [uuid.UUID(int=1), uuid.UUID(int=3)]), [1]),
    (ice.FixedType(2), [b"\x00\x01", b"\xff\x00", None], GreaterThan("x", b"\x7f\x00"), [1]),
    (ice.StringType(), ["\uffff", "\U0001f600", "a", None], "x > '\uffff'", [1]),
    (ice.StringType(), ["", "a'b", "a", None], "x not in ('', 'a''b')", [2]),
    (ice.StringType(), ["a_b", "axb", None], r"x not like 'a\_%'", [1]),
    (ice.DecimalType(9, 2), [Decimal("1.00"), Decimal("1.01"), None], "x > 1.005", [1]),
    (ice.DecimalType(9, 2), [Decimal("1.00"), Decimal("1.01"), None], "x = 1.000", [0]),
    (ice.LongType(), [2**63 - 1, -(2**63), None], "x < 9223372036854775808", [0, 1]),
]


@pytest.mark.parametrize("transform", [None, IdentityTransform()], ids=str)
@pytest.mark.parametrize(("kind", "values", "row_filter", "taken"), OF_TYPES)
def test_values_of_other_types(  # noqa: PLR0913 - what one case is
    lake: TestLake, kind: Any, values: list[Any], row_filter: Any, taken: list[int], transform: Any
) -> None:
    check(table_of(lake, kind, values, transform), row_filter, taken)


def test_columns_that_came_later_were_renamed_or_have_dots(lake: TestLake) -> None:
    table = table_of(lake, ice.IntegerType(), INTS)
    with table.update_schema() as update:
        update.add_column("later", ice.LongType(), default_value=5)
        update.add_column("none", ice.StringType())
        update.rename_column("x", "y")
    table.refresh()
    check(table, "later = 5 and y not in (1, 2)", [2])
    check(table, "none != 'a'", [])
    check(table, "none is null and later not in (6, 7)", [0, 1, 2, 3])
    with pytest.raises(PolicyError, match="column 'x' does not exist"):
        table.delete("x = 1")
    first = table.snapshots()[0].snapshot_id
    assert ids(table.scan(snapshot_id=first, row_filter="x = 1").to_arrow()) == [0]


WRONG = {
    "amout = 1": "column 'amout' does not exist; did you mean 'amount'",
    "AMOUNT = 1": "did you mean 'amount'",
    "amount = 'abc'": "'abc' cannot be compared with",
    "amount = ''": "cannot be compared with",
    "amount == 1 and": "cannot be read from character",
    "amount in (1, null)": "cannot be read",
    "((amount = 1": "cannot be read",
    "": "cannot be read from character 1",
    "day < '10000-01-01'": "years 0001 to 9999",
    "day = '2024-02-30'": "'2024-02-30' cannot be compared with",
    "name = 5": "'name' is string, which 5 cannot be compared with",
    "name like 'a_c'": "any character",
    "name like '%a'": "at the end of a pattern only",
    "list = 1": "is a list",
    "list.element = 1": "inside a list or map",
    "_row_id = 1": "metadata column",
    "u = 'abc'": "'u' is uuid",
    "(" * 2000 + "amount = 1": "cannot be read",
}


@pytest.fixture
def amounts(lake: TestLake) -> Any:
    schema = Schema(
        ice.NestedField(1, "amount", ice.LongType(), required=False),
        ice.NestedField(2, "name", ice.StringType(), required=False),
        ice.NestedField(3, "day", ice.DateType(), required=False),
        ice.NestedField(4, "list", ice.ListType(5, ice.LongType(), element_required=False), required=False),
        ice.NestedField(6, "u", ice.UUIDType(), required=False),
    )
    return lake.catalog().create_table("db.t", schema, properties=KEYED)


def test_filters_that_cannot_be_are_refused_before_anything_is_written(amounts: Any) -> None:
    """The table is empty: nothing has to be read to find it out."""
    rows = pa.table({"amount": pa.array([1], pa.int64())})
    uses = (
        lambda f: amounts.scan(row_filter=f).to_arrow(),
        lambda f: amounts.scan(row_filter=f).count(),
        lambda f: amounts.scan().filter(f).scan_tasks(),
        lambda f: amounts.incremental_append_scan(row_filter=f).to_arrow(),
        amounts.delete,
        lambda f: amounts.overwrite(rows, overwrite_filter=f),
    )
    for number, (row_filter, match) in enumerate(WRONG.items()):
        # The first filters in each place, the others in two.
        for use in uses if number < len(uses) else (uses[0], uses[number % len(uses)]):
            with pytest.raises(PolicyError, match=match.replace("(", r"\(")) as refused:
                use(row_filter)
            assert len(str(refused.value)) <= 220
    assert amounts.current_snapshot() is None


def test_names_that_are_no_columns_elsewhere(amounts: Any) -> None:
    with pytest.raises(PolicyError, match="column 'amout' does not exist; did you mean 'amount'"):
        amounts.scan(selected_fields=("amout",)).to_arrow()
    with pytest.raises(PolicyError, match="column 'amout' does not exist; did you mean 'amount'"):
        amounts.upsert(pa.table({"amount": pa.array([1], pa.int64())}), ["amout"])


def test_a_name_that_two_columns_have_without_case_is_refused(lake: TestLake) -> None:
    schema = Schema(ice.NestedField(1, "a", ice.LongType(), required=False), ice.NestedField(2, "A", ice.LongType(), required=False))
    table = lake.catalog().create_table("db.t", schema, properties=KEYED)
    table.append(pa.table({"a": [1, 2], "A": [2, 1]}))
    assert table.scan(row_filter="A = 1").to_arrow().to_pylist() == [{"a": 2, "A": 1}]
    with pytest.raises(PolicyError, match="differ in case only"):
        table.delete("A = 1", case_sensitive=False)


def test_null_of_a_list_is_all_that_is_asked_of_it(amounts: Any) -> None:
    amounts.append(pa.table({"amount": pa.array([1, 2], pa.int64()), "list": pa.array([[1], None], pa.list_(pa.int64()))}))
    scan = amounts.scan(row_filter=And(NotNull("list"), Not(IsNull("list"))))
    assert scan.to_arrow()["amount"].to_pylist() == [1]


@pytest.mark.parametrize(("kind", "arrow", "low"), [(ice.IntegerType(), pa.int32(), -(2**31)), (ice.LongType(), pa.int64(), -(2**63))])
@pytest.mark.parametrize("metrics", ["full", "none"])
def test_the_least_numbers_of_a_truncated_partition_are_found(
    lake: TestLake, kind: Any, arrow: pa.DataType, low: int, metrics: str
) -> None:
    """truncate[10] of the least int is below it and wraps to 2147483646, in Java as well (apache/iceberg 9767)."""
    schema = Schema(ice.NestedField(1, "id", ice.LongType()), ice.NestedField(2, "v", kind))
    spec = PartitionSpec(PartitionField(2, 1000, TruncateTransform(10), "p"))
    properties = {**KEYED, "write.metadata.metrics.default": metrics}
    table = lake.catalog().create_table("db.least", schema, partition_spec=spec, properties=properties)
    table.append(pa.table({"id": [1, 2, 3, 4], "v": pa.array([low, 5, low + 20, -low - 1], arrow)}))

    def found(row_filter: str) -> list[int]:
        return sorted(table.scan(row_filter=row_filter).to_arrow()["id"].to_pylist())

    assert (found("v < 0"), found(f"v = {low}"), found("v > 100"), found(f"v != {low}")) == ([1, 3], [1], [4], [2, 3, 4])
    assert table.scan(row_filter="v < 0").count() == 2
    table.delete("v > 100")
    assert found("id > 0") == [1, 2, 3]
    table.delete("v < 0")
    assert found("id > 0") == [2]


def test_a_whole_number_is_no_date(lake: TestLake) -> None:
    """Taken for days since 1970, 20260102 is in the year 57441, and a delete of all days before it empties the table."""
    table = table_of(lake, ice.DateType(), [dt.date(2026, 1, 1), dt.date(2026, 1, 9)])
    with pytest.raises(PolicyError, match="a whole number would count days"):
        table.delete("x < 20260102")
    assert table.scan().count() == 2
