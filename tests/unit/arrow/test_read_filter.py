"""Filters: the rows that PyIceberg's own scan returns on a plain twin, and the same with and without statistics."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.unit.arrow.support import CountingIO, context, metadata, opt, pyiceberg_twin, read, rows_table, task, write

from icelock.arrow.read import prune
from icelock.arrow.read.file_schema import file_fields
from icelock.arrow.read.task import count_task, needs_reading, read_task
from icelock.errors import PolicyError
from icelock.io.parquet import ParquetInput

NAN = math.nan
SCHEMA = Schema(
    opt(1, "i", IntegerType()),
    opt(2, "d", DoubleType()),
    opt(3, "s", StringType()),
    opt(4, "b", BooleanType()),
    opt(5, "dec", DecimalType(9, 2)),
    opt(6, "t", TimestamptzType()),
    NestedField(7, "st", StructType(opt(8, "x", LongType())), required=False),
    opt(9, "day", DateType()),
    opt(10, "bin", BinaryType()),
)
T0 = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "i": [None, -1, 0, 1, 2],
    "d": [None, NAN, -0.0, 0.0, 1.5, -math.inf],
    "s": [None, "", "a", "ab", "é"],
    "b": [None, True, False],
    "dec": [None, Decimal("-1.29"), Decimal("0.00"), Decimal("1.27")],
    "t": [None, T0, T0 + dt.timedelta(microseconds=1)],
    "st": [None, {"x": None}, {"x": 1}, {"x": 2}],
    "day": [None, dt.date(1969, 12, 31), dt.date(2024, 1, 1)],
    "bin": [None, b"", b"\x00", b"\xff"],
}
COMPARED = {name: [v for v in values if v is not None and v is not NAN] for name, values in VALUES.items() if name != "st"} | {
    "st.x": [1, 2]
}
ORDERED = [LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual, EqualTo, NotEqualTo]


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (dt.datetime, dt.date)) else value


@st.composite
def predicates(draw: st.DrawFn) -> BooleanExpression:
    name = draw(st.sampled_from(sorted(COMPARED)))
    kind = draw(st.sampled_from(["compare", "set", "null", "special"]))
    value = _literal(draw(st.sampled_from(COMPARED[name])))
    if kind == "set":
        values = draw(st.lists(st.sampled_from(COMPARED[name]), min_size=1, max_size=3))
        return draw(st.sampled_from([In, NotIn]))(name, [_literal(v) for v in values])
    if kind == "null":
        return draw(st.sampled_from([IsNull, NotNull]))(name)
    if kind == "special" and name == "d":
        return draw(st.sampled_from([IsNaN, NotNaN]))(name)
    if kind == "special" and name == "s":
        return draw(st.sampled_from([StartsWith, NotStartsWith]))(name, value)
    return draw(st.sampled_from(ORDERED))(name, value)


filters = st.recursive(
    predicates(), lambda inner: st.one_of(st.builds(Not, inner), st.builds(And, inner, inner), st.builds(Or, inner, inner)), max_leaves=4
)
rows = st.lists(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}), max_size=12)


def _one_by_one(row_filter: BooleanExpression) -> BooleanExpression:
    """Return a filter with IN as a chain of comparisons: PyIceberg's IN takes a null for false, and tells -0.0 from 0.0."""
    if isinstance(row_filter, Not):
        return Not(_one_by_one(row_filter.child))
    if isinstance(row_filter, (And, Or)):
        return type(row_filter)(_one_by_one(row_filter.left), _one_by_one(row_filter.right))
    if isinstance(row_filter, In):
        return reduce(Or, (EqualTo(row_filter.term, value) for value in row_filter.literals))
    if isinstance(row_filter, NotIn):
        return reduce(And, (NotEqualTo(row_filter.term, value) for value in row_filter.literals))
    return row_filter


def _comparable(rows: list[dict[str, Any]]) -> list[str]:
    return [repr(row) for row in rows]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows, row_filter=filters)
def test_an_encrypted_file_gives_the_rows_that_pyiceberg_finds_in_its_plain_twin(tmp_path: Path, rows: list[dict[str, Any]], row_filter):
    """The twin has no statistics: Arrow's own row-group skipping loses NaN rows (see the test below). IN is what SQL says that it is."""
    table = rows_table(SCHEMA, rows)
    path = write(tmp_path / "f.parquet", table, row_group_size=3)
    plain = write(tmp_path / "plain.parquet", table, dek=None, write_statistics=False)
    found = read(context(SCHEMA, row_filter), task(path, key=metadata(path)))
    assert _comparable(found.to_pylist()) == _comparable(pyiceberg_twin(plain, SCHEMA, _one_by_one(row_filter)).to_pylist())


@pytest.mark.parametrize(
    ("row_filter", "kept"),
    [
        (NotEqualTo("d", 1.0), [NAN, 2.0]),
        (NotIn("d", [1.0, 2.0]), [NAN]),
        (Not(In("d", [1.0, 2.0])), [NAN]),
        (Not(NotIn("d", [1.0, 2.0])), [1.0, 2.0]),
        (GreaterThan("d", 1.0), [2.0]),
        (Not(LessThan("d", 1.5)), [NAN, 2.0]),
        (IsNaN("d"), [NAN]),
        (NotNaN("d"), [1.0, 2.0]),
        (Not(IsNaN("d")), [1.0, 2.0]),
        (IsNull("d"), [None]),
        (Not(NotEqualTo("d", 1.0)), [1.0]),
        (And(NotNull("d"), Not(EqualTo("d", 1.0))), [NAN, 2.0]),
    ],
)
@pytest.mark.parametrize("group_rows", [1, 2, 4])
def test_null_and_nan_are_kept_or_dropped_as_in_ieee_754_and_sql(tmp_path: Path, row_filter, kept, group_rows):
    """Case C-53, worked out by hand; statistics leave NaN out, so every row-group size must give the same."""
    schema = Schema(opt(1, "d", DoubleType()))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"d": v} for v in (1.0, NAN, 2.0, None)]), row_group_size=group_rows)
    found = read(context(schema, row_filter), task(path, key=metadata(path))).column("d").to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, kept))


@pytest.mark.parametrize(
    ("kind", "values", "literal"),
    [
        (UUIDType(), [uuid.UUID(int=1), uuid.UUID(int=2**127)], uuid.UUID(int=2**127)),
        (FixedType(2), [b"\x00\x01", b"\xff\x00"], b"\xff\x00"),
        (TimeType(), [dt.time(0), dt.time(23, 59, 59, 999999)], "23:59:59.999999"),
        (FloatType(), [0.1, 0.5], 0.5),
        (DecimalType(38, 0), [Decimal(-1), Decimal(10**37)], Decimal(10**37)),
    ],
)
def test_types_beyond_the_property_test_are_compared(tmp_path: Path, kind, values, literal):
    schema = Schema(opt(1, "c", kind))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"c": v} for v in [*values, None]]), row_group_size=1)
    one = task(path, key=metadata(path))
    everything = read(context(schema), one)
    assert read(context(schema, EqualTo("c", literal)), one).equals(everything.slice(1, 1))
    assert read(context(schema, In("c", [literal, literal])), one).equals(everything.slice(1, 1))
    assert read(context(schema, NotEqualTo("c", literal)), one).equals(everything.slice(0, 1))


@pytest.mark.parametrize(
    ("row_filter", "kept"),
    [
        (NotNull("c"), [1, 1001]),
        (EqualTo("c", "1970-01-01T00:00:00.000000001"), [1]),
        (GreaterThan("c", "1970-01-01T00:00:00.000001000"), [1001]),
        (GreaterThan("c", dt.datetime(1970, 1, 1, microsecond=1)), [1001]),  # noqa: DTZ001 - without zone, as the column
        (LessThan("c", 1), [1]),  # whole numbers are microseconds, as in Java
        (In("c", ["1970-01-01T00:00:00.000001001", "1970-01-01T00:00:00.5"]), [1001]),
        (NotIn("c", ["1970-01-01T00:00:00.000001001", "1970-01-01T00:00:00.5"]), [1]),
    ],
)
def test_nanosecond_timestamps_are_compared_to_the_nanosecond(tmp_path: Path, row_filter, kept):
    schema = Schema(opt(1, "c", TimestampNanoType()))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"c": 1}, {"c": 1001}, {"c": None}]), row_group_size=1)
    assert [value.value for value in read(context(schema, row_filter), task(path, key=metadata(path))).column("c")] == kept


def test_a_promoted_column_is_compared_in_the_tables_type(tmp_path: Path):
    """Float 0.1 is not double 0.1: Java compares the double, PyIceberg 0.12 the float."""
    stored = Schema(opt(1, "c", FloatType()), opt(2, "n", IntegerType()))
    table = Schema(opt(1, "c", DoubleType()), opt(2, "n", LongType()))
    path = write(tmp_path / "f.parquet", rows_table(stored, [{"c": 0.1, "n": 1}, {"c": 0.5, "n": 2}]), row_group_size=1)
    one = task(path, key=metadata(path))
    assert read(context(table, EqualTo("c", 0.1)), one).num_rows == 0
    assert read(context(table, EqualTo("c", 0.10000000149011612)), one).num_rows == 1
    assert read(context(table, LessThan("n", 2**40)), one).num_rows == 2
    assert read(context(table, GreaterThan("n", 1)), one).column("n").to_pylist() == [2]


def test_a_date_read_as_timestamp_is_pruned_as_midnight(tmp_path: Path):
    stored = Schema(opt(1, "c", DateType()))
    table = Schema(opt(1, "c", TimestampType()))
    days = [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]
    path = write(tmp_path / "f.parquet", rows_table(stored, [{"c": day} for day in days]), row_group_size=1)
    found = read(context(table, GreaterThanOrEqual("c", "2024-02-29T00:00:00")), task(path, key=metadata(path)))
    assert found.column("c").to_pylist() == [dt.datetime.fromisoformat("2024-02-29")]


@pytest.mark.parametrize("default", [None, 5])
@pytest.mark.parametrize("row_filter", [EqualTo("c", 5), NotEqualTo("c", 5), NotIn("c", [5, 6]), IsNull("c"), Not(IsNull("c"))])
def test_a_column_that_the_file_lacks_is_filtered_like_a_stored_one(tmp_path: Path, default, row_filter):
    """Whether a null is stored or implied makes no difference (PyIceberg 0.12 keeps an implied one in ``!=``)."""
    id_field = opt(1, "id", IntegerType())
    table = Schema(id_field, NestedField(2, "c", LongType(), required=False, initial_default=default))
    lacking = write(tmp_path / "old.parquet", rows_table(Schema(id_field), [{"id": 1}]))
    stored = write(tmp_path / "new.parquet", rows_table(table, [{"id": 1, "c": default}]))
    both = [read(context(table, row_filter), task(path, key=metadata(path))).to_pylist() for path in (lacking, stored)]
    assert both[0] == both[1]


def test_filter_columns_need_not_be_in_the_output(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, [{"i": i, "s": str(i), "st": {"x": i}} for i in range(10)]))
    out = Schema(SCHEMA.find_field("s"))
    assert read(context(out, EqualTo("st.x", 3), table_schema=SCHEMA), task(path, key=metadata(path))).to_pylist() == [{"s": "3"}]


def test_a_filter_may_be_bound_or_not_and_of_any_case(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, [{"i": 1}, {"i": 2}]))
    one = task(path, key=metadata(path))
    bound = bind(SCHEMA, And(EqualTo("i", 1), Not(EqualTo("i", 2))), case_sensitive=True)
    assert read(context(SCHEMA, bound), one).num_rows == 1
    assert read(context(SCHEMA, EqualTo("I", 1), case_sensitive=False), one).num_rows == 1
    with pytest.raises(PolicyError, match="column 'I' does not exist; did you mean 'i'"):
        context(SCHEMA, EqualTo("I", 1))


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path):
    schema = Schema(NestedField(1, "i", LongType(), required=True), opt(2, "s", StringType()))
    path = write(
        tmp_path / "f.parquet",
        rows_table(schema, [{"i": i, "s": f"s{i}" * 50} for i in range(12_000)]),
        row_group_size=1000,
        compression="none",
    )
    one = task(path, key=metadata(path))
    io = CountingIO()
    assert read(context(schema, EqualTo("i", 5500), io=io), one).num_rows == 1
    assert io.seen.bytes < path.stat().st_size / 6


def test_pruning_keeps_what_it_cannot_judge(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, [{"d": 1.0}, {"d": NAN}]), row_group_size=2)
    with ParquetInput(context(SCHEMA).io.new_input(str(path)), metadata(path)) as source:
        file = file_fields(source.schema, None, location="f")
        groups = [
            prune.matching_row_groups(source.metadata, file, SCHEMA, bind(SCHEMA, f, case_sensitive=True))
            for f in (GreaterThan("d", 5.0), Not(LessThanOrEqual("d", 5.0)), NotEqualTo("d", 1.0), EqualTo("i", 1), IsNull("i"))
        ]
    assert groups == [[], [0], [0], [], [0]]


def test_counting_reads_nothing_without_a_filter_and_only_the_filters_columns_with_one(tmp_path: Path):
    rows = [{"i": i % 7, "s": "x" * 500 + str(i)} for i in range(5000)]
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, rows), compression="none")
    one = task(path, key=metadata(path), record_count=5000)
    io = CountingIO()
    everything = context(SCHEMA, io=io)
    assert (needs_reading(everything, one), count_task(everything, one), io.seen.bytes) == (False, 5000, 0)
    some = context(SCHEMA, EqualTo("i", 3), io=io)
    assert (needs_reading(some, one), count_task(some, one)) == (True, 714)
    assert 0 < io.seen.bytes < path.stat().st_size / 10
    none = context(SCHEMA, AlwaysFalse(), io=CountingIO())
    assert (needs_reading(none, one), count_task(none, one), list(read_task(none, one))) == (False, 0, [])
    assert none.io.seen.opened == []
    assert context(SCHEMA, AlwaysTrue()).bound_filter == AlwaysTrue()
