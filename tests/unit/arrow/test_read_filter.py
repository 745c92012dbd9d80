"""Filters: the rows that PyIceberg's own scan returns on a plain twin, and the same with and without statistics."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema

from icelock.arrow.read import prune
from icelock.arrow.read.file_schema import file_fields
from icelock.arrow.read.task import count_task, needs_reading, read_task
from icelock.errors import PolicyError
from icelock.io.parquet import ParquetInput
from tests.unit.arrow.support import CountingIO, context, metadata, opt, pyiceberg_twin, read, rows_table, task, with_ids, write

NAN = math.nan
SCHEMA = Schema(
    opt(1, "i", ice.IntegerType()),
    opt(2, "d", ice.DoubleType()),
    opt(3, "s", ice.StringType()),
    opt(4, "b", ice.BooleanType()),
    opt(5, "dec", ice.DecimalType(9, 2)),
    opt(6, "t", ice.TimestamptzType()),
    ice.NestedField(7, "st", ice.StructType(opt(8, "x", ice.LongType())), required=False),
    opt(9, "day", ice.DateType()),
    opt(10, "bin", ice.BinaryType()),
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
ORDERED = [ex.LessThan, ex.LessThanOrEqual, ex.GreaterThan, ex.GreaterThanOrEqual, ex.EqualTo, ex.NotEqualTo]


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (dt.datetime, dt.date)) else value


@st.composite
def predicates(draw: st.DrawFn) -> ex.BooleanExpression:
    name = draw(st.sampled_from(sorted(COMPARED)))
    kind = draw(st.sampled_from(["compare", "set", "null", "special"]))
    value = _literal(draw(st.sampled_from(COMPARED[name])))
    if kind == "set":
        values = draw(st.lists(st.sampled_from(COMPARED[name]), min_size=1, max_size=3))
        return draw(st.sampled_from([ex.In, ex.NotIn]))(name, [_literal(v) for v in values])
    if kind == "null":
        return draw(st.sampled_from([ex.IsNull, ex.NotNull]))(name)
    if kind == "special" and name == "d":
        return draw(st.sampled_from([ex.IsNaN, ex.NotNaN]))(name)
    if kind == "special" and name == "s":
        return draw(st.sampled_from([ex.StartsWith, ex.NotStartsWith]))(name, value)
    return draw(st.sampled_from(ORDERED))(name, value)


filters = st.recursive(
    predicates(),
    lambda inner: st.one_of(st.builds(ex.Not, inner), st.builds(ex.And, inner, inner), st.builds(ex.Or, inner, inner)),
    max_leaves=4,
)
rows = st.lists(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}), max_size=12)


def _one_by_one(row_filter: ex.BooleanExpression) -> ex.BooleanExpression:
    """Return a filter with IN as a chain of comparisons: PyIceberg's IN takes a null for false, and tells -0.0 from 0.0."""
    if isinstance(row_filter, ex.Not):
        return ex.Not(_one_by_one(row_filter.child))
    if isinstance(row_filter, (ex.And, ex.Or)):
        return type(row_filter)(_one_by_one(row_filter.left), _one_by_one(row_filter.right))
    if isinstance(row_filter, ex.In):
        return reduce(ex.Or, (ex.EqualTo(row_filter.term, value) for value in row_filter.literals))
    if isinstance(row_filter, ex.NotIn):
        return reduce(ex.And, (ex.NotEqualTo(row_filter.term, value) for value in row_filter.literals))
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
        (ex.NotEqualTo("d", 1.0), [NAN, 2.0]),
        (ex.NotIn("d", [1.0, 2.0]), [NAN]),
        (ex.Not(ex.In("d", [1.0, 2.0])), [NAN]),
        (ex.Not(ex.NotIn("d", [1.0, 2.0])), [1.0, 2.0]),
        (ex.GreaterThan("d", 1.0), [2.0]),
        (ex.Not(ex.LessThan("d", 1.5)), [NAN, 2.0]),
        (ex.IsNaN("d"), [NAN]),
        (ex.NotNaN("d"), [1.0, 2.0]),
        (ex.Not(ex.IsNaN("d")), [1.0, 2.0]),
        (ex.IsNull("d"), [None]),
        (ex.Not(ex.NotEqualTo("d", 1.0)), [1.0]),
        (ex.And(ex.NotNull("d"), ex.Not(ex.EqualTo("d", 1.0))), [NAN, 2.0]),
    ],
)
@pytest.mark.parametrize("group_rows", [1, 2, 4])
def test_null_and_nan_are_kept_or_dropped_as_in_ieee_754_and_sql(tmp_path: Path, row_filter, kept, group_rows):
    """Case C-53, worked out by hand; statistics leave NaN out, so every row-group size must give the same."""
    schema = Schema(opt(1, "d", ice.DoubleType()))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"d": v} for v in (1.0, NAN, 2.0, None)]), row_group_size=group_rows)
    found = read(context(schema, row_filter), task(path, key=metadata(path))).column("d").to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, kept))


@pytest.mark.parametrize(
    ("kind", "values", "literal"),
    [
        (ice.UUIDType(), [uuid.UUID(int=1), uuid.UUID(int=2**127)], uuid.UUID(int=2**127)),
        (ice.FixedType(2), [b"\x00\x01", b"\xff\x00"], b"\xff\x00"),
        (ice.TimeType(), [dt.time(0), dt.time(23, 59, 59, 999999)], "23:59:59.999999"),
        (ice.FloatType(), [0.1, 0.5], 0.5),
        (ice.DecimalType(38, 0), [Decimal(-1), Decimal(10**37)], Decimal(10**37)),
    ],
)
def test_types_beyond_the_property_test_are_compared(tmp_path: Path, kind, values, literal):
    schema = Schema(opt(1, "c", kind))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"c": v} for v in [*values, None]]), row_group_size=1)
    one = task(path, key=metadata(path))
    everything = read(context(schema), one)
    assert read(context(schema, ex.EqualTo("c", literal)), one).equals(everything.slice(1, 1))
    assert read(context(schema, ex.In("c", [literal, literal])), one).equals(everything.slice(1, 1))
    assert read(context(schema, ex.NotEqualTo("c", literal)), one).equals(everything.slice(0, 1))


@pytest.mark.parametrize(
    ("row_filter", "kept"),
    [
        (ex.NotNull("c"), [1, 1001]),
        (ex.EqualTo("c", "1970-01-01T00:00:00.000000001"), [1]),
        (ex.GreaterThan("c", "1970-01-01T00:00:00.000001000"), [1001]),
        (ex.GreaterThan("c", dt.datetime(1970, 1, 1, microsecond=1)), [1001]),  # noqa: DTZ001 - without zone, as the column
        (ex.LessThan("c", 1), [1]),  # whole numbers are microseconds, as in Java
        (ex.In("c", ["1970-01-01T00:00:00.000001001", "1970-01-01T00:00:00.5"]), [1001]),
        (ex.NotIn("c", ["1970-01-01T00:00:00.000001001", "1970-01-01T00:00:00.5"]), [1]),
    ],
)
def test_nanosecond_timestamps_are_compared_to_the_nanosecond(tmp_path: Path, row_filter, kept):
    schema = Schema(opt(1, "c", ice.TimestampNanoType()))
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"c": 1}, {"c": 1001}, {"c": None}]), row_group_size=1)
    assert [value.value for value in read(context(schema, row_filter), task(path, key=metadata(path))).column("c")] == kept


def test_a_promoted_column_is_compared_in_the_tables_type(tmp_path: Path):
    """Float 0.1 is not double 0.1: Java compares the double, PyIceberg 0.12 the float."""
    stored = Schema(opt(1, "c", ice.FloatType()), opt(2, "n", ice.IntegerType()))
    table = Schema(opt(1, "c", ice.DoubleType()), opt(2, "n", ice.LongType()))
    path = write(tmp_path / "f.parquet", rows_table(stored, [{"c": 0.1, "n": 1}, {"c": 0.5, "n": 2}]), row_group_size=1)
    one = task(path, key=metadata(path))
    assert read(context(table, ex.EqualTo("c", 0.1)), one).num_rows == 0
    assert read(context(table, ex.EqualTo("c", 0.10000000149011612)), one).num_rows == 1
    assert read(context(table, ex.LessThan("n", 2**40)), one).num_rows == 2
    assert read(context(table, ex.GreaterThan("n", 1)), one).column("n").to_pylist() == [2]


def test_a_date_read_as_timestamp_is_pruned_as_midnight(tmp_path: Path):
    stored = Schema(opt(1, "c", ice.DateType()))
    table = Schema(opt(1, "c", ice.TimestampType()))
    days = [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]
    path = write(tmp_path / "f.parquet", rows_table(stored, [{"c": day} for day in days]), row_group_size=1)
    found = read(context(table, ex.GreaterThanOrEqual("c", "2024-02-29T00:00:00")), task(path, key=metadata(path)))
    assert found.column("c").to_pylist() == [dt.datetime.fromisoformat("2024-02-29")]


@pytest.mark.parametrize("default", [None, 5])
@pytest.mark.parametrize(
    "row_filter", [ex.EqualTo("c", 5), ex.NotEqualTo("c", 5), ex.NotIn("c", [5, 6]), ex.IsNull("c"), ex.Not(ex.IsNull("c"))]
)
def test_a_column_that_the_file_lacks_is_filtered_like_a_stored_one(tmp_path: Path, default, row_filter):
    """Whether a null is stored or implied makes no difference (PyIceberg 0.12 keeps an implied one in ``!=``)."""
    id_field = opt(1, "id", ice.IntegerType())
    table = Schema(id_field, ice.NestedField(2, "c", ice.LongType(), required=False, initial_default=default))
    lacking = write(tmp_path / "old.parquet", rows_table(Schema(id_field), [{"id": 1}]))
    stored = write(tmp_path / "new.parquet", rows_table(table, [{"id": 1, "c": default}]))
    both = [read(context(table, row_filter), task(path, key=metadata(path))).to_pylist() for path in (lacking, stored)]
    assert both[0] == both[1]


def test_filter_columns_need_not_be_in_the_output(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, [{"i": i, "s": str(i), "st": {"x": i}} for i in range(10)]))
    out = Schema(SCHEMA.find_field("s"))
    assert read(context(out, ex.EqualTo("st.x", 3), table_schema=SCHEMA), task(path, key=metadata(path))).to_pylist() == [{"s": "3"}]


def test_a_filter_may_be_bound_or_not_and_of_any_case(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, [{"i": 1}, {"i": 2}]))
    one = task(path, key=metadata(path))
    bound = bind(SCHEMA, ex.And(ex.EqualTo("i", 1), ex.Not(ex.EqualTo("i", 2))), case_sensitive=True)
    assert read(context(SCHEMA, bound), one).num_rows == 1
    assert read(context(SCHEMA, ex.EqualTo("I", 1), case_sensitive=False), one).num_rows == 1
    with pytest.raises(PolicyError, match="column 'I' does not exist; did you mean 'i'"):
        context(SCHEMA, ex.EqualTo("I", 1))


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path):
    schema = Schema(ice.NestedField(1, "i", ice.LongType(), required=True), opt(2, "s", ice.StringType()))
    path = write(
        tmp_path / "f.parquet",
        rows_table(schema, [{"i": i, "s": f"s{i}" * 50} for i in range(12_000)]),
        row_group_size=1000,
        compression="none",
    )
    one = task(path, key=metadata(path))
    io = CountingIO()
    assert read(context(schema, ex.EqualTo("i", 5500), io=io), one).num_rows == 1
    assert io.seen.bytes < path.stat().st_size / 6


def test_a_row_group_without_the_value_is_left_after_a_look_at_the_filters_column(tmp_path: Path):
    """Two groups of two batches; only the second one has 70,001, in its last batch. The bounds of both have all numbers up to 139,999."""
    schema = Schema(opt(1, "i", ice.LongType()), opt(2, "s", ice.FixedType(64)), opt(3, "k", ice.LongType()), opt(4, "n", ice.LongType()))
    numbers = np.arange(70_000) * 2
    columns = {
        "i": np.concatenate([numbers, numbers[:-1], [70_001]]),
        "s": pa.array([struct.pack("<8q", *range(row, row + 8)) for row in range(140_000)], pa.binary(64)),
        "k": np.arange(140_000),
        "n": np.full(140_000, 1),
    }
    path = write(tmp_path / "f.parquet", pa.table(columns, schema=with_ids(schema)), row_group_size=70_000, compression="none")
    one = task(path, key=metadata(path), record_count=140_000)
    for row_filter in (ex.EqualTo("i", 70_001), ex.And(ex.GreaterThan("k", 5), ex.In("i", [70_001, 70_003]))):
        io = CountingIO()
        assert read(context(schema, row_filter, io=io), one)["k"].to_pylist() == [139_999]
        assert io.seen.bytes < path.stat().st_size * 0.75
    everywhere = read(context(schema, ex.And(ex.EqualTo("i", 70_000), ex.LessThan("k", 200_000))), one)
    assert everywhere["k"].to_pylist() == [35_000, 105_000]


def test_pruning_keeps_what_it_cannot_judge(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, [{"d": 1.0}, {"d": NAN}]), row_group_size=2)
    with ParquetInput(context(SCHEMA).io.new_input(str(path)), metadata(path)) as source:
        file = file_fields(source.schema, None, location="f")
        groups = [
            prune.matching_row_groups(source.metadata, file, SCHEMA, bind(SCHEMA, f, case_sensitive=True))
            for f in (
                ex.GreaterThan("d", 5.0),
                ex.Not(ex.LessThanOrEqual("d", 5.0)),
                ex.NotEqualTo("d", 1.0),
                ex.EqualTo("i", 1),
                ex.IsNull("i"),
            )
        ]
    assert groups == [[], [0], [0], [], [0]]


def test_counting_reads_nothing_without_a_filter_and_only_the_filters_columns_with_one(tmp_path: Path):
    rows = [{"i": i % 7, "s": "x" * 500 + str(i)} for i in range(5000)]
    path = write(tmp_path / "f.parquet", rows_table(SCHEMA, rows), compression="none")
    one = task(path, key=metadata(path), record_count=5000)
    io = CountingIO()
    everything = context(SCHEMA, io=io)
    assert (needs_reading(everything, one), count_task(everything, one), io.seen.bytes) == (False, 5000, 0)
    some = context(SCHEMA, ex.EqualTo("i", 3), io=io)
    assert (needs_reading(some, one), count_task(some, one)) == (True, 714)
    assert 0 < io.seen.bytes < path.stat().st_size / 10
    none = context(SCHEMA, ex.AlwaysFalse(), io=CountingIO())
    assert (needs_reading(none, one), count_task(none, one), list(read_task(none, one))) == (False, 0, [])
    assert none.io.seen.opened == []
    assert context(SCHEMA, ex.AlwaysTrue()).bound_filter == ex.AlwaysTrue()
