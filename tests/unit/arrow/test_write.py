"""New data files: their bytes, keys, names and field ids."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform

from icelock.arrow.write.options import WriteOptions
from icelock.arrow.write.parquet_file import _arguments
from icelock.arrow.write.writer import DataFileWriter, check_input, write_data_files
from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy
from tests.unit.arrow.writing import (
    ID_AND_TEXT,
    OPERATION,
    CountingIO,
    context,
    files_in,
    id_table,
    key_metadata,
    opt,
    parquet_file,
    path_of,
    read,
    req,
    write,
)
from tests.unit.keys.fakes import CountedEntropy

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))

NESTED = Schema(
    opt(1, "l", ice.ListType(10, ice.StructType(opt(11, "p", ice.LongType()), req(12, "q", ice.StringType())), element_required=False)),
    opt(2, "m", ice.MapType(20, ice.StringType(), 21, ice.ListType(22, ice.IntegerType(), element_required=True), value_required=False)),
    opt(3, "st", ice.StructType(opt(30, "a b.c", ice.IntegerType()), opt(31, "é", ice.DecimalType(9, 2)))),
)
NESTED_ROWS = [
    {"l": [{"p": 1, "q": "x"}, None], "m": [("k", [1, 2]), ("n", None)], "st": {"a b.c": 5, "é": None}},
    {"l": [], "m": [], "st": None},
    {"l": None, "m": None, "st": {"a b.c": None, "é": None}},
]
NESTED_ARROW = pa.schema(
    [
        ("l", pa.list_(pa.struct([("p", pa.int64()), ("q", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("st", pa.struct([("a b.c", pa.int32()), ("é", pa.decimal128(9, 2))])),
    ]
)


def test_a_file_is_readable_with_the_key_of_its_manifest_entry_alone(tmp_path):
    (data_file,) = write(tmp_path, id_table(1000))
    assert path_of(data_file).read_bytes()[:4] == b"PARE"
    assert path_of(data_file).read_bytes()[-4:] == b"PARE"
    assert read([data_file]).to_pylist() == id_table(1000).to_pylist()
    with pytest.raises(OSError, match="encrypted"):
        pq.read_table(path_of(data_file))


def test_the_manifest_entry_has_javas_fields(tmp_path):
    (data_file,) = write(tmp_path, id_table(10))
    assert data_file.content == DataFileContent.DATA
    assert data_file.file_format == FileFormat.PARQUET
    assert data_file.record_count == 10
    assert data_file.spec_id == 0
    assert len(data_file.partition) == 0
    assert data_file.split_offsets == [4]
    assert data_file.sort_order_id == 0
    assert data_file.equality_ids is None
    assert data_file.first_row_id is None
    assert data_file.nan_value_counts == {}
    assert sorted(data_file.column_sizes) == [1, 2]
    assert sum(data_file.column_sizes.values()) < data_file.file_size_in_bytes


@pytest.mark.parametrize("length", [16, 24, 32])
def test_every_key_length_works(tmp_path, length):
    (data_file,) = write(tmp_path, id_table(3), data_key_length=length)
    assert len(key_metadata(data_file)["key"]) == length
    assert read([data_file]).num_rows == 3


def test_another_key_length_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="16, 24 or 32"):
        context(tmp_path, data_key_length=15)


def test_no_dek_and_no_aad_prefix_is_used_twice_over_a_thousand_files(tmp_path):
    data_files = write(tmp_path, id_table(1000), spec=BY_ID)
    keys = [key_metadata(data_file) for data_file in data_files]
    assert len(data_files) == len({data_file.file_path for data_file in data_files}) == 1000
    assert len({key["key"] for key in keys}) == 1000
    assert len({key["aad"] for key in keys}) == 1000
    assert {len(key["aad"]) for key in keys} == {16}
    assert {path_of(data_file).read_bytes()[:4] for data_file in data_files} == {b"PARE"}


def test_names_are_as_javas_with_task_operation_attempt_and_count(tmp_path):
    (data_file,) = write(tmp_path, id_table(1))
    assert path_of(data_file).parent == tmp_path / "data"
    prefix, task, *rest = path_of(data_file).name.split("-")
    assert (prefix, task, "-".join(rest[:5]), rest[6]) == ("00000", "7", OPERATION, "00001.parquet")


def test_two_attempts_of_a_task_write_different_paths(tmp_path):
    first = write(tmp_path, id_table(1))
    second = write(tmp_path, id_table(1))
    assert first[0].file_path != second[0].file_path
    assert len(files_in(tmp_path)) == 2


def test_locations_follow_the_tables_location_properties(tmp_path):
    properties = {"write.object-storage.enabled": "true", "write.data.path": f"file:{tmp_path}/elsewhere"}
    (data_file,) = write(tmp_path, id_table(1), properties=properties)
    assert path_of(data_file).is_relative_to(tmp_path / "elsewhere")
    assert len(path_of(data_file).relative_to(tmp_path / "elsewhere").parts) == 5  # 4 folders of the hash


def test_a_location_provider_that_cannot_be_loaded_is_refused(tmp_path):
    with pytest.raises(PolicyError, match=r"no\.such\.Provider"):
        write(tmp_path, id_table(1), properties={"write.py-location-provider.impl": "no.such.Provider"})
    assert files_in(tmp_path) == []


def test_field_ids_are_at_every_level(tmp_path):
    (data_file,) = write(tmp_path, pa.Table.from_pylist(NESTED_ROWS, NESTED_ARROW), NESTED)
    found = {}

    def walk(field, path):
        found[path] = int(field.metadata[b"PARQUET:field_id"])
        kind = field.type
        if pa.types.is_map(kind):
            walk(kind.key_field, f"{path}/key")
            walk(kind.item_field, f"{path}/value")
        elif pa.types.is_nested(kind):
            for index in range(kind.num_fields):
                walk(kind.field(index), f"{path}/{kind.field(index).name}")

    for field in parquet_file(data_file).schema_arrow:
        walk(field, field.name)
    assert found == {
        "l": 1, "l/element": 10, "l/element/p": 11, "l/element/q": 12,
        "m": 2, "m/key": 20, "m/value": 21, "m/value/element": 22,
        "st": 3, "st/a_x20b_x2Ec": 30, "st/é": 31,
    }  # fmt: skip
    assert [parquet_file(data_file).schema.column(i).path for i in range(3)] == ["l.list.element.p", "l.list.element.q", "m.key_value.key"]


def test_nested_rows_come_back(tmp_path):
    (data_file,) = write(tmp_path, pa.Table.from_pylist(NESTED_ROWS, NESTED_ARROW), NESTED)
    expected = [{**row, "st": row["st"] and dict(zip(["a_x20b_x2Ec", "é"], row["st"].values(), strict=True))} for row in NESTED_ROWS]
    assert read([data_file]).to_pylist() == expected


def test_types_are_stored_as_java_stores_them(tmp_path):
    schema = Schema(
        opt(1, "d9", ice.DecimalType(9, 2)),
        opt(2, "d18", ice.DecimalType(18, 0)),
        opt(3, "d19", ice.DecimalType(19, 0)),
        opt(4, "ts", ice.TimestamptzType()),
        opt(5, "tns", ice.TimestampNanoType()),
        opt(6, "t", ice.TimeType()),
        opt(7, "dt", ice.DateType()),
        opt(8, "u", ice.UUIDType()),
        opt(9, "f", ice.FixedType(3)),
        opt(10, "b", ice.BinaryType()),
    )
    (data_file,) = write(tmp_path, pa.table({"b": [b"x"]}), schema)
    stored = parquet_file(data_file).schema
    columns = [stored.column(i) for i in range(10)]
    assert [column.physical_type for column in columns] == [
        "INT32", "INT64", "FIXED_LEN_BYTE_ARRAY", "INT64", "INT64", "INT64", "INT32",
        "FIXED_LEN_BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY", "BYTE_ARRAY",
    ]  # fmt: skip
    logical = [str(column.logical_type) for column in columns]
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in logical[3]
    assert "isAdjustedToUTC=false, timeUnit=nanoseconds" in logical[4]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical[5]
    assert logical[6:] == ["Date", "UUID", "None", "None"]
    assert "ARROW:schema" not in str(parquet_file(data_file).metadata.metadata)


def test_pages_are_of_version_1():
    assert _arguments(WriteOptions.parse({}))["data_page_version"] == "1.0"


def test_zstd_is_the_default_codec(tmp_path):
    (data_file,) = write(tmp_path, id_table(100))
    assert parquet_file(data_file).metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("uncompressed", "UNCOMPRESSED"), ("GZIP", "GZIP"), ("snappy", "SNAPPY"), ("lz4", "LZ4"), ("brotli", "BROTLI"), ("zstd", "ZSTD")],
)
def test_codecs_of_java_are_honoured(tmp_path, codec, stored):
    (data_file,) = write(tmp_path, id_table(100), properties={"write.parquet.compression-codec": codec})
    assert parquet_file(data_file).metadata.row_group(0).column(1).compression == stored


def test_zstd_has_javas_level_3_unless_another_is_asked_for(tmp_path):
    table = id_table(20_000)
    files = {
        level: write(tmp_path / str(level), table, properties={} if level is None else {"write.parquet.compression-level": level})[0]
        for level in (None, "1", "3")
    }
    assert files[None].file_size_in_bytes == files["3"].file_size_in_bytes != files["1"].file_size_in_bytes


def test_a_compression_level_is_honoured(tmp_path):
    sizes = []
    for level in ("1", "19"):
        properties = {"write.parquet.compression-level": level, "write.parquet.dict-size-bytes": "1"}
        (data_file,) = write(tmp_path, id_table(20_000), properties=properties)
        sizes.append(data_file.file_size_in_bytes)
    assert sizes[1] < sizes[0]


def test_columns_of_type_unknown_are_left_out_of_the_file(tmp_path):
    schema = Schema(req(1, "id", ice.LongType()), opt(2, "later", ice.UnknownType()))
    (data_file,) = write(tmp_path, pa.table({"id": [1, 2], "later": pa.nulls(2)}), schema)
    assert read([data_file]).column_names == ["id"]
    assert sorted(data_file.value_counts) == [1]


def test_no_rows_make_no_file(tmp_path):
    assert write(tmp_path, id_table(0)) == []
    assert write_data_files(context(tmp_path), [], task_id=0, entropy=SystemEntropy()) == []
    assert files_in(tmp_path) == []


def test_nothing_but_the_returned_files_is_written(tmp_path):
    data_files = write(tmp_path, id_table(20), spec=BY_ID)
    assert files_in(tmp_path) == sorted(path_of(data_file) for data_file in data_files)


def test_every_file_is_made_through_the_file_io(tmp_path):
    io = CountingIO()
    data_files = write(tmp_path, id_table(5), spec=BY_ID, io=io)
    assert sorted(io.made) == sorted(data_file.file_path for data_file in data_files)
    assert io.open_now == set()


def test_plain_text_of_the_rows_is_in_no_stored_byte(tmp_path):
    table = pa.table({"id": [1], "s": ["a needle that must not be found"]})
    (data_file,) = write(tmp_path, table, properties={"write.parquet.compression-codec": "uncompressed"})
    stored = path_of(data_file).read_bytes()
    assert b"needle" not in stored
    assert key_metadata(data_file)["key"] not in stored
    assert key_metadata(data_file)["aad"] not in stored


def test_the_context_goes_to_another_process_and_writes_there(tmp_path):
    sent = pickle.loads(pickle.dumps(context(tmp_path, spec=BY_ID)))  # noqa: S301 - our own bytes
    data_files = write_data_files(sent, id_table(2).to_batches(), task_id=1, entropy=SystemEntropy())
    assert read(data_files).num_rows == 2


def test_every_transform_survives_the_way_to_another_process(tmp_path):
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"), PartitionField(1, 1001, TruncateTransform(3), "t"))
    order = SortOrder(SortField(source_id=1, transform=TruncateTransform(10)), order_id=4)
    sent = pickle.loads(pickle.dumps(context(tmp_path, spec=spec, sort_order=order)))  # noqa: S301 - our own bytes
    assert (sent.spec, sent.sort_order, sent.schema) == (spec, order, ID_AND_TEXT)
    assert (sent.spec.fields[0].transform.num_buckets, sent.sort_order.fields[0].transform.width) == (4, 10)


def test_the_context_copies_its_properties(tmp_path):
    properties = {"write.parquet.compression-codec": "gzip"}
    made = context(tmp_path, properties=properties)
    properties["write.format.default"] = "orc"
    assert made.properties == {"write.parquet.compression-codec": "gzip"}


def test_manifest_entries_do_not_show_keys(tmp_path):
    (data_file,) = write(tmp_path, id_table(1))
    assert "key_metadata" not in repr(data_file)
    assert repr(key_metadata(data_file)["key"])[2:-1] not in repr(data_file)


def test_keys_come_from_the_given_entropy_only(tmp_path):
    entropy = CountedEntropy()
    (data_file,) = write_data_files(context(tmp_path), id_table(1).to_batches(), task_id=0, entropy=entropy)
    assert entropy.drawn == 3  # attempt, DEK, AAD prefix
    assert key_metadata(data_file)["key"] == (2).to_bytes(16, "big")
    assert key_metadata(data_file)["aad"] == (3).to_bytes(16, "big")


def test_a_closed_writer_takes_no_more(tmp_path):
    writer = DataFileWriter(context(tmp_path), task_id=0, entropy=SystemEntropy())
    writer.write(id_table(1).to_batches()[0])
    assert len(writer.close()) == 1
    with pytest.raises(PolicyError, match="closed or aborted"):
        writer.write(id_table(1).to_batches()[0])
    with pytest.raises(PolicyError, match="closed or aborted"):
        writer.close()
    assert len(files_in(tmp_path)) == 1


def test_input_can_be_checked_before_tasks_are_started():
    check_input(ID_AND_TEXT, pa.schema([("s", pa.string()), ("id", pa.int64())]))
    with pytest.raises(PolicyError, match="'x'"):
        check_input(ID_AND_TEXT, pa.schema([("id", pa.int64()), ("x", pa.string())]))
