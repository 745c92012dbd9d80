"""Avro data files: Java's schema for Java's types, rows as fastavro reads them, AGS1 with a key a file, sizes, partitions, failures."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform

from icelock.arrow.write.avro_file import avro_data_schema, decimal_length
from icelock.arrow.write.writer import DataFileWriter
from icelock.errors import IntegrityError
from icelock.keys.entropy import SystemEntropy
from icelock.metadata.manifest import DataFile
from tests.golden import java_chain, relocate
from tests.unit.arrow.test_write_roundtrip import FORMS, ROW, SCHEMA
from tests.unit.arrow.writing import ID_AND_TEXT, CountingIO, context, files_in, id_table, key_metadata, opt, path_of, req, write
from tests.verify.reading import KeyMetadata, ags1_open

AVRO = {"write.format.default": "avro"}


def plain(data_file: DataFile) -> bytes:
    """The Avro container, opened by the independent reader."""
    key = key_metadata(data_file)
    data = path_of(data_file).read_bytes()
    assert data_file.file_size_in_bytes == len(data) == key["length"]
    return ags1_open(data, KeyMetadata(key["key"], key["aad"], key["length"]), data_file.file_path)


def rows_of(*files: DataFile) -> list[Any]:
    return [row for file in files for row in fastavro.reader(io.BytesIO(plain(file)))]


def avro(folder: Path, table: pa.Table, schema: Schema = ID_AND_TEXT, **fields: Any) -> list[DataFile]:
    properties = AVRO | fields.pop("properties", {})
    return write(folder, table, schema, properties=properties, **fields)


def test_the_schema_of_java_s_types_is_java_s():
    """The golden table has every type that Spark writes: the same JSON, name for name."""
    (file, *_) = java_chain.data_files("avro_data")
    stored = relocate.RelocatingFileIO().local_path(file.entry["file_path"]).read_bytes()
    reader = fastavro.reader(io.BytesIO(java_chain._ags1(stored, file.entry["key_metadata"])))
    iceberg = Schema.model_validate_json(reader.metadata["iceberg.schema"])
    assert avro_data_schema(iceberg.fields) == json.loads(reader.metadata["avro.schema"])


def test_types_that_spark_does_not_write():
    """By hand from Java's TypeToSchema: a named type is written out once and named after that."""
    fields = (
        req(1, "t", ice.TimeType()),
        opt(2, "n", ice.TimestampNanoType()),
        opt(3, "z", ice.TimestamptzNanoType()),
        opt(4, "u", ice.UUIDType()),
        req(5, "f", ice.FixedType(7)),
        opt(6, "a b", ice.MapType(7, ice.UUIDType(), 8, ice.FixedType(7), value_required=False)),
    )
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    assert avro_data_schema(fields)["fields"] == [
        {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}, "field-id": 1},
        {"name": "n", "type": ["null", {**nanos, "adjust-to-utc": False}], "default": None, "field-id": 2},
        {"name": "z", "type": ["null", {**nanos, "adjust-to-utc": True}], "default": None, "field-id": 3},
        {
            "name": "u",
            "type": ["null", {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}],
            "default": None,
            "field-id": 4,
        },
        {"name": "f", "type": {"type": "fixed", "name": "fixed_7", "size": 7}, "field-id": 5},
        {
            "name": "a_x20b",
            "type": [
                "null",
                {
                    "type": "array",
                    "logicalType": "map",
                    "items": {
                        "type": "record",
                        "name": "k7_v8",
                        "fields": [
                            {"name": "key", "type": "uuid_fixed", "field-id": 7},
                            {"name": "value", "type": ["null", "fixed_7"], "default": None, "field-id": 8},
                        ],
                    },
                },
            ],
            "default": None,
            "iceberg-field-name": "a b",
            "field-id": 6,
        },
    ]


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (4, 2), (9, 4), (10, 5), (18, 8), (19, 9), (38, 16)])
def test_decimals_have_the_fewest_bytes(precision, size):
    """Spec, "Parquet": the minimum number of bytes that hold the precision."""
    assert decimal_length(precision) == size
    assert 2 ** (8 * size - 1) - 1 >= 10**precision - 1
    assert 2 ** (8 * (size - 1) - 1) - 1 < 10**precision - 1 if size > 1 else True


def test_every_type_is_read_by_fastavro(tmp_path):
    schema = Schema(
        req(1, "id", ice.LongType()),
        opt(2, "b", ice.BooleanType()),
        opt(3, "i", ice.IntegerType()),
        opt(4, "f", ice.FloatType()),
        opt(5, "d", ice.DoubleType()),
        opt(6, "dec", ice.DecimalType(20, 3)),
        opt(7, "dt", ice.DateType()),
        opt(8, "t", ice.TimeType()),
        opt(9, "ts", ice.TimestampType()),
        opt(10, "tz", ice.TimestamptzType()),
        opt(11, "s", ice.StringType()),
        opt(12, "bin", ice.BinaryType()),
        opt(13, "fx", ice.FixedType(3)),
        opt(14, "u", ice.UUIDType()),
        opt(15, "st", ice.StructType(opt(20, "x", ice.IntegerType()), req(21, "y", ice.StringType()))),
        opt(16, "ls", ice.ListType(22, ice.DecimalType(3, 1), element_required=False)),
        opt(17, "m", ice.MapType(23, ice.StringType(), 24, ice.DateType(), value_required=False)),
        opt(18, "mi", ice.MapType(25, ice.IntegerType(), 26, ice.ListType(27, ice.LongType(), element_required=True), value_required=True)),
    )
    one = {
        "id": -1,
        "b": True,
        "i": -(2**31),
        "f": 1.5,
        "d": float("inf"),
        "dec": decimal.Decimal("-12345678901234567.891"),
        "dt": dt.date(1, 1, 1),
        "t": dt.time(23, 59, 59, 999_999),
        "ts": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - a timestamp without zone
        "tz": dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=dt.UTC),
        "s": "é\0x",
        "bin": b"\x00\xff",
        "fx": b"abc",
        "u": uuid.UUID(int=5),
        "st": {"x": None, "y": "z"},
        "ls": [decimal.Decimal("-9.9"), None, decimal.Decimal("0.1")],
        "m": [("k", dt.date(2024, 2, 29)), ("n", None)],
        "mi": [(7, [1, 2]), (8, [])],
    }
    nothing = dict.fromkeys(one) | {"id": 2}
    arrow = pa.schema(
        [
            ("id", pa.int64()),
            ("b", pa.bool_()),
            ("i", pa.int32()),
            ("f", pa.float32()),
            ("d", pa.float64()),
            ("dec", pa.decimal128(20, 3)),
            ("dt", pa.date32()),
            ("t", pa.time64("us")),
            ("ts", pa.timestamp("us")),
            ("tz", pa.timestamp("us", "UTC")),
            ("s", pa.string()),
            ("bin", pa.binary()),
            ("fx", pa.binary(3)),
            ("u", pa.uuid()),
            ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ("ls", pa.list_(pa.decimal128(3, 1))),
            ("m", pa.map_(pa.string(), pa.date32())),
            ("mi", pa.map_(pa.int32(), pa.list_(pa.int64()))),
        ]
    )
    (file,) = avro(tmp_path, pa.Table.from_pylist([one, nothing], arrow), schema)
    expected = one | {"m": dict(one["m"]), "mi": [{"key": key, "value": value} for key, value in one["mi"]]}
    expected["u"] = one["u"].bytes
    expected["ts"] = expected["ts"].replace(tzinfo=dt.UTC)  # fastavro gives timestamp-micros a zone
    assert rows_of(file) == [expected, nothing]


def test_years_that_python_does_not_have(tmp_path):
    """Values are stored as numbers: the year 10000, and the first day of year -4712."""
    schema = Schema(opt(1, "d", ice.DateType()), opt(2, "t", ice.TimestampType()))
    days, micros = [2_932_897, -2_440_588], [253_402_300_800_000_000, -(2**62)]
    table = pa.table({"d": pa.array(days, pa.int32()).view(pa.date32()), "t": pa.array(micros, pa.int64()).view(pa.timestamp("us"))})
    (file,) = avro(tmp_path, table, schema)
    body = plain(file).replace(b'"logicalType":"date"', b'"logicalTypf":"date"').replace(b'"logicalType":"timest', b'"logicalTypf":"timest')
    assert list(fastavro.reader(io.BytesIO(body))) == [{"d": d, "t": t} for d, t in zip(days, micros, strict=True)]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=30))
def test_nested_rows_in_every_arrow_form(tmp_path_factory, rows):
    for form in FORMS:
        folder = tmp_path_factory.mktemp("avro")
        (file,) = avro(folder, pa.Table.from_pylist(rows, form), SCHEMA, batch_rows=7)
        assert rows_of(file) == [row | {"m": None if row["m"] is None else dict(row["m"])} for row in rows]


def test_the_entry_is_java_s(tmp_path):
    """As in the golden table: no metrics, no split offsets, sort order 0, name ends with .avro."""
    (file,) = avro(tmp_path, id_table(1000))
    (java, *_) = java_chain.data_files("avro_data")
    assert (file.file_format.value, file.record_count, file.sort_order_id) == ("AVRO", 1000, 0)
    assert path_of(file).suffix == ".avro"
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds", "split_offsets"):
        assert getattr(file, name) is None
        assert java.entry[name] is None


def test_the_header_is_java_s(tmp_path):
    (file,) = avro(tmp_path, id_table(3))
    reader = fastavro.reader(io.BytesIO(plain(file)))
    assert set(reader.metadata) == {"avro.schema", "avro.codec", "iceberg.schema"}
    assert (reader.codec, reader.writer_schema["name"]) == ("deflate", "table")
    assert [field["id"] for field in json.loads(reader.metadata["iceberg.schema"])["fields"]] == [1, 2]


@pytest.mark.parametrize(("codec", "name"), [("GZIP", "deflate"), ("uncompressed", "null"), ("zstd", "zstandard"), ("snappy", "snappy")])
def test_codecs(tmp_path, codec, name):
    (file,) = avro(tmp_path, id_table(100), properties={"write.avro.compression-codec": codec})
    stored = plain(file)
    assert f"avro.codec{chr(2 * len(name))}{name}".encode() in stored
    if name in {"deflate", "null"}:
        assert rows_of(file) == id_table(100).to_pylist()


def test_files_roll_at_the_target_size_with_a_key_each(tmp_path):
    properties = {
        "write.target-file-size-bytes": "200000",
        "write.parquet.row-group-size-bytes": "20000",
        "write.avro.compression-codec": "uncompressed",
    }
    files = avro(tmp_path, id_table(60_000), properties=properties, batch_rows=1000)
    sizes = [file.file_size_in_bytes for file in files]
    assert len(files) > 2
    assert all(150_000 < size < 280_000 for size in sizes[:-1])
    assert rows_of(*files) == id_table(60_000).to_pylist()
    keys = [key_metadata(file) for file in files]
    assert len({key["key"] for key in keys}) == len({key["aad"] for key in keys}) == len(files)


def test_a_file_of_several_ags1_blocks(tmp_path):
    table = id_table(200_000)
    (file,) = avro(tmp_path, table, properties={"write.avro.compression-codec": "uncompressed"})
    assert file.file_size_in_bytes > 2 << 20
    assert rows_of(file) == table.to_pylist()


def test_partitions_have_files_of_their_own(tmp_path):
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"), PartitionField(1, 1001, BucketTransform(2), "b"))
    table = pa.table({"id": pa.array(range(40), pa.int64()), "s": [f"a b/{i % 3}" if i % 3 else None for i in range(40)]})
    files = avro(tmp_path, table, spec=spec)
    assert len(files) == 6
    for file in files:
        assert {row["s"] for row in rows_of(file)} == {file.partition[0]}
        assert f"/s={'null' if file.partition[0] is None else 'a+b%2F' + file.partition[0][-1]}/b=" in file.file_path
    assert sorted(row["id"] for row in rows_of(*files)) == list(range(40))


def test_the_sort_order_is_kept_and_named(tmp_path):
    order = SortOrder(SortField(1, IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST), order_id=3)
    (file,) = avro(tmp_path, id_table(10), sort_order=order)
    assert [row["id"] for row in rows_of(file)] == list(range(9, -1, -1))
    assert file.sort_order_id == 3


def test_no_value_is_on_storage(tmp_path):
    avro(
        tmp_path,
        pa.table({"id": pa.array([1], pa.int64()), "s": ["canary-000"]}),
        properties={"write.avro.compression-codec": "uncompressed"},
    )
    (path,) = files_in(tmp_path)
    data = path.read_bytes()
    assert data[:4] == b"AGS1"
    assert b"canary" not in data
    assert b"iceberg" not in data


def test_a_storage_that_is_full_leaves_no_file(tmp_path):
    properties = AVRO | {"write.avro.compression-codec": "uncompressed"}
    io_ = CountingIO(fail_at=1_000_000)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path, id_table(100_000), properties=properties, io=io_)
    assert files_in(tmp_path) == []
    assert io_.open_now == set()


def test_an_aborted_write_leaves_no_file(tmp_path):
    writer = DataFileWriter(context(tmp_path, properties=AVRO), task_id=0, entropy=SystemEntropy())
    writer.write(id_table(10).to_batches()[0])
    writer.abort()
    assert files_in(tmp_path) == []


def test_a_storage_that_loses_bytes_is_found_out(tmp_path):
    class Losing(CountingIO):
        def new_input(self, location):
            path = Path(location.removeprefix("file:"))
            path.write_bytes(path.read_bytes()[:-1])
            return super().new_input(location)

    with pytest.raises(IntegrityError, match=r"bytes on storage.*were written"):
        write(tmp_path, id_table(10), properties=AVRO, io=Losing())
    assert files_in(tmp_path) == []
