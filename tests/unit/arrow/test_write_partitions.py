"""Partitions: values and folders as Java's, any order of input, bounded open files and memory."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)

from icelock.arrow.transforms import array_transform
from icelock.arrow.write.partition import java_float, partition_path
from icelock.errors import PolicyError
from icelock.plan.partition_set import identity_of
from tests.golden.java_chain import data_files as java_files
from tests.golden.java_chain import table_metadata
from tests.golden.relocate import expected, table_info
from tests.unit.arrow.writing import CountingIO, files_in, opt, parquet_file, path_of, read, write

LOW, HIGH = -62_135_596_800_000_000, 253_402_300_799_000_000  # years 1 to 9999 in microseconds


def spec(*fields: tuple[int, str, Transform]) -> PartitionSpec:
    return PartitionSpec(*(PartitionField(source, 1000 + i, transform, name) for i, (source, name, transform) in enumerate(fields)))


def whole_numbers(low: int, high: int) -> list[int | None]:
    source = random.Random(low)
    return [None, low, high, 0, 1, -1, *(source.randrange(low, high) for _ in range(500))]


def golden_spec(table: str) -> tuple[Schema, PartitionSpec]:
    metadata = table_metadata(table)
    return Schema.model_validate(metadata["schemas"][-1]), PartitionSpec.model_validate(metadata["partition-specs"][-1])


def golden_rows(table: str, schema: pa.Schema, snapshot_id: int) -> pa.Table:
    rows = expected(table)["at_snapshot"][str(snapshot_id)]
    for row in rows:
        row["ts"] = row["ts"] and dt.datetime.fromisoformat(row["ts"]).replace(tzinfo=dt.UTC)
        row["amount"] = row["amount"] and Decimal(row["amount"])
    return pa.Table.from_pylist(rows, schema)


def test_partitions_and_folders_are_javas(tmp_path):
    """All rows of the golden table's first snapshot, in their mixed order: the files and partitions that Java made of them."""
    schema, partitioning = golden_spec("part_parquet")
    arrow = pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
            ("cat", pa.string()),
            ("amount", pa.decimal128(10, 2)),
            ("note", pa.string()),
        ]
    )
    snapshot_id = table_info("part_parquet")["snapshots"][0]["snapshot-id"]
    ours = write(tmp_path, golden_rows("part_parquet", arrow, snapshot_id), schema, spec=partitioning)
    java = java_files("part_parquet", snapshot_id)
    epoch = dt.date(1970, 1, 1)

    def facts(path: str, bucket: int, day: int, rows: int) -> tuple:
        return path.split("/data/")[1].rsplit("/", 1)[0], bucket, day, rows

    expected_facts = [
        facts(
            f.entry["file_path"], f.entry["partition"]["id_bucket"], (f.entry["partition"]["ts_day"] - epoch).days, f.entry["record_count"]
        )
        for f in java
    ]
    found = [facts(f.file_path, f.partition[0], f.partition[1], f.record_count) for f in ours]
    assert sorted(found) == sorted(expected_facts)
    assert len(found) > 10


@pytest.mark.parametrize(
    ("kind", "arrow", "values"),
    [
        (ice.IntegerType(), pa.int32(), whole_numbers(-(2**31), 2**31 - 1)),
        (ice.LongType(), pa.int64(), whole_numbers(-(2**63), 2**63 - 1)),
        (ice.DateType(), pa.date32(), whole_numbers(LOW // 86_400_000_000, HIGH // 86_400_000_000)),
        (ice.TimeType(), pa.time64("us"), whole_numbers(0, 86_399_999_999)[:3]),
        (ice.TimestampType(), pa.timestamp("us"), whole_numbers(LOW, HIGH)),
        (ice.TimestamptzType(), pa.timestamp("us", "UTC"), whole_numbers(LOW, HIGH)),
        (ice.TimestampNanoType(), pa.timestamp("ns"), whole_numbers(-(2**62), 2**62)),
        (ice.TimestamptzNanoType(), pa.timestamp("ns", "UTC"), whole_numbers(-(2**62), 2**62)),
        (ice.StringType(), pa.string(), ["", "a", "iceberg", "e\u0301\U0001f600xyz", None, "a"]),
        (ice.BinaryType(), pa.binary(), [b"", b"\x00\xff", b"iceberg", None]),
        (ice.FixedType(3), pa.binary(3), [b"abc", b"\xff\x00\x01", None]),
        (ice.DecimalType(12, 2), pa.decimal128(12, 2), [Decimal(n).scaleb(-2) for n in (0, 1, -1, 10050, -99999, 10**11)]),
        (ice.UUIDType(), pa.uuid(), [uuid.UUID(int=1).bytes, None, uuid.UUID(int=2**127).bytes]),
    ],
    ids=lambda value: "values" if isinstance(value, list) else str(value),
)
def test_transforms_of_whole_arrays_are_those_of_single_values(kind, arrow, values):
    """PyIceberg's transform of one value is the reference; its results are the spec's (tested there against Appendix B)."""
    tried = 0
    transforms = [BucketTransform(n) for n in (1, 2, 16, 1_000_003)] + [TruncateTransform(w) for w in (1, 7, 100)]
    for transform in (*transforms, YearTransform(), MonthTransform(), DayTransform(), HourTransform(), IdentityTransform()):
        if not transform.can_transform(kind):
            continue
        least = -(2**31) if isinstance(kind, ice.IntegerType) else -(2**63)
        usable = [v for v in values if not (isinstance(transform, TruncateTransform) and isinstance(v, int) and v < least + 100)]
        found = array_transform(transform, kind)(pa.array(usable, arrow)).to_pylist()
        assert found == [transform.transform(kind)(value) for value in usable], transform
        tried += 1
    assert tried


FAR_DAYS = {  # java.time.LocalDate.ofEpochDay of the day: its year and month
    -(2**31): (-5877641, 6),
    2**31 - 1: (5881580, 7),
    11_248_737: (32767, 12),
    11_248_738: (32768, 1),
    -106_751_992: (-290308, 12),
    106_751_991: (294247, 1),
    -719_529: (-1, 12),
    -719_528: (0, 1),
    -1: (1969, 12),
}


@pytest.mark.parametrize(("day", "year", "month"), [(day, *found) for day, found in FAR_DAYS.items()])
def test_years_and_months_of_any_day_are_javas(day, year, month):
    """The specification's years are whole numbers of 32 bits; Arrow's have 16, and 32768 would come before all others."""
    values = {ice.DateType(): pa.array([day, None], pa.int32()).cast(pa.date32())}
    for per, unit, kind in ((86_400_000_000, "us", ice.TimestampType()), (86_400_000_000_000, "ns", ice.TimestampNanoType())):
        ticks = [tick for tick in (day * per, day * per + per - 1) if -(2**63) <= tick < 2**63]
        values[kind] = pa.array([*ticks, None], pa.int64()).cast(pa.timestamp(unit))
    for kind, array in values.items():
        some = len(array) - 1
        assert array_transform(YearTransform(), kind)(array).to_pylist() == [year - 1970] * some + [None], kind
        assert array_transform(MonthTransform(), kind)(array).to_pylist() == [(year - 1970) * 12 + month - 1] * some + [None], kind
        assert array_transform(DayTransform(), kind)(array).to_pylist() == [day] * some + [None], kind


@given(st.integers(0, 146_096), st.integers(-14_000, 14_000))
def test_the_calendar_repeats_after_400_years(day, cycles):
    """PyIceberg's transform of a day that Python's calendar has, moved by cycles of 146,097 days."""
    moved = pa.array([day + cycles * 146_097], pa.int32()).cast(pa.date32())
    for transform, months in ((YearTransform(), 400), (MonthTransform(), 4800)):
        expected = transform.transform(ice.DateType())(day) + cycles * months
        assert array_transform(transform, ice.DateType())(moved).to_pylist() == [expected]


def test_an_hour_that_32_bits_do_not_hold_is_refused():
    hours = array_transform(HourTransform(), ice.TimestampType())
    last = pa.array([2**31 * 3_600_000_000 - 1, -(2**31) * 3_600_000_000], pa.int64())
    assert hours(last.cast(pa.timestamp("us"))).to_pylist() == [2**31 - 1, -(2**31)]
    for tick in (2**31 * 3_600_000_000, -(2**31) * 3_600_000_000 - 1):
        with pytest.raises(PolicyError, match="partition by days"):
            hours(pa.array([tick], pa.int64()).cast(pa.timestamp("us")))


@pytest.mark.parametrize(("precision", "scale"), [(38, 3), (9, 2), (18, 0)])
def test_a_decimal_that_cannot_be_rounded_down_is_refused(precision, scale):
    """-99 is -100 in steps of 10 (specification: v - v mod W, of the unscaled value), which has a digit more."""
    truncate = array_transform(TruncateTransform(10), ice.DecimalType(precision, scale))
    least, step = Decimal(-(10**precision - 1)), Decimal(10)
    kind = pa.decimal128(precision, scale)
    with localcontext(prec=60):
        fits = pa.array([(least + 9).scaleb(-scale), -least.scaleb(-scale), None], kind)
        assert truncate(fits).to_pylist() == [(least - 1 + step).scaleb(-scale), (-least - 9).scaleb(-scale), None]
        with pytest.raises(PolicyError, match="more digits"):
            truncate(pa.array([least.scaleb(-scale)], kind))


def test_hashes_are_those_of_the_spec():
    """Appendix B: 34 and 2017-11-16 and their kin hash to these."""
    bucket = 2**31 - 1
    for kind, arrow, value, hashed in [
        (ice.IntegerType(), pa.int32(), 34, 2017239379),
        (ice.LongType(), pa.int64(), 34, 2017239379),
        (ice.DateType(), pa.date32(), dt.date(2017, 11, 16), -653330422),
        (ice.TimeType(), pa.time64("us"), dt.time(22, 31, 8), -662762989),
        (ice.TimestampType(), pa.timestamp("us"), dt.datetime(2017, 11, 16, 22, 31, 8), -2047944441),  # noqa: DTZ001
        (ice.StringType(), pa.string(), "iceberg", 1210000089),
        (ice.BinaryType(), pa.binary(), b"\x00\x01\x02\x03", -188683207),
        (ice.DecimalType(9, 2), pa.decimal128(9, 2), Decimal("14.20"), -500754589),
        (ice.UUIDType(), pa.uuid(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    ]:
        found = array_transform(BucketTransform(bucket), kind)(pa.array([value], arrow))
        assert found.to_pylist() == [(hashed & bucket) % bucket], kind


def test_mixed_rows_of_300_partitions_make_300_files_with_at_most_64_open(tmp_path):
    io = CountingIO()
    schema = Schema(opt(1, "p", ice.IntegerType()), opt(2, "n", ice.LongType()))
    table = pa.table({"p": pa.array([i * 7 % 300 for i in range(30_000)], pa.int32()), "n": range(30_000)})
    ours = write(tmp_path, table, schema, batch_rows=1_000, spec=spec((1, "p", IdentityTransform())), io=io)
    assert len(ours) == 300
    assert io.most_open <= 64
    assert {f.record_count for f in ours} == {100}
    by_partition = {f.partition[0]: parquet_file(f).read()["n"].to_pylist() for f in ours}
    assert all(rows == [i for i in range(30_000) if i * 7 % 300 == p] for p, rows in by_partition.items())


def test_open_files_stay_bounded_when_memory_is_short(tmp_path):
    """Every partition has to write before its rows are all there: then some get a second file, and none is lost."""
    io = CountingIO()
    schema = Schema(opt(1, "p", ice.IntegerType()), opt(2, "s", ice.StringType()))
    table = pa.table({"p": pa.array([i % 100 for i in range(20_000)], pa.int32()), "s": [f"{i:0100d}" for i in range(20_000)]})
    partitioning = spec((1, "p", IdentityTransform()))
    ours = write(tmp_path, table, schema, batch_rows=1_000, spec=partitioning, io=io, max_open_files=8, max_buffered_bytes=200_000)
    assert io.most_open <= 8
    assert len(ours) >= 100
    assert sorted(read(ours)["s"].to_pylist()) == table["s"].to_pylist()
    assert {f.partition[0] for f in ours} == set(range(100))


def test_rows_keep_their_order_inside_a_partition(tmp_path):
    schema = Schema(opt(1, "p", ice.StringType()), opt(2, "n", ice.LongType()))
    table = pa.table({"p": ["b", "a", "b", None, "a", "b"], "n": range(6)})
    ours = write(tmp_path, table, schema, spec=spec((1, "p", IdentityTransform())))
    assert [(f.partition[0], parquet_file(f).read()["n"].to_pylist()) for f in ours] == [("b", [0, 2, 5]), ("a", [1, 4]), (None, [3])]


def test_several_fields_and_a_nested_source_column(tmp_path):
    schema = Schema(opt(1, "st", ice.StructType(opt(2, "x", ice.IntegerType()))), opt(3, "ts", ice.TimestampType()))
    rows = [
        {"st": {"x": 5}, "ts": dt.datetime(2024, 3, 1)},  # noqa: DTZ001
        {"st": None, "ts": None},
        {"st": {"x": 5}, "ts": dt.datetime(1969, 12, 31, 23)},  # noqa: DTZ001
    ]
    table = pa.Table.from_pylist(rows, pa.schema([("st", pa.struct([("x", pa.int32())])), ("ts", pa.timestamp("us"))]))
    partitioning = spec((2, "x", IdentityTransform()), (3, "y", YearTransform()), (2, "x10", TruncateTransform(10)))
    ours = write(tmp_path, table, schema, spec=partitioning)
    assert [tuple(f.partition[i] for i in range(3)) for f in ours] == [(5, 54, 0), (None, None, None), (5, -1, 0)]
    folders = [str(path_of(f).parent.relative_to(tmp_path / "data")) for f in ours]
    assert folders == ["x=5/y=2024/x10=0", "x=null/y=null/x10=null", "x=5/y=1969/x10=0"]


def test_void_fields_are_null_and_alone_make_no_folder(tmp_path):
    schema = Schema(opt(1, "p", ice.LongType()))
    (only,) = write(tmp_path, pa.table({"p": [1, 2]}), schema, spec=spec((1, "gone", VoidTransform())))
    assert only.partition[0] is None
    assert path_of(only).parent == tmp_path / "data"
    ours = write(tmp_path, pa.table({"p": [1, 2]}), schema, spec=spec((1, "gone", VoidTransform()), (1, "p", IdentityTransform())))
    assert sorted(path_of(f).parent.relative_to(tmp_path / "data").as_posix() for f in ours) == ["gone=null/p=1", "gone=null/p=2"]
    assert {f.partition[0] for f in ours} == {None}


def test_nan_is_one_partition_and_minus_zero_another(tmp_path):
    schema = Schema(opt(1, "d", ice.DoubleType()))
    other_nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
    tables = [pa.table({"d": [float("nan"), 0.0, 1e20]}), pa.table({"d": [other_nan, -0.0]})]
    ours = write(tmp_path, pa.concat_tables(tables), schema, spec=spec((1, "d", IdentityTransform())), batch_rows=1)
    folders = sorted(path_of(f).parent.name for f in ours)
    assert folders == ["d=-0.0", "d=0.0", "d=1.0E20", "d=NaN"]
    assert sum(f.record_count for f in ours) == 5


def test_partitions_are_told_apart_as_by_javas_equals():
    assert identity_of((float("nan"), 1)) == identity_of((-float("nan"), 1))
    assert identity_of((0.0,)) != identity_of((-0.0,))
    assert identity_of((None,)) != identity_of((0,))


@pytest.mark.parametrize(
    ("name", "kind", "transform", "value", "folder"),
    [
        ("a b", ice.StringType(), IdentityTransform(), "x/y z%ä", "a+b=x%2Fy+z%25%C3%A4"),  # format.md, "Paths": seen from Java
        ("cat", ice.StringType(), IdentityTransform(), "yé", "cat=y%C3%A9"),
        ("d", ice.DoubleType(), IdentityTransform(), float("nan"), "d=NaN"),
        ("cat", ice.StringType(), IdentityTransform(), None, "cat=null"),
        ("c", ice.StringType(), IdentityTransform(), "*-._~'", "c=*-._%7E%27"),
        ("c", ice.StringType(), IdentityTransform(), "", "c="),
        ("b", ice.BooleanType(), IdentityTransform(), True, "b=true"),
        ("f", ice.FloatType(), IdentityTransform(), struct.unpack("<f", struct.pack("<f", 0.1))[0], "f=0.1"),
        ("dec", ice.DecimalType(38, 10), IdentityTransform(), Decimal("0E-10"), "dec=0E-10"),
        ("dec", ice.DecimalType(9, 2), IdentityTransform(), Decimal("-1.50"), "dec=-1.50"),
        ("dt", ice.DateType(), IdentityTransform(), 19_783, "dt=2024-03-01"),
        ("t", ice.TimeType(), IdentityTransform(), 36_000_000_000, "t=10%3A00"),
        ("t", ice.TimeType(), IdentityTransform(), 36_001_500_000, "t=10%3A00%3A01.500"),
        ("ts", ice.TimestamptzType(), IdentityTransform(), 1_512_123_175_038_194, "ts=2017-12-01T10%3A12%3A55.038194Z"),
        ("ts", ice.TimestampType(), IdentityTransform(), 1_709_251_200_000_000, "ts=2024-03-01T00%3A00"),
        ("ts", ice.TimestampType(), IdentityTransform(), 253_402_300_800_000_000, "ts=%2B10000-01-01T00%3A00"),
        ("ns", ice.TimestampNanoType(), IdentityTransform(), -1, "ns=1969-12-31T23%3A59%3A59.999999999"),
        ("u", ice.UUIDType(), IdentityTransform(), uuid.UUID(int=1).bytes, "u=00000000-0000-0000-0000-000000000001"),
        ("bin", ice.BinaryType(), IdentityTransform(), b"\xff\x00\x01", "bin=%2FwAB"),
        ("fix", ice.FixedType(2), IdentityTransform(), b"\xff\xfe", "fix=%2F%2F4%3D"),
        ("y", ice.DateType(), YearTransform(), -1, "y=1969"),
        ("m", ice.DateType(), MonthTransform(), -1, "m=1969-12"),
        ("m", ice.DateType(), MonthTransform(), 650, "m=2024-03"),
        ("day", ice.TimestampType(), DayTransform(), -1, "day=1969-12-31"),
        ("h", ice.TimestampType(), HourTransform(), -1, "h=1969-12-31-23"),
        ("h", ice.TimestampType(), HourTransform(), 474_792, "h=2024-03-01-00"),
        ("bk", ice.StringType(), BucketTransform(4), 3, "bk=3"),
        ("tr", ice.BinaryType(), TruncateTransform(2), b"\xff\x00", "tr=%2FwA%3D"),
        ("tr", ice.DecimalType(9, 2), TruncateTransform(50), Decimal("12345.50"), "tr=12345.50"),
    ],
)
def test_folder_names_are_javas(name: str, kind: ice.IcebergType, transform: Transform, value, folder: str):
    assert partition_path([PartitionField(1, 1000, transform, name)], [kind], [value]) == folder


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"), (100.0, "100.0"),
        (1234567.0, "1234567.0"), (1e7, "1.0E7"), (1.5e10, "1.5E10"), (0.001, "0.001"), (9.999e-4, "9.999E-4"),
        (-0.0, "-0.0"), (0.1 + 0.2, "0.30000000000000004"), (5e-324, "4.9E-324"), (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("-inf"), "-Infinity"), (123.456, "123.456"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_prints_them(value, text):
    """JDK 19 and later: Double.toString's documentation has these cases."""
    assert java_float(value, single=False) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3.4028234663852886e38, "3.4028235E38"), (1.401298464324817e-45, "1.4E-45"), (16777216.0, "1.6777216E7")]
)
def test_floats_are_written_with_their_own_digits(value, text):
    assert java_float(value, single=True) == text


def test_odd_partition_values_are_stored_under_their_encoded_names(tmp_path):
    schema = Schema(opt(1, "a b", ice.StringType()))
    values = ["x/y z%ä", "../up", "#?&=", "", None]
    ours = write(tmp_path, pa.table({"a b": values}), schema, spec=spec((1, "a b", IdentityTransform())))
    folders = {f.partition[0]: path_of(f).parent for f in ours}
    assert {path.parent for path in folders.values()} == {tmp_path / "data"}
    assert folders["../up"].name == "a+b=..%2Fup"
    assert all(path_of(f).exists() for f in ours)


@pytest.mark.parametrize(
    "partitioning",
    [
        spec((1, "u", UnknownTransform("zorder"))),
        spec((1, "h", HourTransform())),
        spec((2, "l", IdentityTransform())),
        spec((99, "gone", IdentityTransform())),
    ],
    ids=["unknown", "wrong type", "list", "missing"],
)
def test_partitioning_that_cannot_be_computed_is_refused_before_writing(tmp_path, partitioning):
    schema = Schema(opt(1, "p", ice.LongType()), opt(2, "l", ice.ListType(3, ice.LongType(), element_required=False)))
    with pytest.raises(PolicyError, match=r"transform|partition field"):
        write(tmp_path, pa.table({"p": [1]}), schema, spec=partitioning)
    assert files_in(tmp_path) == []
