"""Small tables for the tests of the native scan, and what is read of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

import icelock.spark
from tests.lakes.sqlite import KEYED
from tests.unit.table.test_older_deletes import parquet

TABLE = "test.db.t"


def optional(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False)


def create(lake: Any, schema: Schema, *files: list[dict[str, Any]], name: str = "t", **more: Any) -> Any:
    """Make a table with one file for each list of rows (and partition)."""
    properties = {**KEYED, **more.pop("properties", {})}
    lake.catalog().create_table(f"db.{name}", schema, properties=properties, **more)
    for rows in files:
        append(lake, *rows, name=name)
    return lake.catalog().load_table(f"db.{name}")


def append(lake: Any, *rows: dict[str, Any], name: str = "t") -> None:
    table = lake.catalog().load_table(f"db.{name}")
    table.append(pa.Table.from_pylist(list(rows), schema=table.scan().to_arrow().schema))


def put(table: Any, rows: list[dict[str, Any]], name: str) -> str:
    """Append an encrypted file of any name, written by pyarrow; return its location."""
    file = parquet(table, pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema())), name)
    with table.transaction() as tx:
        tx.append_data_files([file])
    return str(file.file_path)


def evolve(lake: Any, change: Any, name: str = "t") -> None:
    """Change the schema; ``change`` is called with PyIceberg's update."""
    with lake.catalog().load_table(f"db.{name}").update_schema(allow_incompatible_changes=True) as update:
        change(update)


def native(spark: Any, table: str = TABLE, **more: Any) -> Any:
    return icelock.spark.read(spark, table, engine="native", **more)


def values(frame: Any) -> list[Any]:
    """Return rows as tuples, or the values of a single column, sorted."""
    rows = [tuple(row) for row in frame.collect()]
    return sorted((row[0] if len(row) == 1 else row for row in rows), key=repr)


def files_read(frame: Any) -> int:
    """Run a query and return how many files its scans were given, by Spark's own metric."""
    frame.collect()
    return sum(scan.metrics().apply("numFiles").value() for scan in scans(frame))


def scans(frame: Any) -> list[Any]:
    """Return the scans of a plan that has run."""
    found, plans = [], [frame._jdf.queryExecution().executedPlan()]
    while plans:
        plan = plans.pop()
        name = plan.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            plans.append(plan.executedPlan())
        elif name.endswith("QueryStageExec"):
            plans.append(plan.plan())
        elif name == "FileSourceScanExec":
            found.append(plan)
        plans += [plan.children().apply(index) for index in range(plan.children().size())]
    return found
