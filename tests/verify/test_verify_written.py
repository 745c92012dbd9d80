"""Tables that icelock writes pass the independent reader: keys, lengths, counts and row lineage, at every snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import icelock
from icelock.cli.main import main as command
from icelock.kms.keyring_file import load_keyring
from icelock.kms.unlock import KeyFileUnlocker
from tests.verify.verify_table import main, verify

KEYS = {16: "000102030405060708090a0b0c0d0e0f", 24: "00" * 24, 32: "ff" * 32}
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "cat", StringType(), required=False))
BY_CAT = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "cat"))


def rows(start: int, count: int) -> pa.Table:
    ids = list(range(start, start + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "cat": pa.array([f"c{i % 3}" for i in ids])})


def catalog(folder: Path, **settings: str):
    (folder / "warehouse").mkdir()
    lake = {"type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": f"file://{folder}/warehouse"}
    made = icelock.load_catalog("lake", **lake, **settings)
    made.create_namespace("db")
    return made


@pytest.mark.parametrize("length", [16, 24, 32])
@pytest.mark.parametrize("spec", [PartitionSpec(), BY_CAT], ids=["unpartitioned", "partitioned"])
def test_appends_and_an_overwrite_verify_with_all_their_rows(tmp_path, length, spec):
    memory = catalog(tmp_path, **{"encryption.kms-type": "memory", "kms.memory.keys.k": KEYS[length]})
    properties = {"encryption.key-id": "k", "encryption.data-key-length": str(length)}
    table = memory.create_table("db.t", SCHEMA, partition_spec=spec, properties=properties)
    table.append(rows(0, 100))
    table.append(rows(100, 50))
    table.overwrite(rows(1000, 7))
    table.append(rows(2000, 1))
    location = memory.load_table("db.t").metadata_location
    report = verify(Path(location.removeprefix("file://")), {"k": [bytes.fromhex(KEYS[length])]})
    by_snapshot = {snapshot["snapshot-id"]: snapshot["rows"] for snapshot in report["snapshots"]}
    history = [by_snapshot[entry.snapshot_id] for entry in memory.load_table("db.t").history()]
    assert (history[0], history[1], history[-2:]) == (100, 150, [7, 8])
    assert (report["keks"], report["unreached_files"]) == (1, 0)


def test_a_table_under_a_rotated_keyring_verifies_with_both_versions(tmp_path):
    """The keyring's keys are taken out through icelock, the table is walked without it."""
    keyring, key_file = tmp_path / "keyring.json", tmp_path / "keyring.key"
    command(["keyring", "init", str(keyring), "k", "--key-file", str(key_file)], standalone_mode=False)
    local = catalog(tmp_path, **{"encryption.kms-type": "local", "kms.local.path": str(keyring), "kms.local.key-file": str(key_file)})
    local.create_table("db.t", SCHEMA, properties={"encryption.key-id": "k"}).append(rows(0, 10))
    command(["keyring", "rotate", str(keyring), "k", "--key-file", str(key_file)], standalone_mode=False)
    local.load_table("db.t").append(rows(10, 5))
    (master,) = load_keyring(keyring, KeyFileUnlocker(path=key_file)).keys
    exported = tmp_path / "export.json"
    exported.write_text(json.dumps({"k": [version.key.reveal().hex() for version in master.versions]}))
    metadata = local.load_table("db.t").metadata_location.removeprefix("file://")
    assert len(master.versions) == 2
    assert main([metadata, "--keyring-json", str(exported)]) == 0
