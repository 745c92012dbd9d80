"""Row groups, files and pages of the sizes that the table asks for, and never more than an encrypted file can number (case C-21)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, StringType, StructType

from icelock.arrow.write.fanout import Compression, _levels, _parts
from icelock.arrow.write.options import WriteOptions
from icelock.arrow.write.parquet_file import EncryptedParquetFile
from icelock.arrow.write.schema import write_schema
from icelock.errors import PolicyError
from icelock.keys.entropy import SystemEntropy, mint_file_key
from tests.lakes.sqlite import KEYED, TestLake
from tests.unit.arrow.writing import ID_AND_TEXT, CountingIO, files_in, id_table, key_metadata, opt, parquet_file, read, req, write

KIB = 1 << 10
MIB = 1 << 20
NOISE = Schema(req(1, "id", LongType()), opt(2, "s", StringType()))


def noise(rows: int) -> pa.Table:
    """Rows that do not compress: about 72 bytes each, in Arrow as on storage."""
    source = random.Random(1)
    return pa.table(
        {"id": pa.array([source.getrandbits(62) for _ in range(rows)]), "s": [f"{source.getrandbits(240):060x}" for _ in range(rows)]}
    )


def group_sizes(data_file) -> list[int]:
    metadata = parquet_file(data_file).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [sum(group.column(c).total_compressed_size for c in range(group.num_columns)) for group in groups]


@pytest.mark.parametrize("batch_rows", [500, 7_000, 60_000])
def test_row_groups_have_the_stored_size_of_the_property_whatever_the_batches(tmp_path, batch_rows):
    table = noise(60_000)
    properties = {"write.parquet.row-group-size-bytes": str(512 * KIB)}
    (data_file,) = write(tmp_path, table, batch_rows=batch_rows, properties=properties)
    sizes = group_sizes(data_file)
    assert all(0.75 * 512 * KIB < size < 1.25 * 512 * KIB for size in sizes[1:-1])
    assert len(sizes) > 3
    assert read([data_file]).equals(table.cast(read([data_file]).schema))


def test_row_group_sizes_follow_the_measured_compression(tmp_path):
    """Rows that shrink to a hundredth: the first row group is small, two later the size is reached."""
    table = pa.table({"id": range(200_000), "s": [f"{'x' * 200}{i % 97}" for i in range(200_000)]})
    properties = {"write.parquet.row-group-size-bytes": str(64 * KIB)}
    (data_file,) = write(tmp_path, table, batch_rows=10_000, properties=properties)
    sizes = group_sizes(data_file)
    assert sizes[0] < 16 * KIB
    assert all(48 * KIB < size < 80 * KIB for size in sizes[2:-1])
    assert 5 <= len(sizes) < 10


def test_files_roll_over_at_the_target_size_each_with_its_own_key(tmp_path):
    table = noise(100_000)
    data_files = write(tmp_path, table, batch_rows=10_000, properties={"write.target-file-size-bytes": str(MIB)})
    sizes = [data_file.file_size_in_bytes for data_file in data_files]
    assert len(data_files) >= 4
    assert all(0.75 * MIB < size < 1.25 * MIB for size in sizes[:-1])
    assert len({key_metadata(data_file)["key"] for data_file in data_files}) == len(data_files)
    assert sum(data_file.record_count for data_file in data_files) == 100_000
    assert read(data_files)["s"].equals(table["s"])


def test_rolled_files_have_several_row_groups_when_these_are_smaller(tmp_path):
    properties = {"write.target-file-size-bytes": str(MIB), "write.parquet.row-group-size-bytes": str(256 * KIB)}
    data_files = write(tmp_path, noise(60_000), batch_rows=1_000, properties=properties)
    assert len(data_files) >= 3
    assert {len(data_file.split_offsets) for data_file in data_files[:-1]} <= {4, 5}
    assert all(data_file.split_offsets == sorted(data_file.split_offsets) for data_file in data_files)
    assert all(data_file.split_offsets[0] == 4 for data_file in data_files)


def test_a_row_group_has_at_least_as_many_rows_as_java_checks_for(tmp_path):
    (data_file,) = write(tmp_path, id_table(1000), properties={"write.parquet.row-group-size-bytes": "1"})
    metadata = parquet_file(data_file).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [100] * 10


@pytest.mark.parametrize(
    ("properties", "rows"),
    [({}, [131_072, 131_072, 37_856]), ({"write.parquet.row-group-limit": "200000"}, [200_000, 100_000])],
)
def test_row_groups_of_plain_python_leave_a_filter_something_to_skip(tmp_path, properties, rows):
    table = TestLake.with_namespace(tmp_path).catalog().create_table("db.t", id_table(1).schema, properties=KEYED | properties)
    table.append(id_table(300_000))
    (entry,) = table.scan().plan_files()
    metadata = parquet_file(entry.file).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == rows


def test_memory_that_waits_is_bounded(tmp_path):
    (data_file,) = write(tmp_path, noise(50_000), batch_rows=5_000, max_buffered_bytes=256 * KIB)
    assert all(size < 512 * KIB for size in group_sizes(data_file))


def test_tiny_pages_do_not_run_out_of_numbers(tmp_path):
    table = id_table(70_000)
    (data_file,) = write(tmp_path, table, properties={"write.parquet.page-row-limit": "2"})
    metadata = parquet_file(data_file).metadata
    assert max(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) <= 65_534
    assert read([data_file])["id"].equals(table["id"])


def test_tiny_pages_by_bytes_do_not_run_out_of_numbers(tmp_path):
    properties = {"write.parquet.page-row-limit": "1", "write.parquet.page-size-bytes": "1", "write.parquet.dict-size-bytes": "1"}
    table = id_table(40_000)
    (data_file,) = write(tmp_path, table, batch_rows=999, properties=properties)
    assert len(data_file.split_offsets) >= 2
    assert read([data_file])["s"].equals(table["s"])


def test_tiny_pages_of_long_lists_do_not_run_out_of_numbers(tmp_path):
    schema = Schema(opt(1, "l", ListType(2, IntegerType(), element_required=False)))
    table = pa.table({"l": pa.array([list(range(1_000))] * 200, pa.list_(pa.int32()))})
    properties = {"write.parquet.page-row-limit": "1", "write.parquet.page-size-bytes": "1"}
    (data_file,) = write(tmp_path, table, schema, properties=properties)
    assert len(data_file.split_offsets) >= 4
    assert read([data_file]).to_pylist() == table.to_pylist()


@pytest.mark.slow
def test_a_file_with_all_its_row_groups_is_followed_by_another(tmp_path):
    properties = {"write.parquet.row-group-size-bytes": "1", "write.parquet.row-group-check-min-record-count": "1"}
    schema = Schema(req(1, "id", LongType()))
    table = pa.table({"id": range(32_770)})
    data_files = write(tmp_path, table, schema, properties=properties)
    assert [len(data_file.split_offsets) for data_file in data_files] == [32_767, 3]
    assert [data_file.record_count for data_file in data_files] == [32_767, 3]
    assert read(data_files)["id"].equals(table["id"])


def test_pages_beyond_the_numbers_fail_with_the_property_to_change(tmp_path):
    """Below the bounds of the writer, Arrow's own refusal is passed on with a remedy."""
    options = WriteOptions.parse({"write.parquet.page-row-limit": "2"})
    schema = write_schema(ID_AND_TEXT)
    rows = id_table(70_000).cast(schema.arrow)
    file = EncryptedParquetFile(PyArrowFileIO(), f"file:{tmp_path}/x.parquet", schema, options, mint_file_key(SystemEntropy(), 16), rows)
    with pytest.raises(PolicyError, match=r"write\.parquet\.page-row-limit"):
        file.write(rows)
    file.abort()


def test_more_than_32767_columns_are_refused_before_writing(tmp_path):
    schema = Schema(*(opt(i, f"c{i}", IntegerType()) for i in range(1, 32_769)))
    with pytest.raises(PolicyError, match=r"32768 leaf columns.*32767"):
        write(tmp_path, pa.table({"c1": pa.array([1], pa.int32())}), schema)
    assert files_in(tmp_path) == []


def test_leaf_columns_are_counted_inside_structs(tmp_path):
    inner = StructType(*(opt(10 + i, f"c{i}", IntegerType()) for i in range(32_768)))
    with pytest.raises(PolicyError, match="32768 leaf columns"):
        write(tmp_path, pa.table({"s": pa.nulls(1)}), Schema(opt(1, "s", inner)))
    assert files_in(tmp_path) == []


def test_one_file_is_open_at_a_time_while_rolling(tmp_path):
    io = CountingIO()
    data_files = write(tmp_path, noise(60_000), batch_rows=10_000, io=io, properties={"write.target-file-size-bytes": str(MIB)})
    assert len(data_files) == len(io.made) > 1
    assert io.most_open == 1


def test_levels_count_values_and_nulls_at_every_level():
    lists = pa.array([[1, 2], None, []], pa.list_(pa.int32()))
    assert _levels(lists) == 3 + 2
    assert _levels(pa.array([[("k", [1, 2, 3])], None], pa.map_(pa.string(), pa.list_(pa.int32())))) == 2 + 1 + 3
    assert _levels(pa.array([{"a": [1] * 7, "b": 1}])) == 1 + 7
    table = pa.table({"l": pa.array([[1] * 10] * 8, pa.list_(pa.int32()))})
    assert [part.num_rows for part in _parts(table, 22)] == [2, 2, 2, 2]


def test_small_row_groups_do_not_set_the_compression_ratio():
    compression = Compression()
    compression.measured(100, 4_000)
    assert compression.ratio == 1.0
    compression.measured(MIB, MIB // 4)
    assert compression.ratio == 0.25
