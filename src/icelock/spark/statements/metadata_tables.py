"""Metadata tables: ``catalog.namespace.table.snapshots`` and the like, with Java's names and columns.

Their rows are made in this process, when a query is planned, and come to Spark as a local relation. Those of more than ``MANY`` files, or
deleted positions, of an encrypted table are made by tasks, which get the manifests' keys sealed (``spark.sealed.splits``).

Not here: columns and rows (``table.metadata_tables``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from icelock.errors import PolicyError
from icelock.io.file_io import open_input
from icelock.keys.entropy import SystemEntropy
from icelock.metadata.table_metadata import is_encrypted
from icelock.spark.columns.types import arrow_schema, has_spark_type, spark_schema
from icelock.spark.sealed.splits import KEY_LENGTH, sealed_rows
from icelock.spark.settings.catalogs import executor_properties, scan_of
from icelock.spark.settings.options import TABLE, ReadOptions, TableName
from icelock.spark.settings.session import settings_of
from icelock.spark.statements.asked import Asked, StatementSession
from icelock.spark.task.list_files import ListPlan, list_files, manifest_split
from icelock.spark.task.list_parts import (
    DELETES,
    PLACE,
    SEALED,
    PartitionsPlan,
    list_deletes,
    merge_partitions,
    read_deletes,
    sum_partitions,
)
from icelock.spark.task.read import ReadPlan
from icelock.table.metadata_tables.columns import ENTRIES, FILES, PARTITIONS, POSITION_DELETES, columns_of
from icelock.table.metadata_tables.partitions import commit_times
from icelock.table.metadata_tables.position_deletes import delete_manifests, position_delete_files, position_delete_rows
from icelock.table.metadata_tables.rows import manifests_of, rows_of, rows_of_manifests
from icelock.table.plain import AnyTable

MANY: Final = 20_000
_LISTED: Final = FILES | ENTRIES | {PARTITIONS, POSITION_DELETES}


def load_metadata_table(session: StatementSession, table: AnyTable, name: TableName, kind: str, at: ReadOptions) -> dict[str, Any]:
    """Return what Spark has to know of a metadata table.

    Raises:
        PolicyError: no such version, or a version of a table of all snapshots.
    """
    whole = f"{name}.{kind}"
    table = table.at_one_version()
    _snapshot(table, kind, at)
    columns = spark_schema(Schema(*_known_to_spark(columns_of(kind, table.metadata)).fields), table=whole)

    def rows(asking: StatementSession, asked: Asked) -> int:
        given: Mapping[str, str] = asked["options"]
        version = ReadOptions.parse({TABLE: str(name), **given}) if given else at
        schema = StructType([columns[column] for column in asked["columns"]])
        return asking.give(_frame(asking.spark, table, kind, version, schema))

    return {
        "target": session.target({"rows": rows}),
        "name": whole,
        "schema": columns.json(),
        "properties": {},
        "partitioning": [],
        "metadata_columns": [],
        "key": f"{table.metadata.table_uuid} {table.metadata_location} {kind} {at}",
        "writable": False,
    }


def _snapshot(table: AnyTable, kind: str, at: ReadOptions) -> Snapshot | None:
    if at.between:
        raise PolicyError(f"{kind} of table {at.table} shows one snapshot, not what lies between two: select its rows by their snapshot_id")
    if kind.startswith("all_") and any(value is not None for value in (at.snapshot_id, at.as_of_ms, at.branch, at.tag)):
        raise PolicyError(f"{kind} of table {at.table} shows all snapshots, so none can be selected; {kind.removeprefix('all_')} shows one")
    return scan_of(table, at).snapshot()


def _frame(spark: SparkSession, table: AnyTable, kind: str, at: ReadOptions, schema: StructType) -> DataFrame:
    """Return the rows of a metadata table: those of very many files or positions are made by tasks."""
    snapshot, arrow = _snapshot(table, kind, at), arrow_schema(schema)
    if kind in _LISTED:
        manifests = manifests_of(kind, table, snapshot)
        if kind == POSITION_DELETES:
            manifests = delete_manifests(manifests)
        if is_encrypted(table.metadata) and sum(_rows_in(kind, manifest) for manifest in manifests) > MANY:
            return _by_tasks(spark, table, kind, manifests, schema)
        if kind == POSITION_DELETES:
            found = _position_deletes(table, manifests, arrow)
        else:
            found = _table(rows_of_manifests(kind, table.metadata, table.io, manifests), arrow)
    else:
        found = _table(rows_of(kind, table, snapshot), arrow)
    return spark.createDataFrame(found, schema)


def _rows_in(kind: str, manifest: ManifestFile) -> int:
    """Return about how many files, or positions, a manifest lists."""
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    if kind == POSITION_DELETES:
        counts = (manifest.added_rows_count, manifest.existing_rows_count, 0)
    return sum(count or 0 for count in counts)


def _by_tasks(spark: SparkSession, table: AnyTable, kind: str, manifests: list[ManifestFile], schema: StructType) -> DataFrame:
    for manifest in manifests:
        open_input(table.io, manifest.manifest_path, manifest.key_metadata)  # refuses a plain one; reads nothing of another
    entropy = SystemEntropy()
    key = entropy.random_bytes(KEY_LENGTH)
    storage = executor_properties(table.io.properties, table.catalog.properties)
    plan = ListPlan.of(kind, table.metadata, schema.json(), storage)
    sealed = spark.createDataFrame(sealed_rows(key, map(manifest_split, manifests), entropy))
    if kind == PARTITIONS:
        sums = PartitionsPlan(listed=plan, times=commit_times(table.metadata))
        parts = sealed.mapInArrow(partial(sum_partitions, sums, key), SEALED).repartition(1)
        return parts.mapInArrow(partial(merge_partitions, sums, key), schema)
    if kind == POSITION_DELETES:
        read = ReadPlan.of(table.scan().read_context(Schema()), StructType(), storage, table.metadata.location)
        deletes = sealed.mapInArrow(partial(list_deletes, plan, key), DELETES).repartition(settings_of(spark).parallelism, PLACE)
        return deletes.mapInArrow(partial(read_deletes, plan, read, key), schema)
    return sealed.mapInArrow(partial(list_files, plan, key), schema)


def _table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def _position_deletes(table: AnyTable, manifests: Iterable[ManifestFile], schema: pa.Schema) -> pa.Table:
    context = table.scan().read_context(Schema())
    files = position_delete_files(table.metadata, table.io, manifests)
    batches = (batch for row, delete in files for batch in position_delete_rows(context, row, delete, schema))
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=schema), *batches])  # Spark wants a batch in any case


def _known_to_spark(struct: ice.StructType) -> ice.StructType:
    """Leave out what Spark has no type for, such as the bounds of a column of times, and structs without fields."""
    return ice.StructType(*(field for given in struct.fields if (field := _field(given)) is not None))


def _field(field: ice.NestedField) -> ice.NestedField | None:
    kind = field.field_type
    if isinstance(kind, ice.StructType):
        inner = _known_to_spark(kind)
        return ice.NestedField(field.field_id, field.name, inner, required=field.required, doc=field.doc) if inner.fields else None
    return field if _has_type(kind) else None


def _has_type(kind: ice.IcebergType) -> bool:
    if isinstance(kind, ice.StructType):
        return all(_has_type(field.field_type) for field in kind.fields)
    if isinstance(kind, ice.ListType):
        return _has_type(kind.element_type)
    if isinstance(kind, ice.MapType):
        return _has_type(kind.key_type) and _has_type(kind.value_type)
    return has_spark_type(kind)
