"""Metrics equal to Java's: each Parquet file of the golden tables is written again, and the manifest entries are compared."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from icelock.metadata.manifest import DataFile
from tests.golden.java_chain import JavaFile, data_files, table_metadata
from tests.golden.relocate import RelocatingFileIO, table_info
from tests.unit.arrow.writing import key_metadata, opt, write

TABLES = ("types_parquet", "part_parquet", "key32", "cow_update", "mor_dv", "maint", "stats", "refs")
LINEAGE = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
MAPS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def java_table(java: JavaFile) -> pa.Table:
    path = RelocatingFileIO().local_path(java.entry["file_path"])
    key = key_metadata(DataFile.from_args(key_metadata=java.entry["key_metadata"]))
    opened = pe.create_decryption_properties(footer_key=key["key"], aad_prefix=key["aad"])
    return pq.read_table(path, decryption_properties=opened, partitioning=None)


def as_map(pairs) -> dict:
    return {pair["key"]: pair["value"] for pair in pairs}


def parquet_files(table: str) -> list[JavaFile]:
    found = {}
    for snapshot in table_info(table)["snapshots"]:
        for java in data_files(table, snapshot["snapshot-id"]):
            if java.entry["file_format"] == "PARQUET":
                found[java.entry["file_path"]] = java
    return list(found.values())


def write_again(folder, table: str, java: JavaFile) -> DataFile:
    metadata = table_metadata(table)
    rows = java_table(java)
    lineage = [opt(field_id, name, LongType()) for name, field_id in LINEAGE.items() if name in rows.column_names]
    schema = Schema(*Schema.model_validate(metadata["schemas"][-1]).fields, *lineage)
    specs = {spec["spec-id"]: PartitionSpec.model_validate(spec) for spec in metadata["partition-specs"]}
    (ours,) = write(folder, rows, schema, spec=specs[java.spec_id], properties={"write.parquet.compression-codec": "zstd"})
    return ours


@pytest.mark.parametrize("table", TABLES)
def test_metrics_are_javas(tmp_path, table):
    files = parquet_files(table)
    assert files
    for java in files:
        ours = write_again(tmp_path, table, java)
        for name in MAPS:
            assert getattr(ours, name) == as_map(java.entry[name]), (name, java.entry["file_path"])
        assert sorted(ours.column_sizes) == sorted(as_map(java.entry["column_sizes"]))
        assert ours.record_count == java.entry["record_count"]
        assert ours.split_offsets == java.entry["split_offsets"] == [4]
        assert ours.sort_order_id == java.entry["sort_order_id"] == 0
        assert ours.equality_ids is java.entry["equality_ids"] is None


@pytest.mark.parametrize("table", ["part_parquet", "stats"])
def test_partitions_are_javas(tmp_path, table):
    for java in parquet_files(table):
        ours = write_again(tmp_path, table, java)
        values = [(v - dt.date(1970, 1, 1)).days if isinstance(v, dt.date) else v for v in java.entry["partition"].values()]
        assert [ours.partition[i] for i in range(len(values))] == values
        assert ours.file_path.split("/data/")[1].rsplit("/", 1)[0] == java.entry["file_path"].split("/data/")[1].rsplit("/", 1)[0]


def test_column_sizes_are_near_javas(tmp_path):
    """They are stored bytes, encryption included: both count some 200 bytes for a column of few values."""
    java = parquet_files("types_parquet")[0]
    ours = write_again(tmp_path, "types_parquet", java)
    for field_id, size in as_map(java.entry["column_sizes"]).items():
        assert 0.4 * size < ours.column_sizes[field_id] < 2.5 * size, field_id
