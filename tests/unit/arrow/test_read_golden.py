"""Java Iceberg 1.12.0's tables, row by row; the chain down to the data files is walked without icelock (``java_chain``)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from icelock.arrow.read.context import ReadContext
from icelock.arrow.read.task import read_task
from icelock.metadata.metadata_columns import LAST_UPDATED, ROW_ID
from icelock.plan.task import ScanTask
from icelock.secret import SecretBytes
from tests.golden.java_chain import JavaFile, data_files, table_metadata
from tests.golden.relocate import RelocatingFileIO, expected
from tests.golden.rows import rows, sorted_json
from tests.unit.arrow.support import context, read

TABLES = ("types_parquet", "part_parquet", "key32", "evolve", "refs", "ctas", "cow_update", "plain_v3")


def _schema(table: str, schema_id: int) -> Schema:
    found = next(s for s in table_metadata(table)["schemas"] if s["schema-id"] == schema_id)
    return Schema.model_validate(found)


def _scan(table: str, schema: Schema, row_filter: BooleanExpression | None = None, **fields: Any) -> ReadContext:
    specs = {spec["spec-id"]: PartitionSpec.model_validate(spec) for spec in table_metadata(table)["partition-specs"]}
    return context(schema, row_filter, specs=specs, io=RelocatingFileIO(), allow_plaintext=table == "plain_v3", **fields)


def _task(file: JavaFile) -> ScanTask:
    entry = file.entry
    return ScanTask(
        path=entry["file_path"],
        file_format=entry["file_format"],
        key_metadata=None if entry["key_metadata"] is None else SecretBytes(entry["key_metadata"]),
        file_size=entry["file_size_in_bytes"],
        record_count=entry["record_count"],
        spec_id=file.spec_id,
        partition=tuple(entry["partition"].values()),
        sequence_number=file.sequence_number,
        first_row_id=file.first_row_id,
    )


def _same_rows(found: pa.Table, wanted: list[dict[str, Any]]) -> bool:
    """Compare with ``expected.json``, in which a decimal may have more zeros (7.00E-10) than its scale."""
    decimals = [field.name for field in found.schema if pa.types.is_decimal(field.type)]
    both = [[json.loads(row) for row in rows(found)], [dict(row) for row in wanted]]
    for row in [*both[0], *both[1]]:
        row.update({name: str(Decimal(row[name]).normalize()) for name in decimals if row[name] is not None})
    return sorted_json(both[0]) == sorted_json(both[1])


def _read(scan: ReadContext, files: list[JavaFile]) -> pa.Table:
    assert not any(isinstance(field.field_type, UnknownType) for field in scan.schema.fields)
    return pa.concat_tables([read(scan, _task(file)) for file in files] or [scan.arrow_schema.empty_table()])


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_the_current_snapshot_equal_javas(table: str):
    schema = _schema(table, table_metadata(table)["current-schema-id"])
    found = _read(_scan(table, schema), data_files(table))
    assert found.num_rows > 0
    assert _same_rows(found, expected(table)["rows"])


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_every_snapshot_equal_javas(table: str):
    snapshots = {str(s["snapshot-id"]): s for s in table_metadata(table)["snapshots"]}
    for snapshot_id, wanted in expected(table)["at_snapshot"].items():
        schema = _schema(table, snapshots[snapshot_id]["schema-id"])
        assert _same_rows(_read(_scan(table, schema), data_files(table, int(snapshot_id))), wanted)


@pytest.mark.parametrize("table", ["types_parquet", "evolve", "cow_update", "part_parquet"])
def test_row_lineage_equals_javas(table: str):
    schema = _schema(table, table_metadata(table)["current-schema-id"])
    first = schema.fields[0]
    found = _read(_scan(table, Schema(first, ROW_ID, LAST_UPDATED), table_schema=schema), data_files(table))
    assert sorted(map(list, (row.values() for row in found.to_pylist()))) == sorted(expected(table)["row_lineage"])


@pytest.mark.parametrize("table", ["types_parquet", "part_parquet", "evolve"])
def test_a_filter_gives_the_matching_ones_of_javas_rows(table: str):
    schema = _schema(table, table_metadata(table)["current-schema-id"])
    row_filter = And(GreaterThanOrEqual("id", 20), LessThan("id", 105))
    wanted = [row for row in expected(table)["rows"] if 20 <= row["id"] < 105]
    assert wanted
    assert _same_rows(_read(_scan(table, schema, row_filter), data_files(table)), wanted)


def test_a_nested_column_is_filtered_and_projected_alone():
    schema = _schema("types_parquet", table_metadata("types_parquet")["current-schema-id"])
    wanted = [{"id": row["id"]} for row in expected("types_parquet")["rows"] if row["st"] and row["st"]["y"] == "y511"]
    scan = _scan("types_parquet", schema.select("id"), EqualTo("st.y", "y511"), table_schema=schema)
    assert _same_rows(_read(scan, data_files("types_parquet")), wanted)
    assert len(wanted) == 1


def test_an_empty_table_has_no_files():
    assert data_files("empty") == []


def test_files_are_closed_behind_a_scan_that_is_dropped():
    schema = _schema("types_parquet", table_metadata("types_parquet")["current-schema-id"])
    batches = read_task(_scan("types_parquet", schema), _task(data_files("types_parquet")[0]))
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]
    with pytest.raises(StopIteration):
        next(batches)
