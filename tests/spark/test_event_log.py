"""Neither the event log nor any log line of a job holds a key (C-32). Java's keys in options are the counter-example in spark.md."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import icelock.spark
from icelock.format.key_metadata import KeyMetadata
from icelock.kms.memory import MemoryKms
from icelock.spark.driver import write_here
from tests.helpers.counting_kms import KEYS
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.spark

TABLE = "test.db.t"


def forms(key: bytes) -> set[bytes]:
    shifted = (base64.b64encode(b"\0" * n + key)[4 * ((n + 2) // 3) : -4] for n in range(3))
    return {key, key.hex().encode(), key.hex().upper().encode(), repr(key)[2:-1].encode(), *shifted}


def test_event_log_errors_and_logs_hold_no_key(spark, spark_lake, event_log, caplog, monkeypatch):
    monkeypatch.setattr(write_here, "_FEW_CHANGES", -1)
    caplog.set_level(logging.DEBUG)
    spark_lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    spark.range(1000).selectExpr("id", "concat('canary-', id) name", "'x' city").write.format("icelock").mode("append").save(TABLE)
    change(spark)
    df = spark.read.format("icelock").load(TABLE)
    assert df.filter("id < 500").count() == 500
    table = spark_lake.catalog().load_table("db.t")
    assert len(table.snapshots()) == 5
    path = Path(table.scan().plan_files()[0].file.file_path.removeprefix("file://"))  # of the rows that are read, not of older ones
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 1
    path.write_bytes(stored)
    with pytest.raises(PySparkException) as caught:
        df.collect()

    kms = MemoryKms({f"kms.memory.keys.{name}": key.hex() for name, key in KEYS.items()})
    keys = [kms.unwrap_key(key.encrypted_key_metadata, "keyA") for key in table.metadata.encryption_keys if key.encrypted_by_id == "keyA"]
    for manifest in {m.manifest_path: m for snapshot in table.snapshots() for m in snapshot.manifests(table.io)}.values():
        keys.append(KeyMetadata.decode(manifest.key_metadata).dek.reveal())
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        keys += [KeyMetadata.decode(entry.data_file.key_metadata).dek.reveal() for entry in entries]
    assert len(keys) >= 12
    logged = b"".join(file.read_bytes() for file in event_log.rglob("*") if file.is_file())
    assert b"icelock" in logged
    shown = str(caught.value).encode() + caplog.text.encode()
    assert b"IntegrityError" in shown
    for key in (*keys, *KEYS.values()):
        for form in forms(key):
            assert form not in logged
            assert form not in shown
    for setting in (b"encryption.kms-impl", b"kms.counting", b"filter-value-4711", b"filter-value-4712"):
        assert setting not in logged


def change(spark):
    """Every kind of change by tasks; the filters' values are searched for too."""
    icelock.spark.delete(spark, TABLE, "name = 'filter-value-4711' or id = 700")
    newer = spark.range(600, 604).selectExpr("id", "'z' name", "'x' city")
    icelock.spark.upsert(newer, TABLE, ["id"])
    icelock.spark.write_to(newer.selectExpr("id", "'y' name", "city"), TABLE).overwrite("name = 'filter-value-4712' or id = 601")
    icelock.spark.write_to(newer.selectExpr("id + 1000 id", "'y' name", "city"), TABLE).append()
