"""What may be written into a table: every Arrow form of the same values, and nothing that would change one."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from icelock.arrow.write.writer import DataFileWriter
from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy
from tests.unit.arrow.writing import ID_AND_TEXT, context, files_in, id_table, opt, read, req, write

UTC = dt.UTC
NOON = dt.datetime(2024, 3, 1, 12, tzinfo=UTC)
TEXT_TO_LONG = ice.MapType(10, ice.StringType(), 11, ice.LongType(), value_required=False)
LIST = ice.ListType(10, ice.StringType(), element_required=False)
UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
EMPTY_TEXT = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4], pa.int16()), pa.array(["a", None, "b"], pa.string_view()))


def views(values: list) -> pa.Array:
    return pa.array(values, pa.list_view(pa.string_view()))


@pytest.mark.parametrize(
    ("kind", "array", "expected"),
    [
        (ice.StringType(), pa.array(["a", None], pa.large_string()), ["a", None]),
        (ice.StringType(), pa.array(["a", None], pa.string_view()), ["a", None]),
        (ice.StringType(), pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (
            ice.StringType(),
            pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["x", "y"], pa.string_view())),
            ["y", "x", None],
        ),
        (ice.StringType(), pa.nulls(2), [None, None]),
        (ice.LongType(), pc.run_end_encode(pa.array([7, 7, 8])), [7, 7, 8]),
        (ice.LongType(), pa.array([1, 255], pa.uint8()), [1, 255]),
        (ice.LongType(), pa.array([1, 2**63 - 1], pa.uint64()), [1, 2**63 - 1]),
        (ice.IntegerType(), pa.array([-5, None], pa.int8()), [-5, None]),
        (ice.FloatType(), pa.array([1.5], pa.float16()), [1.5]),
        (ice.DoubleType(), pa.array([1.5], pa.float32()), [1.5]),
        (ice.DecimalType(12, 2), pa.array([Decimal("1.25")], pa.decimal128(9, 2)), [Decimal("1.25")]),
        (ice.DecimalType(12, 2), pa.array([Decimal("1.25")], pa.decimal32(9, 2)), [Decimal("1.25")]),
        (ice.DecimalType(38, 2), pa.array([Decimal("1.25")], pa.decimal256(38, 2)), [Decimal("1.25")]),
        (ice.DateType(), pa.array([dt.date(2024, 3, 1)], pa.date64()), [dt.date(2024, 3, 1)]),
        (ice.TimeType(), pa.array([1000], pa.time32("ms")), [dt.time(0, 0, 1)]),
        (ice.TimestampType(), pa.array([1], pa.timestamp("s")), [dt.datetime(1970, 1, 1, 0, 0, 1)]),  # noqa: DTZ001
        (ice.TimestamptzType(), pa.array([NOON], pa.timestamp("ms", "America/New_York")), [NOON]),
        (ice.TimestamptzType(), pa.array([NOON], pa.timestamp("us", "+00:00")), [NOON]),
        (ice.TimestampNanoType(), pa.array([1], pa.timestamp("us")), [1000]),
        (ice.BinaryType(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (ice.BinaryType(), pa.array([b"ab"], pa.binary_view()), [b"ab"]),
        (ice.StringType(), RUNS, ["a", "a", None, "b"]),
        (ice.StringType(), RUNS.slice(1, 2), ["a", None]),
        (ice.DecimalType(9, 2), pa.array([Decimal("1.25"), None], pa.decimal32(5, 2)), [Decimal("1.25"), None]),
        (ice.DecimalType(12, 2), pa.array([Decimal("1.25"), None], pa.decimal64(12, 2)), [Decimal("1.25"), None]),
        (ice.FixedType(2), pa.array([b"ab", None], pa.large_binary()), [b"ab", None]),
        (ice.UUIDType(), pa.array([UUID.bytes], pa.binary(16)), [UUID]),
        (ice.UUIDType(), pa.array([str(UUID), None]), [UUID, None]),
        (LIST, pa.array([["a", None], None, []], pa.large_list(pa.large_string())), [["a", None], None, []]),
        (LIST, views([["a", None], None, []]), [["a", None], None, []]),
        (LIST, pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), [["a", "b"], None]),
        (LIST, pa.array([["z"], ["a"], None, ["b"]], pa.list_(pa.string())).slice(1, 2), [["a"], None]),
        (LIST, pa.nulls(1, pa.list_(pa.null())), [None]),
        (
            TEXT_TO_LONG,
            pa.array([[("q", 0)], [("a", 1), ("b", None)], None, []], pa.map_(pa.large_string(), pa.int32())).slice(1),
            [[("a", 1), ("b", None)], None, []],
        ),
    ],
)  # fmt: skip
def test_other_arrow_forms_of_the_same_values_are_taken(tmp_path, kind, array, expected):
    (data_file,) = write(tmp_path, pa.table({"c": array}), Schema(opt(1, "c", kind)))
    column = read([data_file])["c"]
    column = column.cast(pa.int64()) if isinstance(kind, ice.TimestampNanoType) else column
    assert column.to_pylist() == expected


def test_columns_are_found_by_name_in_any_order_and_optional_ones_may_lack(tmp_path):
    (data_file,) = write(tmp_path, pa.table({"s": ["a"], "id": [1]}))
    (without,) = write(tmp_path, pa.table({"id": [1]}))
    assert read([data_file]).to_pylist() == [{"id": 1, "s": "a"}]
    assert read([without]).to_pylist() == [{"id": 1, "s": None}]


def test_field_ids_of_the_input_are_not_believed(tmp_path):
    """A file of another table has other ids for the same names."""
    fields = [
        pa.field("s", pa.string(), metadata={"PARQUET:field_id": "1"}),
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "2"}),
    ]
    (data_file,) = write(tmp_path, pa.table([["a"], [1]], schema=pa.schema(fields)))
    assert read([data_file]).to_pylist() == [{"id": 1, "s": "a"}]


def test_struct_members_are_found_by_name_too(tmp_path):
    schema = Schema(opt(1, "st", ice.StructType(req(2, "x", ice.IntegerType()), opt(3, "y", ice.StringType()))))
    table = pa.table({"st": pa.array([{"y": "q", "x": 1}, None], pa.struct([("y", pa.string()), ("x", pa.int8())]))})
    (data_file,) = write(tmp_path, table, schema)
    assert read([data_file])["st"].to_pylist() == [{"x": 1, "y": "q"}, None]


def test_missing_columns_get_their_write_default(tmp_path):
    inner = ice.StructType(opt(3, "x", ice.LongType()), ice.NestedField(4, "d", ice.IntegerType(), required=True, write_default=5))
    schema = Schema(opt(1, "st", inner), ice.NestedField(2, "s", ice.StringType(), required=True, write_default="new"))
    (data_file,) = write(tmp_path, pa.table({"st": [{"x": 1}, None]}), schema)
    assert read([data_file]).to_pylist() == [{"st": {"x": 1, "d": 5}, "s": "new"}, {"st": None, "s": "new"}]


def test_batches_of_one_write_may_have_different_forms(tmp_path):
    writer = DataFileWriter(context(tmp_path), task_id=0, entropy=SystemEntropy())
    writer.write(pa.record_batch({"id": [1], "s": ["a"]}))
    writer.write(pa.record_batch({"s": pa.array(["b"], pa.string_view()), "id": pa.array([2], pa.int8())}))
    assert read(writer.close())["id"].to_pylist() == [1, 2]


def test_pandas_and_polars_frames(tmp_path):
    schema = Schema(opt(1, "s", ice.StringType()), opt(2, "c", ice.StringType()), opt(3, "t", ice.TimestamptzType()), opt(4, "l", LIST))
    rows = {"s": ["x", None], "c": ["p", "q"], "t": [NOON, None], "l": [["a"], []]}
    frame = pd.DataFrame(rows).assign(c=lambda f: f.c.astype("category"), t=lambda f: f.t.astype("datetime64[us, UTC]"))
    polars = pl.DataFrame(rows).with_columns(pl.col("c").cast(pl.Categorical))
    expected = [{"s": "x", "c": "p", "t": NOON, "l": ["a"]}, {"s": None, "c": "q", "t": None, "l": []}]
    assert read(write(tmp_path / "a", pa.Table.from_pandas(frame), schema)).to_pylist() == expected
    assert read(write(tmp_path / "b", polars.to_arrow(), schema)).to_pylist() == expected
    assert read(write(tmp_path / "c", polars.to_arrow(compat_level=pl.CompatLevel.newest()), schema)).to_pylist() == expected


def test_empty_nested_columns_with_offsets_of_no_bytes_are_whole(tmp_path):
    """Arrow for Java below 19 sends them (case C-57)."""
    schema = Schema(opt(1, "l", LIST), opt(2, "m", ice.MapType(20, ice.StringType(), 21, LIST_OF_LONG, value_required=False)))
    entries = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.list_(pa.int64()))]
    no_lists = pa.Array.from_buffers(pa.list_(pa.int64()), 0, [None, pa.py_buffer(b"")], children=[pa.array([], pa.int64())])
    zeros = pa.py_buffer(bytes(4 * 4))
    lists = pa.Array.from_buffers(pa.list_(pa.string()), 3, [None, zeros], children=[EMPTY_TEXT])
    maps = pa.Array.from_buffers(
        pa.map_(pa.string(), pa.list_(pa.int64())),
        3,
        [None, zeros],
        children=[pa.StructArray.from_arrays([EMPTY_TEXT, no_lists], fields=entries)],
    )
    batch = pa.RecordBatch.from_arrays([lists, maps], names=["l", "m"])
    (data_file,) = write(tmp_path, pa.Table.from_batches([batch]), schema)
    assert read([data_file]).to_pylist() == [{"l": [], "m": []}] * 3
    (nulls,) = write(tmp_path, pa.table({"l": pa.nulls(2, pa.list_(pa.string())), "m": pa.nulls(2, maps.type)}), schema)
    assert read([nulls]).to_pylist() == [{"l": None, "m": None}] * 2


LIST_OF_LONG = ice.ListType(22, ice.LongType(), element_required=False)


def test_lists_with_values_below_a_null_are_written_without_them(tmp_path):
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array(["x", "y", "z"]), mask=pa.array([True, False]))
    (data_file,) = write(tmp_path, pa.table({"c": lists}), Schema(opt(1, "c", ice.ListType(10, ice.StringType(), element_required=True))))
    assert read([data_file])["c"].to_pylist() == [None, ["z"]]


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        (ice.StringType(), pa.array([1]), "column 'c' is string, and the input has int64"),
        (ice.LongType(), pa.array(["1"]), "is long, and the input has string"),
        (ice.LongType(), pa.array([1.0]), "is long, and the input has double"),
        (ice.IntegerType(), pa.array([1], pa.int64()), "is int, and the input has int64"),
        (ice.FloatType(), pa.array([1.0]), "is float, and the input has double"),
        (ice.BooleanType(), pa.array([1], pa.int8()), "is boolean"),
        (ice.DecimalType(9, 2), pa.array([Decimal("1.250")], pa.decimal128(9, 3)), r"is decimal\(9, 2\)"),
        (ice.DecimalType(9, 2), pa.array([Decimal("1.25")], pa.decimal128(10, 2)), r"is decimal\(9, 2\)"),
        (ice.StringType(), pa.array([b"x"]), "is string, and the input has binary"),
        (ice.UUIDType(), pa.array([b"x"], pa.binary(1)), "is uuid"),
        (ice.TimestampType(), pa.array([1], pa.timestamp("ns")), "nanoseconds would be lost.*downcast-ns"),
        (ice.TimestamptzType(), pa.array([1], pa.timestamp("ns", "UTC")), "nanoseconds would be lost"),
        (ice.TimeType(), pa.array([1], pa.time64("ns")), "nanoseconds would be lost"),
        (ice.TimestampType(), pa.array([1], pa.timestamp("us", "UTC")), "time zone is neither dropped nor invented"),
        (ice.TimestamptzType(), pa.array([1], pa.timestamp("us")), "time zone is neither dropped nor invented"),
        (ice.TimestamptzNanoType(), pa.array([1], pa.timestamp("us")), "time zone is neither"),
        (LIST, pa.array([[1]]), r"column 'c\.element' is string"),
        (LIST, pa.array(["a"]), "is list<string>"),
        (TEXT_TO_LONG, pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), r"c\.value"),
        (ice.StructType(opt(10, "x", ice.LongType())), pa.array([{"x": 1, "z": 2}]), r"no column 'c\.z'"),
        (ice.StructType(req(10, "x", ice.LongType())), pa.array([{}], pa.struct([])), r"'c\.x' is required, and the input lacks it"),
        (ice.UnknownType(), pa.array([1]), "takes nulls only"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit_are_refused_before_anything_is_written(tmp_path, kind, array, message):
    schema = Schema(opt(1, "c", kind), opt(99, "other", ice.LongType()))
    with pytest.raises(PolicyError, match=message):
        write(tmp_path, pa.table({"c": array}), schema)
    assert files_in(tmp_path) == []


def test_every_misfit_is_named_at_once(tmp_path):
    table = pa.table({"s": [1], "new": [1], "more": [2]})
    with pytest.raises(PolicyError) as caught:
        write(tmp_path, table)
    assert isinstance(caught.value, ValueError)
    for text in ("'more', 'new'", "column 'id' is required, and the input lacks it", "column 's' is string", "update_schema"):
        assert text in str(caught.value)
    assert files_in(tmp_path) == []


def test_a_column_that_comes_twice_is_refused(tmp_path):
    table = pa.table([[1], [2]], names=["id", "id"])
    with pytest.raises(PolicyError, match="'id' more than once"):
        write(tmp_path, table)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        (ice.LongType(), pa.array([2**63], pa.uint64()), "cannot hold"),
        (ice.IntegerType(), pa.array([2**31], pa.uint32()), "cannot hold"),
        (ice.TimestampNanoType(), pa.array([2**62], pa.timestamp("us")), "cannot hold"),
        (ice.UUIDType(), pa.array(["not a uuid"]), "cannot hold"),
        (ice.FixedType(3), pa.array([b"ab"]), "cannot hold"),
    ],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_left(tmp_path, kind, array, message):
    with pytest.raises(PolicyError, match=f"column 'c' .*{message}"):
        write(tmp_path, pa.table({"c": array}), Schema(opt(1, "c", kind)))
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("schema", "table", "path"),
    [
        (ID_AND_TEXT, pa.table({"id": [1, None]}), "'id'"),
        (Schema(opt(1, "st", ice.StructType(req(2, "x", ice.LongType())))), pa.table({"st": [{"x": None}, None]}), r"'st\.x'"),
        (Schema(opt(1, "l", ice.ListType(2, ice.LongType(), element_required=True))), pa.table({"l": [[1, None], None]}), r"'l\.element'"),
        (
            Schema(opt(1, "m", ice.MapType(2, ice.StringType(), 3, ice.LongType(), value_required=True))),
            pa.table({"m": pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64()))}),
            r"'m\.value'",
        ),
        (Schema(req(1, "id", ice.LongType())), pa.table({"id": pa.nulls(1)}), "'id'"),
    ],
)
def test_nulls_where_values_are_required_are_refused_and_nothing_is_left(tmp_path, schema, table, path):
    with pytest.raises(PolicyError, match=f"column {path} is required, and the input has 1 nulls"):
        write(tmp_path, table, schema)
    assert files_in(tmp_path) == []


def test_a_bad_batch_after_good_ones_leaves_nothing(tmp_path):
    good = id_table(50_000)
    bad = pa.table({"id": pa.array([None], pa.int64()), "s": ["x"]})
    with pytest.raises(PolicyError, match="'id' is required"):
        write(tmp_path, pa.concat_tables([good, bad]), batch_rows=10_000, properties={"write.parquet.row-group-size-bytes": "100000"})
    assert files_in(tmp_path) == []


def test_required_members_of_an_absent_struct_are_not_missed(tmp_path):
    inner = ice.StructType(
        req(2, "x", ice.LongType()),
        req(3, "u", ice.UUIDType()),
        req(4, "st", ice.StructType(req(5, "s", ice.StringType()), opt(6, "d", ice.DoubleType()))),
        req(7, "l", ice.ListType(8, ice.LongType(), element_required=True)),
        req(9, "m", ice.MapType(10, ice.StringType(), 11, ice.LongType(), value_required=True)),
    )
    kind = pa.struct(
        [
            ("x", pa.int64()), ("u", pa.binary(16)), ("st", pa.struct([("s", pa.string()), ("d", pa.float64())])),
            ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )  # fmt: skip
    row = {"x": 1, "u": UUID.bytes, "st": {"s": "a", "d": None}, "l": [1], "m": [("k", 1)]}
    (data_file,) = write(tmp_path, pa.table({"c": pa.array([None, row, None], kind)}), Schema(opt(1, "c", inner)))
    assert read([data_file])["c"].to_pylist() == [None, {**row, "u": UUID}, None]
    assert data_file.null_value_counts == {2: 2, 3: 2, 5: 2, 6: 3}


@pytest.mark.parametrize(("nanos", "micros"), [(-1, -1), (0, 0), (1, 0), (-1000, -1), (1_999, 1), (2**62, 2**62 // 1000)])
def test_nanoseconds_are_rounded_down_when_asked_for(tmp_path, nanos, micros):
    schema = Schema(opt(1, "a", ice.TimestampType()), opt(2, "b", ice.TimestamptzType()), opt(3, "t", ice.TimeType()))
    table = pa.table({"a": pa.array([nanos], pa.timestamp("ns")), "b": pa.array([nanos], pa.timestamp("ns", "UTC"))})
    (data_file,) = write(tmp_path, table.append_column("t", pa.array([1_999], pa.time64("ns"))), schema, downcast_ns=True)
    stored = read([data_file])
    assert [stored[name].cast(pa.int64()).to_pylist() for name in ("a", "b", "t")] == [[micros], [micros], [1]]


@pytest.mark.parametrize("nanos", [-1, 1, 2**63 - 1, -(2**63) + 1])
def test_nanosecond_columns_are_exact(tmp_path, nanos):
    schema = Schema(opt(1, "a", ice.TimestampNanoType()), opt(2, "b", ice.TimestamptzNanoType()))
    table = pa.table({"a": pa.array([nanos], pa.timestamp("ns")), "b": pa.array([nanos], pa.timestamp("ns", "UTC"))})
    (data_file,) = write(tmp_path, table, schema)
    assert [read([data_file])[name].cast(pa.int64()).to_pylist() for name in ("a", "b")] == [[nanos], [nanos]]
    assert data_file.lower_bounds[1] == nanos.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (opt(1, "g", ice.GeometryType()), "'g' is of type geometry"),
        (opt(1, "l", ice.ListType(2, ice.UnknownType(), element_required=False)), r"'l\.element' is of type unknown"),
        (opt(1, "st", ice.StructType()), "struct without fields"),
        (opt(1, "u", ice.UnknownType()), "no column that is stored"),
    ],
)
def test_types_that_are_not_written_are_refused(tmp_path, field, message):
    with pytest.raises(PolicyError, match=message):
        write(tmp_path, pa.table({field.name: pa.nulls(1)}), Schema(field))
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"write.format.default": "orc"}, "write.format.default is 'orc'.*cannot encrypt ORC"),
        ({"write.format.default": "csv"}, "write.format.default is 'csv'"),
        ({"write.format.default": "AVRO", "write.avro.compression-codec": "lz4"}, "write.avro.compression-codec is 'lz4'"),
        ({"write.avro.compression-level": "10"}, "write.avro.compression-level is 10"),
        ({"write.avro.compression-level": "best"}, "write.avro.compression-level is 'best'"),
        ({"write.parquet.page-version": "v2"}, "write.parquet.page-version is 'v2'"),
        ({"write.parquet.bloom-filter-enabled.column.s": "true"}, "write.parquet.bloom-filter-enabled.column.s"),
        ({"write.parquet.compression-codec": "lzo"}, "write.parquet.compression-codec is 'lzo'"),
        ({"write.parquet.compression-level": "99"}, "write.parquet.compression-level is 99"),
        ({"write.parquet.compression-level": "fast"}, "write.parquet.compression-level is 'fast'"),
        ({"write.parquet.page-size-bytes": "0"}, "write.parquet.page-size-bytes is '0'"),
        ({"write.parquet.row-group-size-bytes": "128MB"}, "write.parquet.row-group-size-bytes is '128MB'"),
        ({"write.target-file-size-bytes": "-1"}, "write.target-file-size-bytes is '-1'"),
    ],
)
def test_settings_an_encrypted_table_cannot_have_are_refused_before_writing(tmp_path, properties, message):
    with pytest.raises(PolicyError, match=message):
        write(tmp_path, id_table(1), properties=properties)
    assert files_in(tmp_path) == []


def test_settings_that_are_harmless_are_let_through(tmp_path):
    properties = {
        "write.parquet.bloom-filter-enabled.column.s": "false",
        "write.parquet.bloom-filter-max-bytes": "1048576",
        "write.parquet.page-version": "V1",
        "write.format.default": "PARQUET",
        "write.parquet.compression-level": "null",
    }
    assert len(write(tmp_path, id_table(1), properties=properties)) == 1
