"""What icelock's operations leave, beside what Java's own leave of a twin table: rows, row lineage, summaries, ids.

Java reads each result, commits of ours are followed by its look at the table (``Ours.landed``), and every file is encrypted.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from tests.interop.compare import canonical
from tests.interop.features_rows import MERGE_ON_READ, numbered, numbers
from tests.interop.independent import verify_chain
from tests.interop.java_side import frame_of
from tests.interop.our_side import KEYED, plain_files
from tests.interop.session import DATABASE
from tests.interop.views import View

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

LINEAGE = View(columns=("id", "s", "_row_id", "_last_updated_sequence_number"))
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))


def twins(engines: Any, new_table: Any, by: str = "", **properties: str) -> tuple[str, str]:
    """Two tables with the same three commits by Java: one for each engine to change."""
    names = new_table("ours"), new_table("java")
    for name in names:
        engines.java.create(name, numbered(0, 0).schema, by=by, properties=properties)
        for start in (0, 10, 20):
            engines.java.insert(name, numbered(start, 10))
    return names


def same(engines: Any, ours: str, java: str, view: View = LINEAGE) -> None:
    """Both tables have the same rows, as both engines read them; ours is encrypted, and whole to the independent reader."""
    expected = canonical(engines.java.read(java, view))
    assert canonical(engines.java.read(ours, view)) == expected
    assert canonical(engines.ours.read(ours, view)) == expected
    assert plain_files(engines.ours.table(ours).location()) == []
    verify_chain(engines.ours, ours)


def summaries(engines: Any, *tables: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    found = [dict(engines.java.table(table).currentSnapshot().summary()) for table in tables]
    operations = [engines.java.table(table).currentSnapshot().operation() for table in tables]
    return [{"operation": op, **{name: one.get(name) for name in names}} for op, one in zip(operations, found, strict=True)]


def test_dynamic_overwrite_is_javas(engines, new_table):
    """Also after the spec has changed: partitions of the older one stay."""
    ours, java = twins(engines, new_table, "bucket(4, id)", **MERGE_ON_READ)
    for table in (ours, java):
        engines.java.sql("DELETE FROM {t} WHERE id = 21", t=table)
    rows = numbered(100, 3)
    engines.ours.table(ours).dynamic_partition_overwrite(rows)
    _overwrite_partitions(engines, java, rows)
    same(engines, ours, java, View(columns=("id", "s", "_last_updated_sequence_number")))
    names = ("replace-partitions", "added-data-files", "deleted-data-files", "removed-dvs", "deleted-records", "total-records")
    one, other = summaries(engines, ours, java, names=(*names, "changed-partition-count"))
    assert one == other
    for table in (ours, java):
        engines.java.sql("ALTER TABLE {t} REPLACE PARTITION FIELD id_bucket WITH bucket(2, id)", t=table)
    engines.ours.table(ours).dynamic_partition_overwrite(rows)
    _overwrite_partitions(engines, java, rows)
    same(engines, ours, java, View(columns=("id", "s")))


def _overwrite_partitions(engines: Any, table: str, rows: pa.Table) -> None:
    frame_of(engines.java.spark, rows).coalesce(1).writeTo(f"ice.{DATABASE}.{table}").overwritePartitions()


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_upsert_is_javas_merge(engines, new_table, mode):
    """Rows, and for each its row id and the sequence number of its last change; new rows get other ids, but as new ones."""
    ours, java = twins(engines, new_table, **{"write.merge.mode": mode, "write.delete.mode": mode})
    source = pa.table({"id": pa.array([3, 14, 15, 50, 51], pa.int64()), "s": ["new", None, "new", "x", "y"]})
    result = engines.ours.table(ours).upsert(source, ["id"])
    assert (result.rows_updated, result.rows_inserted) == (3, 2)
    frame_of(engines.java.spark, source).createOrReplaceTempView("changes")
    merge = "MERGE INTO {t} t USING changes c ON t.id = c.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    engines.java.sql(merge, t=java)
    same(engines, ours, java, View(columns=("id", "s", "_last_updated_sequence_number")))
    same(engines, ours, java, View(columns=LINEAGE.columns, where="id < 50"))
    ids = engines.java.read(ours, View(columns=("_row_id",))).column(0).to_pylist()
    assert len(set(ids)) == len(ids) == 32
    engines.java.sql("UPDATE {t} SET s = 'again' WHERE id in (3, 4, 50)", t=ours)
    assert canonical(engines.ours.read(ours, View(where="s = 'again'", columns=("id",)))) == ['{"id": 3}', '{"id": 4}', '{"id": 50}']
    assert [engines.ours.table(ours).upsert(source, ["id"]).rows_updated] == [2]
    assert engines.java.read(ours, View(columns=("id",), where="s = 'new'")).num_rows == 2
    verify_chain(engines.ours, ours)


def test_a_table_of_a_query_and_its_replacement(engines, new_table):
    """In one commit each; Java's own replacement of a twin has the same field ids and keeps the same history."""
    ours, java = twins(engines, new_table)
    made = new_table("ctas")
    catalog = engines.ours.catalog
    rows = engines.ours.table(ours).scan(row_filter="id >= 25").to_arrow()
    tx = catalog.create_table_transaction(f"{DATABASE}.{made}", rows.schema, partition_spec=BY_BUCKET, properties=KEYED)
    tx.append(rows)
    tx.commit_transaction()
    assert canonical(engines.java.read(made)) == numbers(*range(25, 30))
    engines.java.insert(made, numbered(30, 1))
    assert canonical(engines.ours.read(made)) == numbers(*range(25, 31))
    verify_chain(engines.ours, made)

    uuid, before = engines.ours.table(ours).metadata.table_uuid, engines.java.table(ours).currentSnapshot().snapshotId()
    schema = pa.schema([("s", pa.string()), ("extra", pa.int64())])
    new = pa.table({"s": ["x"], "extra": [5]}, schema=schema)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "s"))
    tx = catalog.replace_table_transaction(f"{DATABASE}.{ours}", schema, partition_spec=spec)
    tx.append(new)
    tx.commit_transaction()
    engines.java.sql("REPLACE TABLE {t} USING iceberg PARTITIONED BY (s) AS SELECT 'x' AS s, 5L AS extra", t=java)
    same(engines, ours, java, View(columns=("s", "extra")))
    assert engines.ours.table(ours).metadata.table_uuid == uuid
    ids = [{f.name: f.field_id for f in engines.ours.table(t).schema().fields} for t in (ours, java)]
    assert ids[0] == ids[1]
    assert canonical(engines.java.read(ours, View(snapshot_id=before))) == numbers(*range(30))
    assert canonical(engines.ours.read(ours, View(snapshot_id=before))) == numbers(*range(30))
    keys = engines.ours.table(ours).metadata.encryption_keys
    assert len(keys) == 1 + len(engines.ours.table(ours).snapshots())


def test_branches(engines, new_table):
    """Ours written, Java's fast-forward; Java's branch, our fast-forward."""
    ours, _ = twins(engines, new_table)
    table = engines.ours.table(ours)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()
    table.append(numbered(40, 1), branch="b")
    table.delete("id < 28", branch="b")
    table.upsert(numbered(41, 1), ["id"], branch="b")
    assert canonical(engines.java.read(ours, View(ref="b"))) == numbers(28, 29, 40, 41)
    assert canonical(engines.java.read(ours)) == numbers(*range(30))
    engines.java.spark.sql(f"CALL ice.system.fast_forward('{DATABASE}.{ours}', 'main', 'b')")
    assert canonical(engines.ours.read(ours)) == numbers(28, 29, 40, 41)
    engines.java.insert(ours, numbered(42, 1))
    engines.ours.table(ours).manage_snapshots().fast_forward_branch("b", "main").commit()
    assert canonical(engines.java.read(ours, View(ref="b"))) == numbers(28, 29, 40, 41, 42)
    verify_chain(engines.ours, ours)


def test_plain_files_taken_in_encrypted(engines, new_table, tmp_path):
    ours, java = twins(engines, new_table)
    engines.java.sql("ALTER TABLE {t} RENAME COLUMN s TO text", t=ours)
    pq.write_table(numbered(40, 5).rename_columns(["id", "text"]), tmp_path / "a.parquet")
    engines.ours.table(ours).add_files([f"file://{tmp_path}/a.parquet"], reencrypt=True)
    engines.java.insert(java, numbered(40, 5))
    engines.java.sql("ALTER TABLE {t} RENAME COLUMN s TO text", t=java)
    same(engines, ours, java, View(columns=("id", "text", "_row_id", "_last_updated_sequence_number")))
