"""Streams over Spark Connect, in processes of their own: a session is classic or Connect, not both. Every expected row was written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import icelock.spark
from tests.helpers.checkpoints import forget_last_batch
from tests.helpers.connect_script import found_by
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, TestLake
from tests.servers.running import free_ports

pytest.importorskip("grpc")
pytestmark = [pytest.mark.spark, pytest.mark.newest, pytest.mark.slow]

SCRIPT = """
import json, sys
from pyspark.sql.connect.client import DefaultChannelBuilder
import icelock
import icelock.spark
from tests.helpers.spark import session
from tests.spark.test_streams_connect import steps

properties, port, folder, log = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
DefaultChannelBuilder.default_port = staticmethod(lambda: int(port))  # Spark's own is one for the machine
events = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": log}
spark = session({"spark.remote": "local[2]", "spark.connect.grpc.binding.port": port, **events}, log_level=None)
icelock.spark.register(spark, {"test": properties})
print("FOUND " + json.dumps(steps(spark, icelock.load_catalog("test", **properties), folder)))
spark.stop()
"""
QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "city": pa.array(["a" if number % 2 else "b" for number in ids], pa.string())})


class Copy:
    """Copies table ``t`` into a table by a stream."""

    def __init__(self, spark: Any, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def __call__(self, into: str = "copy", *, change: Any = None, mode: str = "append", **options: Any) -> Any:
        """Run a query until it has read what is there; return its id, or the error."""
        given = {name.replace("_", "-"): str(value) for name, value in options.items()}
        try:
            found = self._spark.readStream.format("icelock").options(**given).load("test.db.t")
            writer = (found if change is None else change(found)).writeStream.format("icelock").outputMode(mode).trigger(availableNow=True)
            query = writer.option("checkpointLocation", f"{self._folder}/{into}").start(f"test.db.{into}")
            query.awaitTermination()
        except Exception as e:  # noqa: BLE001 - Connect's, with the server's text
            return str(e)
        return query.id


def ids(catalog: Any, table: str) -> list[int]:
    return sorted(catalog.load_table(f"db.{table}").scan().to_arrow()["id"].to_pylist())


def steps(spark: Any, catalog: Any, folder: str) -> dict[str, Any]:
    """Do what the test looks at, in the process of the Connect client; each query starts some processes."""
    copy, found, table = Copy(spark, folder), {}, catalog.load_table("db.t")
    for name in ("copy", "side", "counts"):
        columns = pa.schema([("city", pa.string()), ("n", pa.int64())]) if name == "counts" else rows().schema
        catalog.create_table(f"db.{name}", columns, properties=KEYED)
    table.append(rows(1, 2))
    table.append(rows(3))
    query = copy()
    found["first"] = ids(catalog, "copy")
    table.append(rows(4))
    forget_last_batch(Path(folder) / "copy")
    found["same query"] = copy() == query
    copy()  # on Spark 4.1 such a trigger runs one batch, and that was the one that ran again
    found["second"] = ids(catalog, "copy")
    made = [snapshot.summary.additional_properties for snapshot in catalog.load_table("db.copy").snapshots()]
    found["marked"] = {one[QUERY] for one in made} == {query} and len({one[EPOCH] for one in made}) == len(made)
    found["keyed"] = all(task.key_metadata is not None for task in catalog.load_table("db.copy").scan().scan_tasks())

    def counted(read: Any) -> Any:
        return read.groupBy("city").count().withColumnRenamed("count", "n")

    table.append(rows(5, 7))
    copy("counts", change=counted, mode="complete")
    found["counts"] = sorted((one["city"], one["n"]) for one in catalog.load_table("db.counts").scan().to_arrow().to_pylist())
    found["refused"] = [copy("side", **options) for options in ({"snapshotid": 1}, {"stream_from_timestamp": "yesterday"})]
    table.delete("id = 3")
    # On Spark 4.1 the first trigger may be of the batch before, which runs again.
    refused = next((told for told in (copy() for _ in range(3)) if told != query), query)
    found["deleted"] = [refused, catalog.load_table("db.t").current_snapshot().snapshot_id]
    found["skipped"] = copy(streaming_skip_delete_snapshots="true") == query
    found["third"] = ids(catalog, "copy")
    try:
        spark.readStream.format("icelock").load("test.db.t.changes").writeStream.format("noop").start().processAllAvailable()
    except Exception as e:  # noqa: BLE001 - Connect's, with the server's text
        found["stream of changes"] = str(e)
    found["changes"] = changes(spark, catalog)
    first = catalog.load_table("db.t").snapshots()[0].snapshot_id
    found["appended"] = sorted(one.id for one in icelock.spark.read(spark, "test.db.t", start_snapshot_id=first).collect())
    return found


def changes(spark: Any, catalog: Any) -> dict[str, Any]:
    """Return what changed in the history of ``test_changelog``, copy-on-write, with a compaction in between."""
    table = catalog.create_table("db.orders", pa.schema([("id", pa.int64()), ("v", pa.string())]), properties=KEYED)
    table.append(pa.table({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]}))
    table.upsert(pa.table({"id": [1], "v": ["A"]}), join_cols=["id"])
    table.delete("id = 2")
    table.upsert(pa.table({"id": [3, 9], "v": ["C", "i"]}), join_cols=["id"])
    table.maintenance.compact(options={"rewrite-all": "true"})
    table.upsert(pa.table({"id": [1], "v": ["AA"]}), join_cols=["id"])
    before, *_, end = (one.snapshot_id for one in table.snapshots())

    def told(rows: Any) -> list[list[Any]]:
        return sorted(list(row) for row in rows.select("id", "v", "_change_type", "_change_ordinal").collect())

    def read(**options: str) -> Any:
        given = {name.replace("_", "-"): value for name, value in options.items()}
        return spark.read.format("icelock").options(**{"start-snapshot-id": before}, **given).load("test.db.orders.changes")

    found: dict[str, Any] = {"updates": told(read(compute_updates="true"))}
    found["net"] = told(read(compute_updates="true", net_changes="true"))
    pinned = read()
    found["schema"] = pinned.schema.simpleString()
    table.overwrite(pa.table({"id": [1, 2], "v": ["AA", "B"]}))
    found["of then"] = told(pinned)
    options = f"path 'test.db.orders.changes', `start-snapshot-id` '{end}', `identifier-columns` 'id'"
    spark.sql(f"create temporary view orders_changes using icelock options ({options})")
    found["identifiers"] = told(spark.table("orders_changes"))
    return found


UPDATED = [
    [1, "A", "UPDATE_AFTER", 0],
    [1, "A", "UPDATE_BEFORE", 3],
    [1, "AA", "UPDATE_AFTER", 3],
    [1, "a", "UPDATE_BEFORE", 0],
    [2, "b", "DELETE", 1],
    [3, "C", "UPDATE_AFTER", 2],
    [3, "c", "UPDATE_BEFORE", 2],
    [9, "i", "INSERT", 2],
]
AS_ROWS = {"UPDATE_BEFORE": "DELETE", "UPDATE_AFTER": "INSERT"}
# Row 1 was written again as it was.
OVERWRITTEN = [[2, "B", "INSERT", 0], [3, "C", "DELETE", 0], [4, "d", "DELETE", 0], [9, "i", "DELETE", 0]]
NET = [
    [1, "AA", "UPDATE_AFTER", 3],
    [1, "a", "UPDATE_BEFORE", 0],
    [2, "b", "DELETE", 1],
    [3, "C", "UPDATE_AFTER", 2],
    [3, "c", "UPDATE_BEFORE", 2],
    [9, "i", "INSERT", 2],
]


def test_streams_over_connect(lake: TestLake, tmp_path: Any) -> None:
    lake.catalog().create_table("db.t", rows().schema, properties=KEYED)
    log = tmp_path / "event-log"
    log.mkdir()
    arguments = [json.dumps(lake.properties()), str(free_ports()), str(tmp_path / "checkpoints"), log.as_uri()]
    found = found_by(SCRIPT, *arguments, folder=tmp_path)
    assert found["first"] == [1, 2, 3]
    assert found["same query"]
    assert found["second"] == [1, 2, 3, 4], "the batch that ran again added nothing"
    assert found["marked"]
    assert found["keyed"]
    assert found["counts"] == [["a", 4], ["b", 2]]
    assert "did you mean" in found["refused"][0]
    assert "milliseconds since 1970" in found["refused"][1]
    error, snapshot = found["deleted"]
    assert f"snapshot {snapshot} is of operation delete" in error
    assert found["skipped"]
    assert found["third"] == [1, 2, 3, 4, 5, 7]
    assert "what changed in table test.db.t is read by spark.read.format" in found["stream of changes"]
    assert found["changes"] == {
        "schema": "struct<id:bigint,v:string,_change_type:string,_change_ordinal:int,_commit_snapshot_id:bigint>",
        "updates": UPDATED,
        "net": NET,
        "of then": sorted([n, v, AS_ROWS.get(what, what), at] for n, v, what, at in UPDATED),
        "identifiers": OVERWRITTEN,
    }
    assert found["appended"] == [3, 4, 5, 7]
    kept = b"".join(path.read_bytes() for where in (tmp_path / "checkpoints", log) for path in where.rglob("*") if path.is_file())
    assert b"snapshot_id" in kept
    tasks = [task for name in ("t", "copy", "orders") for task in lake.catalog().load_table(f"db.{name}").scan().scan_tasks()]
    for key in (*KEYS.values(), *(task.key_metadata.reveal() for task in tasks)):
        assert key not in kept
