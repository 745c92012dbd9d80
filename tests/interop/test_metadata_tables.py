"""Metadata tables of one table, by Java and by icelock's Spark SQL in the same session: same columns, same rows, and no key in ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from icelock.spark.statements import metadata_tables
from icelock.table.metadata_tables.columns import METADATA_TABLES
from tests.interop.features_rows import MERGE_ON_READ
from tests.interop.java_side import V3_KEYED
from tests.interop.session import DATABASE

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]
COLUMNS = "id bigint NOT NULL, at timestamp, n double, place struct<name: string, no: int>, tags array<string>, b binary, d decimal(9, 2)"
ROWS = """
    SELECT id, timestamp_seconds(1769860800 + id * 40000) AS at, CASE WHEN id % 3 = 0 THEN double('NaN') ELSE id / 2 END AS n,
        named_struct('name', concat('a-', id), 'no', CASE WHEN id < 3 THEN int(id) END) AS place, array('x', 'y') AS tags,
        binary(concat('b', id)) AS b, CAST(id AS decimal(9, 2)) AS d
    FROM range(0, 8, 1, 1)
"""


def frame(spark: Any, catalog: str, name: str, kind: str) -> Any:
    return spark.table(f"{catalog}.{DATABASE}.{name}.{kind}")


def without_keys(value: Any) -> Any:
    """Return a row's JSON without key metadata, and without the order of maps."""
    if isinstance(value, dict):
        return {name: without_keys(inner) for name, inner in sorted(value.items()) if name != "key_metadata"}
    return [without_keys(inner) for inner in value] if isinstance(value, list) else value


def rows(found: Any) -> list[str]:
    return sorted(json.dumps(without_keys(json.loads(row))) for row in found.toJSON().collect())


def fields(kind: Any) -> Any:
    """Return the columns with types, nullability and comments, without a mark that Java puts on some of position_deletes."""
    found = json.loads(kind.json())["fields"]
    for field in found:
        field["metadata"].pop("__metadata_col", None)
    return found


def test_rows_and_columns_are_javas(engines, new_table, monkeypatch):
    java, name = engines.java, new_table("metadata")
    java.create(name, COLUMNS, by="days(at)", properties={**V3_KEYED, **MERGE_ON_READ})
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=name)
    java.sql("DELETE FROM {t} WHERE id IN (1, 2)", t=name)
    java.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)", t=name)
    java.sql(f"INSERT INTO {{t}} {ROWS}", t=name)
    java.sql("ALTER TABLE {t} DROP PARTITION FIELD days(at)", t=name)
    java.sql("INSERT INTO {t} VALUES (100, null, null, null, null, null, null)", t=name)
    java.sql("ALTER TABLE {t} CREATE TAG old RETAIN 3 DAYS", t=name)
    java.sql("DELETE FROM {t} WHERE id = 100", t=name)
    for kind in sorted(METADATA_TABLES):
        theirs, ours = frame(java.spark, "ice", name, kind), frame(java.spark, "ours", name, kind)
        assert fields(ours.schema) == fields(theirs.schema), kind
        assert rows(ours) == rows(theirs), kind
    with monkeypatch.context() as few:
        few.setattr(metadata_tables, "MANY", 0)  # by tasks
        for kind in ("partitions", "position_deletes"):
            theirs, ours = (rows(frame(java.spark, catalog, name, kind)) for catalog in ("ice", "ours"))
            assert ours == theirs, kind
    first = java.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at", t=name).first()[0]
    for kind in ("files", "entries", "manifests", "partitions", "position_deletes", "snapshots"):
        found = [
            rows(java.spark.sql(f"SELECT * FROM {catalog}.{DATABASE}.{name}.{kind} VERSION AS OF {first}")) for catalog in ("ice", "ours")
        ]
        assert found[0] == found[1], kind
