"""Metadata tables: ``catalog.namespace.table.snapshots`` and the like, with Java's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.pandas.types import from_arrow_schema

from icelock.spark.settings.options import ReadOptions, TableName
from icelock.spark.statements.asked import Answer, StatementSession
from icelock.table.table import Table

METADATA_TABLES: Final = frozenset({"snapshots", "history", "refs", "files", "all_files", "entries", "manifests", "partitions"})
ANSWERS: Final[Mapping[str, Answer]] = {}


def load_metadata_table(session: StatementSession, table: Table, name: TableName, kind: str, at: ReadOptions) -> dict[str, Any]:
    """Return what Spark has to know of a metadata table."""
    rows = getattr(table.inspect, kind)()
    return {
        "target": session.target({"rows": lambda asking, asked: asking.give(asking.spark.createDataFrame(rows).select(*asked["columns"]))}),
        "name": f"{name}.{kind}",
        "schema": from_arrow_schema(rows.schema).json(),
        "properties": {},
        "partitioning": [],
        "metadata_columns": [],
        "key": f"{table.metadata.table_uuid} {table.metadata_location} {kind} {at}",
        "writable": False,
    }
