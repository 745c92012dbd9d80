"""Damage at every level below metadata.json is a typed error that names the file, and no row comes back."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from icelock.errors import FormatError, IntegrityError, KeyUnavailableError
from tests.helpers.places import python_path
from tests.lakes.sqlite import KEYED, TestLake, people

DAY_MS = 86_400_000


@pytest.fixture
def table(lake: TestLake) -> Any:
    made = lake.catalog().create_table("db.t", people().schema, properties=KEYED)
    made.append(people())
    made.append(people(10))
    return made


def stored(lake: TestLake, pattern: str) -> list[Path]:
    return sorted(lake.warehouse.rglob(pattern))


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one flipped bit": flip,
    "last byte cut": lambda data: data[:-1],
    "cut to half": lambda data: data[: len(data) // 2],
    "bytes appended": lambda data: data + b"\x00",
    "emptied": lambda _: b"",
    "zeroed": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("pattern", ["*.parquet", "*-m0.avro", "snap-*.avro"], ids=["data file", "manifest", "manifest list"])
def test_damage_is_noticed_and_the_file_is_named(lake: TestLake, table: Any, pattern: str, damage: str) -> None:
    """J-01, C-03, C-67."""
    current = table.current_snapshot()
    reached = {current.manifest_list, *(m.manifest_path for m in current.manifests(table.io))}
    paths = [path for path in stored(lake, pattern) if pattern == "*.parquet" or any(place.endswith(path.name) for place in reached)]
    path = paths[0]
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    fresh = lake.catalog().load_table("db.t")
    with pytest.raises((IntegrityError, FormatError), match=path.name):
        fresh.scan().to_arrow()


@pytest.mark.parametrize("pattern", ["*.parquet", "*-m0.avro", "snap-*.avro"], ids=["data files", "manifests", "manifest lists"])
def test_files_that_change_places_are_noticed(lake: TestLake, table: Any, pattern: str) -> None:
    """C-62: also when they are of one length."""
    one, two = stored(lake, pattern)[:2]
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)
    with pytest.raises(IntegrityError):
        lake.catalog().load_table("db.t").scan().to_arrow()
    assert table.metadata.current_snapshot_id is not None


def edit_metadata(lake: TestLake, table: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the metadata file where no hash of it is kept, as in a database of another client: the keys hold by themselves."""
    with closing(sqlite3.connect(lake.folder / "catalog.db")) as database:
        database.execute("DROP TABLE icelock_table_facts")
        database.commit()
    path = next(path for path in stored(lake, "*.metadata.json") if table.metadata_location.endswith(path.name))
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def test_a_changed_key_timestamp_is_noticed(lake: TestLake, table: Any) -> None:
    """C-16."""
    edit_metadata(lake, table, lambda data: data["encryption-keys"][0]["properties"].update(KEY_TIMESTAMP="1795814627620"))
    with pytest.raises(IntegrityError, match="KEY_TIMESTAMP"):
        lake.catalog().load_table("db.t").scan().to_arrow()


def test_a_missing_key_timestamp_is_told(lake: TestLake, table: Any) -> None:
    """C-16: never a fall-back to no AAD."""

    def remove(data: dict[str, Any]) -> None:
        del data["encryption-keys"][0]["properties"]

    edit_metadata(lake, table, remove)
    with pytest.raises((KeyUnavailableError, FormatError)):
        lake.catalog().load_table("db.t").scan().to_arrow()


@pytest.mark.parametrize("index", [0, 2])
def test_a_missing_key_entry_is_a_sentence(lake: TestLake, table: Any, index: int) -> None:
    """J-09: Java ends in a null pointer."""
    gone = table.metadata.encryption_keys[index].key_id
    edit_metadata(lake, table, lambda data: data["encryption-keys"].pop(index))
    with pytest.raises(KeyUnavailableError, match=gone.replace("+", r"\+")):
        lake.catalog().load_table("db.t").scan().to_arrow()


def test_swapped_manifest_list_keys_are_noticed(lake: TestLake, table: Any) -> None:
    """Entries are not bound to their ids, so both open; the manifest lists' bytes tell."""

    def swap(data: dict[str, Any]) -> None:
        one, two = data["encryption-keys"][1], data["encryption-keys"][2]
        one["encrypted-key-metadata"], two["encrypted-key-metadata"] = two["encrypted-key-metadata"], one["encrypted-key-metadata"]

    edit_metadata(lake, table, swap)
    with pytest.raises(IntegrityError, match="snap-"):
        lake.catalog().load_table("db.t").scan().to_arrow()


def test_a_snapshot_without_key_id_is_not_read_as_plain(lake: TestLake, table: Any) -> None:
    edit_metadata(lake, table, lambda data: data["snapshots"][1].pop("key-id"))
    with pytest.raises((IntegrityError, ValueError), match=r"key-id|key id"):
        lake.catalog().load_table("db.t").scan().to_arrow()


def test_a_kek_is_replaced_after_730_days_and_both_snapshots_read(lake: TestLake) -> None:
    """C-16: freeze the clock at +731 days."""
    catalog = lake.catalog()
    table = catalog.create_table("db.t", people().schema, properties=KEYED)
    table.append(people())
    start = catalog.encryption.clock()
    catalog.encryption.clock = lambda: start + 729 * DAY_MS
    table.append(people(10))
    assert sum(bool(key.properties) for key in table.metadata.encryption_keys) == 1
    catalog.encryption.clock = lambda: start + 731 * DAY_MS
    lake.calls.take()
    table.append(people(20))
    assert lake.calls.take() == ["wrap keyA", "unwrap keyA"]
    assert sum(bool(key.properties) for key in table.metadata.encryption_keys) == 2
    fresh = lake.catalog().load_table("db.t")
    counts = [fresh.scan(snapshot_id=snapshot.snapshot_id).count() for snapshot in fresh.snapshots()]
    assert counts == [10, 20, 30]


def test_a_writer_that_is_killed_before_the_commit_leaves_the_table_as_it_was(lake: TestLake, table: Any) -> None:
    """The data files it wrote are on storage and in no snapshot."""
    script = textwrap.dedent(
        """
        import json, os, signal, sys
        import icelock
        from tests.lakes.sqlite import people
        table = icelock.load_catalog("test", **json.loads(sys.argv[1])).load_table("db.t")
        table.catalog.commit_table = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
        table.append(people(100))
        """
    )
    before = set(lake.files())
    command = [sys.executable, "-c", script, json.dumps(lake.properties())]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": python_path()}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == -9, done.stderr
    left = set(lake.files()) - before
    assert sorted(name.rsplit(".", 1)[1] for name in left) == ["avro", "avro", "parquet"]
    fresh = lake.catalog().load_table("db.t")
    assert fresh.metadata == table.metadata
    assert fresh.scan().count() == 20
