"""Types, nesting, names: a file written by pyarrow with known values comes out as those values."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from icelock.errors import FormatError
from icelock.io.parquet import decryption_properties
from tests.unit.arrow.support import context, metadata, opt, read, rows_table, task, with_ids, write

UTC = dt.UTC
FEB_29 = dt.datetime.fromisoformat("2024-02-29")

SCALARS = Schema(
    opt(1, "b", ice.BooleanType()),
    opt(2, "i", ice.IntegerType()),
    ice.NestedField(3, "l", ice.LongType(), required=True),
    opt(4, "f", ice.FloatType()),
    opt(5, "d", ice.DoubleType()),
    opt(6, "dec", ice.DecimalType(38, 10)),
    opt(7, "date", ice.DateType()),
    opt(8, "time", ice.TimeType()),
    opt(9, "ts", ice.TimestampType()),
    ice.NestedField(10, "tstz", ice.TimestamptzType(), required=False, doc="when"),
    opt(11, "ns", ice.TimestampNanoType()),
    opt(12, "nstz", ice.TimestamptzNanoType()),
    opt(13, "s", ice.StringType()),
    opt(14, "uuid", ice.UUIDType()),
    opt(15, "fixed", ice.FixedType(3)),
    opt(16, "bin", ice.BinaryType()),
)
ROW = {
    "b": True,
    "i": -(2**31),
    "l": 2**63 - 1,
    "f": 0.5,
    "d": 1e300,
    "dec": Decimal("1234567890123456789012345678.0123456789"),
    "date": dt.date(1969, 12, 31),
    "time": dt.time(23, 59, 59, 999999),
    "ts": dt.datetime.fromisoformat("1969-12-31T23:59:59.999999"),
    "tstz": dt.datetime(2024, 3, 1, 5, tzinfo=UTC),
    "ns": 1,
    "nstz": 2**63 - 1,
    "s": "é\U0001f600",
    "uuid": uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    "fixed": b"\x00\xff\x01",
    "bin": b"",
}


def test_every_primitive_type_comes_out_in_its_exact_arrow_type(tmp_path: Path):
    nulls = {**dict.fromkeys(ROW), "l": 1}
    path = write(tmp_path / "f.parquet", rows_table(SCALARS, [ROW, nulls]))
    table = read(context(SCALARS), task(path, key=metadata(path)))
    assert table.schema.types == [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(38, 10),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", tz="UTC"),
        pa.string(),
        pa.uuid(),
        pa.binary(3),
        pa.binary(),
    ]
    assert table.schema.field("tstz").metadata == {b"doc": b"when"}
    assert not table.schema.field("l").nullable
    first = {name: table.column(name)[0].as_py() for name in table.column_names if name not in ("ns", "nstz")}
    assert first == {name: value for name, value in ROW.items() if name not in ("ns", "nstz")}
    assert [table.column(name)[0].value for name in ("ns", "nstz")] == [1, 2**63 - 1]
    assert all(table.column(name)[1].as_py() is None for name in table.column_names if name != "l")


def test_nanoseconds_stay_exact_around_1970_and_at_the_limits(tmp_path: Path):
    schema = Schema(opt(1, "ns", ice.TimestampNanoType()))
    values = [-1, 0, 1, 2**63 - 1, -(2**63) + 1]
    path = write(tmp_path / "f.parquet", pa.table([pa.array(values, pa.timestamp("ns"))], with_ids(schema)))
    table = read(context(schema), task(path, key=metadata(path)))
    assert table.column("ns").cast(pa.int64()).to_pylist() == values


def _nested(leaf: ice.PrimitiveType) -> Schema:
    return Schema(
        ice.NestedField(1, "id", ice.IntegerType(), required=True),
        ice.NestedField(
            2,
            "st",
            ice.StructType(
                opt(3, "a", ice.IntegerType()),
                ice.NestedField(4, "in", ice.StructType(ice.NestedField(5, "x", ice.StringType(), required=True)), required=False),
            ),
            required=False,
        ),
        ice.NestedField(6, "li", ice.ListType(7, ice.IntegerType(), element_required=False), required=False),
        ice.NestedField(
            8,
            "ls",
            ice.ListType(9, ice.StructType(opt(10, "p", ice.LongType()), opt(11, "q", ice.StringType())), element_required=False),
            required=False,
        ),
        ice.NestedField(12, "m", ice.MapType(13, ice.StringType(), 14, ice.LongType(), value_required=False), required=False),
        ice.NestedField(
            15,
            "ml",
            ice.MapType(
                16,
                ice.IntegerType(),
                17,
                ice.ListType(
                    18,
                    ice.MapType(19, ice.StringType(), 20, ice.StructType(opt(21, "u", leaf)), value_required=False),
                    element_required=False,
                ),
                value_required=False,
            ),
            required=False,
        ),
        ice.NestedField(
            22, "ll", ice.ListType(23, ice.ListType(24, ice.DateType(), element_required=False), element_required=False), required=False
        ),
    )


NESTED = _nested(ice.UUIDType())
STORED = _nested(ice.FixedType(16))  # how pyarrow makes a nested uuid from Python values
U = uuid.UUID(int=7)


def _rows(leaf: object) -> list[dict[str, object]]:
    return [
        {
            "id": 1,
            "st": {"a": 1, "in": {"x": "x"}},
            "li": [1, None, 3],
            "ls": [{"p": 1, "q": "q"}, None, {"p": None, "q": None}],
            "m": [("k", 1), ("n", None)],
            "ml": [(1, [[("a", {"u": leaf}), ("b", None)], None, []]), (2, None)],
            "ll": [[dt.date(2024, 1, 1), None], None, []],
        },
        {"id": 2, "st": None, "li": None, "ls": None, "m": None, "ml": None, "ll": None},
        {"id": 3, "st": {"a": None, "in": None}, "li": [], "ls": [], "m": [], "ml": [], "ll": []},
        {"id": 4, "st": {"a": 4, "in": {"x": "y"}}, "li": [None], "ls": [None], "m": [("z", 9)], "ml": [(7, [])], "ll": [[]]},
    ]


NESTED_ROWS = _rows(U)
STORED_ROWS = _rows(U.bytes)


def test_nested_values_with_nulls_and_empties_at_every_level(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(STORED, STORED_ROWS))
    assert read(context(NESTED), task(path, key=metadata(path))).to_pylist() == NESTED_ROWS


def test_a_nested_type_without_stored_arrow_schema_names_elements_as_iceberg_does(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(STORED, STORED_ROWS))
    table = read(context(NESTED), task(path, key=metadata(path)))
    assert table.schema.field("li").type.value_field.name == "element"
    assert table.schema.field("ml").type.item_field.name == "value"
    assert not table.schema.field("ml").type.key_field.nullable


@pytest.mark.parametrize("stored", [True, False])
def test_large_and_dictionary_columns_of_a_stored_arrow_schema_come_out_small(tmp_path: Path, stored):
    schema = Schema(
        opt(1, "s", ice.StringType()), ice.NestedField(2, "l", ice.ListType(3, ice.StringType(), element_required=False), required=False)
    )
    arrow = pa.schema(
        [
            pa.field("s", pa.dictionary(pa.int32(), pa.string()), metadata={"PARQUET:field_id": "1"}),
            pa.field(
                "l", pa.large_list(pa.field("e", pa.large_string(), metadata={"PARQUET:field_id": "3"})), metadata={"PARQUET:field_id": "2"}
            ),
        ]
    )
    rows = [{"s": "a", "l": ["x", None]}, {"s": None, "l": None}, {"s": "a", "l": []}]
    path = write(tmp_path / "f.parquet", pa.Table.from_pylist(rows, arrow), store_schema=stored)
    assert read(context(schema), task(path, key=metadata(path))).to_pylist() == rows


def test_odd_column_names_are_found_by_id(tmp_path: Path):
    """Case C-30: a dot, a space, a name beyond ASCII, and a column that looks like a struct's path."""
    schema = Schema(
        opt(1, "a.x", ice.IntegerType()),
        ice.NestedField(2, "a", ice.StructType(opt(3, "b", ice.IntegerType()), opt(9, "c.d", ice.StringType())), required=False),
        opt(4, "with space", ice.StringType()),
        opt(5, "größe", ice.StringType()),
    )
    rows = [
        {"a.x": 1, "a": {"b": 2, "c.d": "x"}, "with space": "s", "größe": "g"},
        {"a.x": None, "a": None, "with space": None, "größe": None},
    ]
    path = write(tmp_path / "f.parquet", rows_table(schema, rows))
    one = task(path, key=metadata(path))
    assert read(context(schema), one).to_pylist() == rows
    for field in schema.fields:
        assert read(context(Schema(field), table_schema=schema), one).to_pylist() == [{field.name: row[field.name]} for row in rows]


def test_a_file_without_rows_gives_no_batches(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(STORED, []))
    assert read(context(NESTED), task(path, key=metadata(path))).num_rows == 0


def test_no_columns_still_count_rows(tmp_path: Path):
    path = write(tmp_path / "f.parquet", rows_table(STORED, STORED_ROWS))
    assert read(context(Schema(), table_schema=NESTED), task(path, key=metadata(path))).num_rows == 4


def test_int96_is_timestamptz_in_microseconds(tmp_path: Path):
    schema = Schema(opt(1, "t", ice.TimestamptzType()))
    value = dt.datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=UTC)
    path = write(tmp_path / "f.parquet", rows_table(schema, [{"t": value}]), use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(path, decryption_properties=_open(path)).schema.column(0).physical_type == "INT96"
    assert read(context(schema), task(path, key=metadata(path))).to_pylist() == [{"t": value}]


def _open(path: Path):
    return decryption_properties(metadata(path))


@pytest.mark.parametrize(
    ("stored", "value", "wanted", "expected"),
    [
        (pa.int32(), 7, ice.LongType(), 7),
        (pa.int8(), -7, ice.IntegerType(), -7),
        (pa.uint16(), 65535, ice.IntegerType(), 65535),
        (pa.uint32(), 2**32 - 1, ice.LongType(), 2**32 - 1),
        (pa.float32(), 0.1, ice.DoubleType(), 0.10000000149011612),
        (pa.decimal128(9, 2), Decimal("1.27"), ice.DecimalType(20, 2), Decimal("1.27")),
        (pa.date32(), dt.date(2024, 2, 29), ice.TimestampType(), FEB_29),
        (pa.timestamp("ms"), FEB_29, ice.TimestampType(), FEB_29),
        (pa.timestamp("us", tz="UTC"), dt.datetime(2024, 2, 29, tzinfo=UTC), ice.TimestampType(), FEB_29),
        (pa.binary(16), U.bytes, ice.UUIDType(), U),
        (pa.uuid(), U, ice.FixedType(16), U.bytes),
        (pa.time32("ms"), dt.time(1, 2, 3), ice.TimeType(), dt.time(1, 2, 3)),
        (pa.string(), "é", ice.BinaryType(), "é".encode()),
        (pa.null(), None, ice.LongType(), None),
        (pa.int32(), 7, ice.UnknownType(), None),
    ],
)
def test_a_stored_type_is_promoted(tmp_path: Path, stored, value, wanted, expected):
    arrow = pa.schema([pa.field("c", stored, metadata={"PARQUET:field_id": "1"})])
    path = write(tmp_path / "f.parquet", pa.table([pa.array([value, None], stored)], arrow))
    schema = Schema(opt(1, "c", wanted))
    assert read(context(schema), task(path, key=metadata(path))).to_pylist() == [{"c": expected}, {"c": None}]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.int64(), ice.IntegerType()),
        (pa.float64(), ice.FloatType()),
        (pa.decimal128(9, 3), ice.DecimalType(20, 2)),
        (pa.decimal128(9, 2), ice.DecimalType(8, 2)),
        (pa.string(), ice.LongType()),
        (pa.binary(15), ice.UUIDType()),
        (pa.binary(), ice.FixedType(4)),
        (pa.date32(), ice.TimestamptzType()),
        (pa.list_(pa.int32()), ice.IntegerType()),
        (pa.int32(), ice.ListType(2, ice.IntegerType(), element_required=False)),
        (pa.struct([("x", pa.int32())]), ice.MapType(2, ice.StringType(), 3, ice.StringType())),
    ],
)
def test_a_stored_type_that_the_spec_does_not_promote_is_refused(tmp_path: Path, stored, wanted):
    arrow = pa.schema([pa.field("c", stored, metadata={"PARQUET:field_id": "1"})])
    path = write(tmp_path / "f.parquet", pa.table([pa.array([None], stored)], arrow))
    schema = Schema(opt(1, "c", wanted))
    with pytest.raises(FormatError, match=r"f\.parquet: field 'c' \(id 1\) is stored as .* cannot be read as"):
        read(context(schema), task(path, key=metadata(path)))


@pytest.mark.parametrize(
    ("stored", "value", "wanted"),
    [
        (pa.timestamp("ns"), 1, ice.TimestampType()),
        (pa.timestamp("us"), 2**62, ice.TimestampNanoType()),
        (pa.uint64(), 2**64 - 1, ice.LongType()),
        (pa.binary(), b"\xff", ice.StringType()),
    ],
)
def test_a_stored_value_that_does_not_fit_is_an_error_and_never_shifted(tmp_path: Path, stored, value, wanted):
    """Case C-58."""
    arrow = pa.schema([pa.field("c", stored, metadata={"PARQUET:field_id": "1"})])
    path = write(tmp_path / "f.parquet", pa.table([pa.array([value], stored)], arrow))
    schema = Schema(opt(1, "c", wanted))
    with pytest.raises(FormatError, match=r"f\.parquet: field 'c' .* has a value that is no"):
        read(context(schema), task(path, key=metadata(path)))
