"""Metrics by hand: the rules of format.md, "Single values, metrics", and the spec's Appendix D."""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from icelock.arrow.write.metrics import lower_bound, upper_bound
from tests.unit.arrow.writing import opt, req, write

NAN = float("nan")


def bounds_of(folder, kind, array, **properties):
    (data_file,) = write(folder, pa.table({"c": array}), Schema(opt(1, "c", kind)), properties=properties)
    return data_file.lower_bounds.get(1), data_file.upper_bounds.get(1)


@pytest.mark.parametrize(
    ("kind", "array", "lower", "upper"),
    [
        (ice.BooleanType(), pa.array([True, False, None]), b"\x00", b"\x01"),
        (ice.IntegerType(), pa.array([3, -2], pa.int32()), b"\xfe\xff\xff\xff", b"\x03\x00\x00\x00"),
        (ice.LongType(), pa.array([2**63 - 1, -(2**63)]), b"\x00" * 7 + b"\x80", b"\xff" * 7 + b"\x7f"),
        (ice.DateType(), pa.array([dt.date(1970, 1, 2), dt.date(1969, 12, 31)]), b"\xff\xff\xff\xff", b"\x01\x00\x00\x00"),
        (ice.TimeType(), pa.array([dt.time(0, 0, 0, 1)], pa.time64("us")), b"\x01" + bytes(7), b"\x01" + bytes(7)),
        (ice.TimestampType(), pa.array([-1, 256], pa.timestamp("us")), b"\xff" * 8, b"\x00\x01" + bytes(6)),
        (ice.TimestamptzType(), pa.array([-1, 256], pa.timestamp("us", "UTC")), b"\xff" * 8, b"\x00\x01" + bytes(6)),
        (ice.FloatType(), pa.array([1.5, -0.5], pa.float32()), struct.pack("<f", -0.5), struct.pack("<f", 1.5)),
        (ice.DoubleType(), pa.array([math.inf, -math.inf]), struct.pack("<d", -math.inf), struct.pack("<d", math.inf)),
        (ice.StringType(), pa.array(["b", "é", "a"]), b"a", "é".encode()),
        (ice.BinaryType(), pa.array([b"\xff", b"\x00\x01"]), b"\x00\x01", b"\xff"),
        (ice.FixedType(2), pa.array([b"\xff\x00", b"\x00\xff"], pa.binary(2)), b"\x00\xff", b"\xff\x00"),
        (ice.UUIDType(), pa.array([str(uuid.UUID(int=2**127)), str(uuid.UUID(int=1))]), bytes(15) + b"\x01", b"\x80" + bytes(15)),
    ],
)
def test_single_values(tmp_path, kind, array, lower, upper):
    assert bounds_of(tmp_path, kind, array) == (lower, upper)


@pytest.mark.parametrize("precision", [5, 12, 25])
@pytest.mark.parametrize(
    ("value", "stored"), [("0.00", "00"), ("1.27", "7f"), ("1.28", "0080"), ("-1.28", "80"), ("-1.29", "ff7f"), ("2.55", "00ff")]
)
def test_decimals_are_the_shortest_twos_complement(tmp_path, precision, value, stored):
    """Stored as int32, int64 and fixed bytes by precision, and the same as bounds."""
    kind = ice.DecimalType(precision, 2)
    array = pa.array([Decimal(value)], pa.decimal128(precision, 2))
    assert bounds_of(tmp_path, kind, array) == (bytes.fromhex(stored), bytes.fromhex(stored))


@pytest.mark.parametrize("precision", [5, 12, 38])
def test_decimals_of_both_signs_are_ordered_as_numbers(tmp_path, precision):
    array = pa.array([Decimal("-0.01"), Decimal("300.00"), Decimal("-2.00")], pa.decimal128(precision, 2))
    assert bounds_of(tmp_path, ice.DecimalType(precision, 2), array) == (b"\xff\x38", b"\x75\x30")


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([0.0, 1.0], 0.0, 1.0),
        ([-0.0, 1.0], -0.0, 1.0),
        ([0.0, -0.0, 1.0], -0.0, 1.0),
        ([-1.0, -0.0], -1.0, -0.0),
        ([-1.0, -0.0, 0.0], -1.0, 0.0),
        ([-0.0], -0.0, -0.0),
        ([0.0], 0.0, 0.0),
        ([-0.0, 0.0, None, NAN], -0.0, 0.0),
        ([NAN, 2.0, 1.0], 1.0, 2.0),
        ([2.0, NAN, None], 2.0, 2.0),
    ],
)
@pytest.mark.parametrize(
    "floating", [(ice.FloatType(), pa.float32(), "<f"), (ice.DoubleType(), pa.float64(), "<d")], ids=["float", "double"]
)
def test_bounds_of_floats_skip_nan_and_know_the_sign_of_zero(tmp_path, values, lower, upper, floating):
    kind, arrow, form = floating
    assert bounds_of(tmp_path, kind, pa.array(values, arrow)) == (struct.pack(form, lower), struct.pack(form, upper))


@pytest.mark.parametrize("values", [[NAN, None], [None, None], [NAN]])
def test_a_column_of_nulls_and_nan_has_no_bounds(tmp_path, values):
    (data_file,) = write(tmp_path, pa.table({"c": pa.array(values, pa.float64())}), Schema(opt(1, "c", ice.DoubleType())))
    assert (data_file.lower_bounds, data_file.upper_bounds) == ({}, {})
    assert data_file.value_counts == {1: len(values)}
    assert data_file.null_value_counts == {1: values.count(None)}
    assert data_file.nan_value_counts == {1: sum(value is not None for value in values)}


def test_bounds_span_row_groups_with_and_without_nan(tmp_path):
    schema = Schema(opt(1, "d", ice.DoubleType()), opt(2, "s", ice.StringType()))
    table = pa.table({"d": [*[NAN] * 100, *[-0.0, 5.0] * 50, *[0.0, NAN] * 50], "s": [*["m"] * 100, *["z"] * 100, *[None] * 100]})
    (data_file,) = write(tmp_path, table, schema, properties={"write.parquet.row-group-limit": "100"})
    assert len(data_file.split_offsets) == 3
    assert (data_file.lower_bounds, data_file.upper_bounds) == ({1: struct.pack("<d", -0.0), 2: b"m"}, {1: struct.pack("<d", 5.0), 2: b"z"})
    assert (data_file.nan_value_counts, data_file.null_value_counts) == ({1: 150}, {1: 0, 2: 100})


def test_leaves_in_structs_count_rows_and_a_null_struct_is_null(tmp_path):
    inner = ice.StructType(req(3, "x", ice.DoubleType()), opt(4, "y", ice.StructType(opt(5, "z", ice.LongType()))))
    kind = pa.struct([("x", pa.float64()), ("y", pa.struct([("z", pa.int64())]))])
    rows = [{"x": 1.0, "y": {"z": 7}}, None, {"x": NAN, "y": None}, {"x": -0.0, "y": {"z": None}}]
    (data_file,) = write(tmp_path, pa.table({"st": pa.array(rows, kind)}), Schema(opt(1, "st", inner)))
    assert data_file.value_counts == {3: 4, 5: 4}
    assert data_file.null_value_counts == {3: 1, 5: 3}
    assert data_file.nan_value_counts == {3: 1}
    assert data_file.lower_bounds == {3: struct.pack("<d", -0.0), 5: struct.pack("<q", 7)}
    assert data_file.upper_bounds == {3: struct.pack("<d", 1.0), 5: struct.pack("<q", 7)}


def test_values_below_a_null_struct_are_in_no_metric(tmp_path):
    """Arrow keeps a value in each slot, also where the parent is null."""
    child = pa.array([1.0, NAN, -99.0])
    struct_array = pa.StructArray.from_arrays([child], names=["x"], mask=pa.array([False, True, True]))
    for field in (req(3, "x", ice.DoubleType()), opt(3, "x", ice.DoubleType())):
        (data_file,) = write(tmp_path, pa.table({"st": struct_array}), Schema(opt(1, "st", ice.StructType(field))))
        assert data_file.nan_value_counts == {3: 0}
        assert data_file.lower_bounds == data_file.upper_bounds == {3: struct.pack("<d", 1.0)}
        assert data_file.null_value_counts == {3: 2}


def test_leaves_below_lists_and_maps_have_sizes_only(tmp_path):
    schema = Schema(
        opt(1, "l", ice.ListType(2, ice.DoubleType(), element_required=False)),
        opt(3, "m", ice.MapType(4, ice.StringType(), 5, ice.LongType(), value_required=False)),
        opt(6, "n", ice.LongType()),
    )
    table = pa.table({"l": [[1.0, NAN]], "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "n": [1]})
    (data_file,) = write(tmp_path, table, schema)
    assert sorted(data_file.column_sizes) == [2, 4, 5, 6]
    assert data_file.value_counts == {6: 1}
    assert data_file.nan_value_counts == {}
    assert sorted(data_file.lower_bounds) == [6]


A15 = "a" * 15


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        (A15 + "b", A15 + "b", A15 + "b"),
        (A15 + "bX", A15 + "b", A15 + "c"),
        ("é" * 17, "é" * 16, "é" * 15 + "ê"),
        ("\U0001f600" * 17, "\U0001f600" * 16, "\U0001f600" * 15 + "\U0001f601"),
        (A15 + "\ud7ff" + "x", A15 + "\ud7ff", A15 + "\ue000"),
        (A15 + "\U0010ffff" + "x", A15 + "\U0010ffff", "a" * 14 + "b"),
        ("\U0010ffff" * 16 + "x", "\U0010ffff" * 16, None),
        ("\U0010ffff" * 16, "\U0010ffff" * 16, "\U0010ffff" * 16),
        ("", "", ""),
    ],
)
def test_text_is_cut_to_16_code_points_and_the_upper_bound_raised(tmp_path, text, lower, upper):
    assert bounds_of(tmp_path, ice.StringType(), pa.array([text])) == (lower.encode(), None if upper is None else upper.encode())


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        (bytes(16), bytes(16), bytes(16)),
        (bytes(17), bytes(16), bytes(15) + b"\x01"),
        (b"\x01" * 15 + b"\xff\x00", b"\x01" * 15 + b"\xff", b"\x01" * 14 + b"\x02"),
        (b"\xff" * 17, b"\xff" * 16, None),
        (b"\xff" * 16, b"\xff" * 16, b"\xff" * 16),
        (b"", b"", b""),
    ],
)
def test_binary_is_cut_to_16_bytes_and_the_upper_bound_raised(tmp_path, value, lower, upper):
    assert bounds_of(tmp_path, ice.BinaryType(), pa.array([value])) == (lower, upper)


@pytest.mark.parametrize("length", [4_096, 4_097, 100_000])
def test_text_longer_than_a_footers_statistics_has_bounds_all_the_same(tmp_path, length):
    array = pa.array(["b" * length, "a", "z" * length, None])
    assert bounds_of(tmp_path, ice.StringType(), array) == (b"a", b"z" * 15 + b"{")
    full = {"write.metadata.metrics.default": "full"}
    assert bounds_of(tmp_path, ice.StringType(), array, **full) == (b"a", b"z" * length)
    assert bounds_of(tmp_path, ice.BinaryType(), array.cast(pa.binary()), **full) == (b"a", b"z" * length)


def test_long_text_in_one_row_group_of_several(tmp_path):
    values = [*["m"] * 100, *["z" * 5_000, "a" * 5_000] * 50, *["n"] * 100]
    schema = Schema(opt(1, "c", ice.StringType()))
    (data_file,) = write(tmp_path, pa.table({"c": values}), schema, properties={"write.parquet.row-group-limit": "100"})
    assert len(data_file.split_offsets) == 3
    assert (data_file.lower_bounds[1], data_file.upper_bounds[1]) == (b"a" * 16, b"z" * 15 + b"{")


def scalars(max_code: int = 0x10FFFF):
    return st.text(st.characters(max_codepoint=max_code, exclude_categories=["Cs"]), max_size=6)


@given(st.one_of(scalars(), scalars(0xFF), st.text("\ud7ff\ue000\U0010ffffa", max_size=6)), st.integers(1, 5))
def test_cut_text_bounds_hold_every_value_and_keep_their_length(text, length):
    value = text.encode()
    lower, upper = lower_bound(ice.StringType(), value, length), upper_bound(ice.StringType(), value, length)
    assert lower <= value
    assert len(lower.decode()) <= length
    if upper is None:
        assert text[:length] == "\U0010ffff" * length
    else:
        assert value <= upper
        assert len(upper.decode()) <= length


@given(st.binary(max_size=6) | st.text("\xff\x01", max_size=6).map(lambda text: text.encode("latin-1")), st.integers(1, 5))
def test_cut_binary_bounds_hold_every_value_and_keep_their_length(value, length):
    lower, upper = lower_bound(ice.BinaryType(), value, length), upper_bound(ice.BinaryType(), value, length)
    assert lower <= value
    assert len(lower) <= length
    assert upper is None or (value <= upper and len(upper) <= length)
    assert (upper is None) == (len(value) > length and value[:length] == b"\xff" * length)


DOUBLES = st.none() | st.floats(width=32, allow_subnormal=False) | st.sampled_from([0.0, -0.0, NAN, math.inf, -math.inf])


@settings(max_examples=40, deadline=None)
@given(groups=st.lists(st.lists(DOUBLES, min_size=3, max_size=3), min_size=1, max_size=4), single=st.booleans())
def test_float_metrics_are_those_of_javas_loop(tmp_path_factory, groups, single):
    """Java's FloatFieldMetrics: count NaN, else compare with Double.compare, in which -0.0 is below 0.0."""
    values = [value for group in groups for value in group]
    kind, arrow, form = (ice.FloatType(), pa.float32(), "<f") if single else (ice.DoubleType(), pa.float64(), "<d")
    properties = {"write.parquet.row-group-limit": "3", "write.parquet.row-group-check-min-record-count": "1"}
    table = pa.table({"c": pa.array(values, arrow)})
    (data_file,) = write(tmp_path_factory.mktemp("t"), table, Schema(opt(1, "c", kind)), properties=properties)
    numbers = sorted((v for v in values if v is not None and not math.isnan(v)), key=lambda v: (v, math.copysign(1, v)))
    assert len(data_file.split_offsets) == len(groups)
    assert data_file.nan_value_counts == {1: sum(v is not None and math.isnan(v) for v in values)}
    assert data_file.null_value_counts == {1: values.count(None)}
    assert data_file.lower_bounds == ({1: struct.pack(form, numbers[0])} if numbers else {})
    assert data_file.upper_bounds == ({1: struct.pack(form, numbers[-1])} if numbers else {})
