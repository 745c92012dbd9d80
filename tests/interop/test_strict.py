"""Strict where Java is not: whatever is done to a stored file, both engines end in a typed error that names it (issue 4, cases J-01, J-09).

One table that Java made has every kind of file: Parquet, Avro of three AGS1 blocks, equality deletes, a deletion vector, manifests, a
manifest list. Each test changes one thing, reads by Arrow and by Spark, and puts it back.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.compare import canonical
from tests.interop.features_rows import MERGE_ON_READ, numbered
from tests.interop.features_schema import I64, TEXT, table_of
from tests.interop.matrix import Engines
from tests.interop.our_side import path_of

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

BLOCK = (1 << 20) + 28
HEADER = 8
TYPED = ("IntegrityError", "KeyUnavailableError")
AGS1 = ("manifest list", "manifest", "avro", "deletion vector", "equality delete")


def failure_of(read: Callable[[str], Any], table: str) -> str:
    """Return type and message of the error that reading ends in; from a process of Spark's our type is a name in the message."""
    try:
        rows = read(table)
    except Exception as e:  # noqa: BLE001 - the type is what is asked for
        return f"{type(e).__name__}: {e}"
    pytest.fail(f"{rows.num_rows} rows were read")


@dataclass
class Victim:
    """A table and its files by kind; ``other`` is a second table like it."""

    engines: Engines
    name: str
    files: dict[str, list[str]] = field(default_factory=dict)

    def location(self, kind: str, number: int = 0) -> str:
        return self.files[kind][number]

    def expect_error(self, location: str, errors: tuple[str, ...] = TYPED, *, spark: bool = True) -> None:
        """Read by Arrow, and by Spark unless it costs too much: each fails with a typed error that names the file."""
        ours = self.engines.ours
        for read in (ours.read, ours.read_by_spark) if spark else (ours.read,):
            text = failure_of(read, self.name)
            assert any(error in text for error in errors), text
            assert location in text, text


def _rows(count: int, start: int) -> pa.Table:
    """Rows whose text fills an AGS1 block each and does not compress."""
    draw = random.Random(start)
    return table_of(id=(I64, list(range(start, start + count))), s=(TEXT, [draw.randbytes(450_000).hex() for _ in range(count)]))


def _make(engines: Engines, name: str) -> Victim:
    java = engines.java
    java.create(name, numbered(0, 0).schema, properties={**MERGE_ON_READ, "write.avro.compression-codec": "uncompressed"})
    java.insert(name, numbered(0, 10))
    java.insert(name, numbered(0, 10))
    java.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'avro')", t=name)
    java.insert(name, _rows(3, 100))
    java.jvm.RowChanges.equalityDelete(java.table(name), "avro", java.listing(["id"]), java.rows({"id": 5}))
    java.sql("DELETE FROM {t} WHERE id = 7", t=name)
    victim = Victim(engines, name)
    table = engines.ours.table(name)
    snapshot = table.current_snapshot()
    victim.files["manifest list"] = [snapshot.manifest_list]
    for manifest in snapshot.manifests(table.io):
        victim.files.setdefault("manifest", []).append(manifest.manifest_path)
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            kinds = {(0, "PARQUET"): "parquet", (0, "AVRO"): "avro", (1, "PUFFIN"): "deletion vector", (2, "AVRO"): "equality delete"}
            kind = kinds[int(file.content), str(getattr(file.file_format, "value", file.file_format)).upper()]
            if file.file_path not in victim.files.setdefault(kind, []):
                victim.files[kind].append(file.file_path)
    return victim


@pytest.fixture(scope="module")
def victim(engines, new_table) -> Victim:
    made = _make(engines, new_table("victim"))
    assert path_of(made.location("avro")).stat().st_size > HEADER + 2 * BLOCK
    assert set(made.files) == {"parquet", *AGS1}
    assert canonical(engines.ours.read(made.name)) == canonical(engines.java.read(made.name))
    return made


@pytest.fixture(scope="module")
def twin(engines, new_table) -> Victim:
    """Another table like it, with files of the same kinds."""
    return _make(engines, new_table("twin"))


@pytest.fixture
def stored() -> Any:
    """Return a function that changes a stored file; what it changed is put back."""
    kept: dict[Path, bytes] = {}

    def change(location: str, edit: Callable[[bytes], bytes]) -> None:
        path = path_of(location)
        kept.setdefault(path, path.read_bytes())
        path.write_bytes(edit(path.read_bytes()))

    yield change
    for path, data in kept.items():
        path.write_bytes(data)


def cut(count: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:-count]


CUTS = {
    "one byte cut": cut(1),
    "one byte added": lambda data: data + b"\0",
    "a block added": lambda data: data + data[HEADER:][:BLOCK],
    "empty": lambda _: b"",
    "header only": lambda data: data[:HEADER],
    "another magic": lambda data: b"AGS2" + data[4:],
    "another block size": lambda data: data[:4] + b"\0\0\x20\0" + data[HEADER:],
    "plain": lambda _: b"Obj\x01" + bytes(60),
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", AGS1)
def test_an_ags1_file_of_another_length_or_form(victim, stored, kind, how):
    """J-01: Java returned 510 of 550 rows."""
    location = victim.location(kind)
    stored(location, CUTS[how])
    victim.expect_error(location, spark=how == "one byte cut")


def _blocks(data: bytes) -> list[bytes]:
    return [data[at : at + BLOCK] for at in range(HEADER, len(data), BLOCK)]


ORDERS = {
    "swapped": lambda blocks: [blocks[1], blocks[0], *blocks[2:]],
    "repeated": lambda blocks: [blocks[0], blocks[0], *blocks[2:]],
    "one dropped": lambda blocks: [blocks[0], *blocks[2:]],
    "last one dropped": lambda blocks: blocks[:-1],
}


@pytest.mark.parametrize("how", ORDERS)
def test_blocks_of_an_ags1_file_are_moved(victim, stored, how):
    location = victim.location("avro")
    stored(location, lambda data: data[:HEADER] + b"".join(ORDERS[how](_blocks(data))))
    victim.expect_error(location, ("IntegrityError",), spark=how == "last one dropped")


PARQUET = {
    "one byte cut": cut(1),
    "one byte added": lambda data: data + b"\0",
    "magic at the end": lambda data: data[:-4] + b"PAR1",
    "magic at the start": lambda data: b"PAR1" + data[4:],
    "both magics": lambda data: b"PAR1" + data[4:-4] + b"PAR1",
    "a flipped byte": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
}


@pytest.mark.parametrize("how", PARQUET)
def test_a_parquet_file_is_changed(victim, stored, how):
    location = victim.location("parquet")
    stored(location, PARQUET[how])
    victim.expect_error(location, spark=how in {"one byte added", "magic at the start"})


def test_a_plain_parquet_file_stands_in_for_an_encrypted_one(victim, stored, tmp_path):
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(numbered(0, 10), tmp_path / "plain.parquet")
    location = victim.location("parquet")
    stored(location, lambda _: (tmp_path / "plain.parquet").read_bytes())
    victim.expect_error(location)


def test_two_files_of_the_same_length_are_exchanged(victim, stored):
    one, two = (path_of(victim.location("parquet", n)).read_bytes() for n in (0, 1))
    assert len(one) == len(two)
    stored(victim.location("parquet"), lambda _: two)
    stored(victim.location("parquet", 1), lambda _: one)
    victim.expect_error("/data/", ("IntegrityError",))


@pytest.mark.parametrize("kind", ["parquet", *AGS1])
def test_a_file_of_another_table_stands_in(victim, twin, stored, kind):
    location = victim.location(kind)
    stored(location, lambda _: path_of(twin.location(kind)).read_bytes())
    victim.expect_error(location, ("IntegrityError",), spark=kind in {"parquet", "deletion vector"})


def test_a_file_is_gone(victim, stored):
    """Not an integrity question, but never fewer rows."""
    path = path_of(victim.location("parquet"))
    stored(victim.location("parquet"), lambda data: data)
    path.unlink()
    for read in (victim.engines.ours.read, victim.engines.ours.read_by_spark):
        with pytest.raises(Exception, match=path.name):
            read(victim.name)


# metadata.json: caught by the metastore's hash; and, when the hash is made to fit, by what depends on it


@pytest.fixture
def metadata(victim, stored):
    """Return a function that edits metadata.json, with the hash in the metastore made to fit or not."""
    parameters = victim.engines.java.parameters(victim.name)
    location = parameters["metadata_location"]

    def edit(change: Callable[[dict[str, Any]], None], *, fit: bool) -> str:
        document = json.loads(path_of(location).read_text())
        change(document)
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
        stored(location, lambda _: text)
        if fit:
            digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
            victim.engines.java.alter_parameters(victim.name, put={"metadata_hash": digest})
        return location

    yield edit
    victim.engines.java.alter_parameters(victim.name, put={"metadata_hash": parameters["metadata_hash"]})


def _keys(document: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return KEKs and manifest-list keys, the current snapshot's first."""
    entries = document["encryption-keys"]
    current = next(s for s in document["snapshots"] if s["snapshot-id"] == document["current-snapshot-id"])
    keks = [entry for entry in entries if entry["encrypted-by-id"] == "keyA"]
    lists = sorted((entry for entry in entries if entry not in keks), key=lambda entry: entry["key-id"] != current["key-id"])
    return keks, lists


def _swap_entries(document: dict[str, Any]) -> None:
    _, (one, two, *_) = _keys(document)
    one["encrypted-key-metadata"], two["encrypted-key-metadata"] = two["encrypted-key-metadata"], one["encrypted-key-metadata"]


def _drop_list_key(document: dict[str, Any]) -> None:
    document["encryption-keys"].remove(_keys(document)[1][0])


def _drop_kek(document: dict[str, Any]) -> None:
    document["encryption-keys"].remove(_keys(document)[0][0])


def _fresh_timestamp(document: dict[str, Any]) -> None:
    kek = _keys(document)[0][0]
    kek["properties"]["KEY_TIMESTAMP"] = str(int(kek["properties"]["KEY_TIMESTAMP"]) + 1)


def _no_timestamp(document: dict[str, Any]) -> None:
    del _keys(document)[0][0]["properties"]


def _no_snapshot_key(document: dict[str, Any]) -> None:
    next(s for s in document["snapshots"] if s["snapshot-id"] == document["current-snapshot-id"]).pop("key-id")


def _older_list(document: dict[str, Any]) -> None:
    current = next(s for s in document["snapshots"] if s["snapshot-id"] == document["current-snapshot-id"])
    current["manifest-list"] = document["snapshots"][0]["manifest-list"]


EDITS = (_swap_entries, _drop_list_key, _drop_kek, _fresh_timestamp, _no_timestamp, _no_snapshot_key, _older_list)


@pytest.mark.parametrize("change", EDITS, ids=lambda change: change.__name__)
def test_metadata_that_was_edited_is_refused_by_its_hash(victim, metadata, change):
    location = metadata(change, fit=False)
    victim.expect_error(location, ("IntegrityError",), spark=change is _swap_entries)


@pytest.mark.turns(3)
@pytest.mark.parametrize("change", EDITS, ids=lambda change: change.__name__)
def test_metadata_that_was_edited_with_its_hash_is_refused_by_the_keys(victim, metadata, change):
    """Nothing in a metastore's hash is secret; the keys hold by themselves."""
    metadata(change, fit=True)
    # Without a key id the manifest list would be a plain file, which the policy refuses.
    errors = ("PolicyError",) if change is _no_snapshot_key else TYPED
    victim.expect_error(victim.name, errors, spark=change in {_swap_entries, _fresh_timestamp})


def test_a_snapshot_without_key_is_not_read_as_plain_where_plain_files_may_be(victim, metadata):
    metadata(_no_snapshot_key, fit=True)
    text = failure_of(lambda name: victim.engines.ours.read(name, mixed=True), victim.name)
    assert text.startswith(TYPED)
    assert victim.location("manifest list") in text


def test_a_hash_that_was_removed_is_missed(victim):
    java = victim.engines.java
    digest = java.parameters(victim.name)["metadata_hash"]
    java.alter_parameters(victim.name, drop=("metadata_hash",))
    try:
        victim.expect_error("metadata_hash", ("IntegrityError",))
    finally:
        java.alter_parameters(victim.name, put={"metadata_hash": digest})


def test_a_rolled_back_metadata_file_is_refused(victim):
    """The row names the file before the last one, as someone does who wants deleted rows back."""
    java = victim.engines.java
    parameters = java.parameters(victim.name)
    java.alter_parameters(victim.name, put={"metadata_location": parameters["previous_metadata_location"]})
    try:
        victim.expect_error(parameters["previous_metadata_location"], ("IntegrityError",))
    finally:
        java.alter_parameters(victim.name, put={"metadata_location": parameters["metadata_location"]})


def test_afterwards_the_table_is_whole(victim, engines):
    """The tests above put back what they changed."""
    assert canonical(engines.ours.read(victim.name)) == canonical(engines.ours.read_by_spark(victim.name))
