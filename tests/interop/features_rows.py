"""Features of tables whose rows, refs or files change after they were written: deletes, updates, lineage, time travel, maintenance.

Not here: changes of schema and spec (``features_schema``).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.types import IntegerType

from tests.interop.compare import canonical
from tests.interop.features_schema import I32, I64, TEXT, table_of
from tests.interop.matrix import Absent, Append, Engines, Expected, Feature
from tests.interop.views import EVERYTHING, View

MERGE_ON_READ: Final = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}
BY_VECTORS: Final = Absent(why="icelock deletes by deletion vectors")


def numbered(start: int, count: int) -> pa.Table:
    """Return rows with ids from ``start``, every fifth text null."""
    ids = range(start, start + count)
    return table_of(id=(I64, list(ids)), s=(TEXT, [f"t{i % 3}" if i % 5 else None for i in ids]))


def numbers(*ids: int) -> list[str]:
    """Return rows of ``numbered`` as they must be read."""
    return canonical(pa.concat_tables([numbered(i, 1) for i in ids]) if ids else numbered(0, 0))


THREE_FILES: Final = (numbered(0, 10), numbered(10, 10), numbered(20, 10))


def java_numbers(engines: Engines, table: str, properties: dict[str, str] | None = None, by: str = "") -> None:
    """Make a table of three files by Java."""
    engines.java.create(table, numbered(0, 0).schema, by=by, properties=properties)
    for rows in THREE_FILES:
        engines.java.insert(table, rows)


def our_numbers(engines: Engines, table: str, append: Append, properties: dict[str, str] | None = None) -> Any:
    """Make a table of three files by icelock and return it."""
    engines.ours.create(table, numbered(0, 0).schema, properties=properties)
    for rows in THREE_FILES:
        append(table, rows)
    return engines.ours.table(table)


# Deletes: of 30 rows those divisible by 3 go, then the whole second file but 11, then 29.

_LEFT: Final = [i for i in range(30) if i % 3 and (not 10 <= i < 20 or i == 11) and i != 29]
_STATEMENTS: Final = ("id in (0, 3, 6, 9, 12, 15, 18, 21, 24, 27)", "id >= 10 and id < 20 and id != 11", "id = 29")


def _delete_by_java(properties: dict[str, str]) -> Any:
    def steps(engines: Engines, table: str) -> Expected:
        java_numbers(engines, table, properties)
        for statement in _STATEMENTS:
            engines.java.sql(f"DELETE FROM {{t}} WHERE {statement}", t=table)
        return {EVERYTHING: numbers(*_LEFT), View(where="s = 't1'"): None}

    return steps


def _delete_by_us(properties: dict[str, str]) -> Any:
    def steps(engines: Engines, table: str, append: Append) -> Expected:
        made = our_numbers(engines, table, append, properties)
        for statement in _STATEMENTS:
            made.delete(statement)
        return {EVERYTHING: numbers(*_LEFT), View(where="s = 't1'"): None}

    return steps


def _has_vectors(engines: Engines, table: str) -> None:
    """Every delete file is a deletion vector, and some share one Puffin file."""
    columns = "content, file_path, file_format, content_offset"
    files = [row for row in engines.java.metadata_table(table, "all_files", columns) if row["content"]]
    assert {row["file_format"] for row in files} == {"PUFFIN"}
    offsets: dict[str, set[int]] = {}
    for row in files:
        offsets.setdefault(row["file_path"], set()).add(row["content_offset"])
    assert max(map(len, offsets.values())) > 1
    # C-31: every task carries the keys of its file and of its deletes.
    tasks = engines.ours.table(table).scan().scan_tasks()
    assert tasks
    assert all(task.key_metadata and all(delete.key_metadata for delete in task.deletes) for task in tasks)


LARGE: Final = 9_000_000
_ENDS: Final = tuple(View(where=where) for where in ("id < 100", f"id >= {LARGE - 100}"))


def _large_by_java(engines: Engines, table: str) -> Expected:
    engines.java.create(table, "id bigint")
    engines.java.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id FROM range({LARGE})", t=table)
    assert engines.java.jvm.RowChanges.deleteHalf(engines.java.table(table), 1) > 1 << 20
    return dict.fromkeys((View(total="id"), *_ENDS))


def _large_by_us(engines: Engines, table: str, append: Append) -> Expected:
    drawn = np.random.default_rng(1).random(LARGE) < 0.5
    rows = pa.table({"id": pa.array(np.arange(LARGE)), "goes": pa.array(drawn)})
    made = engines.ours.create(table, rows.schema, properties=MERGE_ON_READ)
    append(table, rows)
    made.refresh().delete("goes = true")
    [vector] = [row for row in engines.java.metadata_table(table, "files", "content, content_size_in_bytes") if row["content"]]
    assert vector["content_size_in_bytes"] > 1 << 20
    left = np.flatnonzero(~drawn)
    return {View(total="id"): canonical(pa.table({"n": [len(left)], "total": [int(left.sum())]})), **dict.fromkeys(_ENDS)}


def _positions_by_java(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table, MERGE_ON_READ)
    engines.java.sql("DELETE FROM {t} WHERE id % 3 = 0", t=table)
    assert engines.java.jvm.RowChanges.positionDeletesForVectors(engines.java.table(table)) == len(THREE_FILES)
    return {EVERYTHING: numbers(*(i for i in range(30) if i % 3)), View(where="id > 25"): None}


def _equality_by_java(engines: Engines, table: str) -> Expected:
    """Deletes by text (t1 and null), then by id; rows that come later stay."""
    java, changes = engines.java, engines.java.jvm.RowChanges
    java_numbers(engines, table)
    changes.equalityDelete(java.table(table), "parquet", java.listing(["s"]), java.rows({"s": "t1"}, {"s": None}))
    java.insert(table, numbered(30, 10))
    changes.equalityDelete(java.table(table), "avro", java.listing(["id"]), java.rows({"id": 2}, {"id": 32}, {"id": 999}))
    changes.equalityDelete(java.table(table), "parquet", java.listing(["s", "id"]), java.rows({"s": "t0", "id": 3}, {"s": "t0", "id": 5}))
    java.insert(table, numbered(0, 3))
    left = [i for i in range(30) if i % 5 and i % 3 != 1 and i not in {2, 3}] + [i for i in range(30, 40) if i != 32] + [0, 1, 2]
    return {EVERYTHING: numbers(*left), View(columns=("id",), where="id < 10"): None}


def _equality_partitioned(engines: Engines, table: str) -> Expected:
    java = engines.java
    java_numbers(engines, table, by="truncate(10, id)")
    java.jvm.RowChanges.equalityDelete(java.table(table), "parquet", java.listing(["s"]), java.rows({"s": "t2"}))
    return {EVERYTHING: numbers(*(i for i in range(30) if not (i % 5 and i % 3 == 2))), View(where="id >= 20"): None}


# Updates

_UPDATED: Final = canonical(
    table_of(
        id=(I64, [*range(10), *range(10, 20), *range(20, 31)]),
        s=(TEXT, ["new" if i in {1, 11, 21, 30} else (f"t{i % 3}" if i % 5 else None) for i in range(31)]),
    )
)


def _update_by_java(properties: dict[str, str]) -> Any:
    def steps(engines: Engines, table: str) -> Expected:
        java_numbers(engines, table, properties)
        engines.java.sql("UPDATE {t} SET s = 'new' WHERE id IN (1, 11)", t=table)
        source = "(SELECT 21L AS id UNION ALL SELECT 30L)"
        matched = "WHEN MATCHED THEN UPDATE SET s = 'new' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, 'new')"
        engines.java.sql(f"MERGE INTO {{t}} t USING {source} u ON t.id = u.id {matched}", t=table)
        return {EVERYTHING: _UPDATED, View(columns=("id", "_row_id", "_last_updated_sequence_number")): None}

    return steps


def _update_by_us(properties: dict[str, str]) -> Any:
    def steps(engines: Engines, table: str, append: Append) -> Expected:
        made = our_numbers(engines, table, append, properties)
        made.overwrite(table_of(id=(I64, [1, 11]), s=(TEXT, ["new", "new"])), overwrite_filter="id in (1, 11)")
        made.overwrite(table_of(id=(I64, [21, 30]), s=(TEXT, ["new", "new"])), overwrite_filter="id in (21, 30)")
        return {EVERYTHING: _UPDATED, View(columns=("id", "_row_id", "_last_updated_sequence_number")): None}

    return steps


def _overwrite_by_java(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table)
    engines.java.sql("INSERT OVERWRITE {t} SELECT id, s FROM {t} WHERE id < 5", t=table)
    return {EVERYTHING: numbers(0, 1, 2, 3, 4), View(snapshot_id=_snapshots(engines, table)[0]): numbers(*range(10))}


def _overwrite_by_us(engines: Engines, table: str, append: Append) -> Expected:
    our_numbers(engines, table, append)
    append.overwrite(table, numbered(0, 5))
    return {EVERYTHING: numbers(0, 1, 2, 3, 4), View(snapshot_id=_snapshots(engines, table)[0]): numbers(*range(10))}


# Lineage and metadata columns

LINEAGE: Final = View(columns=("id", "_row_id", "_last_updated_sequence_number"))
PLACES: Final = View(columns=("id", "_file", "_pos", "_spec_id"), where="id >= 5")


def _lineage_by_java(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table)
    engines.java.sql("UPDATE {t} SET s = 'new' WHERE id = 11", t=table)
    engines.java.sql("DELETE FROM {t} WHERE id = 25", t=table)
    engines.java.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")
    engines.java.insert(table, numbered(30, 2))
    return {LINEAGE: None}


def _lineage_by_us(engines: Engines, table: str, append: Append) -> Expected:
    made = our_numbers(engines, table, append)
    made.delete("id = 25")
    made.refresh()
    with made.update_schema() as update:
        update.rename_column("s", "text")
    append(table, numbered(30, 2).rename_columns(["id", "text"]))
    ids = [i for i in range(32) if i != 25]
    # Row ids go on where the last snapshot's end: the rewritten file of 9 rows took 30 to 38 and kept its rows' own.
    row_ids = [i if i < 30 else i + 9 for i in ids]
    numbers_ = [i // 10 + 1 if i < 30 else 5 for i in ids]
    return {LINEAGE: canonical(table_of(id=(I64, ids), _row_id=(I64, row_ids), _last_updated_sequence_number=(I64, numbers_)))}


# Refs and time


def _snapshots(engines: Engines, table: str) -> list[int]:
    return [snapshot.snapshot_id for snapshot in engines.ours.table(table).snapshots()]


def _refs_by_java(engines: Engines, table: str) -> Expected:
    java = engines.java
    java_numbers(engines, table)
    java.sql(f"ALTER TABLE {{t}} CREATE TAG `first` AS OF VERSION {_snapshots(engines, table)[0]}", t=table)
    java.sql("ALTER TABLE {t} CREATE BRANCH side", t=table)
    java.insert(table, numbered(100, 2), branch="side")
    java.sql("ALTER TABLE {t} ADD COLUMN later int", t=table)
    return _refs(engines, table)


def _refs_by_us(engines: Engines, table: str, append: Append) -> Expected:
    made = our_numbers(engines, table, append)
    ids = _snapshots(engines, table)
    made.manage_snapshots().create_tag(ids[0], "first").create_branch(ids[-1], "side").commit()
    made.append(numbered(100, 2), branch="side")
    with made.update_schema() as update:
        update.add_column("later", IntegerType())
    return _refs(engines, table)


def _refs(engines: Engines, table: str) -> Expected:
    """A tag has the schema of its snapshot, a branch the table's (case J-08)."""

    def with_later(*ids: int) -> list[str]:
        rows = pa.concat_tables([numbered(i, 1) for i in ids])
        return canonical(rows.append_column("later", pa.nulls(len(rows), I32)))

    return {
        EVERYTHING: with_later(*range(30)),
        View(ref="first"): numbers(*range(10)),
        View(ref="side"): with_later(*range(30), 100, 101),
        View(snapshot_id=_snapshots(engines, table)[1], where="id < 12"): numbers(*range(12)),
    }


def _as_of(engines: Engines, table: str) -> Expected:
    """Return what was there at each snapshot's time."""
    views: dict[View, list[str] | None] = {}
    for count, snapshot in enumerate(engines.ours.table(table).snapshots(), 1):
        views[View(as_of_ms=snapshot.timestamp_ms)] = numbers(*range(10 * count))
    return views


def _as_of_by_java(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table)
    return _as_of(engines, table)


def _as_of_by_us(engines: Engines, table: str, append: Append) -> Expected:
    engines.ours.create(table, numbered(0, 0).schema)
    for rows in THREE_FILES:
        append(table, rows)
        time.sleep(0.002)
    return _as_of(engines, table)


# Maintenance by Java


def _maintained(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table, MERGE_ON_READ)
    engines.java.sql("DELETE FROM {t} WHERE id = 7", t=table)
    engines.java.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")
    engines.java.insert(table, numbered(30, 1))
    engines.java.call("rewrite_manifests", table)
    engines.java.call("expire_snapshots", table, "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 2")
    return {EVERYTHING: numbers(*(i for i in range(31) if i != 7)), LINEAGE: None}


def _maintained_by_us(engines: Engines, table: str, append: Append) -> Expected:
    our_numbers(engines, table, append, MERGE_ON_READ).delete("id = 7")
    append.compact(table)
    append(table, numbered(30, 1))
    done = engines.ours.table(table).maintenance.rewrite_manifests()
    assert (done.replaced, done.created) == (2, 1)
    expiry = engines.ours.table(table).maintenance.expire_snapshots()
    assert len(expiry.older_than(datetime(2100, 1, 1, tzinfo=UTC)).retain_last(2).commit().snapshots) == 5
    return {EVERYTHING: numbers(*(i for i in range(31) if i != 7)), LINEAGE: None}


def _java_goes_on(engines: Engines, table: str) -> None:
    """Java compacts what was compacted, and we read it."""
    before = canonical(engines.ours.read(table, EVERYTHING))
    engines.java.call("rewrite_data_files", table, "options => map('rewrite-all', 'true')")
    assert canonical(engines.ours.read(table, EVERYTHING)) == before


def _as_select(engines: Engines, table: str) -> Expected:
    engines.java.create(f"{table}_source", numbered(0, 0).schema)
    engines.java.insert(f"{table}_source", numbered(0, 20))
    keyed = "USING iceberg PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ('format-version' = '3', 'encryption.key-id' = 'keyB')"
    engines.java.sql(f"CREATE TABLE {{t}} {keyed} AS SELECT * FROM {{s}} WHERE id < 15", t=table, s=f"{table}_source")
    return {EVERYTHING: numbers(*range(15)), View(where="id = 3"): numbers(3)}


def _merged_by_java(engines: Engines, table: str) -> Expected:
    java_numbers(engines, table, {"commit.manifest.min-count-to-merge": "2"})
    return {EVERYTHING: numbers(*range(30)), LINEAGE: None}


def _merged_by_us(engines: Engines, table: str, append: Append) -> Expected:
    our_numbers(engines, table, append, {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    assert len(engines.ours.table(table).current_snapshot().manifests(engines.ours.table(table).io)) < len(THREE_FILES)
    return {EVERYTHING: numbers(*range(30)), LINEAGE: None}


LATER: Final = Absent(why="not in this version of icelock")

FEATURES: Final = (
    Feature(name="delete-vectors", group="Row-level deletes", title="deletion vectors, several in one Puffin file, and made anew",
            java=_delete_by_java(MERGE_ON_READ), ours=_delete_by_us(MERGE_ON_READ), also=_has_vectors),
    Feature(name="delete-vector-large", group="Row-level deletes", title="a deletion vector beyond 1 MiB, 9 million rows",
            java=_large_by_java, ours=_large_by_us, probe=View(total="id")),
    Feature(name="delete-copy", group="Row-level deletes", title="copy-on-write deletes",
            java=_delete_by_java({}), ours=_delete_by_us({})),
    Feature(name="delete-positions", group="Row-level deletes", title="Parquet position deletes (tables upgraded from version 2)",
            java=_positions_by_java, ours=BY_VECTORS),
    Feature(name="delete-equality", group="Row-level deletes", title="equality deletes, Parquet and Avro, nulls, sequence numbers",
            java=_equality_by_java, ours=BY_VECTORS),
    Feature(name="delete-equality-partitioned", group="Row-level deletes", title="equality deletes in partitions",
            java=_equality_partitioned, ours=BY_VECTORS),
    Feature(name="update-merge-on-read", group="Updates", title="update and merge, merge-on-read",
            java=_update_by_java(MERGE_ON_READ), ours=_update_by_us(MERGE_ON_READ)),
    Feature(name="update-copy-on-write", group="Updates", title="update and merge, copy-on-write",
            java=_update_by_java({}), ours=_update_by_us({})),
    Feature(name="overwrite", group="Updates", title="overwrite of all rows", java=_overwrite_by_java, ours=_overwrite_by_us),
    Feature(name="row-lineage", group="Metadata columns", title="`_row_id`, `_last_updated_sequence_number` after changes and compaction",
            java=_lineage_by_java, ours=_lineage_by_us),
    Feature(name="file-and-position", group="Metadata columns", title="`_file`, `_pos`, `_spec_id`",
            java=lambda engines, table: java_numbers(engines, table) or {PLACES: None},
            ours=lambda engines, table, append: our_numbers(engines, table, append) and {PLACES: None}),
    Feature(name="refs", group="Time travel", title="branches, tags, snapshots, each with its schema",
            java=_refs_by_java, ours=_refs_by_us),
    Feature(name="as-of", group="Time travel", title="by time", java=_as_of_by_java, ours=_as_of_by_us),
    Feature(name="compaction", group="Maintenance", title="compaction, manifests rewritten, snapshots expired",
            java=_maintained, ours=_maintained_by_us, also=_java_goes_on),
    Feature(name="manifest-merge", group="Maintenance", title="manifests merged by appends",
            java=_merged_by_java, ours=_merged_by_us),
    Feature(name="as-select", group="Maintenance", title="create table as select", java=_as_select, ours=LATER),
)  # fmt: skip
